from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest

from cdcd import manual
from cdcd.avro.avro_format import AvroFormat
from cdcd.json_events.event_head import commit_lsn
from cdcd.json_events.json_format import JsonFormat
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import UNCHANGED, Binary
from cdcd.sink.batches import BatchBuilder, message_bytes
from cdcd.source.pg_types import PgType
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
DATE = PgType(1082, "pg_catalog", "date")


def column(name: str, pgtype: PgType = TEXT, typmod: int = -1, *, in_key: bool = False) -> ResolvedColumn:
    return ResolvedColumn(name, pgtype, typmod, in_key)


class Encoded:
    """An encoder of one table, and the records that it has made."""

    def __init__(self, *columns: ResolvedColumn, encoding: str = "UTF8", with_schemas: bool = False) -> None:
        self.batches = BatchBuilder(tombstones=False)
        events = JsonFormat(AvroFormat("decimal", encoding), with_schemas=with_schemas)
        self.encoder = events.stream_encoder(self.batches)
        self.snapshots = events.snapshot_encoder(self.batches)
        self.relation = ResolvedRelation(1, "s", "t", "d", list(columns))
        self.changes: RelationChanges = self.encoder.open_relation(self.relation)
        self.encoder.begin(200, 1_000_001, 7)

    def records(self) -> list[Any]:
        self.encoder.commit(208)
        batch = self.batches.build()
        assert batch.schemas == []
        [table] = batch.tables
        return table.messages

    def values(self) -> list[Any]:
        return [json.loads(each["value"]) for each in self.records()]

    def insert(self, *values: Any) -> None:
        self.changes.insert(b"N" + encode_tuple(list(values)), 0, 150)


def test_an_insert_has_the_fields_of_the_envelope_in_their_order() -> None:
    encoded = Encoded(column("id", INT4, in_key=True), column("v"))
    encoded.insert(b"7", b"x")
    [record] = encoded.records()
    assert record["key"] == b'{"id":7}'
    assert record["value"] == (
        b'{"op":"c","source":{"commit_lsn":200,"seq":0,"lsn":150,"xid":7,"commit_ts":"1970-01-01T00:00:01.000001Z",'
        b'"origin":null},"identity":"none","before":null,"after":{"id":7,"v":"x"},"unchanged":[],"unrepresentable":[]}'
    )
    assert commit_lsn(record["value"]) == 200


def test_the_update_on_the_page_about_events() -> None:
    encoded = Encoded(
        column("id", PgType(20, "pg_catalog", "int8"), in_key=True),
        column("customer"),
        column("total", PgType(1700, "pg_catalog", "numeric"), (10 << 16 | 2) + 4),
        column("placed", PgType(1184, "pg_catalog", "timestamptz")),
        column("tags", PgType(1009, "pg_catalog", "_text", element=TEXT, is_array=True)),
    )
    encoded.encoder.begin(28908960, int(datetime(2026, 11, 26, 2, 0, 11, 880442, UTC).timestamp() * 1e6), 759)
    row = [b"7", b"Ada", b"99.90", b"2026-11-26 10:00:00+00", b"{gift}"]
    encoded.changes.update(b"N" + encode_tuple(row), 0, 28908832)
    [record] = encoded.records()
    page = manual.page("events")
    assert record["value"].decode() in page
    assert f"\n{record['key'].decode()}\n" in page


def test_an_update_a_delete_and_a_truncate() -> None:
    encoded = Encoded(column("id", INT4, in_key=True), column("a b"))
    encoded.encoder.origin("o'1")
    old, new = encode_tuple([b"7", None]), encode_tuple([b"7", UNCHANGED])
    encoded.changes.update(b"K" + old + b"N" + new, 0, 151)
    encoded.changes.delete(b"O" + encode_tuple([b"7", b"x"]), 0, 152)
    encoded.changes.truncate(153, True, False)
    update, delete, truncate = encoded.records()
    assert (update["key"], delete["key"], truncate.get("key")) == (b'{"id":7}', b'{"id":7}', None)
    assert update["value"].endswith(
        b'"origin":"o\'1"},"identity":"key","before":{"id":7,"a b":null},"after":{"id":7,"a b":null},'
        b'"unchanged":["a b"],"unrepresentable":[]}'
    )
    assert delete["value"].endswith(
        b'"identity":"full","before":{"id":7,"a b":"x"},"after":null,"unchanged":[],"unrepresentable":[]}'
    )
    assert truncate["value"].endswith(
        b'"before":null,"after":null,"unchanged":[],"unrepresentable":[],'
        b'"truncate":{"cascade":true,"restart_identity":false}}'
    )


