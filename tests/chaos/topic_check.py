"""The verdict, from the topics alone: reads them as they grow, and compares every transaction with the ledger.

Before: `writers` note what they committed; the daemon publishes it. After: `report` says what was found.

No code of cdcd reads here, only librdkafka's consumer (read_committed), and the rules of the manual (`events`). Memory
holds the transactions in progress: a transaction is compared and forgotten when the progress topic closes the cut after
it. A set of xids and the folded rows stay.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import psycopg
from chaos.counts import Counts
from chaos.events import Event, Format, Position, Texts, short, table_place, wrong_header
from chaos.masks import Masks
from chaos.reading import Place, Reader, Record
from chaos.writers import NOTES, SCRATCH, TABLES, Change, Ledger, Transaction
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql

SILENT_S = 60.0
"""So long an outage may last, and no consumer is suspected."""


@dataclass
class Cut:
    """A slot record: the topics hold everything below `lsn`, up to the offsets `ends`."""

    lsn: int
    ends: dict[Place, int]


class TopicCheck(threading.Thread):
    """Reads until it is told to stop. `problems` says what is wrong, `count` how much was read."""

    def __init__(
        self, bootstrap: str, prefix: str, ledger: Ledger, form: Format, masks: Masks, *, has_headers: bool = False
    ) -> None:
        super().__init__(daemon=True, name="topic check")
        self.reader = Reader(bootstrap, prefix)
        self._prefix = prefix
        self._ledger = ledger
        self._form = form
        self._masks = masks
        self._has_headers = has_headers
        self.counts = Counts(prefix, form, masks)
        self._ends: dict[Place, int] = {}
        self._waiting: deque[Record] = deque()
        self._seen_up_to: dict[Place, int] = {}
        self._last: dict[Place, Position] = {}
        self._partitions: dict[str, int] = {}
        self._cuts: deque[Cut] = deque()
        self._closed_lsn = 0
        self._pending: dict[int, list[Event]] = {}
        """Events before their cut, by the first number of their positions."""
        self._owed: dict[Place, tuple[bytes | None, bytes | None]] = {}
        """The keys and ids of deletes whose tombstone must be the next record."""
        self.unknown: dict[int, tuple[int, list[Event]]] = {}
        self._compared: set[int] = set()
        self._order: dict[int, tuple[int, int]] = {}
        self._tables: dict[str, str] = {}
        self.rows: dict[str, dict[str, Texts]] = {}
        self.unkeyed: dict[str, Counter[str]] = {}
        self.count: Counter[str] = Counter()
        self.problems: list[str] = []
        self.kinds: Counter[str] = Counter()
        self.read_at = time.monotonic()
        """When a row was read last, or the reader was started again for want of rows; on the monotonic clock."""
        self.arrivals: list[float] = []
        """When a row was published, on the monotonic clock, at most ten a second."""
        self.error: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        """Read on until `done`."""
        try:
            while not self.done.is_set():
                fresh, read = self.reader.portion(self._seen_up_to)
                self._partitions |= fresh
                for topic, partition, offset, record in read:
                    place = topic, partition
                    if record is None:
                        self._seen_up_to[place] = max(offset, self._seen_up_to.get(place, 0))
                    else:
                        self._take(Record(place, offset, *record))
                self._close_cuts()
        except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
            self.error = error
        finally:
            self.reader.kill()

    def restart_silent_reader(self) -> None:
        """Start the reader again if no row has come for long: librdkafka's consumer may hang, which is no loss."""
        if time.monotonic() - self.read_at > SILENT_S:
            self.read_at = time.monotonic()
            self.reader.kill()

    def drained(self) -> bool:
        """Whether everything in the ledger has arrived and was compared."""
        is_compared = not self._ledger.left() and not self._pending and not self.unknown
        return is_compared and self.counts.drained()

    def state(self) -> str:
        """How far it has read, and what it waits for."""
        cut = self._cuts[0] if self._cuts else None
        late = (
            [
                f"{p} {self._seen_up_to.get(p, 0)} of {end}"
                for p, end in cut.ends.items()
                if self._seen_up_to.get(p, 0) < end
            ]
            if cut
            else []
        )
        ends = _ends(self.reader.brokers, self._seen_up_to)
        return (
            f"topic check: {len(self._pending)} transactions before their cut, {len(self.unknown)} not in the ledger, "
            f"{len(self._waiting)} records before their schema, {len(self._cuts)} cuts to close, "
            f"not read up to the cut: {late[:3]}; partitions with unread records (read, stable, end): "
            f"{[(*place, seen, *ends[place]) for place, seen in self._seen_up_to.items() if seen < ends[place][1]]}; "
            f"{self.counts.state()}"
        )

    # Reading

    def _take(self, record: Record) -> None:
        place, offset, key, value, _ = record
        topic = place[0].removeprefix(f"{self._prefix}.")
        assert offset >= self._seen_up_to.get(place, 0), f"{place} went back"
        self._seen_up_to[place] = offset + 1
        self._check_tombstone(record)
        for data in (key, value):
            if hidden := self._masks.leak(data):
                self._problem("leak", f"{place} offset {offset} has {hidden!r}")
        # A tombstone of the progress decides a hanging transaction. What is parked comes again on its own topic.
        if topic in ("schemas", "progress", "snapshots", "parked"):
            if value is not None:
                self._own(topic, record, key or b"", value)
        elif self.counts.has_events(place[0]):
            self.counts.take(record)
        elif not self._form.is_event(record):
            return
        elif self._waiting or not self._form.knows(record):
            self._waiting.append(record)  # its schema is in another partition and comes in a moment
        else:
            self._row(record)

    def _own(self, topic: str, record: Record, key: bytes, value: bytes) -> None:
        """Take a record of one of cdcd's own topics."""
        if topic == "schemas":
            self._form.learn(record)
            while self._waiting and self._form.knows(self._waiting[0]):
                self._row(self._waiting.popleft())
        elif topic == "progress":
            self._progress(key.decode(), json.loads(value))
        elif topic == "snapshots":
            self.counts.note_snapshot(value)

    def _check_tombstone(self, record: Record) -> None:
        owed = self._owed.pop(record.place, None)
        if owed is not None and ((record.key, record.headers.get("ce_id")) != owed or record.value is not None):
            self._problem("lost", f"{record.place} offset {record.offset}: no tombstone of {owed}")

    def _row(self, record: Record) -> None:
        place = record.place
        if self.counts.has(place[0]):
            self.counts.take(record)
            return
        event = self._form.event(record)
        position = event.position
        if position <= self._last.get(place, (-1, -1)):
            kind = "doubled" if position == self._last[place] else "out of order"
            self._problem(kind, f"{place} offset {record.offset}: {position} after {self._last[place]}")
        self._last[place] = max(position, self._last.get(place, position))
        if self._form.has_tombstones and event.op == "d" and record.key is not None:
            self._owed[place] = record.key, record.headers.get("ce_id")
        if self._has_headers and (wrong := wrong_header(event, record.headers)):
            self._problem("headers", f"{place} offset {record.offset}: {wrong}")
        self.count["events"] += 1
        now = self.read_at = time.monotonic()
        if not self.arrivals or now - self.arrivals[-1] > 0.1:
            self.arrivals.append(now)
        if self._form.has_commit_lsn and position[0] < self._closed_lsn:
            double = event.xid in self._compared
            self._problem("doubled" if double else "late", f"{event.topic} {position} xid {event.xid} after its cut")
            return
        self._pending.setdefault(position[0], []).append(event)

    # Cuts

    def _progress(self, key: str, record: dict[str, Any]) -> None:
        if "/" in key:
            topic, shares, _ = record["topic"].partition("#")
            table = f"{record['schema']}.{record['table']}"
            self._tables[table_place(topic, table if shares else "")] = table
            for partition, end in enumerate(record["offsets"]):
                self._ends[topic, partition] = max(end, self._ends.get((topic, partition), 0))
        else:
            high, _, low = record["lsn"].partition("/")
            self._cuts.append(Cut((int(high, 16) << 32) + int(low, 16), dict(self._ends)))
            self._ends.clear()

    def _close_cuts(self) -> None:
        while self._cuts and not self._waiting:
            cut = self._cuts[0]
            if any(self._seen_up_to.get(place, 0) < end for place, end in cut.ends.items()):
                break
            self._cuts.popleft()
            self._close(cut)
        for lsn, (xid, events) in list(self.unknown.items()):
            if (transaction := self._ledger.take(xid)) is not None:
                del self.unknown[lsn]
                self._compare(lsn, events, transaction)

    def _close(self, cut: Cut) -> None:
        if cut.lsn < self._closed_lsn:
            self._problem("progress", f"a slot record goes back from {self._closed_lsn} to {cut.lsn}")
        self._closed_lsn = max(cut.lsn, self._closed_lsn)
        self.counts.close(cut.ends)
        for lsn in sorted(self._pending):
            events = sorted(self._pending[lsn], key=lambda e: (e.position, e.place[1]))
            inside = sum(e.offset < cut.ends.get(e.place, 0) for e in events)
            if self._form.has_commit_lsn and (lsn < cut.lsn) != bool(inside):
                self._problem("torn", f"transaction {lsn} is {'in' if inside else 'not in'} the cut {cut.lsn}")
            if not inside:
                continue
            if inside < len(events):
                self._problem("torn", f"transaction {lsn}: {inside} of {len(events)} events lie in its cut")
            del self._pending[lsn]
            [xid, *others] = {e.xid for e in events}
            if others:
                self._problem("torn", f"transaction {lsn} has xids {xid}, {others}")
            self._fold(events)
            transaction = self._ledger.take(xid)
            if transaction is None and xid in self._compared:
                self._problem("doubled", f"the transaction with xid {xid} comes again at {lsn}")
            elif transaction is None:
                self.unknown[lsn] = xid, events
            else:
                self._compare(lsn, events, transaction)
        self.count["cuts"] += 1

    def _compare(self, lsn: int, events: list[Event], transaction: Transaction) -> None:
        """Compare a transaction's events, in the order of their positions, with the ledger's changes."""
        what = f"transaction {transaction.number} at {lsn}"
        self._compared.add(events[0].xid)
        times: Counter[Position] = Counter()
        once: list[Event] = []
        for event in events:
            position = event.position
            times[position] += 1
            if times[position] == 1:
                once.append(event)
            elif event.op != "t":
                self._problem("doubled", f"{what}: {position} comes {times[position]} times")
            if event.op == "t" and times[position] > self._partitions[event.topic]:
                self._problem("doubled", f"{what}: the truncate of {event.topic} comes too often")
        if self._form.has_seq and [e.position[1] for e in once] != list(range(len(once))):
            self._problem("torn", f"{what}: seq has gaps")
        found = [self._change(event, transaction.number, what) for event in once]
        at = 0
        for noted in transaction.statements:
            statement = [change._replace(identity=_sorted(change.identity)) for change in noted]
            here, at = found[at : at + len(statement)], at + len(statement)
            if sorted(map(repr, here)) != sorted(map(repr, statement)):
                missing, more = Counter(statement) - Counter(here), Counter(here) - Counter(statement)
                self._problem(
                    "lost" if missing else "doubled", f"{what}: missing {list(missing)[:3]}, too many {list(more)[:3]}"
                )
                break
        if at != len(found):
            self._problem(
                "lost" if at > len(found) else "doubled", f"{what}: {len(found)} changes, the ledger has {at}"
            )
        if not transaction.prepared:
            # Transactions are not compared in commit order: the ledger may learn of one after it learns of the next.
            number, last_lsn = self._order.get(transaction.writer, (0, -1))
            if (transaction.number > number) != (lsn > last_lsn):
                self._problem("out of order", f"{what}, but transaction {number} of the same writer at {last_lsn}")
            self._order[transaction.writer] = max((transaction.number, lsn), (number, last_lsn))
        self.count["transactions"] += 1
        self.count["rows"] += len(found)

    def _change(self, event: Event, number: int, what: str) -> Change:
        new, old = event.after, event.before
        if new is not None and new["txn"] != str(number):
            self._problem("doubled", f"{what} has a row of transaction {new['txn']}")
        if event.key is not None:
            identity = tuple(event.key.values())
        elif event.op == "u" and not self._form.has_old_rows:
            identity = ()
        else:
            identity = () if old is None or event.op == "t" else (_number(old["txn"]), _number(old["n"]))
        table = self._tables.get(event.table_place, "")
        return Change(table, event.op, _sorted(identity), None if new is None else _number(new["n"]))

    def _problem(self, kind: str, what: str) -> None:
        self.kinds[kind] += 1
        if len(self.problems) < 50:
            self.problems.append(f"{kind}: {what}")

    # Folding

    def _fold(self, events: list[Event]) -> None:
        gone: tuple[int, Texts] = (-1, {})
        """The LSN of the change, and the row, if the event before is a delete."""
        for event in events:
            rows = self.rows.setdefault(event.table_place, {})
            bag = self.unkeyed.setdefault(event.table_place, Counter())
            before, after, was_gone = event.before, event.after, gone
            gone = (-1, {})
            key = None if event.key is None else json.dumps(event.key, default=str)
            if event.op == "t":
                rows.clear()
                bag.clear()
            elif key is None and not self._form.has_old_rows:
                continue  # nobody can tell which row a change is of
            elif key is None:
                if before is not None:
                    bag[json.dumps(before)] -= 1
                    if not bag[json.dumps(before)]:
                        del bag[json.dumps(before)]
                if after is not None:
                    bag[json.dumps(after)] += 1
            elif event.op == "d":
                if key not in rows:
                    self._problem("lost", f"{event.topic}: a delete of {key}, but the row was never there")
                gone = (event.lsn, rows.pop(key, {}))
            else:
                assert after is not None
                if (event.op == "u") != (key in rows):
                    self._problem(
                        "lost", f"{event.topic}: {event.op} of {key}, which is {'' if key in rows else 'not '}there"
                    )
                from_row = rows.get(key, {}) if event.op == "u" else was_gone[1]
                for name in event.unchanged:
                    assert event.op == "u" or was_gone[0] == event.lsn, (
                        "an insert with unchanged columns that is no new key"
                    )
                    after[name] = from_row.get(name)
                rows[key] = after

    def compare_tables(self, dsn: str) -> dict[str, int]:
        """Compare the folded rows with the tables, as text, and return how many rows each has."""
        sizes = {}
        places = {table: place for place, table in self._tables.items()}
        with psycopg.connect(dsn) as connection:
            for schema, table in TABLES:
                place = places.get(f"{schema}.{table}", "")
                folded = Counter(json.dumps(row) for row in self.rows.get(place, {}).values()) + self.unkeyed.get(
                    place, Counter()
                )
                wanted = self._content(connection, schema, table)
                sizes[f"{schema}.{table}"] = sum(wanted.values())
                if not self._form.has_old_rows and f"{schema}.{table}" == NOTES:
                    continue  # the ledger says that each change has come: nobody can fold them
                more, missing = folded - wanted, wanted - folded
                if not self._form.has_old_rows and f"{schema}.{table}" == SCRATCH:
                    more.clear()  # no row says that the table was truncated
                if more or missing:
                    self._problem("content", f"{table}: too many {list(more)[:3]}, missing {list(missing)[:3]}")
        return sizes

    def _content(self, connection: psycopg.Connection[Any], schema: str, table: str) -> Counter[str]:
        place, name = sql.Identifier(schema, table), f"{schema}.{table}"
        found = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(place)).description or ()
        names = [column.name for column in found]
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
        rows: Counter[str] = Counter()
        with connection.cursor("content") as cursor:
            for row in cursor.execute(sql.SQL("SELECT {} FROM {}").format(texts, place)):
                seen = {
                    column: short(self._masks.seen(name, column, text)) for column, text in zip(names, row, strict=True)
                }
                rows[json.dumps(seen)] += 1
        return rows


def _ends(brokers: str, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
    """Each partition's last stable offset and log end offset."""
    admin = AdminClient({"bootstrap.servers": brokers})
    wanted = {TopicPartition(*place): OffsetSpec.latest() for place in places}
    stable, last = (
        {(at.topic, at.partition): found.result(10).offset for at, found in asked.items()}
        for asked in (
            admin.list_offsets(wanted, isolation_level=level, request_timeout=10)
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        )
    )
    return {place: (stable[place], last[place]) for place in stable}


def _sorted(identity: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key's values in an order that does not depend on the order of the columns."""
    return tuple(sorted(identity, key=str))


def _number(text: str | None) -> int:
    assert text is not None
    return int(text)
