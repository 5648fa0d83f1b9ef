"""cdcd's events in Avro of the recorded WAL, and their schemas, are byte for byte those of Debezium's connector.

Before: `recorded` has Debezium's records and schemas; `test_bytes` replays the WAL, and lists what is set equal.
After: whoever changes `cdcd.debezium`.

What cannot be equal is found by its name in the decoded records. So each body is decoded and encoded again with the
schema that it names, and has to come out as it was.
"""

from __future__ import annotations

import functools
import io
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import fastavro
import pytest
from golden.debezium.recorded import HERE, Connector, Record
from golden.debezium.test_bytes import (
    FILES,
    ROWS,
    WIRE_MODES,
    Registry,
    connectors,
    is_different,
    replay,
)

CLOCK = ("ts_ms", "ts_us", "ts_ns")


@functools.cache
def parsed(text: str) -> Any:
    """The schema, without what Python's types cannot hold: dates of infinity, scales beyond the precision."""
    return fastavro.parse_schema(json.loads(text.replace('"logicalType":', '"logical":')))


def decoded(body: bytes, text: str) -> Any:
    """The record, which encoded again is the same bytes."""
    stream = io.BytesIO(body)
    record = fastavro.schemaless_reader(stream, parsed(text), None)
    assert encoded(record, text) == body
    return record


def encoded(record: Any, text: str) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed(text), record)
    return out.getvalue()


# What cannot be equal, or is not on purpose


def set_equal(topic: str, event: Any) -> None:
    """The clocks, and what `test_bytes` lists for one table."""
    for name in CLOCK:
        event.pop(name, None)
        if event["source"]["txId"] is None:
            event["source"][name] = 0
    for row in (event.get("before"), event.get("after")):
        if row is not None:
            OF_TABLES.get(topic.rpartition(".")[2], dict)(row)


def without_name_of_messages(event: dict[str, Any]) -> None:
    counts = event.get("data_collections") or []
    for each in counts:
        if "LogicalDecodingMessageMonitor" in each["data_collection"]:
            each["data_collection"] = "messages"
    if any(each["data_collection"] == "messages" for each in counts):
        counts.sort(key=lambda each: str(each["data_collection"]))


def without_name(row: dict[str, Any]) -> None:
    if "n" in row:
        row["n"] = None


def without_lost_arrays(row: dict[str, Any]) -> None:
    if row["l"] == ["a.b", None]:
        row["l"] = None
    if row["t"] and str(row["t"][0]).startswith("[Ljava"):
        row["t"] = [None, None]
    for name in ("n", "n52"):
        [item] = (row[name] or [None])[:1]
        if item == "NAN" or (isinstance(item, float) and math.isnan(item)):
            row[name] = None


def without_negative_scale(row: dict[str, Any]) -> None:
    row["below"] = None


OF_TABLES: Mapping[str, Callable[[dict[str, Any]], object]] = {
    "basic": without_name,
    "required": without_name,
    "arrays": without_lost_arrays,
    "scales": without_negative_scale,
}


def comparable_schema(topic: str, text: str) -> str:
    table = topic.rpartition(".")[2]
    if table == "extras":
        text = text.replace('"allowed":"sad,glad,ok,so, so"', '"allowed":"sad,ok,so, so"')
    if table == "scales":
        text = text.replace('"scale":2046', '"scale":-2').replace('"scale":"2046"', '"scale":"-2"')
    return text


def comparable(records: list[Record], schemas: Mapping[int, str]) -> Iterator[Any]:
    for record in records:
        if record.value is None and record.key is None:
            continue  # a tombstone without a key deletes nothing: cdcd writes none
        shown: list[Any] = []
        for part in (record.key, record.value):
            if part is None:
                shown.append(None)
                continue
            magic, number = struct.unpack_from(">bi", part)
            assert magic == 0
            text = schemas[number]
            document = decoded(part[5:], text)
            if "source" in document:
                set_equal(record.topic, document)
            elif record.topic.endswith(".transaction"):
                without_name_of_messages(document)
            shown.append((comparable_schema(record.topic, text), repr(document)))
        if "'prefix': 'recorder'" in str(shown[0]):
            continue  # the recorder's own, after the connectors had ended
        headers = [each for each in record.headers if not each[0].startswith("__debezium.context.")]
        yield shown, headers


