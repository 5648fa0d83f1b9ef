"""Judges the repairs of single rows: what was asked for is published once, as the snapshot shows it, and nothing else.

Before: `snapshots_checker` has the events of a Kafka transaction, `snapshots` tells what each snapshot showed.
After: `snapshots_checker`.

It demands:

1. A repair is recorded only if somebody asked for it who had the right, and every one of these is recorded.
2. A Kafka transaction has an event for each key of the repairs that it ends, and no other one. A repair may end without
   events if its table is gone, or has another key.
3. The event is the row that the snapshot shows under the key, or a delete if it shows none.
4. The table's record counts them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from hashlib import sha256
from math import inf
from typing import TYPE_CHECKING, Any

from sim.fake_kafka import Placed
from sim.heaps import Row
from sim.sql import POISON, Database

from cdcd.progress.repair_records import PendingRepair, RepairKeys, TableRepairs, is_repair_record, parse_repair_record
from cdcd.snapshot.repair_events import REPAIR_ORIGIN

if TYPE_CHECKING:
    from sim.snapshots import SimSnapshot
    from sim.snapshots_checker import Seen


class RepairsChecker:
    """One world's judge of repairs. `demand` raises if its first argument does not hold."""

    def __init__(self, database: Database, prefix: str, demand: Callable[[bool, str], None]) -> None:
        self._db = database
        self._prefix = prefix
        self._demand = demand
        self._shown: dict[int, SimSnapshot] = {}
        """By consistent point."""
        self._pending: dict[bytes, PendingRepair] = {}
        self._found: dict[tuple[str, str], int] = {}
        """Topic and number of the repairs of what differs after a gap, each with the LSN of the comparison."""
        self._recorded: set[tuple[str, str]] = set()
        """Topic and number of every repair that was recorded."""
        self._events: Counter[str] = Counter()
        """Of repairs, by topic."""
        self._now: Counter[tuple[str, tuple[str, ...]]] = Counter()
        """Topic and key of the events in the transaction that is judged."""

    def took(self, snapshot: SimSnapshot) -> None:
        """A snapshot was taken."""
        self._shown[snapshot.lsn] = snapshot

    def found(self, table: tuple[str, str], lsn: int, repairs: Iterable[RepairKeys]) -> None:
        """A comparison has found at `lsn` which rows differ. The daemon may die before it records them."""
        self._found |= {(self._topic(*table), self._number(each.text())): lsn for each in repairs}

    @staticmethod
    def is_repair(event: Seen) -> bool:
        """Whether an event is marked as one of a repair."""
        return bool(event.value["source"]["origin"] == REPAIR_ORIGIN)

    def judge(self, event: Seen, key: Row | None) -> None:
        """Judge an event that is marked as one of a repair. `key`: its key, decoded."""
        lsn, value = event.position[0] + 1, event.value
        what = f"{event.topic}, repaired at the snapshot of {lsn:X}: "
        snapshot = self._shown.get(lsn)
        self._demand(snapshot is not None and key is not None, what + "no snapshot, or no key")
        assert snapshot is not None
        assert key is not None
        [table] = [each for each in snapshot.tables.values() if self._topic(each.schema, each.name) == event.topic]
        rows = {tuple(row[name] for name in key): row for row in snapshot.file(table).fold.rows.values()}
        row = rows.get(tuple(key.values()))
        wanted = None if row is None else {name: row.get(name) for name, _ in table.columns}
        self._demand(value["op"] == ("d" if row is None else "r"), what + f"an event {value['op']} of {key}")
        self._demand(value["after"] == wanted, what + f"{value['after']} instead of {wanted}")
        self._events[event.topic] += 1
        self._now[event.topic, tuple(map(str, key.values()))] += 1

    def take(self, copies: Iterable[Placed]) -> list[Placed]:
        """Judge the records of repairs among those of the snapshots topic, with the events; return the others."""
        others, ended = list[Placed](), Counter[tuple[str, tuple[str, ...]]]()
        for placed in copies:
            key = placed.key or b""
            if not is_repair_record(key):
                others.append(placed)
                continue
            record = None if placed.value is None else parse_repair_record(key, placed.value)
            if isinstance(record, TableRepairs):
                done = self._events[record.topic]
                self._demand(record.rows + record.deletes == done, f"{record}, but there are {done} events")
                continue
            before = self._pending.pop(key, None)
            left: tuple[Any, ...] = ()
            if record is not None:
                self._pending[key] = record
                self._recorded.add((record.topic, record.number))
                left = record.wanted.keys
            if before is not None:
                keys = {(before.topic, each) for each in before.wanted.keys if each not in left}
                if not self._may_refuse(before) or keys & self._now.keys():
                    ended.update(keys)
        self._demand(+self._now == +ended, f"repaired {self._now}, to be repaired {ended}")
        self._now.clear()
        return others

    def _may_refuse(self, repair: PendingRepair) -> bool:
        """Whether the table is gone, or a snapshot since the request has shown it with another key."""
        name, number = (repair.schema, repair.table), repair.number
        if not any((table.schema, table.name) == name for table in self._db.published()):
            return True
        times = [e.end_lsn for e in self._db.repairs if e.table == name and self._number(e.keys) == number]
        asked = min([*times, self._found.get((repair.topic, number), inf)])
        return any(
            (table.schema, table.name) == name and table.key != repair.wanted.columns
            for lsn, snapshot in self._shown.items()
            if lsn >= asked
            for table in snapshot.tables.values()
        )

    def compare(self, created: int, lsn: int) -> None:
        """Hold what is recorded to what was asked for, at the cut of `lsn`. The slot was created at `created`."""
        inside = [each for each in self._db.repairs if each.end_lsn <= lsn]
        asked = {(self._topic(*each.table), self._number(each.keys)) for each in inside}
        published = {(table.schema, table.name) for table in self._db.published()}
        due = {
            (self._topic(*each.table), self._number(each.keys))
            for each in inside
            if each.end_lsn > created and each.table in published  # else the daemon has passed over it
        }
        missing, surplus = due - self._recorded, self._recorded - asked - self._found.keys()
        self._demand(not (missing or surplus), f"repairs that are forgotten {missing}, or nobody asked for {surplus}")

    def done(self) -> bool:
        """Whether every repair is done. What Kafka refuses stays parked."""
        return all(each.schema == POISON.schema for each in self._pending.values())

    @staticmethod
    def _number(keys: str) -> str:
        return sha256(keys.encode()).hexdigest()[:16]

    def _topic(self, schema: str, name: str) -> str:
        return f"{self._prefix}.{schema}.{name}"
