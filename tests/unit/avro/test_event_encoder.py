"""Events of one table, from messages to what fastavro reads back."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.envelope_head import commit_lsn
from cdcd.avro.envelope_writer import AvroEnvelope
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.errors import DecodeError
from cdcd.json_events.envelope import JsonEnvelope
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, encode_tuple, tuple_of
from cdcd.pgoutput.tuples import BINARY, UNCHANGED, Binary, ColumnValue
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.column_rules import PartitionChoice
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
BYTEA = PgType(17, "pg_catalog", "bytea")
JSONB = PgType(3802, "pg_catalog", "jsonb")
DATE = PgType(1082, "pg_catalog", "date")
NUMERIC = PgType(1700, "pg_catalog", "numeric")


class Table:
    """One relation behind an encoder; takes messages, gives decoded events."""

    def __init__(self, *columns: ResolvedColumn, identity: str = "d", tombstones: bool = False) -> None:
        self.batches = BatchBuilder(tombstones)
        self.encoder = EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions())
        self.changes = self.encoder.open_relation(ResolvedRelation(7, "public", "t", identity, list(columns)))
        self.schemas: dict[str, Any] = {}
        self.encoder.begin(100, 1_700_000_000_000_000, 4_000_000_000)

    def insert(self, *new: ColumnValue) -> None:
        self.changes.insert(encode(m.Insert(0, 7, tuple_of(new))), 5, 42)

    def update(self, *new: ColumnValue, old: list[ColumnValue] | None = None, kind: str = "K") -> None:
        row = None if old is None else tuple_of(old)
        self.changes.update(encode(m.Update(0, 7, ord(kind) if row else m.NO_OLD, row, tuple_of(new))), 5, 42)

    def delete(self, *old: ColumnValue, kind: str = "K") -> None:
        self.changes.delete(encode(m.Delete(0, 7, ord(kind), tuple_of(old))), 5, 42)

    def events(self) -> list[tuple[Any, Any]]:
        batch = self.batches.build()
        self.schemas |= {fingerprint: fastavro.parse_schema(json.loads(text)) for fingerprint, text in batch.schemas}
        return [
            (self.decode(message.get("key")), self.decode(message["value"]))
            for table in batch.tables
            for message in table.messages
        ]

    def decode(self, data: bytes | None) -> Any:
        if data is None:
            return None
        assert data[:2] == b"\xc3\x01"
        stream = io.BytesIO(data[10:])
        value = fastavro.schemaless_reader(stream, self.schemas[data[2:10].hex()], None)
        assert not stream.read()
        return value


def keyed(identity: str = "d") -> Table:
    return Table(
        ResolvedColumn("id", INT4, -1, True),
        ResolvedColumn("note", TEXT, -1, False),
        ResolvedColumn("due", DATE, -1, False),
        identity=identity,
    )


def test_the_commit_lsn_of_every_event_is_read_without_its_schema() -> None:
    table = Table(ResolvedColumn("id", INT4, -1, True))
    table.insert(b"1")
    table.delete(b"1")
    table.changes.truncate(42, False, False)
    table.encoder.message("p", b"content", True, 42)
    table.encoder.commit(200)
    batch = table.batches.build()
    values = [message["value"] for each in batch.tables for message in each.messages]
    assert [commit_lsn(value or b"") for value in values] == [100] * 4


def test_an_insert_is_a_create_with_its_position() -> None:
    table = keyed()
    table.insert(b"1", b"one", None)
    table.insert(b"2", None, b"2026-11-21")
    (key, event), (_, second) = table.events()
    assert key == {"id": 1}
    assert event["op"] == "c"
    assert (event["source"]["commit_lsn"], event["source"]["seq"], event["source"]["lsn"]) == (100, 0, 42)
    assert (event["source"]["xid"], event["source"]["origin"]) == (4_000_000_000, None)
    assert event["source"]["commit_ts"].timestamp() == 1_700_000_000
    assert (event["identity"], event["before"]) == ("none", None)
    assert event["after"] == {"id": 1, "note": "one", "due": None}
    assert (event["unchanged"], event["unrepresentable"]) == ([], [])
    assert second["source"]["seq"] == 1
    assert str(second["after"]["due"]) == "2026-11-21"


def test_an_update_without_an_old_tuple_shows_no_before() -> None:
    table = keyed()
    table.update(b"1", b"one", None)
    ((key, event),) = table.events()
    assert (key, event["op"], event["identity"], event["before"]) == ({"id": 1}, "u", "none", None)


def test_an_update_of_the_key_is_a_delete_and_a_create() -> None:
    table = keyed()
    table.update(b"2", b"one", None, old=[b"1", None, None])
    (old_key, gone), (new_key, made) = table.events()
    assert (old_key, gone["op"], gone["identity"], gone["before"]["id"], gone["after"]) == (
        {"id": 1},
        "d",
        "key",
        1,
        None,
    )
    assert (new_key, made["op"], made["identity"], made["before"]) == ({"id": 2}, "c", "none", None)
    assert (gone["source"]["seq"], made["source"]["seq"]) == (0, 1)


def test_an_old_key_that_is_the_same_is_no_change_of_key() -> None:
    table = keyed()
    table.update(UNCHANGED, b"one", None, old=[b"1", None, None])
    ((key, event),) = table.events()
    assert (key, event["op"], event["identity"]) == ({"id": 1}, "u", "key")
    assert event["after"]["id"] == 1, "the key's value was not sent again, but the old tuple has it"
    assert event["unchanged"] == []


def test_unchanged_toast_is_named_and_never_a_silent_null() -> None:
    table = keyed()
    table.update(b"1", UNCHANGED, b"2026-11-21")
    ((_, event),) = table.events()
    assert event["after"]["note"] is None
    assert event["unchanged"] == ["note"]
    table.update(b"1", None, None)
    ((_, event),) = table.events()
    assert event["unchanged"] == []


def test_a_full_old_row_fills_in_what_was_not_sent() -> None:
    table = keyed("f")
    table.update(b"1", UNCHANGED, b"2026-11-21", old=[b"1", b"long", None], kind="O")
    table.update(b"2", UNCHANGED, None, old=[b"1", b"long", None], kind="O")
    events = table.events()
    assert [event["op"] for _, event in events] == ["u", "d", "c"]
    assert events[0][1]["before"] == {"id": 1, "note": "long", "due": None}
    assert events[0][1]["after"]["note"] == "long"
    assert events[1][1]["identity"] == "full"
    assert events[2][1]["after"] == {"id": 2, "note": "long", "due": None}
    assert all(event["unchanged"] == [] for _, event in events)


LARGE = [131_071, 131_072, 2_000_000]
"""Around the size from which on values go from the frame into the record, and beyond that of a kept buffer."""


def large() -> Table:
    columns = [("id", INT4), ("body", BYTEA), ("note", TEXT), ("details", JSONB), ("due", DATE)]
    return Table(*(ResolvedColumn(name, pgtype, -1, name == "id") for name, pgtype in columns), identity="f")


@pytest.mark.parametrize("size", LARGE)
def test_large_values_arrive_whole_and_in_their_places(size: int) -> None:
    table, text = large(), bytes(97 + n % 26 for n in range(size))
    ident, doc = Binary(b"\0\0\0\x07"), b'"' + text + b'"'
    in_text: list[ColumnValue] = [b"7", b"\\x" + text.hex().encode(), text, doc, None]
    in_binary: list[ColumnValue] = [ident, Binary(text), Binary(text), Binary(b"\1" + doc), None]
    for row in (in_text, in_binary):
        table.insert(*row)
        table.update(row[0], UNCHANGED, UNCHANGED, b'"small"', b"infinity", old=row, kind="O")
        table.delete(*row, kind="O")
    table.insert(b"8", None, b"small", None, None)
    whole = {"id": 7, "body": text, "note": text.decode(), "details": doc.decode(), "due": None}
    changed = whole | {"details": '"small"'}
    small = {"id": 8, "body": None, "note": "small", "details": None, "due": None}
    events = [event for _, event in table.events()]
    assert [event["before"] for event in events] == [None, whole, whole] * 2 + [None]
    assert [event["after"] for event in events] == [whole, changed, None] * 2 + [small]
    assert [[each["text"] for each in event["unrepresentable"]] for event in events] == [[], ["infinity"], []] * 2 + [
        []
    ]


@pytest.mark.parametrize("size", LARGE)
def test_large_values_of_a_snapshot_arrive_whole(size: int) -> None:
    table, text = large(), b"x" * size
    values = [b"\0\0\0\x07", text, text, b"\1" + text]
    row = b"".join(len(value).to_bytes(4, "big") + value for value in values) + b"\xff" * 4
    table.changes.snapshot_row(row, 0, bytes([BINARY] * 5), 42)
    ((_, event),) = table.events()
    assert event["after"] == {"id": 7, "body": text, "note": text.decode(), "details": text.decode(), "due": None}


@pytest.mark.parametrize("size", LARGE)
def test_a_large_value_of_another_form_is_a_decode_error(size: int) -> None:
    with pytest.raises(DecodeError, match="version 2"):
        large().insert(b"7", None, None, Binary(b"\2" + b"x" * size), None)


def test_an_event_that_failed_leaves_none_of_its_large_values_to_the_next() -> None:
    table = large()
    with pytest.raises(DecodeError, match="version 2"):
        table.insert(b"7", None, b"x" * 200_000, Binary(b"\2{}"), None)
    table.insert(b"8", None, b"small", None, None)
    ((_, event),) = table.events()
    assert event["after"] == {"id": 8, "body": None, "note": "small", "details": None, "due": None}


def test_a_delete_shows_what_its_identity_holds() -> None:
    table = keyed()
    table.delete(b"1", None, None)
    ((key, event),) = table.events()
    assert (key, event["op"], event["identity"], event["after"]) == ({"id": 1}, "d", "key", None)
    assert event["before"] == {"id": 1, "note": None, "due": None}


def test_a_tombstone_follows_a_delete_if_asked_for() -> None:
    table = Table(ResolvedColumn("id", INT4, -1, True), tombstones=True)
    table.delete(b"1")
    (_, event), (key, nothing) = table.events()
    assert (event["op"], key, nothing) == ("d", {"id": 1}, None)


def test_values_that_avro_cannot_hold_are_named_with_their_text() -> None:
    table = keyed("f")
    table.update(b"1", b"x", b"infinity", old=[b"1", b"y", b"4713-01-01 BC"], kind="O")
    ((_, event),) = table.events()
    assert (event["before"]["due"], event["after"]["due"]) == (None, None)
    assert event["unrepresentable"] == [
        {"image": "before", "column": "due", "text": "4713-01-01 BC"},
        {"image": "after", "column": "due", "text": "infinity"},
    ]
    table.insert(b"2", b"x", b"2026-11-21")
    ((_, event),) = table.events()
    assert event["unrepresentable"] == []


def test_keys_that_avro_cannot_hold_still_differ() -> None:
    table = Table(ResolvedColumn("due", DATE, -1, True))
    table.insert(b"infinity")
    table.insert(b"-infinity")
    table.insert(b"2026-11-21")
    keys = [key for key, _ in table.events()]
    assert keys[0] == {"due": None, "unrepresentable": [{"column": "due", "text": "infinity"}]}
    assert keys[1]["unrepresentable"][0]["text"] == "-infinity"
    assert keys[2]["unrepresentable"] == []


def test_a_key_holds_each_xid8_that_somebody_may_write() -> None:
    table = Table(ResolvedColumn("id", PgType(5069, "pg_catalog", "xid8"), -1, True))
    table.insert(b"9223372036854775808")
    table.delete(b"18446744073709551615")
    assert [key for key, _ in table.events()] == [{"id": "9223372036854775808"}, {"id": "18446744073709551615"}]


def test_a_table_without_a_key_has_no_keys() -> None:
    table = Table(ResolvedColumn("note", TEXT, -1, False), identity="f")
    table.insert(b"a")
    table.update(b"b", old=[b"a"], kind="O")
    table.delete(b"b", kind="O")
    assert [(key, event["op"]) for key, event in table.events()] == [(None, "c"), (None, "u"), (None, "d")]


def test_an_old_row_of_which_only_a_key_came_is_refused_where_the_events_have_none() -> None:
    """A root without a replica identity, whose partition logs its own key."""
    table = Table(ResolvedColumn("id", INT4, -1, False), ResolvedColumn("v", TEXT, -1, False))
    table.insert(b"1", b"a")
    with pytest.raises(DecodeError, match=r"public\.t came with its key only, and the table has no key"):
        table.delete(b"1", None)
    with pytest.raises(DecodeError, match="came with its key only"):
        table.update(b"2", b"a", old=[b"1", None])


def test_a_table_without_columns_has_events() -> None:
    table = Table(identity="f")
    table.insert()
    ((key, event),) = table.events()
    assert (key, event["after"]) == (None, {})


@pytest.mark.parametrize("cascade", [False, True])
@pytest.mark.parametrize("restart_identity", [False, True])
def test_truncate_is_one_event_without_rows_that_says_how(cascade: bool, restart_identity: bool) -> None:
    table = keyed()
    table.changes.truncate(43, cascade, restart_identity)
    ((key, event),) = table.events()
    assert (key, event["op"], event["before"], event["after"], event["source"]["lsn"]) == (None, "t", None, None, 43)
    assert event["truncate"] == {"cascade": cascade, "restart_identity": restart_identity}


def test_what_only_truncates_say_is_in_a_schema_of_their_own() -> None:
    table = keyed()
    table.insert(b"1", None, None)
    table.changes.truncate(43, True, False)
    table.insert(b"2", None, None)
    table.changes.truncate(44, False, True)
    batch = table.batches.build()
    texts = dict(batch.schemas)
    values = [message["value"] or b"" for message in batch.tables[0].messages]
    rows, truncates = {value[2:10].hex() for value in values[::2]}, {value[2:10].hex() for value in values[1::2]}
    assert len(rows) == len(truncates) == 1
    row_schema, truncate_schema = (json.loads(texts[fingerprint]) for [fingerprint] in (rows, truncates))
    assert truncate_schema["fields"][:-1] == row_schema["fields"]
    assert truncate_schema["fields"][-1]["name"] == "truncate"
    # Either reads what the other wrote.
    row_schema, truncate_schema = fastavro.parse_schema(row_schema), fastavro.parse_schema(truncate_schema)
    [insert, truncate] = [io.BytesIO(value[10:]) for value in values[:2]]
    as_truncate: Any = fastavro.schemaless_reader(insert, row_schema, truncate_schema)
    as_row: Any = fastavro.schemaless_reader(truncate, truncate_schema, row_schema)
    assert as_truncate["truncate"] is None
    assert "truncate" not in as_row


def test_an_origin_belongs_to_its_transaction() -> None:
    table = keyed()
    table.encoder.origin("elsewhere")
    table.insert(b"1", None, None)
    table.encoder.commit(110)
    table.encoder.begin(200, 0, 1)
    table.insert(b"1", None, None)
    table.encoder.commit(210)
    assert [event["source"]["origin"] for _, event in table.events()] == ["elsewhere", None]


def test_odd_columns_keep_their_names_as_properties() -> None:
    table = Table(
        ResolvedColumn("Id", INT4, -1, True),
        ResolvedColumn("id", INT4, -1, True),
        ResolvedColumn("it's", NUMERIC, 786438, False),
    )
    table.insert(b"1", b"2", b"1.50")
    ((key, event),) = table.events()
    assert key == {"_x49_d": 1, "id": 2}
    assert str(event["after"]["it_x27_s"]) == "1.50"


@pytest.mark.parametrize("cut", range(5, 23))
def test_a_frame_that_is_cut_off_is_a_decode_error(cut: int) -> None:
    table = keyed()
    frame = encode(m.Insert(0, 7, tuple_of([b"1", b"one", None])))
    assert len(frame) == 23
    with pytest.raises(DecodeError):
        table.changes.insert(frame[:cut], 5, 42)


def test_a_frame_that_is_too_long_is_a_decode_error() -> None:
    table = keyed()
    with pytest.raises(DecodeError, match="1 bytes too many"):
        table.changes.insert(encode(m.Insert(0, 7, tuple_of([b"1", None, None]))) + b"\0", 5, 42)


@pytest.mark.parametrize("form", [AvroEnvelope(), JsonEnvelope(with_schemas=True)])
def test_a_column_of_the_key_decides_the_partition_of_all_events_of_its_keys(form: Any) -> None:
    batches = BatchBuilder(True)
    encoder = EventEncoder(batches, FingerprintStore(batches), TypeOptions(), form)
    columns = [ResolvedColumn("tenant", TEXT, -1, True), ResolvedColumn("id", INT4, -1, True)]
    relation = ResolvedRelation(7, "public", "t", "d", columns)
    relation.partition_by = PartitionChoice("tenant")
    changes = encoder.open_relation(relation)
    encoder.begin(100, 1, 1)

    def frame(*values: bytes) -> bytes:
        return b"N" + encode_tuple(list(values))

    changes.insert(frame(b"a", b"1"), 0, 42)
    changes.insert(frame(b"b", b"2"), 0, 42)
    changes.snapshot_row(b"".join(len(v).to_bytes(4, "big") + v for v in (b"a", b"3")), 0, b"tt", 42)
    changes.delete(b"K" + encode_tuple([b"a", b"1"]), 0, 42)
    changes.update(b"K" + encode_tuple([b"a", b"3"]) + frame(b"b", b"3"), 0, 42)
    [table] = batches.build().tables
    tenants = "abaaaaab"  # a delete has a tombstone, and a changed key is a delete and an insert
    assert len(table.messages) == len(tenants)
    hashes = dict(zip(tenants, (each["hash"] for each in table.messages), strict=True))
    assert [each["hash"] for each in table.messages] == [hashes[tenant] for tenant in tenants]
    assert hashes["a"] != hashes["b"]
    relation.partition_by = PartitionChoice(is_one=True)
    encoder.open_relation(relation).insert(frame(b"b", b"2"), 0, 42)
    [table] = batches.build().tables
    assert [each["hash"] for each in table.messages] == [0]
