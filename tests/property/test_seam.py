"""Whatever a connector has published when it stops: behind the seam every partition has each event, in order, once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import GapError
from cdcd.migration.published_change import ChangeReader
from cdcd.migration.seam import Seam
from cdcd.migration.topic_tails import Tail, TopicTails
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.sink.partitioner import partition_for

TOPIC, PARTITIONS = "shop.public.t", 2
CHANGES = ChangeReader("json")
KEYS = [b"%d" % number for number in range(3)]


@dataclass(frozen=True)
class Row:
    """A change of a transaction; `lsn` may be that of the change before, as rows of one COPY have it."""

    xid: int
    lsn: int
    op: str
    key: bytes | None
    last_commit: int
    number: int = 0
    """Tells it from other rows of one COPY that share its key."""

    @property
    def value(self) -> bytes:
        source = {
            "snapshot": "false", "sequence": json.dumps([str(self.last_commit), str(self.lsn)]), "txId": self.xid,
            "lsn": self.lsn,
        }  # fmt: skip
        after = None if self.op == "d" else [self.lsn, (self.key or b"").decode(), self.number]
        return json.dumps({"before": None, "after": after, "source": source, "op": self.op}).encode()

    @property
    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        """The event, and its tombstone."""
        event: tuple[bytes | None, bytes | None] = (self.key, self.value)
        return [event, (self.key, None)] if self.op == "d" else [event]


@st.composite
def histories(draw: st.DrawFn, *, keyed: bool, truncates: bool = False) -> list[list[Row]]:
    """Transactions in commit order, whose changes lie between each other in the WAL."""
    made: list[list[Row]] = []
    last_commit = 1_000
    # A truncate locks the table, so changes of two transactions do not lie between each other then.
    for number in range(draw(st.integers(1, 5))):
        rows: list[Row] = []
        lsn = last_commit - (0 if truncates else draw(st.integers(0, 40)))  # it may have begun before the last commit
        for _ in range(draw(st.integers(1, 6))):
            key = draw(st.sampled_from(KEYS)) if keyed else None
            op = draw(st.sampled_from("ccd" if keyed else "c"))
            if truncates and draw(st.integers(0, 3)) == 0:
                op, key = "t", None
            # A key of the settings need not be unique, so rows of one COPY may share it.
            # One change deletes a row once.
            is_other = op == "c" or all(row.key != key for row in rows if row.lsn == lsn)
            same = bool(rows) and rows[-1].op == op and is_other and draw(st.booleans())
            lsn += 0 if same else 10
            rows.append(Row(10 + number, lsn, op, key, last_commit, len(rows) if keyed else 0))
        made.append(rows)
        last_commit = max(last_commit, lsn) + 10
    return made


def publish(history: list[list[Row]], seam: Seam, cuts: list[int]) -> list[tuple[bytes | None, bytes | None]]:
    """What is left of a history that comes in batches; `cuts`: after how many rows a batch is built."""
    builder = BatchBuilder(True, truncate_key=None)
    table = builder.open_table("public", "t")
    left: list[tuple[bytes | None, bytes | None]] = []

    def build() -> None:
        batch = builder.build()
        seam.cut(batch)
        left.extend((message.get("key"), message["value"]) for each in batch.tables for message in each.messages)

    passed = 0
    for number, rows in enumerate(history):
        end = history[number + 1][0].last_commit if number + 1 < len(history) else rows[-1].lsn + 1_000
        builder.begin(end - 1, 1)
        for row in rows:
            if row.op == "t":
                builder.add_to_every_partition(table, ord("t"), row.value)
            else:
                builder.add(table, ord(row.op), row.key, row.value)
            passed += 1
            if passed in cuts:
                build()
        builder.commit(end)
    build()
    build()
    return left


def found_in(
    published: dict[int, list[tuple[bytes | None, bytes | None]]],
    confirmed_lsn: int,
    *,
    has_truncates: bool = False,
    shared: tuple[str, ...] = (),
) -> TopicTails:
    """The ends of partitions, as `read_tails` finds them."""
    ends = {TOPIC: [len(published[at]) for at in range(PARTITIONS)]}
    found = TopicTails(ends, has_truncates=has_truncates, shared=shared)
    for partition, records in published.items():
        tombstones = set[Any]()
        changes = []
        for key, value in reversed(records):
            if value is None:
                tombstones.add(key)
                continue
            change, _ = CHANGES.read(value, TOPIC)
            assert change is not None
            changes.append(Tail(change, key, key in tombstones))
            tombstones = set()
        found.note(TOPIC, partition, changes, confirmed_lsn)
    return found


Partitions: TypeAlias = dict[int, list[tuple[bytes | None, bytes | None]]]


def spread(data: st.DataObject, history: list[list[Row]], confirmed: int) -> tuple[Partitions, Partitions]:
    """The records of a history by partition, and those of them that the connector has published.

    It has published all transactions before the number `confirmed`. A record without a key goes to any partition.
    """
    whole: Partitions = {at: [] for at in range(PARTITIONS)}
    certain = [0] * PARTITIONS
    for number, rows in enumerate(history):
        for key, value in [record for row in rows for record in row.records]:
            at = data.draw(st.integers(0, PARTITIONS - 1)) if key is None else partition_for(key, PARTITIONS)
            whole[at].append((key, value))
            if number < confirmed:
                certain[at] = len(whole[at])
    return whole, {at: records[: data.draw(st.integers(certain[at], len(records)))] for at, records in whole.items()}


@given(st.data())
def test_with_a_key_each_partition_has_every_record_once_and_in_order(data: st.DataObject) -> None:
    history = data.draw(histories(keyed=True))
    confirmed = data.draw(st.integers(0, len(history) - 1))
    confirmed_lsn = history[confirmed][0].last_commit + data.draw(st.integers(0, 9))
    whole: dict[int, list[tuple[bytes | None, bytes | None]]] = {at: [] for at in range(PARTITIONS)}
    certain = [0] * PARTITIONS
    for number, rows in enumerate(history):
        for key, value in [record for row in rows for record in row.records]:
            assert key is not None
            partition = partition_for(key, PARTITIONS)
            whole[partition].append((key, value))
            if number < confirmed:
                certain[partition] = len(whole[partition])
    published = {
        at: records[: data.draw(st.integers(certain[at], len(records)))] for at, records in whole.items()
    }  # fmt: skip
    seam = Seam(found_in(published, confirmed_lsn), confirmed_lsn, lambda *table: f"shop.{'.'.join(table)}", CHANGES)
    left = publish(history[confirmed:], seam, data.draw(st.lists(st.integers(1, 12))))
    seam.check()
    for partition, records in whole.items():
        later = [record for record in left if partition_for(record[0] or b"", PARTITIONS) == partition]
        assert published[partition] + later == records


@given(st.data())
def test_without_a_key_every_row_is_there_once(data: st.DataObject) -> None:
    history = data.draw(histories(keyed=False))
    confirmed = data.draw(st.integers(0, len(history) - 1))
    confirmed_lsn = history[confirmed][0].last_commit + data.draw(st.integers(0, 9))
    published: dict[int, list[tuple[bytes | None, bytes | None]]] = {at: [] for at in range(PARTITIONS)}
    whole = Counter(row.value for rows in history for row in rows)
    for number, rows in enumerate(history):
        for row in rows:
            if number < confirmed or data.draw(st.booleans()):
                published[data.draw(st.integers(0, PARTITIONS - 1))].append((None, row.value))
    seam = Seam(found_in(published, confirmed_lsn), confirmed_lsn, lambda *table: f"shop.{'.'.join(table)}", CHANGES)
    left = publish(history[confirmed:], seam, data.draw(st.lists(st.integers(1, 12))))
    there = Counter(value for records in published.values() for _, value in records)
    assert there + Counter(value for _, value in left) == whole


@given(st.data())
def test_tables_that_share_a_topic_have_every_record_once_and_are_counted(data: st.DataObject) -> None:
    """One table has a key, the other has none, and their events lie between each other."""
    history = [
        [replace(row, key=None, op="c") if row.op == "c" and data.draw(st.booleans()) else row for row in rows]
        for rows in data.draw(histories(keyed=True))
    ]
    confirmed = data.draw(st.integers(0, len(history) - 1))
    confirmed_lsn = history[confirmed][0].last_commit + data.draw(st.integers(0, 9))
    whole, published = spread(data, history, confirmed)
    found = found_in(published, confirmed_lsn, shared=(TOPIC,))
    seam = Seam(found, confirmed_lsn, lambda *_: TOPIC, CHANGES)
    builder = BatchBuilder(True, truncate_key=None, shared_topic=lambda *_: TOPIC)
    tables = {name: builder.open_table("public", name) for name in ("t", "keyless")}
    cuts, passed = data.draw(st.lists(st.integers(1, 12))), 0
    left: list[tuple[bytes | None, bytes | None]] = []
    counts = Counter[tuple[str, str]]()
    for number, rows in enumerate(history[confirmed:], confirmed):
        end = history[number + 1][0].last_commit if number + 1 < len(history) else rows[-1].lsn + 1_000
        builder.begin(end - 1, 1)
        for row in rows:
            builder.add(tables["keyless" if row.key is None else "t"], ord(row.op), row.key, row.value)
            passed += 1
            if passed in cuts:
                left += cut(seam, builder.build(), counts)
        builder.commit(end)
    left += cut(seam, builder.build(), counts) + cut(seam, builder.build(), counts)
    seam.check()
    for partition, records in whole.items():
        keyed = [each for each in records if each[0] is not None]
        later = [each for each in left if each[0] is not None and partition_for(each[0], PARTITIONS) == partition]
        assert [each for each in published[partition] if each[0] is not None] + later == keyed
    there = Counter(value for records in published.values() for key, value in records if key is None)
    keyless = Counter(value for key, value in left if key is None)
    assert there + keyless == Counter(value for records in whole.values() for key, value in records if key is None)
    events = Counter("keyless" if key is None else "t" for key, value in left if value is not None)
    assert counts == Counter({("public", name): number for name, number in events.items()})


def cut(seam: Seam, batch: Batch, counts: Counter[tuple[str, str]]) -> list[tuple[bytes | None, bytes | None]]:
    """What is left of a batch. `counts` gets the events that it has by table."""
    seam.cut(batch)
    for table in batch.tables:
        for name, by_op in table.counts.items():
            counts[name] += sum(by_op.values())
    return [(message.get("key"), message["value"]) for each in batch.tables for message in each.messages]


@given(st.data())
def test_a_truncate_is_there_once_and_before_all_later_events_or_it_is_refused(data: st.DataObject) -> None:
    history = data.draw(histories(keyed=True, truncates=True))
    confirmed = data.draw(st.integers(0, len(history) - 1))
    confirmed_lsn = history[confirmed][0].last_commit + data.draw(st.integers(0, 9))
    whole, published = spread(data, history, confirmed)
    found = found_in(published, confirmed_lsn, has_truncates=True)
    seam = Seam(found, confirmed_lsn, lambda *table: f"shop.{'.'.join(table)}", CHANGES)
    left = publish(history[confirmed:], seam, data.draw(st.lists(st.integers(1, 12))))
    try:
        seam.check()
    except GapError:
        return
    place = {value: number for number, value in enumerate(row.value for rows in history for row in rows)}
    for partition, records in whole.items():
        later = [each for each in left if each[0] is None or partition_for(each[0], PARTITIONS) == partition]
        events = [place[value] for _, value in published[partition] + later if value is not None]
        assert events == sorted(events)
        keyed = [each for each in published[partition] + later if each[0] is not None]
        assert keyed == [each for each in records if each[0] is not None]
    truncates = Counter(value for records in whole.values() for key, value in records if key is None)
    there = Counter(value for records in published.values() for key, value in records if key is None)
    assert there + Counter(value for key, value in left if key is None) == truncates


@given(st.data())
def test_partitions_that_were_added_are_refused_or_harmless(data: st.DataObject) -> None:
    """The connector has written all to one partition, and there are two by now."""
    history = data.draw(histories(keyed=True))
    confirmed = data.draw(st.integers(0, len(history) - 1))
    confirmed_lsn = history[confirmed][0].last_commit + data.draw(st.integers(0, 9))
    records = [record for rows in history for row in rows for record in row.records]
    certain = sum(len(row.records) for rows in history[:confirmed] for row in rows)
    there = records[: data.draw(st.integers(certain, len(records)))]
    found = found_in({0: there, 1: []}, confirmed_lsn)
    seam = Seam(found, confirmed_lsn, lambda *table: f"shop.{'.'.join(table)}", CHANGES)
    left = publish(history[confirmed:], seam, [])
    try:
        seam.check()
    except GapError:
        return
    assert Counter(there + left) == Counter(records)
