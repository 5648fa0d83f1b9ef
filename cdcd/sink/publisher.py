"""Batches in, Kafka transactions out: rows, table records and slot record become visible together, or never.

Before: `worker` gets batches, in commit order, from the thread that owns the replication connection.
After: the producer (`interfaces`); the result of a commit goes back to `progress.ack_tracker`.

The rule: a Kafka transaction holds complete PostgreSQL transactions, in commit order. Its last records are its
progress: a table record for each topic it touched, then one slot record. After any error the daemon drops the publisher
and its state. The next one starts from the progress that `read_committed` shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from cdcd.errors import RecordTooLarge, Unpublishable
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import DISCARD, STOP
from cdcd.progress.records import (
    ParkedTable,
    SlotRecord,
    TableRecord,
    TableRecordForm,
    TopicState,
    kafka_topic,
    table_key,
)
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.progress.snapshot_records import COMPARE, PublishedTables, TableSnapshot, wanted_snapshot
from cdcd.sink.batches import Batch, Message, RepairBatch, TableBatch
from cdcd.sink.interfaces import Producer
from cdcd.sink.kafka_transaction import CommitResult, KafkaTransaction, Table, Topic
from cdcd.sink.parking.state import ParkedTables
from cdcd.sink.parking.wire_format import pieces, records
from cdcd.sink.partitioner import partition_for, split
from cdcd.sink.table_keys import AddedColumns, TableKeys
from cdcd.sink.table_records import TableRecordPlaces
from cdcd.sink.table_topics import TableTopics

_PROGRESS_PARTITION: Final = 0
_PARKED_PARTITION: Final = 0
_SNAPSHOTS_PARTITION: Final = 0


@dataclass(frozen=True)
class Source:
    """The slot, the server and the Kafka cluster whose progress this is: they are in every slot record."""

    slot: str
    system_id: str
    timeline: int
    cluster_id: str = ""
    """The Kafka cluster's."""
    database_oid: int = 0
    """The slot's database; 0: not known."""
    begins_at: int | None = None
    """Where the slot's stream begins, if the snapshots topic has no record of that; else None."""
    lsn_base: int = 0
    """As in SlotRecord."""
    event_format: str = ""
    """As in SlotRecord."""


