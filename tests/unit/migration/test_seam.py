"""What is left out at the seam: each partition continues behind its own last event."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from cdcd.errors import GapError
from cdcd.migration.published_change import Change, ChangeReader
from cdcd.migration.seam import Seam
from cdcd.migration.topic_tails import Tail, TopicTails
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.partitioner import partition_for

TOPIC, PARTITIONS = "shop.public.t", 2
CHANGES = ChangeReader("json")
KEYS = [next(key for n in range(99) if partition_for(key := b"%d%d" % (p, n), PARTITIONS) == p) for p in (0, 1)]
"""A key of each partition."""
CONFIRMED = 1_000


def event(xid: int, lsn: int, op: str, last_commit: int, row: Any = None) -> bytes:
    source = {"snapshot": "false", "sequence": json.dumps([str(last_commit), str(lsn)]), "txId": xid, "lsn": lsn}
    return json.dumps({"before": None, "after": row, "source": source, "op": op}).encode()


def batch_of(*rows: tuple[int, int, str, bytes | None], tombstones: bool = True) -> Batch:
    """A batch of transactions: xid, LSN, op and key of each event. A transaction ends 10 behind its last event."""
    builder = BatchBuilder(tombstones, truncate_key=None)
    table = builder.open_table("public", "t")
    last_commit = CONFIRMED
    for at, (xid, lsn, op, key) in enumerate(rows):
        if at == 0 or rows[at - 1][0] != xid:
            builder.begin(lsn + 9, 1)
        value = event(xid, lsn, op, last_commit, lsn)
        if op == "t":
            builder.add_to_every_partition(table, ord(op), value)
        else:
            builder.add(table, ord(op), key, value)
        if at == len(rows) - 1 or rows[at + 1][0] != xid:
            last_commit = lsn + 10
            builder.commit(last_commit)
    return builder.build()


def tail(xid: int, lsn: int, op: str, last_commit: int, key: bytes | None, *, tombstone: bool = False) -> Tail:
    return Tail(Change(xid, lsn, op, last_commit, json.dumps([None, lsn])), key, tombstone)


def seam(
    tails: dict[int, Tail], keyless: list[Change] | None = None, truncates: tuple[tuple[int, int], ...] = ()
) -> Seam:
    found = TopicTails({TOPIC: [9] * PARTITIONS}, {(TOPIC, at): each for at, each in tails.items()})
    if keyless:
        found.keyless[TOPIC] = Counter(each.identity for each in keyless)
    found.truncates[TOPIC] = set(truncates)
    return Seam(found, CONFIRMED, lambda schema, name: f"shop.{schema}.{name}", CHANGES)


def left(batch: Batch) -> list[tuple[int, str]]:
    """LSN and op of what is left; `-` is a tombstone."""
    found = []
    for table in batch.tables:
        assert len(table.messages) == len(table.ops.getvalue())
        for message, op in zip(table.messages, table.ops.getvalue(), strict=True):
            value = message["value"]
            change = CHANGES.read(value, TOPIC)[0] if value is not None else None
            found.append((change.lsn, change.op) if change else (0, "-"))
            assert (op == 0) == (value is None)
    return found


def test_each_partition_goes_on_behind_its_own_last_event() -> None:
    a, b = KEYS
    batch = batch_of((1, 1100, "c", a), (1, 1101, "c", b), (2, 1200, "u", a), (2, 1201, "u", b))
    cut = seam({0: tail(2, 1200, "u", 1111, a), 1: tail(1, 1101, "c", 1000, b)})
    cut.cut(batch)
    assert left(batch) == [(1201, "u")]
    assert (cut.left_out, cut.published, batch.rows) == (3, 1, 1)
    assert not cut.is_over(1111)
    assert cut.is_over(1211)
    cut.check()


def test_a_batch_may_be_cut_in_parts() -> None:
    a, _ = KEYS
    cut = seam({0: tail(1, 1101, "c", 1000, a)})
    first, second = batch_of((1, 1100, "c", a)), batch_of((1, 1101, "c", a), (1, 1102, "c", a))
    cut.cut(first)
    cut.cut(second)
    assert first.tables == []
    assert left(second) == [(1102, "c")]


@pytest.mark.parametrize(("has_tombstone", "wanted"), [(True, []), (False, [(0, "-")])])
def test_a_tombstone_that_is_missing_is_published(has_tombstone: bool, wanted: list[Any]) -> None:
    a, _ = KEYS
    batch = batch_of((1, 1100, "c", a), (1, 1101, "d", a))
    seam({0: tail(1, 1101, "d", 1000, a, tombstone=has_tombstone)}).cut(batch)
    assert left(batch) == wanted


def test_what_the_slot_had_confirmed_cuts_nothing() -> None:
    a, b = KEYS
    batch = batch_of((5, 1100, "c", a), (5, 1101, "c", b))
    cut = seam({0: tail(4, 900, "c", 800, a)})
    cut.cut(batch)
    assert left(batch) == [(1100, "c"), (1101, "c")]
    cut.check()


def test_the_first_transaction_may_be_published_although_the_one_before_it_ends_before_the_slots_position() -> None:
    a, _ = KEYS
    batch = batch_of((5, 1100, "c", a), (5, 1101, "c", a))
    cut = seam({0: tail(5, 1100, "c", 0, a)})
    cut.cut(batch)
    assert left(batch) == [(1101, "c")]


def test_rows_without_a_key_are_left_out_as_often_as_they_are_there() -> None:
    published = [Change(1, 1100, "c", 1000, json.dumps([None, 1100]))] * 2
    batch = batch_of((1, 1100, "c", None), (1, 1100, "c", None), (1, 1100, "c", None), (1, 1101, "c", None))
    cut = seam({}, published)
    cut.cut(batch)
    assert left(batch) == [(1100, "c"), (1101, "c")]
    cut.check()


def test_a_truncate_is_left_out_if_it_is_on_any_partition() -> None:
    a, _ = KEYS
    batch = batch_of((1, 1100, "c", a), (1, 1101, "t", None), (1, 1102, "c", a), (1, 1103, "t", None))
    cut = seam({0: tail(1, 1102, "c", 1000, a)}, truncates=((1, 1101),))
    cut.cut(batch)
    assert left(batch) == [(1103, "t")]
    assert [table.everywhere for table in batch.tables] == [[0]]
    cut.check()


def test_a_truncate_may_be_the_last_event_of_a_partition() -> None:
    a, _ = KEYS
    batch = batch_of((1, 1100, "c", a), (1, 1101, "t", None), (1, 1102, "c", a))
    cut = seam({0: tail(1, 1101, "t", 1000, None)}, truncates=((1, 1101),))
    cut.cut(batch)
    assert left(batch) == [(1102, "c")]
    cut.check()


def test_a_truncate_that_the_connector_did_not_see_is_published_whatever_the_partitions_end_in() -> None:
    a, b = KEYS
    batch = batch_of((5, 1100, "t", None), (6, 1200, "c", a))
    cut = seam({0: tail(4, 900, "c", 800, a), 1: tail(3, 700, "u", 600, b)})
    cut.cut(batch)
    assert left(batch) == [(1100, "t"), (1200, "c")]
    cut.check()


@pytest.mark.parametrize("keyless", [False, True])
def test_a_truncate_that_is_lost_before_later_changes_ends_it(keyless: bool) -> None:
    key = None if keyless else KEYS[0]
    batch = batch_of((1, 1100, "t", None), (1, 1101, "c", key))
    rows = [Change(1, 1101, "c", 1000, json.dumps([None, 1101]))] if keyless else None
    cut = seam({0: tail(1, 1101, "c", 1000, key)}, rows)
    cut.cut(batch)
    with pytest.raises(GapError, match=r"the truncate at 0/44C .* is not on shop\.public\.t"):
        cut.check()


@pytest.mark.parametrize(("is_doubled", "wanted"), [(False, [1100, 1200]), (True, [1100, 1100, 1200])])
def test_rows_of_one_copy_that_share_a_key_are_left_out_as_often_as_they_are_there(
    is_doubled: bool, wanted: list[int]
) -> None:
    """A row that the connector has doubled is one."""
    a, _ = KEYS
    batch = batch_of((1, 1100, "c", a), (1, 1100, "c", a), (1, 1100, "c", a), (2, 1200, "c", a))
    there = [tail(1, 1100, "c", 1000, a), tail(1, 1100, "c", 1000, a), tail(1, 1050, "c", 1000, a)]
    if not is_doubled:
        there[1] = replace(there[1], change=replace(there[1].change, row="other"))
    found = TopicTails({TOPIC: [9] * PARTITIONS})
    found.note(TOPIC, 0, there, CONFIRMED)
    cut = Seam(found, CONFIRMED, lambda schema, name: f"shop.{schema}.{name}", CHANGES)
    cut.cut(batch)
    assert left(batch) == [(lsn, "c") for lsn in wanted]
    cut.check()


@pytest.mark.parametrize("key", [KEYS[0], None])
@pytest.mark.parametrize("xid", [1, 7])
def test_a_change_of_the_first_transaction_must_come_as_it_is_published(xid: int, key: bytes | None) -> None:
    """The slot may have passed the end of the transaction before it. Another transaction is confirmed."""
    published = Change(xid, 1100, "c", CONFIRMED - 1, json.dumps([None, "1,100.00"]))
    found = TopicTails({TOPIC: [9] * PARTITIONS})
    found.note(TOPIC, 0, [Tail(published, key and b"masked" + key, False)], CONFIRMED)
    cut = Seam(found, CONFIRMED, lambda schema, name: f"shop.{schema}.{name}", CHANGES)
    batch = batch_of((1, 1100, "c", key), (2, 1200, "c", key))
    cut.cut(batch)
    if xid == 7:
        cut.check()
        assert left(batch) == [(1100, "c"), (1200, "c")]
        return
    with pytest.raises(GapError, match=r"(last|an) event of shop\.public\.t.* is a change at 0/44C"):
        cut.check()


def test_a_partition_that_was_added_is_found_before_its_keys_come_a_second_time() -> None:
    """All events were on one partition; the last one has a key that belongs there still."""
    a, b = KEYS
    found = TopicTails({TOPIC: [2, 0]})
    found.note(TOPIC, 0, [tail(1, 1101, "c", 1000, a), tail(1, 1100, "c", 1000, b)], CONFIRMED)
    cut = Seam(found, CONFIRMED, lambda schema, name: f"shop.{schema}.{name}", CHANGES)
    cut.cut(batch_of((1, 1100, "c", b), (1, 1101, "c", a)))
    with pytest.raises(GapError, match=r"is not on the partition of shop\.public\.t that its key has now"):
        cut.check()


@pytest.mark.parametrize(
    "last",
    [
        tail(1, 1100, "c", 1000, b"other"),
        tail(9, 1100, "c", 1000, KEYS[0]),
        tail(1, 1100, "u", 1000, KEYS[0]),
        tail(3, 5000, "c", 4000, KEYS[0]),
    ],
)
def test_an_event_that_the_slot_does_not_send_ends_it(last: Tail) -> None:
    batch = batch_of((1, 1100, "c", KEYS[0]), (2, 1200, "c", KEYS[0]))
    cut = seam({0: last})
    cut.cut(batch)
    with pytest.raises(GapError, match="events-unmatched"):
        cut.check()
    assert cut.published == 0


def test_a_topic_that_grows_meanwhile_is_named() -> None:
    found = TopicTails({TOPIC: [5, 7]})
    assert found.has_grown({TOPIC: [5, 7]}, {}) == ""
    assert found.has_grown({TOPIC: [5, 9]}, {(TOPIC, 1): 2}) == ""
    for ends in ([5, 9], [6, 7], [5, 7, 0]):
        assert found.has_grown({TOPIC: ends}, {}) == TOPIC