def streamed(connector: Connector) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in connector.records:
        text = "" if record.value is None else connector.avro_schemas[struct.unpack_from(">bi", record.value)[1]]
        is_read = bool(text) and decoded((record.value or b"")[5:], text).get("op") == "r"
        if not is_read:
            found.setdefault(record.topic, []).append(record)
    return found


@pytest.mark.parametrize("wire_mode", WIRE_MODES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_the_events_in_avro_are_those_of_debezium(path: Path, wire_mode: str) -> None:
    connector, registry = connectors(path)["avro"], Registry()
    ours, theirs = replay(connector, wire_mode, registry=registry), streamed(connector)
    texts = {number: text for text, number in registry.texts.items()}
    assert ours.keys() == theirs.keys()
    for topic in sorted(ours):
        if not is_different(topic, connector):
            mine, wanted = list(comparable(ours[topic], texts)), list(comparable(theirs[topic], connector.avro_schemas))
            assert mine == wanted, topic


def flattened(record: Record, schemas: Mapping[int, str]) -> tuple[Any, Any] | None:
    """The row and its schema that ExtractNewRecordState makes of one of Debezium's events; None: nothing."""
    value = record.value or b""
    text = schemas[struct.unpack_from(">bi", value)[1]]
    event, envelope = decoded(value[5:], text), json.loads(text)
    source, row = event["source"], event["after"] or event["before"]
    if row is None:
        return None  # a truncate
    flag = "true" if event["after"] is None else "false"
    added = {"__deleted": flag, "__op": event["op"], "__lsn": source["lsn"], "__source_ts_ms": source["ts_ms"]}
    row |= {**added, "__table": source["table"]}
    OF_TABLES.get(record.topic.rpartition(".")[2], dict)(row)
    [of_row] = [field["type"][1] for field in envelope["fields"] if field["name"] == "before"]
    types = dict.fromkeys(added, "string") | {"__lsn": "long", "__source_ts_ms": "long", "__table": "string"}
    of_row["fields"] += [{"name": name, "type": ["null", of], "default": None} for name, of in types.items()]
    of_row.setdefault("namespace", envelope["namespace"])
    return row, of_row


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_flat_rows_in_avro_are_those_of_debezium(path: Path) -> None:
    connector, registry = connectors(path)["avro"], Registry()
    ours = replay(connector, "binary", ROWS, registry)
    texts = {number: text for text, number in registry.texts.items()}
    compared = 0
    for topic, records in streamed(connector).items():
        if is_different(topic, connector) or topic.endswith((".message", ".transaction")):
            continue
        theirs = [flattened(record, connector.avro_schemas) for record in records if record.value is not None]
        wanted = [each for each in theirs if each is not None]
        values = [record.value for record in ours.get(topic, []) if record.value is not None]
        assert len(values) == len(wanted), topic
        for value, (row, schema) in zip(values, wanted, strict=True):
            text = texts[struct.unpack_from(">bi", value)[1]]
            mine = decoded(value[5:], text)
            OF_TABLES.get(topic.rpartition(".")[2], dict)(mine)
            assert repr(mine) == repr(row), topic  # so that NaN is NaN
            assert json.loads(text) == json.loads(
                comparable_schema(topic, json.dumps(schema, separators=(",", ":")))
            ), topic
            compared += 1
    assert compared > 100


def test_a_table_that_debezium_loses_rows_of_is_whole() -> None:
    connector, registry = connectors(HERE / "nanoseconds.jsonl.xz")["avro"], Registry()
    records = replay(connector, "binary", registry=registry)["nanoseconds_avro.public.required_timestamp"]
    texts = {number: text for text, number in registry.texts.items()}
    value = records[1].value or b""
    event = decoded(value[5:], texts[struct.unpack_from(">bi", value)[1]])
    assert event["before"] == {"id": 1, "ts3": 0, "ts6": 0}