class Publisher:
    """Owns the Kafka transactions of one slot, from a progress record on. Not for use by two threads."""

    def __init__(
        self,
        producer: Producer,
        topics: TableTopics,
        source: Source,
        last: SlotRecord | None,
        tables: ParkedTables | None = None,
        snapshots: Mapping[str, TableSnapshot] | None = None,
        places: TableRecordPlaces | None = None,
        forbids_copy: Callable[[str, str], bool] = lambda _, __: False,
    ) -> None:
        """`last` is the slot record to go on from, None before the first; `tables` says which tables are parked or
        deferred from there on, None: as in `last`. `snapshots`: how far the snapshot of each table is, by topic.
        `places`: where the table records before lie. `forbids_copy`: whether a table (schema and name) gets a new
        snapshot only if a person asks for it, whatever its topic lacks.

        The producer has started. Raises as TopicAdmin does.
        """
        self._producer = producer
        self._topics = topics
        self._source = source
        self._last = last
        self._begins_at = source.begins_at
        self._open: KafkaTransaction | None = None
        self._is_first = True
        """Nothing was committed yet."""
        # The next marker on the progress partition also decides records left hanging there (`hanging_transactions`).
        # If that partition can lose its leader, add it to the transaction only after the rows are written.
        self._opens_progress_early = producer.is_transactional and topics.progress_keeps_leader()
        self._parked = tables or ParkedTables(topics, source.slot, last)
        self._places = places or TableRecordPlaces()
        self._keys = TableKeys(snapshots or {}, self._places.topics.values())
        self._forbids_copy = forbids_copy
        self._snapshots_paused = last is not None and last.snapshots_paused
        self.unrecorded_ids: Callable[[], list[Message]] = list
        """Gives the records of the ids that a schema registry gave, and that Kafka lacks: see `progress.schema_ids`."""

    @property
    def last(self) -> SlotRecord | None:
        """The last slot record that is known to be committed."""
        return self._last

    @property
    def open(self) -> KafkaTransaction | None:
        """The open Kafka transaction, None if there is none."""
        return self._open

    @property
    def touched_topics(self) -> tuple[str, ...]:
        """The topics of tables in the open Kafka transaction. For any thread."""
        transaction = self._open
        return () if transaction is None else tuple({kafka_topic(name) for name in transaction.touched.copy()})

    @property
    def parked(self) -> Mapping[Table, ParkedTable]:
        """The parked tables. For any thread."""
        return self._parked.parked

    def last_key(self, schema: str, name: str, oid: int) -> tuple[str, ...]:
        """The key of a table's last events; empty if it is not known, or if they are of another table.

        For any thread.
        """
        known = self._keys.incarnations.get(self._topics.names.topic(schema, name))
        return () if known is not None and known.oid != oid else self._keys.last.get((schema, name), ())

    def last_added(self, schema: str, name: str, oid: int) -> AddedColumns:
        """The columns of a table's last events that were added with a default, as `last_key`."""
        known = self._keys.incarnations.get(self._topics.names.topic(schema, name))
        return {} if known is None or known.oid != oid else self._keys.added.get((schema, name), {})

    @property
    def table_keys(self) -> TableKeys:
        """The keys of the tables' last events, and the tables that these are of."""
        return self._keys

    @property
    def written_tables(self) -> Collection[str]:
        """The topics of the tables that this slot has published events of, by TopicNames' names. For any thread."""
        return self._places.topics.keys()

    @property
    def recorded(self) -> dict[str, TopicState]:
        """The topics that hold what this slot has published, each with how far it reaches at least. For any thread."""
        tables = {topic.kafka.name: topic.kafka.state for topic in self._places.topics.values()}
        return {**self._own, **tables, self._topics.names.progress: TopicState("", (self._places.written,))}

    @property
    def _own(self) -> dict[str, TopicState]:
        """The topics of cdcd's own that must not lose a record. Without parked events their topic may go."""
        parked = self._topics.names.parked
        return {
            name: topic.state
            for name, topic in self._topics.own.copy().items()
            if name != parked or self._parked.has_events
        }

    @property
    def has_replay(self) -> bool:
        """Parked events are to be replayed: call `replay` between two Kafka transactions."""
        return self._parked.has_replay

    @property
    def needs_new_stream(self) -> bool:
        """A table was unparked, and only a new stream writes the right schema headers for it."""
        return self._parked.needs_new_stream

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call to Kafka lasts longer than this. May be called by another thread."""
        self._producer.shorten_deadlines(within_s)
        self._topics.shorten_deadlines(within_s)

    def poll(self) -> None:
        """Let the producer do its housekeeping while no batch comes. Raises the errors that it found."""
        with self._naming_table():
            self._producer.poll()

    def flush(self) -> None:
        """Wait until Kafka has the records of the open transaction. Raises what the producer raises."""
        with self._naming_table():
            self._producer.flush()

    def publish(self, batch: Batch, now: float) -> None:
        """Produce a batch into the open Kafka transaction; opens one (at `now`, monotonic seconds) if none is open.

        Raises what the producer raises; Unpublishable if one table's topic or its events are refused. After an error
        the publisher is of no use.
        """
        with self._naming_table():
            self._publish(batch, now)

    def _publish(self, batch: Batch, now: float) -> None:
        self._check_order(batch)
        transaction = self._open or self._begin(now)
        if batch.schemas:
            self._publish_schemas(batch.schemas)
        is_snapshot = batch.snapshot_records is not None
        if batch.snapshot_records:
            self._parked.on_snapshots(batch.snapshot_records, batch.end_lsn)
        published = batch.tables
        if self._parked.has_events:
            published = self._parked_apart(batch, transaction, is_snapshot=is_snapshot)
        with_tables = [(table, table.tables) for table in published]
        self._topics.find(name for _, names in with_tables for name in names)
        touched, limits = transaction.touched, self._topics.limits
        for table, names in with_tables:
            topics = [self._topics[name] for name in names]
            for topic in topics:
                touched[topic.name] = topic
            transaction.count(table)
            kafka = topics[0].kafka
            limits.note(kafka.name, batch.bytes, table)
            parts = split(table.messages, table.everywhere, len(kafka.offsets), table.has_hashes)
            for partition, messages in enumerate(parts):
                if messages:
                    self._produce(kafka.name, partition, messages, has_headers=table.has_headers)
        records = self._keys.of_batch(batch, self._topics.names)
        if records:
            self._publish_snapshot_records(transaction, records)
        if isinstance(batch, RepairBatch):
            if batch.records:
                self._produce_own([{"key": key, "value": value} for key, value in batch.records])
            if batch.snapshots:
                self._publish_snapshot_records(transaction, [self._keys.repaired(each) for each in batch.snapshots])
        transaction.add(batch)
        for request in batch.requests:
            if request.action == DISCARD:
                # The table's parked events are discarded, also those in the queue: an event's parts stay together.
                self._producer.flush()
            self._parked.request(request)
            if request.wants_snapshot:
                # The record commits with the request: so the next daemon knows that the snapshot is wanted.
                self._record_request(transaction, self._wanted_snapshot(request.table))
            if request.action == STOP:
                topic_name = self._topics.names.topic(*request.table)
                wanted = wanted_snapshot(self._source.slot, topic_name, *request.table)
                self._record_request(transaction, self._keys.stop(wanted))
            if request.pauses_snapshots is not None:
                self._snapshots_paused = request.pauses_snapshots
            repair = request.repair_record(self._source.slot, self._topics.names.topic(*request.table))
            if repair is not None:
                self._produce_own([{"key": repair.key(), "value": repair.value()}])

    def _parked_apart(self, batch: Batch, transaction: KafkaTransaction, *, is_snapshot: bool) -> list[TableBatch]:
        """Park the records of tables that are parked or deferred. Returns the others."""
        published: list[TableBatch] = []
        for gathered in batch.tables:
            states = {name: self._parked.get(name, is_snapshot=is_snapshot) for name in gathered.tables}
            away = {name: state for name, state in states.items() if state is not None}
            for table in gathered.without(away) if away else [gathered]:
                parked = away.get(table.tables[0])
                if parked is None:
                    published.append(table)
                else:
                    if isinstance(parked, ParkedTable):
                        transaction.count_parked(table)
                    self._park(table, parked.reason)
        return published

    def _begin(self, now: float) -> KafkaTransaction:
        self._producer.begin()
        self._open = KafkaTransaction(now, is_first=self._is_first)
        return self._open

    def prepare_commit(self) -> None:
        """Do the part of the commit that can be done early: the commit of the open transaction comes in a moment.

        Raises what the producer raises.
        """
        if self._open is not None:
            with self._naming_table():
                self._open_progress(self._open)
                self._producer.begin_next()

    def commit(self) -> CommitResult:
        """Commit the open Kafka transaction, between two PostgreSQL transactions.

        Raises what the producer raises. After an error either all or nothing is durable, and the progress tells which.
        Raises TopicLost if a topic had lost records before: then all is durable, and the next start hears of it.
        """
        with self._naming_table():
            return self._commit()

    def _commit(self, gap_lsn: int = 0) -> CommitResult:
        transaction = self._open
        assert transaction is not None, "no Kafka transaction is open"
        assert not transaction.is_inside, "half a PostgreSQL transaction would become visible"
        assert transaction.end_lsn or self._last is not None, "no position to go on from"
        self._open_progress(transaction)
        if self._producer.is_transactional:
            self._produce_beginning()
        if transaction.touched and (new := self.unrecorded_ids()):
            self._produce_own(new)
        offsets = self._producer.flush()
        written = transaction.kafka_topics() | self._topics.own
        for (name, partition), end in offsets.items():
            topic = written.get(name)
            if topic is not None:
                topic.advance(partition, end, transaction.written[name, partition])
            if name == self._topics.names.parked:
                self._parked.on_parked_end(end)
            elif name == self._topics.names.progress:
                self._places.reached(end)
        transaction.touched |= {topic.name: topic for topic in self._places.overdue()}
        slot_record = self._slot_record(transaction, gap_lsn, self._places.record(transaction.touched.values()))
        tables = self._table_messages(transaction.touched.values(), slot_record.commit_lsn)
        self._produce_progress([*tables, {"key": slot_record.key(), "value": slot_record.value()}])
        if not transaction.touched:
            # Nothing else tells an idle slot how far other slots have moved the end of the progress topic.
            ends = self._producer.flush()
            self._places.reached(ends.get((self._topics.names.progress, _PROGRESS_PARTITION), 0))
        if not self._producer.is_transactional and self._begins_at is not None:
            self._producer.flush()  # readers must not see the beginning without the slot record: see `continuity`
            self._produce_beginning()
        self._producer.commit()
        self._begins_at = None
        self._open = None
        self._is_first = False
        self._last = slot_record
        self._parked.on_commit(slot_record.lsn)
        # Only now, because no later start can see this loss by itself: the progress has to tell it.
        transaction.raise_if_lost([*transaction.kafka_topics().values(), *self._topics.own.values()])
        return transaction.result(slot_record, self.parked)

    def _open_progress(self, transaction: KafkaTransaction) -> None:
        """Add the progress partition to the transaction while the rows are on their way, because it takes a request.

        Not earlier, because an open transaction on this partition hides the later commits of other slots from readers.
        """
        has_progress = (self._topics.names.progress, _PROGRESS_PARTITION) in transaction.written
        if transaction.touched and self._opens_progress_early and not has_progress:
            self._produce_progress([{"key": table_key(self._source.slot, ""), "value": None}])

    def abort(self) -> None:
        """Abort the open Kafka transaction, if there is one. The server sends its rows again."""
        if self._open is not None:
            self._open = None
            self._producer.abort()

    def begin_migration(self, lsn: int, copied: list[TableSnapshot], now: float) -> None:
        """Open the Kafka transaction with which the stream of another program's slot becomes this one's, at `lsn`.

        `copied`: the records of the tables whose rows the topics have. What is published next, up to the commit,
        belongs to it. Raises as `publish`.
        """
        assert self._open is None, "the stream begins with this Kafka transaction"
        self._begins_at = lsn
        with self._naming_table():
            transaction = self._begin(now)
            transaction.end_lsn = lsn
            self._publish_snapshot_records(transaction, copied)

    def adopt(
        self,
        lsn: int,
        tables: Iterable[Table],
        incarnations: PublishedTables,
        now: float,
        gap_lsn: int = 0,
        compared: Container[Table] = (),
    ) -> list[TableSnapshot]:
        """Record that the stream goes on at `lsn` of the server in `source`; `tables` need a new snapshot.

        `incarnations`: the published tables of this server. `gap_lsn` not 0: changes committed from there on are
        missing. `compared`: as `declare_gap`. The Kafka transaction holds nothing else. Raises as `publish` and
        `commit`.
        """
        learned = self._keys.learn({self._topics.names.topic(*table): each for table, each in incarnations.items()})
        return self._declare_gap(gap_lsn, lsn, tables, now, learned, self._places.topics.values(), compared)

    def declare_gap(
        self, begin_lsn: int, lsn: int, tables: Iterable[Table], now: float, compared: Container[Table] = ()
    ) -> list[TableSnapshot]:
        """Record that changes from `begin_lsn` to `lsn` are missing, and that `tables` need a new snapshot.

        Those that are `compared` get only what differs instead. The Kafka transaction holds nothing else: the next
        daemon goes on from `lsn`, and finds which snapshots are wanted. Raises as `publish` and `commit`.
        """
        return self._declare_gap(begin_lsn, lsn, tables, now, compared=compared)

    def _declare_gap(
        self,
        begin_lsn: int,
        lsn: int,
        tables: Iterable[Table],
        now: float,
        learned: Iterable[TableSnapshot] = (),
        touched: Iterable[Topic] = (),
        compared: Container[Table] = (),
    ) -> list[TableSnapshot]:
        assert self._open is None, "a gap lies between two Kafka transactions"
        self._begins_at = lsn
        wanted = [self._wanted_again(table, COMPARE if table in compared else "") for table in tables]
        with self._naming_table():
            transaction = self._begin(now)
            transaction.end_lsn = lsn
            transaction.touched |= {topic.name: topic for topic in touched}
            self._produce_snapshot_records(list(learned))
            self._publish_snapshot_records(transaction, wanted)
            self._commit(gap_lsn=begin_lsn)
        return wanted

    def declare_loss(self, tables: Iterable[Table], now: float, given_up: Iterable[Topic] = ()) -> list[TableSnapshot]:
        """Record that the topics of `tables` have lost records, and that these tables need a new snapshot.

        The tables of the topics `given_up` are not published. If such a table had a snapshot, it needs another one once
        it is published again; its topic is not made before. The next daemon takes the topics as they are now, and finds
        which snapshots are wanted. Raises as `publish` and `commit`.
        """
        assert self._open is None, "a loss is found before the first Kafka transaction"
        tables = list(tables)
        wanted = [self._wanted_again(table) for table in tables if table[0]]  # logical messages have no snapshot
        later: list[TableSnapshot] = []
        parked, names = self._parked.parked, self._topics.names
        # Kafka may refuse the topics of parked tables. One that others share goes on: its records must say what it is.
        go_on = {kafka_topic(names.topic(*table)) for table in tables if table not in parked}
        touched = [table for table in tables if kafka_topic(names.topic(*table)) in go_on]
        with self._naming_table():
            transaction = self._begin(now)
            self._topics.find(touched)
            transaction.touched |= {self._topics[table].name: self._topics[table] for table in touched}
            for each in wanted:
                if (each.schema, each.table) in touched:
                    self._topics[each.schema, each.table].snapshot = each.snapshot
            there = transaction.kafka_topics()
            for topic in given_up:
                topic.kafka = there.get(topic.kafka.name, topic.kafka)  # other tables may go on with it
                transaction.touched[topic.name] = topic
                if self._keys.has_snapshot(topic.name):
                    later.append(self._wanted_again(topic.table))
                    topic.snapshot = later[-1].snapshot
            self._produce_snapshot_records(later)
            if wanted:
                self._publish_snapshot_records(transaction, wanted)
            self._commit()
        return [*wanted, *later]

    def _wanted_snapshot(self, table: Table, repair: str = "") -> TableSnapshot:
        wanted = wanted_snapshot(self._source.slot, self._topics.names.topic(*table), *table)
        return self._keys.kept(replace(wanted, repair=repair))

    def _wanted_again(self, table: Table, repair: str = "") -> TableSnapshot:
        """As `_wanted_snapshot`, but no person asks: a snapshot that a person has stopped stays so.

        That of a table that the settings forbid to copy is stopped, so that readers see that its topic lacks rows.
        """
        topic = self._topics.names.topic(*table)
        if not repair and self._forbids_copy(*table):
            return self._keys.stop(wanted_snapshot(self._source.slot, topic, *table))
        return self._keys.stopped(topic) or self._wanted_snapshot(table, repair)

    def _record_request(self, transaction: KafkaTransaction, record: TableSnapshot) -> None:
        """Record that a table needs a new snapshot, or that it was stopped. A request alone makes no topic."""
        topic = self._topics.existing((record.schema, record.table))
        if topic is None:
            self._topics.note_snapshot(record.topic, record.snapshot)
        else:
            topic.snapshot = record.snapshot
            transaction.touched[topic.name] = topic
        self._produce_snapshot_records([record])

    def _publish_snapshot_records(self, transaction: KafkaTransaction, snapshots: list[TableSnapshot]) -> None:
        parked = self._parked.parked
        # A record may be of a topic that the table has left, because the settings name another one.
        published = [
            each
            for each in snapshots
            if (each.schema, each.table) not in parked
            and each.topic == self._topics.names.topic(each.schema, each.table)
        ]
        self._topics.find((each.schema, each.table) for each in published)  # the topic of a parked table may be refused
        for each in published:
            topic = self._topics[each.schema, each.table]
            topic.snapshot = each.snapshot
            transaction.touched[topic.name] = topic
        self._produce_snapshot_records(snapshots)

    def _produce_snapshot_records(self, snapshots: list[TableSnapshot]) -> None:
        if snapshots:
            self._produce_own([{"key": each.key(), "value": each.value()} for each in snapshots])

    def _produce_own(self, messages: list[Message]) -> None:
        """Produce records of the snapshots topic."""
        self._produce(self._topics.names.snapshots, _SNAPSHOTS_PARTITION, messages)

    def replay(self, now: float) -> CommitResult:
        """Replay the next chunk of parked events, in a Kafka transaction of its own.

        Raises as `publish` and `commit`, and what the reader of the parked topic raises.
        """
        assert self._open is None, "a replay begins between two Kafka transactions"
        assert self._last is not None
        with self._naming_table():
            self._publish(self._parked.next_chunk(self._last.lsn), now)
            return self._commit()

    def _park(self, table: TableBatch, reason: str) -> None:
        key = self._parked.begin_records((table.schema, table.name))
        self._topics.ensure_parked()
        for piece in pieces(records(key, reason, table)):
            self._produce(self._topics.names.parked, _PARKED_PARTITION, piece)

    @contextmanager
    def _naming_table(self) -> Iterator[None]:
        with self._parked.naming_table(self._refused_tables):
            try:
                yield
            except RecordTooLarge as error:
                raise self._topics.limits.explain(error) from None

    def _refused_tables(self, error: Unpublishable) -> list[Table]:
        """The tables whose events a topic refuses. If it takes no record without a key, tables with a key may go on."""
        tables = [table for table in self._topics.tables_of(error.topic) if table not in self._parked.parked]
        keyless = [table for table in tables if self._keys.last.get(table) == ()]
        return keyless if keyless and error.code == "record-refused" else tables

    def _check_order(self, batch: Batch) -> None:
        """Assert, as `ack_tracker` does, that positions only grow, even if the server sends transactions again."""
        before = self._open.end_lsn if self._open is not None else 0
        if not before and self._last is not None:
            before = self._last.lsn
        assert not batch.end_lsn or batch.end_lsn >= before, (
            f"a batch up to {format_lsn(batch.end_lsn)} after {format_lsn(before)}"
        )
        is_snapshot = batch.snapshot_records is not None and self._last is not None
        assert batch.end_lsn or batch.ends_inside_transaction or self._open is not None or is_snapshot, (
            "a batch without a position ends no transaction"
        )

    def _publish_schemas(self, schemas: list[tuple[str, str]]) -> None:
        by_partition: dict[int, list[Message]] = {}
        for fingerprint, text in schemas:
            key = fingerprint.encode()
            partition = partition_for(key, self._topics.schema_partitions)
            by_partition.setdefault(partition, []).append({"key": key, "value": text.encode()})
        for partition, messages in by_partition.items():
            self._produce(self._topics.names.schemas, partition, messages)
        if not self._producer.is_transactional:
            # Readers see a row as soon as it is written: its schema must be there before.
            self._producer.flush()

    def _produce(self, topic: str, partition: int, messages: list[Message], *, has_headers: bool = False) -> None:
        assert self._open is not None, "no Kafka transaction is open"
        written = self._open.written
        written[topic, partition] = written.get((topic, partition), 0) + len(messages)
        self._producer.produce(topic, partition, messages, has_headers=has_headers)

    def _produce_progress(self, messages: list[Message]) -> None:
        self._produce(self._topics.names.progress, _PROGRESS_PARTITION, messages)
        self._places.sent(len(messages))

    def _produce_beginning(self) -> None:
        """Write where the slot's stream begins, if the snapshots topic does not say it."""
        if self._begins_at is None:
            return
        source = self._source
        record = SlotBeginning(source.slot, source.system_id, source.database_oid, self._begins_at)
        message: Message = {"key": record.key(), "value": record.value()}
        self._produce(self._topics.names.snapshots, _SNAPSHOTS_PARTITION, [message])

    def _table_messages(self, topics: Iterable[Topic], commit_lsn: int) -> Iterator[Message]:
        """The table records of these topics. All but LSN and offsets is the same as in the record before, as a rule."""
        lsn_text, keys = format_lsn(commit_lsn), self._keys
        for topic in topics:
            complete_lsn = self._parked.complete_lsn(topic.table)
            text = lsn_text if complete_lsn is None else format_lsn(min(commit_lsn, complete_lsn))
            kafka = topic.kafka
            key_columns, oid = keys.of_table_record(topic), keys.oid_of_table_record(topic)
            facts = topic.snapshot, kafka.topic_id, kafka.lacks_records, key_columns, oid
            if topic.record_form is None or topic.record_form[0] != facts:
                record = TableRecord(
                    slot=self._source.slot,
                    topic=topic.name,
                    schema=topic.table[0],
                    table=topic.table[1],
                    commit_lsn=0,
                    offsets=(),
                    snapshot=topic.snapshot,
                    topic_id=kafka.topic_id,
                    lacks_records=kafka.lacks_records,
                    key_columns=key_columns,
                    oid=oid,
                )
                topic.record_form = facts, TableRecordForm(record)
            _, form = topic.record_form
            yield {"key": table_key(self._source.slot, topic.name), "value": form.value(text, kafka.offsets)}

    def _slot_record(self, transaction: KafkaTransaction, gap_lsn: int, tables_offset: int) -> SlotRecord:
        last = self._last
        is_carried = last is not None and not transaction.commit_lsn
        return SlotRecord(
            slot=self._source.slot,
            lsn=transaction.end_lsn or (0 if last is None else last.lsn),
            commit_lsn=last.commit_lsn if last is not None and is_carried else transaction.commit_lsn,
            commit_ts=last.commit_ts if last is not None and is_carried else transaction.commit_ts,
            system_id=self._source.system_id,
            timeline=self._source.timeline,
            transactions=transaction.transactions,
            rows=transaction.rows,
            parked=tuple(self._parked.parked.values()),
            gap_lsn=gap_lsn,
            deferred=self._parked.deferred,
            cluster_id=self._source.cluster_id,
            own_topics=self._own,
            tables_offset=tables_offset,
            database_oid=self._source.database_oid,
            lsn_base=self._source.lsn_base,
            snapshots_paused=self._snapshots_paused,
            event_format=self._source.event_format,
        )