def test_a_value_without_an_avro_form_is_text_in_the_event_and_in_the_key() -> None:
    encoded = Encoded(column("größe", DATE, in_key=True))
    encoded.insert(b"infinity")
    [record] = encoded.records()
    assert record["key"].decode() == '{"größe":null,"unrepresentable":[{"column":"größe","text":"infinity"}]}'
    assert (
        record["value"]
        .decode()
        .endswith(
            '"after":{"größe":null},"unchanged":[],'
            '"unrepresentable":[{"image":"after","column":"größe","text":"infinity"}]}'
        )
    )


def test_the_key_and_the_source_name_the_table_on_a_topic_that_others_share() -> None:
    encoded = Encoded(column("__table"), column("id", INT4, in_key=True), column("d", DATE, in_key=True))
    encoded.relation.shared_topic = "p.all"
    encoded.changes = encoded.encoder.open_relation(encoded.relation)
    encoded.insert(b"x", b"7", b"infinity")
    [record] = encoded.records()
    assert record["key"] == (
        b'{"__schema":"s","__table":"t","id":7,"d":null,"unrepresentable":[{"column":"d","text":"infinity"}]}'
    )
    assert b'"origin":null,"schema":"s","table":"t"},"identity":"none"' in record["value"]


def test_a_snapshot_and_a_message() -> None:
    encoded = Encoded(column("id", INT4, in_key=True))
    encoded.snapshots.begin_snapshot(199, 5)
    encoded.snapshots.open_relation(encoded.relation).snapshot_row(struct.pack(">ii", 4, 7), 0, b"b", 199)
    [record] = encoded.records()
    assert record["value"].startswith(b'{"op":"r","source":{"commit_lsn":199,"seq":0,"lsn":199,"xid":0,')
    encoded.encoder.begin(300, 1, 8)
    encoded.encoder.message("p", b"\0\xff", True, 300)
    [message] = encoded.values()
    assert (message["op"], message["after"]) == ("m", {"transactional": True, "prefix": "p", "content": "AP8="})


def test_text_that_is_no_utf8_and_controls_are_json_all_the_same() -> None:
    encoded = Encoded(column("a"), column("b"), encoding="SQL_ASCII")
    encoded.insert(b"caf\xe9", b'\x01\x1f"\\\x7f\n\xe2\x80\xa8' + "😀".encode())
    [value] = encoded.values()
    assert value["after"] == {"a": None, "b": '\x01\x1f"\\\x7f\n\u2028😀'}
    assert value["unrepresentable"] == [{"image": "after", "column": "a", "text": "caf\\xe9"}]


def test_records_of_several_tables_and_schemas_are_told_apart() -> None:
    encoded = Encoded(column("a", INT4))
    other = encoded.encoder.open_relation(ResolvedRelation(2, "s", "t", "d", [column("b")]))
    for number in (b"1", b"2"):
        encoded.insert(number)
        other.insert(b"N" + encode_tuple([number]), 0, 150)
    assert [each["after"] for each in encoded.values()] == [{"a": 1}, {"b": "1"}, {"a": 2}, {"b": "2"}]


