"""The verdict, from the topics alone: reads them as they grow, and compares every transaction with the ledger.

Before: `writers` note what they committed; the daemon publishes it. After: `report` says what was found.

No code of cdcd reads here, only librdkafka's consumer (read_committed), fastavro, and the rules of the manual. Memory
holds the transactions in progress: a transaction is compared and forgotten when the progress topic closes the cut after
it. A set of xids and the folded rows stay; a value longer than `SHORT` stays as its digest.
"""

from __future__ import annotations

import hashlib
import io
import json
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import fastavro
import psycopg
from chaos.reading import Place, Reader, Record
from chaos.writers import TABLES, Change, Ledger, Transaction
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from psycopg import sql
from support import topics

SILENT_S = 60.0
"""So long an outage may last, and no consumer is suspected."""
SHORT = 60
"""Characters of a value that is kept as it is."""

Position = tuple[int, int]
"""Commit LSN and `seq` of an event."""


@dataclass
class Event:
    """A row's record, decoded. `fields` describes the columns, in Avro's words."""

    topic: str
    partition: int
    offset: int
    value: dict[str, Any]
    key: dict[str, Any] | None
    fields: list[dict[str, Any]] = field(repr=False)


@dataclass
class Cut:
    """A slot record: the topics hold everything below `lsn`, up to the offsets `ends`."""

    lsn: int
    ends: dict[Place, int]


