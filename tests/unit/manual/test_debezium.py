"""The page about Debezium: its settings are taken, and its rows are written."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from support.pages import blocks
from unit.migration.test_conversion import LEAST, toml

from cdcd.config import loading
from cdcd.config.format_choice import debezium_modes
from cdcd.config.settings import Settings
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import Modes
from cdcd.migration.conversion import convert
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation


@pytest.fixture
def taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of each block of the page."""
    monkeypatch.setenv("CDCD_SOURCE__DSN", "dbname=shop")
    monkeypatch.setenv("CDCD_SINK__BOOTSTRAP_SERVERS", "localhost:9092")
    found = []
    for given in blocks("debezium"):
        if given.language == "toml" and "[sink]" in given.text:
            file = tmp_path / "cdcd.toml"
            file.write_text(given.text)
            found.append(loading.load(str(file), {}).settings)
    return found


def test_the_settings_of_the_page_are_taken(taken: list[Settings]) -> None:
    events, in_avro, _ = taken
    assert [each.sink.event_format for each in taken] == ["debezium/json", "debezium/avro", "row/json-schema"]
    assert (debezium_modes(in_avro).schema_names, debezium_modes(in_avro).field_names) == ("avro", "avro")
    modes = debezium_modes(events)
    assert (modes.decimal, modes.truncates, modes.with_schemas, modes.null_as_default) == ("double", True, False, False)


def test_the_router_of_the_page_becomes_its_settings() -> None:
    [router] = [each for each in blocks("debezium") if each.language == "properties"]
    [wanted] = [each for each in blocks("debezium") if each.text.startswith("[debezium]\nkey_field_name")]
    options = dict(line.split("=", 1) for line in router.text.splitlines())
    result = convert(LEAST | {"table.include.list": r"tenant_.*\.orders"} | options, "kafka:9092")
    told = tomllib.loads(wanted.text)
    assert toml(result)["table"] == told["table"]
    assert toml(result)["debezium"].items() >= told["debezium"].items()


def test_the_rows_of_the_page_are_written(taken: list[Settings]) -> None:
    [*_, given] = [each for each in blocks("debezium") if each.language == "json"]
    modes = replace(debezium_modes(taken[2]), with_schemas=False)
    records = BatchBuilder(tombstones=False)
    encoder = DebeziumFormat(modes, ("shop", "shop"), "UTF8", lambda: 1).stream_encoder(records)
    int4, text = PgType(23, "pg_catalog", "int4"), PgType(25, "pg_catalog", "text")
    columns = [ResolvedColumn("id", int4, -1, True), ResolvedColumn("customer", text, -1, False)]
    relation = ResolvedRelation(1, "public", "orders", "d", columns)
    relation.order_key(("id",))
    changes = encoder.open_relation(relation)
    encoder.begin(28_909_000, 1_795_658_411_880_442, 759)
    changes.insert(b"N" + encode_tuple([b"7", b"Ada"]), 0, 28_908_832)
    encoder.commit(28_909_008)
    encoder.begin(28_909_200, 1_795_658_412_002_000, 760)
    changes.delete(b"K" + encode_tuple([b"7", None]), 0, 28_909_120)
    encoder.commit(28_909_208)
    written = [json.loads(message["value"] or b"") for message in records.build().tables[0].messages]
    assert written == [json.loads(line) for line in given.text.splitlines()]


def test_the_metadata_of_the_page_is_written() -> None:
    [_, of_event, of_transaction, _] = [each for each in blocks("debezium") if each.language == "json"]
    records = BatchBuilder(tombstones=False)
    encoder = DebeziumFormat(Modes(transactions=True), ("shop", "shop"), "UTF8", lambda: 1).stream_encoder(records)
    int4 = PgType(23, "pg_catalog", "int4")
    changes = encoder.open_relation(
        ResolvedRelation(1, "public", "orders", "d", [ResolvedColumn("id", int4, -1, True)])
    )
    encoder.begin(31_891_824, 1_795_690_874_543_210, 834)
    changes.insert(b"N" + encode_tuple([b"7"]), 0, 31_891_376)
    encoder.commit(31_891_872)
    written = {
        table.name: [json.loads(message["value"] or b"") for message in table.messages]
        for table in records.build().tables
    }
    assert written["transaction"] == [json.loads(line) for line in of_transaction.text.splitlines()]
    assert [{"transaction": each["transaction"]} for each in written["orders"]] == [json.loads(of_event.text)]


def test_the_header_of_lost_values_is_that_of_the_page() -> None:
    [given, *_] = [each for each in blocks("debezium") if each.language == "json"]
    records = BatchBuilder(tombstones=False)
    encoder = DebeziumFormat(Modes(keeps_lost=True), ("shop", "shop"), "UTF8", lambda: 1).stream_encoder(records)
    numeric, ranges = PgType(1700, "pg_catalog", "numeric"), PgType(4451, "pg_catalog", "int4multirange", "m")
    columns = [ResolvedColumn("price", numeric, -1, False), ResolvedColumn("during", ranges, -1, False)]
    changes = encoder.open_relation(ResolvedRelation(1, "public", "orders", "d", columns))
    encoder.begin(28_909_000, 1_795_658_411_880_442, 759)
    changes.insert(b"N" + encode_tuple([b"NaN", b"{[1,3)}"]), 0, 28_908_832)
    encoder.commit(28_909_008)
    [message] = records.build().tables[0].messages
    [(name, text)] = message["headers"]
    assert (name, json.loads(text)) == ("__cdcd.unrepresentable", json.loads(given.text))
