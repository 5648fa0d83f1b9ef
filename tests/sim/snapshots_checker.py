"""Judges the snapshots of tables: each row that a snapshot shows comes once, and topics give the tables at every cut.

Before: `checker` has the events of a Kafka transaction, `snapshots` tells what each snapshot showed. After: `checker`.

It demands:

1. An event of a snapshot stands at the LSN of a snapshot that was taken, and its row is what that snapshot shows.
2. Changes that were deferred while a table was read come later on the table's own topic, byte by byte, once and in
   order.
3. A fresh snapshot replaces rows once for each time that somebody asked who had the right, that the key of the table's
   events changed, or that another table got the name; and not without. From the first event of that table on, the
   topic counts as incomplete until the snapshot is there.
4. At every cut, a topic gives the table as it was at that LSN, rows from before the slot included: if the table's
   snapshot is complete and no change of it is deferred. If the record says that the rows are of another table, which
   had the name before, nobody has noticed yet; in the end everybody has.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sim.fake_kafka import FakeBroker, Placed
from sim.fake_postgres import Table
from sim.heaps import Fold, Identity, Row, Steps
from sim.repairs_checker import RepairsChecker
from sim.snapshots import SimSnapshot
from sim.sql import POISON, Database, Rekeyed
from sim.stops import StopsChecker

from cdcd.progress.records import SlotRecord, kafka_topic
from cdcd.progress.snapshot_records import DONE, WANTED, TableSnapshot, parse_snapshot_record
from cdcd.sink.parking.wire_format import PartAssembler
from cdcd.sink.topics import TopicNames


@dataclass(frozen=True)
class Seen:
    """One event as a reader finds it."""

    topic: str
    partition: int
    key: bytes | None
    data: bytes
    value: dict[str, Any]

    @property
    def position(self) -> tuple[int, int]:
        return self.value["source"]["commit_lsn"], self.value["source"]["seq"]


class SnapshotsChecker:
    """One world's judge of snapshots. `demand` raises if its first argument does not hold."""

    def __init__(
        self, broker: FakeBroker, database: Database, names: TopicNames, demand: Callable[[bool, str], None]
    ) -> None:
        self._broker = broker
        self._db = database
        self._names = names
        self._demand = demand
        self.repairs = RepairsChecker(database, names.prefix, demand)
        self._shown: dict[int, dict[str, dict[Identity, Row]]] = {}
        """By consistent point and topic: rows without an event so far."""
        self._positions: set[tuple[int, int]] = set()
        self._folds: dict[str, Fold] = {}
        self._deferred: dict[str, deque[Seen]] = {}
        self._assemblies: dict[str, PartAssembler] = {}
        self.standing: dict[str, TableSnapshot] = {}
        self.never: frozenset[str] = frozenset()
        """The topics of tables that the settings forbid to copy: no row is read for them."""
        self._tables: dict[int, Fold] = {}
        """By OID."""
        self._asked: dict[str, int] = {}
        """By topic, the LSN of the last request for a fresh snapshot."""
        self._asked_at = 0
        """How many of the requests `_asked` holds."""
        self._unserved: set[str] = set()
        """The topics of `_asked` whose fresh snapshot has not begun."""
        self._lost: set[str] = set()
        """The topics of `_unserved` that have lost records."""
        self._late: set[str] = set()
        """The topics of `_lost` that somebody else had asked for. Each may be replaced twice: the daemon may notice the
        loss when the snapshot that serves the request has begun."""
        self._anew: dict[str, int] = {}
        """By topic, the consistent point of the last snapshot that replaces rows."""
        self._begun: dict[str, int] = {}
        """By topic, the consistent point of the last snapshot."""
        self._rekeyed: dict[int, int] = {}
        """By OID, where its key changed last."""
        self._keys: dict[str, tuple[str, ...]] = {}
        """By topic, the key of its last events."""
        self._keys_shown: dict[tuple[str, int], tuple[str, ...]] = {}
        """By topic and consistent point, the key of a table that a snapshot shows."""
        self._replaced: set[str] = set()
        """The topics of the last Kafka transaction whose rows a fresh snapshot is to replace."""
        self._at = 0
        """How many transactions of the ledger `_tables` holds."""
        self._steps = Steps(database)
        self._changes: Counter[Any] = Counter()
        """By topic, and by table."""
        self._tables_then = dict(database.server.tables)
        """By OID, as they were at the last cut."""
        self._altered_at = 0
        """How many of the ledger's `versions` it holds."""
        self._oids: dict[str, int] = {}
        """By topic, the table that its last rows or events are of."""
        self._taken: list[tuple[int, str, int]] = []
        """Snapshots that `_oids` and `_keys` do not hold yet: consistent point, topic and table."""
        self._compared: dict[str, object] = {}
        """By topic, the state at the last comparison."""
        self._stops = StopsChecker(names, database, demand)
        self._followed: Counter[str] = Counter()
        """By topic, the commit LSN of the last change there, at the last cut."""

    def took(self, snapshot: SimSnapshot, tables: Iterable[Table]) -> None:
        """A snapshot was taken of these tables."""
        self._keys_shown |= {(self._topic(table), snapshot.lsn): table.key_of_events for table in tables}
        self._shown[snapshot.lsn] = {
            self._topic(table): {
                identity: {name: row.get(name) for name, _ in table.columns}
                for identity, row in snapshot.file(table).fold.rows.items()
            }
            for table in tables
        }

    def is_taken(self, lsn: int) -> bool:
        """Whether a snapshot has this consistent point."""
        return lsn in self._shown

    def _topic(self, table: Table) -> str:
        return self._names.topic(table.schema, table.name)

    # Deferred changes

    def parked(self, records: Iterable[Placed], decode: Callable[[bytes], Any]) -> list[Seen]:
        """Return the events that these records of the parked topic hold, as if they were on their own topics."""
        found: list[Seen] = []
        for placed in records:
            assert placed.key is not None
            assert placed.value is not None
            topic = self._names.topic(*placed.key.decode().partition("/")[2].split("."))
            event = self._assemblies.setdefault(topic, PartAssembler()).add(placed.offset, placed.value)
            if event is None:
                continue
            if event.value is None:
                before = self._deferred[topic][-1]
                self._demand(
                    before.value["op"] == "d" and before.key == event.key, f"{topic}: a tombstone after {before}"
                )
                continue
            copies = range(
                len(self._broker.topics[kafka_topic(topic)])
                if event.everywhere and kafka_topic(topic) in self._broker.topics
                else 1
            )
            seen = [Seen(topic, number, event.key, event.value, decode(event.value)) for number in copies]
            self._deferred.setdefault(topic, deque()).append(seen[0])
            if self.repairs.is_repair(seen[0]):
                self.repairs.judge(seen[0], decode(event.key or b""))
            found += seen
        return found

    def take_replayed(self, events: list[Seen], decode: Callable[[bytes], Any]) -> list[Seen]:
        """Judge the deferred changes and the snapshots' rows among the events of a transaction; return the others."""
        others = []
        for event in sorted(events, key=lambda each: each.position):
            deferred = self._deferred.get(event.topic)
            if self.repairs.is_repair(event):
                if deferred and event.position >= deferred[0].position:
                    self._judge_replayed(event, deferred)
                else:
                    self.repairs.judge(event, decode(event.key or b""))
            elif event.position[0] + 1 in self._shown:
                self._judge_snapshot_row(event)
            elif deferred and event.position >= deferred[0].position:
                self._judge_replayed(event, deferred)
            else:
                others.append(event)
        return others

    def _judge_replayed(self, event: Seen, deferred: deque[Seen]) -> None:
        wanted = deferred[0]
        last = len(self._broker.topics[kafka_topic(event.topic)]) - 1 if event.value["op"] == "t" else event.partition
        if (event.position, event.key, event.data) != (wanted.position, wanted.key, wanted.data):
            self._demand(
                False, f"{event.topic}: {wanted.position} was deferred and is next, but there is {event.position}"
            )
        if event.partition == last:
            deferred.popleft()

    def _judge_snapshot_row(self, event: Seen) -> None:
        lsn, value = event.position[0] + 1, event.value
        what = f"{event.topic} at the snapshot of {lsn:X}: "
        shown = self._shown[lsn].get(event.topic)
        self._demand(shown is not None, what + "it does not show this table")
        self._demand(lsn > self._followed[event.topic], what + "a row behind changes that the snapshot does not show")
        assert shown is not None
        if value["op"] == "t":
            return
        self._demand(event.position not in self._positions, what + f"two events {event.position}")
        self._positions.add(event.position)
        self._demand(value["op"] == "r", what + f"an event {value['op']}")
        self._demand(value["source"]["lsn"] == event.position[0], what + "the LSN of a row")
        self._demand(not value["unchanged"] and not value.get("unrepresentable"), what + "a row with values left out")
        row = value["after"]
        identity = next((each for each, of in shown.items() if of == row), None)
        if identity is None:
            self._demand(False, what + f"{row} is not one of the rows left, {list(shown.values())[:3]}")
        assert identity is not None
        del shown[identity]

    # Cuts

    def fold(self, events: Iterable[Seen], copies: Iterable[Placed], decode: Callable[[bytes], Any]) -> None:
        """Take the events of a Kafka transaction on the tables' own topics, and its records of their snapshots."""
        done: set[tuple[str, tuple[int, int]]] = set()
        for event in sorted(events, key=lambda each: each.position):
            if (event.topic, event.position) in done or event.value["op"] == "m":
                continue  # a truncate is in every partition
            done.add((event.topic, event.position))
            key = None if event.key is None else decode(event.key)
            value = event.value
            self._changes[event.topic] += 1
            fold = self._folds.setdefault(event.topic, Fold())
            fold.apply(value["op"], key, value["before"], value["after"], value["unchanged"])
            if event.position[0] + 1 not in self._shown and not self.repairs.is_repair(event):
                self._followed[event.topic] = max(self._followed[event.topic], event.position[0])
        self._replaced.clear()
        for placed in self.repairs.take(copies):
            copy = parse_snapshot_record(placed.key or b"", placed.value or b"")
            before = self.standing.get(copy.topic)
            if copy.lsn and copy.incarnation is not None and (before is None or before.lsn != copy.lsn):
                self._taken.append((copy.lsn, copy.topic, copy.incarnation.oid))
            self._demand(
                copy.topic not in self.never or not copy.lsn, f"{copy.topic}: copied, which the settings forbid"
            )
            self.standing[copy.topic] = copy
            self._stops.take(before, copy)
            if copy.repair:
                self._demand(
                    before is None or before.repair != "" or copy.topic in self._unserved, "no gap, and a repair"
                )
                self._demand(copy.state == WANTED, f"{copy.topic}: complete before it is repaired")
            elif copy.state == DONE and before is not None and before.repair:
                self._begun[copy.topic] = copy.lsn
            elif copy.state == WANTED and copy.starts_with_truncate and (before is None or before.state != WANTED):
                self._replaced.add(copy.topic)
            elif copy.state != WANTED and (before is None or before.lsn != copy.lsn):
                self._begun[copy.topic] = copy.lsn
                if copy.starts_with_truncate:
                    self._anew[copy.topic] = copy.lsn

    def compare(self, published: int, created: int, last: SlotRecord) -> None:
        """Compare topics with tables at a cut that holds `published` transactions of the ledger.

        The slot was created at `created`.
        """
        for committed in self._db.ledger[self._at : published]:
            for step in self._steps.of(committed):
                self._changes[step.oid] += 1
                fold = self._tables.setdefault(step.oid, Fold())
                if isinstance(step, Rekeyed):
                    self._rekey(step)
                else:
                    fold.apply(step.op, step.key, step.before, step.after, step.unchanged)
                    topic = self._names.topic(*step.table)
                    self._announce(topic, step.oid, step.columns_of_key or (), committed.commit_lsn)
        self._at = published
        for rekeyed in self._steps.left(last.lsn):
            self._rekey(rekeyed)
        while self._asked_at < len(self._db.asked) and (asked := self._db.asked[self._asked_at]).end_lsn <= last.lsn:
            self._ask(self._names.topic(*asked.table), asked.end_lsn)
            self._asked_at += 1
        for topic in self._replaced:
            if topic not in self._unserved:
                is_late = topic in self._late
                self._demand(is_late, f"{topic} at {last.lsn:X}: nobody with the right has asked to replace it")
                self._late.discard(topic)
        self._unserved = {topic for topic in self._unserved if self._anew.get(topic, 0) <= self._asked[topic]}
        self._lost &= self._unserved
        self.repairs.compare(created, last.lsn)
        self._stops.compare(self.standing, self._asked, last.lsn)
        parked = {(each.schema, each.table) for each in last.incomplete}
        while self._altered_at < len(self._db.versions) and self._db.versions[self._altered_at][0] < last.lsn:
            self._tables_then |= self._db.versions[self._altered_at][1]
            self._altered_at += 1
        for table in self._tables_then.values():
            if table.oid in self._db.unpublished:
                continue
            topic = self._topic(table)
            name = (table.schema, table.name)
            deferred = bool(self._deferred.get(topic))
            self._demand(not deferred or name in parked, f"{topic}: what was deferred is forgotten")
            is_as_rekeyed = self._begun.get(topic, 0) > self._rekeyed.get(table.oid, 0)
            is_judged = is_as_rekeyed and self._is_complete(topic) and self._has_noticed(topic, table)
            if not is_judged or name in parked:
                continue
            state = (self._changes[topic], self._changes[table.oid], table)
            if self._compared.get(topic) == state:
                continue
            self._compared[topic] = state
            self._compare(topic, table, last.lsn)

    def _announce(self, topic: str, oid: int, key: tuple[str, ...], lsn: int) -> None:
        """Note the table and the key of events that commit at `lsn`. Another one needs a fresh snapshot."""
        for each in [each for each in self._taken if each[0] <= lsn]:
            self._taken.remove(each)
            at, of_topic, of_table = each
            self._oids[of_topic] = of_table
            self._keys[of_topic] = self._keys_shown.get((of_topic, at), self._keys.get(of_topic, ()))
        for other, of in self._oids.items():
            if of == oid and other != topic:
                self._oids[other] = 0
        if self._oids.get(topic, oid) != oid or self._keys.get(topic, key) != key:
            self._ask(topic, lsn)
        self._oids[topic], self._keys[topic] = oid, key

    def _rekey(self, step: Rekeyed) -> None:
        self._tables.setdefault(step.oid, Fold()).rekey(step.key)
        self._rekeyed[step.oid] = step.commit_lsn

    def _has_noticed(self, topic: str, table: Table) -> bool:
        """Whether the rows of the topic are of this table, as far as its record says."""
        incarnation = self.standing[topic].incarnation
        return incarnation is not None and incarnation.oid == table.oid

    def _compare(self, topic: str, table: Table, lsn: int) -> None:
        truth, found = self._tables.get(table.oid), self._folds.get(topic)
        if truth is not None and found is not None and truth.rows == found.rows:
            return
        wanted, got = self._content(truth, table), self._content(found, table)
        if got != wanted:
            missing = [row for row in wanted if row not in got][:3]
            surplus = [row for row in got if row not in wanted][:3]
            self._demand(False, f"{topic} at {lsn:X}: missing or other {missing}, too many or other {surplus}")

    def lost(self, topic: str, lsn: int) -> None:
        """A topic has lost records: it needs a snapshot that is taken after `lsn`."""
        if topic in self._unserved:
            self._late.add(topic)
        self._ask(topic, lsn)
        self._lost.add(topic)
        self._compared.pop(topic, None)

    def gap(self, lsn: int) -> None:
        """Changes from `lsn` on are missing: every table is to be compared, or copied.

        A topic of a name that no table has any more stays as it is.
        """
        for topic in self.standing.keys() | {self._topic(table) for table in self._db.published()}:
            self._ask(topic, lsn)

    def _ask(self, topic: str, lsn: int) -> None:
        if topic in self._lost:
            self._late.add(topic)
        self._asked[topic] = max(self._asked.get(topic, 0), lsn)
        self._unserved.add(topic)

    def done(self) -> bool:
        """Whether every table's snapshot is complete, and no change is deferred."""
        # What Kafka refuses stays parked.
        tables = {self._topic(table): table for table in self._db.published() if table.schema != POISON.schema}
        is_complete = all(
            self._is_complete(topic) and self._has_noticed(topic, table) and not self._deferred.get(topic)
            for topic, table in tables.items()
            if topic not in self.never
        )
        return is_complete and self.repairs.done()

    def _is_complete(self, topic: str) -> bool:
        copy = self.standing.get(topic)
        return copy is not None and copy.state == DONE and copy.lsn > self._asked.get(topic, 0)

    @staticmethod
    def _content(fold: Fold | None, table: Table) -> list[str]:
        rows = [] if fold is None else fold.rows.values()
        return sorted(repr({name: row.get(name) for name, _ in table.columns}) for row in rows)