class TopicCheck(threading.Thread):
    """Reads until it is told to stop. `problems` says what is wrong, `count` how much was read."""

    def __init__(self, bootstrap: str, prefix: str, slot: str, ledger: Ledger) -> None:
        super().__init__(daemon=True, name="topic check")
        self.reader = Reader(bootstrap, prefix)
        self._prefix = prefix
        self._slot = slot
        self._ledger = ledger
        self._schemas: dict[str, Any] = {}
        self._texts: dict[str, Any] = {}
        self._ends: dict[Place, int] = {}
        self._waiting: deque[Record] = deque()
        self._seen_up_to: dict[Place, int] = {}
        self._last: dict[Place, Position] = {}
        self._partitions: dict[str, int] = {}
        self._cuts: deque[Cut] = deque()
        self._closed_lsn = 0
        self._pending: dict[int, list[Event]] = {}
        self.unknown: dict[int, tuple[int, list[Event]]] = {}
        self._compared: set[int] = set()
        self._order: dict[int, tuple[int, int]] = {}
        self._tables: dict[str, str] = {}
        self.rows: dict[str, dict[str, dict[str, str | None]]] = {}
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
        return not self._ledger.left() and not self._pending and not self.unknown

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
            f"{[(*place, seen, *ends[place]) for place, seen in self._seen_up_to.items() if seen < ends[place][1]]}"
        )

    # Reading

    def _take(self, record: Record) -> None:
        place, offset, key, value = record
        topic = place[0].removeprefix(f"{self._prefix}.")
        assert offset >= self._seen_up_to.get(place, 0), f"{place} went back"
        self._seen_up_to[place] = offset + 1
        # A tombstone decides a hanging transaction. The snapshots topic says how far snapshots are: no events.
        if value is None or topic == "snapshots":
            return
        if topic == "schemas":
            assert key is not None
            name = key.decode()
            self._texts[name] = json.loads(value)
            self._schemas[name] = fastavro.parse_schema(self._texts[name])
            while self._waiting and self._known(self._waiting[0]):
                self._row(self._waiting.popleft())
        elif topic == "progress":
            assert key is not None
            self._progress(key.decode(), json.loads(value))
        elif self._waiting or not self._known(record):
            self._waiting.append(record)  # its schema is in another partition and comes in a moment
        else:
            self._row(record)

    def _known(self, record: Record) -> bool:
        return all(d is None or d[2:10].hex() in self._schemas for d in (record.key, record.value))

    def _row(self, record: Record) -> None:
        place = record.place
        assert record.value is not None
        value = self._decoded(record.value)
        source = value["source"]
        position = source["commit_lsn"], source["seq"]
        if position <= self._last.get(place, (-1, -1)):
            kind = "doubled" if position == self._last[place] else "out of order"
            self._problem(kind, f"{place} offset {record.offset}: {position} after {self._last[place]}")
        self._last[place] = max(position, self._last.get(place, position))
        event = Event(
            *place,
            record.offset,
            value,
            None if record.key is None else self._decoded(record.key),
            next(
                f["type"][1]["fields"] for f in self._texts[record.value[2:10].hex()]["fields"] if f["name"] == "before"
            ),
        )
        self.count["events"] += 1
        now = self.read_at = time.monotonic()
        if not self.arrivals or now - self.arrivals[-1] > 0.1:
            self.arrivals.append(now)
        if source["commit_lsn"] < self._closed_lsn:
            double = source["xid"] in self._compared
            self._problem(
                "doubled" if double else "late", f"{event.topic} {position} xid {source['xid']} after its cut"
            )
            return
        self._pending.setdefault(source["commit_lsn"], []).append(event)

    def _decoded(self, data: bytes) -> dict[str, Any]:
        assert data[:2] == b"\xc3\x01"
        stream = io.BytesIO(data[10:])
        record = fastavro.schemaless_reader(stream, self._schemas[data[2:10].hex()], None)
        assert stream.tell() == len(data) - 10, "bytes after the end of the record"
        assert isinstance(record, dict)
        return record

    # Cuts

    def _progress(self, key: str, record: dict[str, Any]) -> None:
        if "/" in key:
            self._tables[record["topic"]] = f"{record['schema']}.{record['table']}"
            for partition, end in enumerate(record["offsets"]):
                self._ends[record["topic"], partition] = end
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
        for lsn in sorted(lsn for lsn in self._pending if lsn < cut.lsn):
            events = sorted(self._pending.pop(lsn), key=lambda e: (e.value["source"]["seq"], e.partition))
            outside = [e for e in events if e.offset >= cut.ends.get((e.topic, e.partition), 0)]
            if outside:
                self._problem("torn", f"transaction {lsn}: {len(outside)} of {len(events)} events lie outside its cut")
            [xid, *others] = {e.value["source"]["xid"] for e in events}
            if others:
                self._problem("torn", f"commit {lsn} has xids {xid}, {others}")
            self._fold(events)
            transaction = self._ledger.take(xid)
            if transaction is None and xid in self._compared:
                self._problem("doubled", f"the transaction with xid {xid} comes again at {lsn}")
            elif transaction is None:
                self.unknown[lsn] = xid, events
            else:
                self._compare(lsn, events, transaction)
        early = [
            (lsn, e)
            for lsn, events in self._pending.items()
            for e in events
            if e.offset < cut.ends.get((e.topic, e.partition), 0)
        ]
        if early:
            self._problem(
                "torn", f"{len(early)} events, such as of {early[0][0]}, lie in the cut {cut.lsn} before theirs"
            )
        self.count["cuts"] += 1

    def _compare(self, lsn: int, events: list[Event], transaction: Transaction) -> None:
        """Compare a transaction's events, in the order of seq, with the ledger's changes."""
        what = f"transaction {transaction.number} at {lsn}"
        self._compared.add(events[0].value["source"]["xid"])
        times: Counter[int] = Counter()
        once: list[Event] = []
        for event in events:
            seq = event.value["source"]["seq"]
            times[seq] += 1
            if times[seq] == 1:
                once.append(event)
            elif event.value["op"] != "t":
                self._problem("doubled", f"{what}: seq {seq} comes {times[seq]} times")
            if event.value["op"] == "t" and times[seq] > self._partitions[event.topic]:
                self._problem("doubled", f"{what}: the truncate of {event.topic} comes too often")
        if [e.value["source"]["seq"] for e in once] != list(range(len(once))):
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
            number, last_lsn = self._order.get(transaction.writer, (0, 0))
            if (transaction.number > number) != (lsn > last_lsn):
                self._problem("out of order", f"{what}, but transaction {number} of the same writer at {last_lsn}")
            self._order[transaction.writer] = max((transaction.number, lsn), (number, last_lsn))
        self.count["transactions"] += 1
        self.count["rows"] += len(found)

    def _change(self, event: Event, number: int, what: str) -> Change:
        value, table = event.value, self._tables.get(event.topic, "")
        new, old = value["after"], value["before"]
        if new is not None and new["txn"] != number:
            self._problem("doubled", f"{what} has a row of transaction {new['txn']}")
        if event.key is not None:
            identity = tuple(event.key.values())
        else:
            identity = () if old is None or value["op"] == "t" else (old["txn"], old["n"])
        return Change(table, value["op"], _sorted(identity), None if new is None else new["n"])

    def _problem(self, kind: str, what: str) -> None:
        self.kinds[kind] += 1
        if len(self.problems) < 50:
            self.problems.append(f"{kind}: {what}")

    # Folding

    def _fold(self, events: list[Event]) -> None:
        gone: tuple[tuple[int, int], dict[str, str | None]] = ((-2, -1), {})
        for event in events:
            value, seq, change_lsn = event.value, event.value["source"]["seq"], event.value["source"]["lsn"]
            rows = self.rows.setdefault(event.topic, {})
            bag = self.unkeyed.setdefault(event.topic, Counter())
            lost = {(u["image"], u["column"]): u["text"] for u in value["unrepresentable"]}
            before, after = (_texts(value[image], image, event.fields, lost) for image in ("before", "after"))
            key = None if event.key is None else json.dumps(event.key, default=str)
            if value["op"] == "t":
                rows.clear()
                bag.clear()
            elif key is None:
                if before is not None:
                    bag[json.dumps(before)] -= 1
                    if not bag[json.dumps(before)]:
                        del bag[json.dumps(before)]
                if after is not None:
                    bag[json.dumps(after)] += 1
            elif value["op"] == "d":
                if key not in rows:
                    self._problem("lost", f"{event.topic}: a delete of {key}, but the row was never there")
                gone = ((seq, change_lsn), rows.pop(key, {}))
            else:
                assert after is not None
                if (value["op"] == "u") != (key in rows):
                    self._problem(
                        "lost", f"{event.topic}: {value['op']} of {key}, which is {'' if key in rows else 'not '}there"
                    )
                from_row = rows.get(key, {}) if value["op"] == "u" else gone[1]
                for name in value["unchanged"]:
                    assert value["op"] == "u" or gone[0] == (seq - 1, change_lsn), (
                        "an insert with unchanged columns that is no new key"
                    )
                    after[name] = from_row.get(name)
                rows[key] = after

    def compare_tables(self, dsn: str) -> dict[str, int]:
        """Compare the folded rows with the tables, as text, and return how many rows each has."""
        sizes = {}
        by_table = {table: topic for topic, table in self._tables.items()}
        with psycopg.connect(dsn) as connection:
            for schema, table in TABLES:
                topic = by_table.get(f"{schema}.{table}", "")
                folded = Counter(json.dumps(row) for row in self.rows.get(topic, {}).values()) + self.unkeyed.get(
                    topic, Counter()
                )
                wanted = _content(connection, schema, table)
                sizes[f"{schema}.{table}"] = sum(wanted.values())
                if folded != wanted:
                    more, missing = folded - wanted, wanted - folded
                    self._problem("content", f"{table}: too many {list(more)[:3]}, missing {list(missing)[:3]}")
        return sizes


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


def _texts(
    row: dict[str, Any] | None, image: str, fields: list[dict[str, Any]], lost: dict[tuple[str, str], str]
) -> dict[str, str | None] | None:
    if row is None:
        return None
    return {f["name"]: _short(lost.get((image, f["name"]), topics.text_of(row[f["name"]], f))) for f in fields}


def _short(text: str | None) -> str | None:
    if text is None or len(text) <= SHORT:
        return text
    return "#" + hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _content(connection: psycopg.Connection[Any], schema: str, table: str) -> Counter[str]:
    place = sql.Identifier(schema, table)
    names = [c.name for c in connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(place)).description or ()]
    texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in names)
    rows: Counter[str] = Counter()
    with connection.cursor("content") as cursor:
        for row in cursor.execute(sql.SQL("SELECT {} FROM {}").format(texts, place)):
            rows[json.dumps(dict(zip(names, map(_short, row), strict=True)))] += 1
    return rows
