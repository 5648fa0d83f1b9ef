"""What was recorded of Debezium is whole: three encodings of the same changes, at the LSNs of the recorded WAL."""

from __future__ import annotations

import io
import json
import re
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest
from golden import recording
from golden.debezium.recorded import HERE, WAL, Connector, load, save

FILES = sorted(HERE.glob("*.jsonl.xz"))
CLOCK = re.compile(r'"ts_(ms|us|ns)":\d+')
OBJECT = re.compile(r"(\[Ljava\.lang\.String;)@[0-9a-f]+")
"""How Java shows an object: with a number that is another one in each connector."""
COLLECTIONS = re.compile(r'"data_collections":\[.*?\]')
"""A transaction's tables, in an order that depends on such a number."""


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name.partition(".")[0])
def connectors(request: pytest.FixtureRequest) -> dict[str, Connector]:
    return {each.encoding: each for each in load(request.param)}


def test_every_set_of_modes_is_there() -> None:
    assert [path.name.partition(".")[0] for path in FILES] == [
        "connect", "defaults", "double", "isostring", "microseconds", "nanoseconds",
    ]  # fmt: skip


def test_a_file_is_read_as_it_was_written(connectors: dict[str, Connector], tmp_path: Path) -> None:
    save(tmp_path / "file", connectors.values())
    assert load(tmp_path / "file") == list(connectors.values())


def test_json_with_schemas_has_the_payloads_of_json(connectors: dict[str, Connector]) -> None:
    plain, described = connectors["json"], connectors["json-schema"]
    if plain.properties.get("field.name.adjustment.mode") == "avro_unicode":
        pytest.skip("its columns have other names")
    assert len(plain.records) == len(described.records) > 150
    for one, other in zip(plain.records, described.records, strict=True):
        for data, whole in ((one.key, other.key), (one.value, other.value)):
            payload = None if whole is None else json.loads(whole)["payload"]
            assert _comparable(data, plain) == _comparable(payload, described)


def test_avro_says_what_json_says(connectors: dict[str, Connector]) -> None:
    plain, avro = connectors["json"], connectors["avro"]
    for one, other in zip(plain.records, avro.records, strict=True):
        decoded = None if other.value is None else _decoded(other.value, avro)
        wanted: Any = None if one.value is None else json.loads(one.value)
        assert (decoded is None) == (wanted is None)
        if decoded and "source" in decoded and decoded["source"]["snapshot"] == "false":
            assert decoded["op"] == wanted["op"]
            assert {**decoded["source"], "name": ""} == {**wanted["source"], "name": ""}


def test_every_streamed_event_is_in_the_recorded_wal(connectors: dict[str, Connector]) -> None:
    starts = {struct.unpack_from(">Q", frame, 1)[0] for frame in recording.load(WAL).streams[0].frames}
    sources = [json.loads(each.value).get("source") for each in connectors["json"].records if each.value]
    streamed = [source["lsn"] for source in sources if source and source["snapshot"] == "false"]
    assert len(streamed) > 140
    assert set(streamed) <= starts


def _comparable(data: Any, connector: Connector) -> Any:
    """The JSON without what differs between connectors: their names, the clock, and the position of a snapshot."""
    text = data.decode() if isinstance(data, bytes) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if '"op":"r"' in text:
        text = re.sub(r'"source":\{.*?\}', '"source":0', text)
    text = COLLECTIONS.sub('"tables":0', text.replace(connector.properties["topic.prefix"], "prefix"))
    return None if data is None else json.loads(OBJECT.sub(r"\1", CLOCK.sub('"clock":0', text)))


def _decoded(data: bytes, connector: Connector) -> Any:
    magic, number = struct.unpack_from(">bi", data)
    assert magic == 0
    # Python has no date of infinity, and fastavro refuses a numeric whose scale is beyond its precision.
    text = connector.avro_schemas[number].replace('"logicalType":', '"logical":')
    stream = io.BytesIO(data[5:])
    record = fastavro.schemaless_reader(stream, json.loads(text), None)
    assert not stream.read(), "bytes behind the record"
    return record
