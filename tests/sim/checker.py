"""Holds what Kafka shows to what PostgreSQL committed. It shares nothing with the models but the ledger and the logs.

Before: `sql` keeps the ledger, `fake_kafka` the logs. After: `world` asks at every step, and `run` reports.

What it demands, at the end of every Kafka transaction (a cut):

1. The transactions inside are the next ones of the ledger, whole, in commit order, each event once and as it must be.
2. In every partition the events come in order, a key stays in its partition, what has no key goes to one partition,
   a truncate to all. Every schema is published with or before the first record that needs it.
3. The last record is the slot record. Its LSN cuts the ledger exactly there; the table records' offsets cut the
   topics. With the first slot record comes the record of where the stream begins.
4. Snapshots of tables: see `snapshots_checker`.
5. No status update names a position that a slot record does not cover, or that would make the server forget what is not
   in Kafka: a committed transaction, or one that is prepared.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from typing import Any

from sim.defaults_checker import DefaultsChecker
from sim.fake_kafka import FakeBroker, Placed, Transaction
from sim.formats import reader_of, table_in_key
from sim.headers_checker import HeadersChecker
from sim.metadata_checker import MetadataChecker
from sim.outbox_checker import OutboxChecker
from sim.snapshots_checker import Seen, SnapshotsChecker
from sim.sql import Committed, Database, Event, Row

from cdcd.config.settings import Settings
from cdcd.lsn import format_lsn
from cdcd.progress.records import PLACE_MARK, SlotRecord, TableRecord, kafka_topic, parse_record
from cdcd.progress.repair_records import is_repair_record
from cdcd.progress.schema_ids import is_schema_id, parse_schema_id
from cdcd.progress.slot_beginnings import parse_beginning
from cdcd.progress.snapshot_records import STOPPED, WANTED, parse_snapshot_record
from cdcd.reading import decoder

PROMPT_S = 0.9
"""Less than any timer of the daemon, more than any work in the simulation."""

_Y2K_US = 946_684_800_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _as_it_is(row: Row | None) -> Row | None:
    return row


class BrokenPromise(AssertionError):
    """What was promised does not hold."""


class Checker:
    """One world's judge."""

    def __init__(self, broker: FakeBroker, database: Database, settings: Settings) -> None:
        prefix, slot, headers = settings.sink.prefix, settings.source.slot, settings.sink.headers
        self._broker = broker
        self._db = database
        self._prefix = prefix
        own = ("schemas", "progress", "snapshots", "parked")
        self._schemas_topic, self._progress_topic, self._snapshots_topic, self._parked_topic = (
            f"{prefix}.{name}" for name in own
        )
        self._slot = slot.encode()
        self._names = settings.topic_names()
        self.strangers: set[str] = set()
        """Producers of other slots or prefixes: what they publish is not looked at."""
        self._at = 0
        """How many committed Kafka transactions were looked at."""
        self.published = 0
        """How many transactions of the ledger are in Kafka."""
        self.last: SlotRecord | None = None
        self.created = 0
        """Where the slot began: before it there is no promise."""
        self.snapshots = SnapshotsChecker(broker, database, self._names, self._demand)
        self._defaults = DefaultsChecker(self._demand)
        self._headers = HeadersChecker(headers, settings.sink.encoding, self._demand)
        self._reader = reader_of(settings, database, self.snapshots.is_taken)
        """What takes events apart that are not cdcd's own in Avro."""
        self._outbox = OutboxChecker(prefix, database)
        self._metadata = MetadataChecker(self._names.transactions, self._demand)
        self.adopts = False
        """The next Kafka transaction says that the stream goes on at another server."""
        self.has_snapshots = False
        """Tables have snapshots: everything is in Kafka only when these are complete."""
        self.shown: Callable[[Row | None], Row | None] = _as_it_is
        """Gives a row as readers see it, from the row in the ledger."""
        self._schemas: set[str | int] = set()
        self.place: Callable[[Seen], object] = lambda event: event.key
        """What decides the partition of an event: events for which it is equal have one partition."""
        self._partitions: dict[tuple[str, object], int] = {}
        self._in_partition: dict[tuple[str, int], tuple[int, int]] = {}
        self._ends: dict[tuple[str, int], int] = {}
        """Of each partition, the offset after the last committed event."""
        self._cut: dict[tuple[str, int], int] = {}
        """Of each partition, where the last table record cuts it."""
        self._lost: set[str] = set()
        """Topics that have lost records, as long as the progress does not say how they are now."""
        self.slowest_s = 0.0
        """The longest that a commit has waited until it was in Kafka."""
        self.slowest_ack_s = 0.0
        """The longest that a server has waited to hear of what is in Kafka."""
        self._published_at: deque[tuple[int, float]] = deque()

    # Kafka transactions

    def look(self) -> None:
        """Judge the Kafka transactions that have been committed since."""
        committed = self._broker.committed
        while self._at < len(committed):
            transaction = committed[self._at]
            self._at += 1
            # A start ends what was left undecided by a transaction that holds nothing.
            if transaction.producer not in self.strangers and any(each.value for each in transaction.records):
                self._judge(transaction)

    def _judge(self, transaction: Transaction) -> None:
        schemas, progress, rows, copies, parked, beginnings = [], [], [], [], [], []
        for placed in transaction.records:
            if placed.topic == self._schemas_topic:
                schemas.append(placed)
            elif placed.topic == self._progress_topic:
                progress.append(placed)
            elif placed.topic == self._snapshots_topic and placed.key == self._slot:
                beginnings.append(parse_beginning(placed.key, placed.value or b""))
            elif placed.topic == self._snapshots_topic:
                if is_schema_id(placed.key or b""):
                    self._judge_schema_id(placed.value or b"")
                else:
                    copies.append(placed)
            elif placed.topic == self._parked_topic:
                parked.append(placed)
            else:
                rows.append(placed)
        self._forget_lost()
        begins_at = [] if self.last else [self.created]
        last = parse_record(progress[-1].key or b"", progress[-1].value or b"") if progress else None
        # The old server's daemon may have left another one undecided.
        is_adoption = (
            self.adopts and isinstance(last, SlotRecord) and self.last and last.system_id != self.last.system_id
        )
        if isinstance(last, SlotRecord) and is_adoption:
            self.adopts = False
            begins_at = [last.lsn]
            if last.gap_lsn:
                self.snapshots.gap(last.gap_lsn)
        elif isinstance(last, SlotRecord) and last.gap_lsn:
            self._judge_gap(last)
            begins_at = [self.created]
        self._same("where the stream begins", [each.lsn for each in beginnings], begins_at)
        for placed in schemas:
            assert placed.key is not None
            assert placed.value is not None
            self._schemas.add(placed.key.decode())
            _TEXTS[placed.key.decode()] = placed.value.decode()
        metadata = [placed for placed in rows if self._metadata.has(placed.topic)]
        told = [self._outbox.seen(placed) for placed in rows if self._outbox.has(placed.topic)]
        others = [placed for placed in rows if not self._metadata.has(placed.topic)]
        events = [placed for placed in others if not self._outbox.has(placed.topic)]
        if self._reader is not None:
            events = self._reader.without_tombstones(events)
        seen = []
        for placed in events:
            value = self._decode(placed.value)
            place = self._place(placed.topic, value)
            seen.append(Seen(place, placed.partition, placed.key, placed.value or b"", value))
        self._judge_partitions(seen)
        for placed, event in zip(events, seen, strict=True):
            table = event.topic.rpartition(PLACE_MARK)[2].removeprefix(f"{self._prefix}.")
            headers = dict(placed.headers)
            if self._reader is not None:
                headers = self._reader.headers(event.value, headers)
            self._headers.judge("" if table == "messages" else table, placed.key, headers, event.value)
        self._judge_partitions(told)
        seen += told
        aside = self.snapshots.parked(parked, self._decode)
        streamed = self.snapshots.take_replayed(seen, self._decode)
        inside = self._judge_rows([*streamed, *(each for each in aside if not self.snapshots.repairs.is_repair(each))])
        self._metadata.judge(metadata, inside)
        of_events = {id(placed): event.topic for placed, event in zip(events, seen, strict=False)}
        last_places: dict[tuple[str, int], str] = {}
        for placed in rows:
            on_broker = placed.topic, placed.partition
            before = last_places.get(on_broker, placed.topic) if placed.value is None else placed.topic
            place = last_places[on_broker] = of_events.get(id(placed), before)  # a tombstone is behind its event
            where = place, placed.partition
            self._demand(placed.offset >= self._cut.get(where, 0), f"{where} {placed.offset} lies before the last cut")
            self._ends[where] = placed.offset + 1
        self.snapshots.fold(seen, copies, self._decode)
        self._defaults.end(self.snapshots.standing)
        records = [
            parse_snapshot_record(each.key or b"", each.value or b"")
            for each in copies
            if not is_repair_record(each.key or b"")
        ]
        touched = {event.topic for event in seen} | {placed.topic for placed in metadata}
        touched |= {record.topic for record in records if record.state not in (WANTED, STOPPED)}
        wanted = {record.topic for record in records}
        count = len({event.position for event in seen + aside}) + len(metadata)
        self._judge_progress(progress, inside, count, touched, wanted)
        assert self.last is not None
        self.snapshots.compare(self.published, self.created, self.last)

    def _judge_gap(self, record: SlotRecord) -> None:
        """Nothing was published between the two positions, and readers are told so."""
        assert self.last is not None
        self._same("the gap", (record.gap_lsn, record.lsn), (self.last.lsn, self.created))
        self._demand(self.created > self.last.lsn, "a gap although the slot has everything")
        self.snapshots.gap(record.gap_lsn)

    def _place(self, topic: str, value: Any) -> str:
        """The name of a table's topic, as TopicNames has it, from that on the broker, and an event there."""
        source = value["source"]
        if "table" not in source:
            return topic
        name = self._names.topic(source["schema"], source["table"])
        self._same("the topic of an event", topic, kafka_topic(name))
        return name

    def _judge_partitions(self, seen: list[Seen]) -> None:
        for event in seen:
            # Of tables that share a topic, one may have its changes later: once its snapshot is complete.
            where = event.topic if self.has_snapshots else kafka_topic(event.topic), event.partition
            before = self._in_partition.get(where, (0, -1))
            if event.position <= before:
                raise BrokenPromise(f"{where}: {_name(event.position)} comes after {_name(before)}")
            self._in_partition[where] = event.position
            if event.value["op"] == "t":
                continue
            place = self.place(event)
            home = self._partitions.setdefault((event.topic, place), event.partition)
            if home != event.partition:
                raise BrokenPromise(f"{event.topic}: {place!r} in partitions {home}, {where[1]}")

    def _judge_rows(self, seen: list[Seen]) -> list[Committed]:
        """The rows are those of the next transactions of the ledger; returns these."""
        by_position: dict[tuple[int, int], list[Seen]] = {}
        for event in seen:
            by_position.setdefault(event.position, []).append(event)
        positions = iter(sorted(by_position))
        inside: list[Committed] = []
        position = next(positions, None)
        while position is not None:
            self._demand(self.published < len(self._db.ledger), f"{_name(position)} was never committed")
            wanted = self._db.ledger[self.published]
            for seq, expected in wanted.numbered():
                if position != (wanted.commit_lsn, seq):
                    raise BrokenPromise(
                        f"wanted {_name((wanted.commit_lsn, seq))}, event {seq + 1} of {len(wanted.events)} of "
                        f"transaction {wanted.xid}; got "
                        f"{_name(position) if position else 'the end of the Kafka transaction'}"
                    )
                self._judge_event(wanted, expected, seq, by_position[position])
                position = next(positions, None)
            self.published += 1
            inside.append(wanted)
            self._published_at.append((wanted.end_lsn, self._db.server.now))
            if wanted.commit_us:
                self.slowest_s = max(self.slowest_s, (self._db.server.time_us - wanted.commit_us + _Y2K_US) / 1e6)
        return inside

    def _judge_event(self, of: Committed, event: Event, seq: int, seen: list[Seen]) -> None:
        topic = self._names.topic(*event.table)
        if event.is_told:
            self._outbox.judge(event, seen)
            return
        logs = self._broker.topics.get(kafka_topic(topic), [])
        copies = len(logs) if event.op == "t" and logs else 1
        places = sorted((each.topic, each.partition) for each in seen)
        if places != [(topic, seen[0].partition if copies == 1 else number) for number in range(copies)]:
            raise BrokenPromise(f"{_name((of.commit_lsn, seq))} of {topic} is in {places}")
        for each in seen:
            value = dict(each.value)
            source = value.pop("source")
            key_shown = None if each.key is None else self._decode(each.key)
            if topic != kafka_topic(topic) and key_shown is not None:
                has = table_in_key(event.table)
                if self._reader is not None:
                    has = self._reader.table_in_key(event.table, self._prefix)
                self._same("the table in a key", {name: key_shown.pop(name, None) for name in has}, has)
            key = event.key
            if self._reader is not None:
                key = self._reader.key(event)
            else:
                found = decoder.schema_id(each.data)
                assert found is not None
                self._defaults.judge(topic, event, _TEXTS[str(found[0])], self.snapshots.standing.get(topic))
            self._same("key", key_shown, self.shown(key))
            wanted = {
                "op": event.op,
                "identity": event.identity,
                "before": self.shown(event.before),
                "after": self.shown(event.after),
                "unchanged": event.unchanged,
                "unrepresentable": [],
            }
            if event.op == "t":
                wanted["truncate"] = {"cascade": False, "restart_identity": False}
            self._same(event, value, wanted if self._reader is None else self._reader.shown(wanted))
            if self._reader is not None:
                self._metadata.judge_event(of, event, seq, source.get("transaction"))
            positions = (source["lsn"], source["xid"], source["origin"])
            self._same(event, positions, (event.lsn, of.xid, of.origin))
            if of.commit_us:
                self._same("commit_ts", source["commit_ts"], _EPOCH + timedelta(microseconds=of.commit_us))

    def _judge_progress(
        self, progress: list[Placed], inside: list[Committed], rows: int, touched: set[str], wanted: set[str]
    ) -> None:
        records = [parse_record(placed.key or b"", placed.value) for placed in progress if placed.value is not None]
        self._demand(bool(records) and isinstance(records[-1], SlotRecord), "no slot record at the end")
        *tables, last = records
        assert isinstance(last, SlotRecord)
        self._demand(progress[-1].key == self._slot, "the slot record has another key")
        before = self.last.lsn if self.last else self.created
        # Until a server is adopted, the progress is that of the server before it.
        server = self.last if self.adopts and self.last else self._db.server
        self._same("the server", (last.system_id, last.lsn_base), (server.system_id, server.lsn_base))
        self._demand(last.lsn >= before, f"the slot record went back to {format_lsn(last.lsn)}")
        if inside:
            self._demand(last.lsn >= inside[-1].end_lsn, "the slot record lies before what it closes")
        following = self._next()
        self._demand(
            following is None or last.lsn <= following.commit_lsn,
            f"the slot record says {format_lsn(last.lsn)}, and {_name_of(following)} is not in Kafka",
        )
        if inside or not self.last:
            commit_lsn = inside[-1].commit_lsn if inside else 0
            self._demand(last.commit_lsn >= commit_lsn, "commit_lsn of the slot record")
        self._demand(last.lsn > last.commit_lsn or not last.commit_lsn, "the slot record does not cover its commit_lsn")
        self._demand(last.rows == rows, f"{last.rows} rows counted")
        self._demand(last.transactions >= len(inside), f"{last.transactions} transactions counted")
        self._judge_tables(tables, last, touched, wanted)
        asked = [each.is_paused for each in self._db.pauses if before < each.end_lsn <= last.lsn]
        asked.insert(0, self.last is not None and self.last.snapshots_paused)
        self._same("whether the snapshots are paused", last.snapshots_paused, asked[-1])
        self.last = last

    def _judge_tables(self, tables: list[Any], last: SlotRecord, touched: set[str], wanted: set[str]) -> None:
        """`touched` are the topics that have events or rows; `wanted`: whose snapshot is wanted."""
        found = {record.topic: record for record in tables if isinstance(record, TableRecord)}
        self._demand(touched <= set(found), f"no table records of {sorted(touched - set(found))}")
        for topic, record in found.items():
            if topic in self._lost and not self._fits(record):
                continue  # it was under way when the topic lost records
            self._lost.discard(topic)
            if kafka_topic(topic) not in self._broker.topics:
                continue  # it was deleted, and the daemon has seen that, or will
            self._same("partitions", len(record.offsets), len(self._broker.topics[kafka_topic(topic)]))
            table = (record.schema, record.table)
            parked = [each.lsn for each in last.incomplete if (each.schema, each.table) == table]
            self._same("commit_lsn of a table record", record.commit_lsn, min(last.commit_lsn, *parked, 1 << 64))
            for partition, offset in enumerate(record.offsets):
                end = self._ends.get((topic, partition), 0)
                self._demand(offset >= end, f"{topic} {partition}: cut at {offset}, but rows end at {end}")
                self._cut[topic, partition] = offset

    def registered(self, schema_id: int, text: str) -> None:
        """The schema registry has a schema."""
        self._schemas.add(schema_id)
        _TEXTS[str(schema_id)] = text

    def _judge_schema_id(self, value: bytes) -> None:
        """A start takes the registry's word for what such a record says."""
        record = parse_schema_id(value)
        assert record is not None
        text = _TEXTS.get(str(record.schema_id), "")
        is_of_schema = record.schema_id in self._schemas and sha256(text.encode()).digest() == record.digest
        self._demand(is_of_schema, f"{record.subject}: the registry gave {record.schema_id} to another schema")

    def _decode(self, data: bytes | None) -> Any:
        assert data is not None, "no tombstones were asked for"
        if self._reader is not None:
            return self._reader.decode(data)
        found = decoder.schema_id(data)
        if found is None:
            raise BrokenPromise("no Avro")
        if found[0] not in self._schemas:
            raise BrokenPromise(f"schema {found[0]} was not published yet")
        return _decoder().decode(data)

    # Acknowledgements

    def acknowledged(self, flushed: int) -> None:
        """A status update says that everything before `flushed` may be forgotten."""
        self.look()
        while self._published_at and self._published_at[0][0] <= flushed:
            _, at = self._published_at.popleft()
            self.slowest_ack_s = max(self.slowest_ack_s, self._db.server.now - at)
        slot = self._db.server.slot
        if slot is not None and flushed <= slot.confirmed:
            return  # nothing is forgotten that was not before
        covered = self.last.lsn if self.last else self.created
        self._demand(
            flushed <= covered,
            f"acknowledged {format_lsn(flushed)}, but the last slot record says {format_lsn(covered)}",
        )
        following = self._next()
        self._demand(
            following is None or flushed <= following.commit_lsn,
            f"acknowledged {format_lsn(flushed)}, but {_name_of(following)} is not in Kafka",
        )
        if slot is None or not slot.two_phase:
            return
        for prepared in self._db.prepared:
            self._demand(flushed <= prepared.lsn, f"acknowledged {format_lsn(flushed)} beyond the open {prepared.gid}")
        for prepared, entry in self._db.resolved:
            if entry is not None and entry.events and flushed > prepared.lsn:
                self._demand(
                    self._is_published(entry),
                    f"acknowledged {format_lsn(flushed)}, beyond the PREPARE of transaction {prepared.top}, "
                    "whose rows are not in Kafka",
                )

    def _next(self) -> Committed | None:
        ledger = self._db.ledger
        return ledger[self.published] if self.published < len(ledger) else None

    def _is_published(self, entry: Committed) -> bool:
        following = self._next()
        return following is None or entry.commit_lsn < following.commit_lsn

    # The end

    def done(self) -> bool:
        """Whether everything that was committed is in Kafka, and the slot knows."""
        slot = self._db.server.slot
        return self.has_all() and slot is not None and slot.confirmed >= self._db.server.end

    def has_all(self) -> bool:
        """Whether everything that was committed is in Kafka."""
        self.look()
        return self._next() is None and (not self.has_snapshots or self.snapshots.done())

    def close(self) -> None:
        """`read_committed` shows what was judged, and nothing else."""
        self.look()
        shown: dict[tuple[str, int], list[int]] = {}
        for topic in self._broker.topics:
            self._demand("nobody" not in topic and "requests" not in topic, f"a request made the topic {topic}")
            for partition, records in enumerate(self._broker.visible(topic)):
                shown[topic, partition] = [record.offset for record in records]
        judged: dict[tuple[str, int], list[int]] = {where: [] for where in shown}
        for placed in self._all():
            judged[placed.topic, placed.partition].append(placed.offset)
        for offsets in judged.values():
            offsets.sort()  # another slot's transaction may have been open meanwhile
        self._same("what read_committed shows", shown, judged)

    def lost(self, topic: str) -> None:
        """Kafka has lost what a table's topic held: from here on only a new snapshot makes it right."""
        self._lost.add(topic)
        self._forget_lost()
        self.snapshots.lost(topic, 0 if self.last is None else self.last.lsn)

    def _forget_lost(self) -> None:
        lost = set(map(kafka_topic, self._lost))  # with what tables that have other names now had there
        for known in (self._ends, self._cut, self._in_partition):
            for place in [each for each in known if kafka_topic(each[0]) in lost]:
                del known[place]

    def _fits(self, record: TableRecord) -> bool:
        """Whether the record was written in knowledge of the topic as it is now."""
        logs = self._broker.topics.get(kafka_topic(record.topic), [])
        reaches = len(logs) == len(record.offsets) and all(
            offset <= len(log) for offset, log in zip(record.offsets, logs, strict=True)
        )
        return reaches and record.topic_id == self._broker.ids[kafka_topic(record.topic)] and not record.lacks_records

    def demand_prompt(self, *, acks: bool) -> None:
        """Nothing was in the way: so nobody waited for a timer. `acks`: nor did any transaction hold them back."""
        self._demand(self.slowest_s < PROMPT_S, f"a commit was in Kafka only after {self.slowest_s:.3f} s")
        if acks:
            self._demand(self.slowest_ack_s < PROMPT_S, f"the server heard of it only after {self.slowest_ack_s:.3f} s")

    def _all(self) -> Iterator[Placed]:
        for transaction in self._broker.committed:
            yield from transaction.records

    # Words

    def _same(self, what: object, got: object, wanted: object) -> None:
        if got != wanted:
            raise BrokenPromise(f"{what}: wanted {wanted}, got {got}")

    def _demand(self, holds: bool, what: str) -> None:
        if not holds:
            raise BrokenPromise(what)


_TEXTS: dict[str, str] = {}
"""Schemas by fingerprint or id, of all worlds: they say the same everywhere."""


@cache
def _decoder() -> decoder.EventDecoder:
    return decoder.EventDecoder(lambda schema: _TEXTS[str(schema)])


def _name(position: tuple[int, int]) -> str:
    return f"{format_lsn(position[0])}#{position[1]}"


def _name_of(entry: Committed | None) -> str:
    return "nothing" if entry is None else f"the transaction {entry.xid} that commits at {format_lsn(entry.commit_lsn)}"
