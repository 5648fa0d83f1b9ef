"""Hashes find every row that differs, and never call rows equal that are not."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.avro.single_object import MARKER
from cdcd.errors import DecodeError
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import BINARY, UNCHANGED, Binary
from cdcd.sink.batches import BatchBuilder
from cdcd.snapshot.copy_format import SIGNATURE, CopyFormat
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation
from cdcd.verify.row_hashes import (
    GONE,
    PARTS,
    PLACE_BITS,
    UNKNOWN,
    HashFiles,
    KeyedHash,
    TableHashes,
    differences,
    schema_size,
)
from cdcd.verify.topic_hashes import TopicHashes

INT4, TEXT = PgType(23, "pg_catalog", "int4"), PgType(25, "pg_catalog", "text")
RELATION = ResolvedRelation(
    1, "public", "t", "d", [ResolvedColumn("id", INT4, -1, True), ResolvedColumn("v", TEXT, -1, False)]
)
LSN = 1_000_000
OTHER_SCHEMA = MARKER + bytes(8)
ORDERS: Final = ("big", "little")


def number(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def row(key: int, value: str | None) -> list[Binary | None]:
    return [Binary(number(key)), None if value is None else Binary(value.encode())]


class Sides:
    """A topic and a table."""

    def __init__(self, folder: Path) -> None:
        self.batches = BatchBuilder(tombstones=False)
        self.encoder = EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions())
        self.changes = self.encoder.open_relation(RELATION)
        self.of_topic, self.of_table = HashFiles(folder, "topic"), HashFiles(folder, "table")
        self.hashed = KeyedHash(random.getrandbits(63))
        self.topic = TopicHashes(self.of_topic, self.hashed, LSN, lambda header: header != OTHER_SCHEMA)
        self.table = TableHashes(self.of_table, self.hashed)
        self.table_encoder = EventEncoder(self.table, FingerprintStore(self.table), TypeOptions())
        self.table_encoder.begin_snapshot(0, 0)
        self.table_changes = self.table_encoder.open_relation(RELATION)
        self.offset = 0

    def publish(self, *, partition: int = 0, is_current: bool = True) -> bool:
        """Take what `changes` has encoded into the topic."""
        counts = False
        [table] = self.batches.build().tables
        for message in table.messages:
            value, key = message["value"], message.get("key")
            assert value is not None
            if not is_current:
                value = OTHER_SCHEMA + value[schema_size(value) :]
            counts = self.topic.add(key, value, partition, self.offset)
            self.offset += 1
        return counts

    def begin(self, commit_lsn: int, origin: str = "") -> None:
        self.encoder.begin(commit_lsn, 1, 700)
        if origin:
            self.encoder.origin(origin)

    def put(self, commit_lsn: int, key: int, value: str | None, partition: int = 0, *, is_current: bool = True) -> bool:
        self.begin(commit_lsn, "an origin" if key % 3 == 0 else "")
        self.changes.insert(b"N" + encode_tuple(row(key, value)), 0, commit_lsn)
        return self.publish(partition=partition, is_current=is_current)

    def delete(self, commit_lsn: int, key: int, partition: int = 0) -> None:
        self.begin(commit_lsn)
        self.changes.delete(b"K" + encode_tuple([Binary(number(key)), None]), 0, commit_lsn)
        self.publish(partition=partition)

    def copy(self, rows: dict[int, str | None]) -> None:
        """The table has these rows, each at the place of its key."""
        messages = [SIGNATURE + bytes(8)]
        for key, value in rows.items():
            text = b"\xff\xff\xff\xff" if value is None else len(value.encode()).to_bytes(4, "big") + value.encode()
            tid = (6).to_bytes(4, "big") + key.to_bytes(4, "big") + (7).to_bytes(2, "big")
            messages.append((3).to_bytes(2, "big") + tid + (4).to_bytes(4, "big") + number(key) + text)
        self.table.encode([*messages, b"\xff\xff"], CopyFormat(3), self.table_changes, bytes([BINARY] * 2), 5)

    def different(self) -> tuple[set[int], int]:
        """The keys that may differ, of 0 to 999, and how many rows the topic has."""
        found, in_topic = set[int](), 0
        for part in range(PARTS):
            each = differences(self.of_topic.take(part), self.of_table.take(part), self.topic.floors)
            found |= set(each.keys)
            in_topic += each.rows_in_topic
            for place in each.places:
                assert place >> PLACE_BITS == 5
                assert place & 0xFFFF == 7
        hashes = {}
        for key in range(1000):
            self.begin(1)
            self.changes.insert(b"N" + encode_tuple(row(key, "")), 0, 1)
            [table] = self.batches.build().tables
            data = table.messages[0]["key"] or b""
            hashes[self.hashed.key(data, schema_size(data))] = key
        return {hashes[each] for each in found}, in_topic


@pytest.fixture
def it(tmp_path: Path) -> Sides:
    return Sides(tmp_path)


def test_all_events_of_a_key_that_differs_are_found_from_the_last_truncate_event_on(it: Sides) -> None:
    it.put(1, 7, "before")
    it.begin(2)
    it.changes.truncate(2, cascade=False, restart_identity=False)
    it.publish()
    for lsn, key, partition in ((3, 7, 0), (4, 8, 0), (5, 7, 0), (6, 7, 3)):
        it.put(lsn, key, f"v{lsn}", partition)
    it.copy({7: "other", 8: "v4"})
    found = list[int]()
    for part in range(PARTS):
        found += differences(it.of_topic.take(part), it.of_table.take(part), it.topic.floors).events
    assert [(place >> PLACE_BITS, place & ((1 << PLACE_BITS) - 1)) for place in found] == [(0, 2), (0, 4), (3, 5)]


def test_a_changed_a_missing_and_an_extra_row_differ(it: Sides) -> None:
    for key in range(100):
        it.put(key + 1, key, f"v{key}")
    it.delete(200, 50)
    it.put(201, 51, None)
    rows: dict[int, str | None] = {key: f"v{key}" for key in range(100) if key != 50}
    rows[51] = None
    it.copy(rows | {1: "other", 500: "missing"} | {51: None})
    assert it.table.rows == 100
    assert it.different() == ({1, 500}, 99)


def test_an_extra_row_and_a_deleted_row_that_the_table_has_differ(it: Sides) -> None:
    it.put(1, 1, "a")
    it.put(2, 2, "b")
    it.delete(3, 2)
    it.copy({2: "b"})
    assert it.different() == ({1, 2}, 1)


def test_what_was_committed_later_does_not_count(it: Sides) -> None:
    assert it.put(LSN - 1, 1, "a")
    assert not it.put(LSN, 1, "b")
    it.copy({1: "a"})
    assert it.different() == (set(), 1)


def test_a_truncate_removes_what_was_before_it_in_its_partition(it: Sides) -> None:
    it.put(1, 1, "a")
    it.put(2, 2, "b", partition=1)
    it.begin(3)
    it.changes.truncate(3, cascade=False, restart_identity=False)
    it.publish()
    it.put(4, 3, "c")
    it.copy({2: "b", 3: "c"})
    assert it.different() == (set(), 2)


def test_the_newest_event_counts_in_whatever_partition_it_is(it: Sides) -> None:
    it.put(2, 1, "new", partition=1)
    it.put(1, 1, "old", partition=0)
    it.put(3, 2, "a", partition=0)
    it.put(3, 2, "a", partition=1)
    it.copy({1: "new", 2: "a"})
    assert it.different() == ({2}, 2), "of one transaction nothing tells which came later"


def test_an_event_of_another_schema_or_with_a_value_left_out_may_differ(it: Sides) -> None:
    it.put(1, 1, "a", is_current=False)
    it.begin(2)
    it.changes.update(b"N" + encode_tuple([Binary(number(2)), UNCHANGED]), 0, 2)
    it.publish()
    it.begin(3)
    full = b"O" + encode_tuple(row(3, "before")) + b"N" + encode_tuple(row(3, "a"))
    it.changes.update(full, 0, 3)
    it.publish()
    it.copy({1: "a", 2: "", 3: "a"})
    assert it.different() == ({1, 2, 3}, 3)


def test_an_event_without_a_key_is_counted(it: Sides) -> None:
    it.put(1, 1, "a")
    it.begin(2)
    it.changes.insert(b"N" + encode_tuple(row(2, "b")), 0, 2)
    [table] = it.batches.build().tables
    data = table.messages[0]["value"] or b""
    it.topic.add(None, data, 0, 9)
    assert it.topic.without_key == 1


@pytest.mark.parametrize("seed", range(5))
def test_random_histories_give_the_rows_that_differ(tmp_path: Path, seed: int) -> None:
    it, rng = Sides(tmp_path), random.Random(seed)
    rows: dict[int, str | None] = {}
    for lsn in range(1, 1500):
        key = rng.randrange(300)
        if rng.random() < 0.3:
            it.delete(lsn, key, partition=key % 4)
            rows.pop(key, None)
        else:
            rows[key] = rng.choice([None, "", "ü" * rng.randrange(200), str(lsn)])
            it.put(lsn, key, rows[key], partition=key % 4)
    in_topic, changed = len(rows), dict(rows)
    wanted = set()
    for key in rng.sample(range(300), 20):
        if key in changed and rng.random() < 0.5:
            del changed[key]
        else:
            changed[key] = "something else"
        if changed.get(key, "-") != rows.get(key, "-"):
            wanted.add(key)
    it.copy(changed)
    assert it.different() == (wanted, in_topic)


def test_rows_that_have_changed_places_differ(it: Sides) -> None:
    for key in range(100):
        it.put(key + 1, key, f"v{key}")
    rows: dict[int, str | None] = {key: f"v{key}" for key in range(100)}
    it.copy(rows | {7: "v8", 8: "v7"})
    assert it.different() == ({7, 8}, 100)


def test_the_keys_of_each_partition_are_told_by_their_headers_since_its_last_truncate_event(it: Sides) -> None:
    it.put(1, 1, "a")
    it.put(2, 2, "b", partition=1)
    it.put(3, 3, "c")
    [header] = it.topic.key_headers[0]
    assert it.topic.key_headers == {0: {header}, 1: {header}}
    other = MARKER + bytes(8)
    it.begin(4)
    it.changes.insert(b"N" + encode_tuple(row(4, "d")), 0, 4)
    [table] = it.batches.build().tables
    data, key = table.messages[0]["value"] or b"", table.messages[0]["key"] or b""
    it.topic.add(other + key[len(other) :], data, 0, 90)
    it.topic.add(key, data, 0, 91)
    it.topic.add(None, data, 1, 92)
    assert it.topic.key_headers == {0: {header, other}, 1: {header, b""}}
    it.begin(5)
    it.changes.truncate(5, cascade=False, restart_identity=False)
    it.publish()
    assert it.topic.key_headers == {0: set(), 1: {header, b""}}
    it.put(6, 6, "f")
    assert it.topic.key_headers == {0: {header}, 1: {header, b""}}


@pytest.mark.parametrize("key", [b"", b"k", b"7 bytes", b"8 bytes.", b"a long key"])
def test_a_hash_depends_on_the_secret_and_on_what_follows_the_schema(key: bytes) -> None:
    one, other = KeyedHash(1), KeyedHash(2)
    assert one.key(b"--" + key, 2) == one.key(b"++" + key, 2) == KeyedHash(1).key(key, 0)
    assert one.row(b"--" + key, 2) == one.row(b"++" + key, 2) == KeyedHash(1).row(key, 0)
    assert one.key(b"--" + key, 2) != one.key(b"--" + key[:-1] + b"z", 2)
    assert one.key(b"--" + key, 2) != other.key(b"--" + key, 2)
    assert one.row(b"--" + key, 2) != other.row(b"--" + key, 2)


def test_no_row_has_a_hash_that_stands_for_something_else() -> None:
    one = KeyedHash(1)
    assert not {one.row(b"%d" % number, 0) for number in range(1000)} & {GONE, UNKNOWN}


def test_no_two_short_keys_have_the_same_hash() -> None:
    secret = random.getrandbits(63)
    keys = {bytes(size) for size in range(9)} | {b"\1" + bytes(size) for size in range(9)}
    keys |= {number.to_bytes(size, order) for number in range(1 << 13) for size in (2, 7, 9) for order in ORDERS}
    hashes = {KeyedHash(secret).key(key, 0) for key in keys}
    assert len(hashes) == len(keys)


def test_short_keys_are_spread_over_all_parts_and_their_shares() -> None:
    hashed, keys = KeyedHash(random.getrandbits(63)), range(1 << 17)
    for order in ORDERS:
        found = Counter(hashed.key(key.to_bytes(6, order), 0) & (16 * PARTS - 1) for key in keys)
        assert len(found) == 16 * PARTS, "32 are to be expected in each: none is empty"
        assert max(found.values()) < 128


@pytest.mark.parametrize("data", [b"", b"x", b"\x01\x02", MARKER, MARKER + bytes(7), bytes(4)])
def test_what_is_no_event_is_refused(data: bytes) -> None:
    with pytest.raises(DecodeError, match="not an event"):
        schema_size(data)