def test_what_is_kept_of_one_event_is_not_taken_for_another() -> None:
    encoded = Encoded(column("id", INT4, in_key=True))
    row, same = encode_tuple([b"7"]), {"before": None, "after": {"id": 7}}
    wanted = []
    for xid, commit_lsn_ in ((7, 200), (7, 201), (8, 201), (2**31, 2**40), (2**31 + 1, 2**40)):
        for origin in ("", "o"):
            encoded.encoder.begin(commit_lsn_, xid, xid)
            encoded.encoder.origin(origin)
            encoded.insert(b"7")
            encoded.changes.update(b"K" + row + b"N" + row, 0, 150)
            encoded.changes.delete(b"K" + row, 0, 150)
            encoded.changes.update(b"N" + row, 0, 150)
            rows = [same, {"before": {"id": 7}, "after": {"id": 7}}, {"before": {"id": 7}, "after": None}, same]
            for seq, (op, identity, images) in enumerate(
                zip("cudu", ("none", "key", "key", "none"), rows, strict=True)
            ):
                source = {"commit_lsn": commit_lsn_, "seq": seq, "xid": xid, "origin": origin or None}
                wanted.append((op, source, identity, images))
    found = encoded.values()
    assert [
        (
            each["op"],
            {name: each["source"][name] for name in ("commit_lsn", "seq", "xid", "origin")},
            each["identity"],
            {image: each[image] for image in ("before", "after")},
        )
        for each in found
    ] == wanted
    assert {each["source"]["commit_ts"][-7:] for each in found} == {"000007Z", "000008Z", "483648Z", "483649Z"}


def test_a_large_value_is_translated_and_its_buffer_is_not_kept() -> None:
    encoded = Encoded(column("a"))
    large = b'x"' * 1_000_000
    for value in (large, b"small", large, b"small"):
        encoded.insert(value)
    found = encoded.values()
    assert [each["after"]["a"] for each in found] == [large.decode(), "small"] * 2
    assert [each["source"]["seq"] for each in found] == [0, 1, 2, 3]


def test_large_values_count_with_their_size_in_json_in_the_batch_that_they_are_in() -> None:
    encoded = Encoded(column("a"))
    encoded.insert(b'"' * 2_000_000)
    encoded.encoder.commit(208)
    encoded.encoder.begin(300, 1, 8)
    for value in (b'"' * 1_500_000, b"small", b'"' * 1_600_000):
        encoded.insert(value)
    batches = [encoded.batches.build() for _ in range(2)]
    counted = [sum(map(message_bytes, table.messages)) for batch in batches for table in batch.tables]
    assert [batch.bytes for batch in batches] == counted
    assert [batch.rows for batch in batches] == [1, 3]
    assert min(counted) > 4_000_000


@pytest.mark.parametrize("value", [b"", b"{}", b'{"op":"c"}', b'{"op":"cc","source":{"commit_lsn":1,', b"\xc3\x01"])
def test_what_is_no_event_has_no_position(value: bytes) -> None:
    assert commit_lsn(value) is None


def test_a_schema_of_connect_stands_before_each_key_and_value() -> None:
    numeric, array = (
        PgType(1700, "pg_catalog", "numeric"),
        PgType(1007, "pg_catalog", "_int4", element=INT4, is_array=True),
    )
    encoded = Encoded(
        column("a b", INT4, in_key=True),
        column("n", numeric, (12 << 16 | 2) + 4),
        column("l", array),
        with_schemas=True,
    )
    encoded.insert(b"7", b"1.5", b"{1,NULL}")
    [record] = encoded.records()
    int32 = '{"type":"int32","optional":false'
    assert record["key"].decode() == (
        '{"schema":{"type":"struct","fields":[' + int32 + ',"field":"a b"}],"optional":false,"name":"s.t.Key"},'
        '"payload":{"a b":7}}'
    )
    value = json.loads(record["value"])
    assert value["payload"]["after"] == {"a b": 7, "n": "1.50", "l": [1, None]}
    assert value["schema"]["name"] == "s.t.Envelope"
    fields = {each["field"]: each for each in value["schema"]["fields"]}
    assert list(fields) == list(value["payload"])
    assert fields["op"] == {"type": "string", "optional": False, "field": "op"}
    assert fields["after"] == fields["before"] | {"field": "after"}
    assert fields["after"]["fields"] == [
        {"type": "int32", "optional": True, "field": "a b"},
        {"type": "string", "optional": True, "field": "n"},
        {"type": "array", "items": {"type": "int32", "optional": True}, "optional": True, "field": "l"},
    ]
    assert commit_lsn(record["value"]) == 200


@pytest.mark.parametrize("columns", [[], [column("a", INT4), column("b", INT4)]])
def test_rows_in_binary(columns: list[ResolvedColumn]) -> None:
    encoded = Encoded(*columns)
    encoded.insert(*[Binary(struct.pack(">i", -1))] * len(columns))
    [value] = encoded.values()
    assert value["after"] == {each.name: -1 for each in columns}
