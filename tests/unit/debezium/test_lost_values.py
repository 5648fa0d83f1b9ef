"""Which values of Debezium's events are not PostgreSQL's, and have their text in a header."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.lost_values import LOST
from cdcd.debezium.modes import Modes
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

OIDS = {
    "date": 1082, "time": 1083, "timestamp": 1114, "timestamptz": 1184, "timetz": 1266, "interval": 1186,
    "numeric": 1700, "money": 790, "bit": 1560, "varbit": 1562, "int4": 23,
}  # fmt: skip


def type_of(name: str) -> PgType:
    if name.endswith("[]"):
        element = type_of(name[:-2])
        return PgType(90_000, "pg_catalog", f"_{element.name}", element=element, is_array=True)
    return PgType(OIDS[name], "pg_catalog", name)


def header_of(name: str, text: str, modes: Modes, typmod: int) -> Any:
    records = BatchBuilder(tombstones=False)
    encoder = DebeziumFormat(modes, ("p", "db"), "UTF8", lambda: 1).stream_encoder(records)
    column = ResolvedColumn("c", type_of(name), typmod, False)
    changes = encoder.open_relation(ResolvedRelation(1, "s", "t", "d", [column]))
    encoder.begin(200, 5_000_001, 7)
    changes.insert(b"N" + encode_tuple([text.encode()]), 0, 150)
    encoder.commit(208)
    [record] = records.build().tables[0].messages
    return [json.loads(value) for header, value in record.get("headers", ()) if header == LOST]


NEAR = [
    ("date", "infinity", {}),
    ("date", "-infinity", {"time": "isostring"}),
    ("date[]", "{2020-01-01,infinity}", {}),
    ("date[]", "{{2020-01-01},{2020-01-02}}", {}),
    ("date[]", "[2:2]={2020-01-01}", {}),
    ("time", "12:00:00.000001", {"time": "connect"}),
    ("time", "24:00:00", {"time": "isostring"}),
    ("time[]", "{12:00:00.0001}", {}),
    ("timestamp", "infinity", {}),
    ("timestamp", "-infinity", {"time": "nanoseconds"}),
    ("timestamp", "2020-01-01 00:00:00.0001", {"time": "connect"}),
    ("timestamp", "0044-03-15 00:00:00.0001 BC", {"time": "connect"}),
    ("timestamp", "294247-01-10 04:00:54.775808", {}),
    ("timestamp[]", "{infinity}", {}),
    ("timestamp[]", "{1500-01-01 00:00:00}", {"time": "nanoseconds"}),
    ("timestamptz[]", "{-infinity}", {}),
    ("timetz", "10:00:00+02", {}),
    ("interval", "1 mon", {}),
    ("interval", "1 day 00:00:01", {}),
    ("numeric", "0.12345678901234567", {"decimal": "double"}),
    ("numeric", "1" * 400, {"decimal": "double"}),
    ("numeric", "-Infinity", {"decimal": "string"}),
    ("numeric[]", "{NaN}", {"decimal": "string"}),
    ("money", "$90,071,992,547,409.93", {"decimal": "double"}),
    ("varbit", "0101", {}),
]
EQUAL = [
    ("date", "2020-01-01", {}),
    ("date", "5874897-12-31", {}),
    ("date[]", "{}", {}),
    ("date[]", "{2020-01-01,NULL}", {}),
    ("time", "12:00:00.000001", {}),
    ("time", "12:00:00.001", {"time": "connect"}),
    ("time", "24:00:00", {}),
    ("time[]", "{12:00:00.001}", {}),
    ("timestamp", "2020-01-01 00:00:00.0001", {}),
    ("timestamp", "2020-01-01 00:00:00.001", {"time": "connect"}),
    ("timestamp", "294247-01-10 04:00:54.775807", {}),
    ("timestamp", "294247-01-10 04:00:54", {}),
    ("timestamp", "294276-12-31 23:59:59", {"time": "isostring"}),
    ("timestamptz", "-infinity", {}),
    ("timestamptz", "infinity", {}),
    ("timetz", "10:00:00+00", {}),
    ("interval", "01:02:03.5", {}),
    ("interval", "1 mon", {"interval": "string"}),
    ("numeric", "0.1", {"decimal": "double"}),
    ("numeric", "NaN", {"decimal": "double"}),
    ("numeric", "1.50", {}),
    ("numeric", "1.50", {"decimal": "string"}),
    ("money", "$1,234.50", {"decimal": "double"}),
    ("money", "$90,071,992,547,409.93", {}),
    ("varbit", "101", {}),
    ("bit", "0101", {}),
    ("int4", "1", {}),
]


@pytest.mark.parametrize(("name", "text", "modes"), NEAR)
def test_a_value_that_is_written_as_one_that_is_near_has_its_text_in_the_header(
    name: str, text: str, modes: dict[str, Any]
) -> None:
    [found] = header_of(name, text, Modes(keeps_lost=True, **modes), 4 if name == "bit" else -1)
    assert found == [{"image": "after", "column": "c", "text": text}]
    assert header_of(name, text, Modes(**modes), -1) == []


@pytest.mark.parametrize(("name", "text", "modes"), EQUAL)
def test_a_value_that_the_event_tells_exactly_makes_no_header(name: str, text: str, modes: dict[str, Any]) -> None:
    assert header_of(name, text, Modes(keeps_lost=True, **modes), 4 if name == "bit" else -1) == []
