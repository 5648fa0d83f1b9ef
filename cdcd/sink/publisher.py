"""Batches in, Kafka transactions out: rows, table records and slot record become visible together, or never.

Before: `worker` takes batches in commit order from the thread that owns the replication connection.
After: the producer (`interfaces`); what a commit made durable goes back to `progress.tracker`.
Source: DESIGN.md, "Exactly once, and what is acknowledged".

The rule: a Kafka transaction holds whole PostgreSQL transactions, in commit order. Its last records are its progress: a
table record for each topic it touched, then one slot record. After any error the publisher is thrown away, with all it
knew: the next one starts from what `read_committed` shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from cdcd.errors import SettingsError
from cdcd.lsn import format_lsn
from cdcd.progress.daemon_requests import DISCARD, table_of, to_copy
from cdcd.progress.records import ParkedTable, SlotRecord, SnapshotState, TableRecord, table_key
from cdcd.progress.snapshot_records import TableSnapshot, wanted_again
from cdcd.sink.batches import Batch, Message, TableBatch
from cdcd.sink.group_commit import KafkaTransactionStats
from cdcd.sink.interfaces import ParkedReader, Producer, TopicAdmin
from cdcd.sink.kafka_transaction import CommitResult, KafkaTransaction, Table, Topic
from cdcd.sink.parking.state import ParkedTables, Rename
from cdcd.sink.parking.wire_format import PendingParking, records
from cdcd.sink.partitioner import partition_for, split
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs, parked_spec

_PROGRESS_PARTITION: Final = 0
_PARKED_PARTITION: Final = 0
_SNAPSHOTS_PARTITION: Final = 0
_PARKED_RECORDS: Final = 500
"""Handed to the producer at once: with their parts they are large."""


@dataclass(frozen=True)
class TopicSettings:
    """How a table's topic is made if it is missing."""

    partitions: int
    replication_factor: int
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """Whose progress this is: it goes into every slot record."""

    slot: str
    system_id: str
    timeline: int


class Publisher:
    """Owns the Kafka transactions of one slot, from a progress record on. Not for use by two threads."""

    def __init__(
        self,
        producer: Producer,
        admin: TopicAdmin,
        names: TopicNames,
        settings: TopicSettings,
        source: Source,
        last: SlotRecord | None,
        snapshots: Mapping[str, SnapshotState] | None = None,
        parking: PendingParking | None = None,
        parked_reader: ParkedReader | None = None,
        rename: Rename | None = None,
    ) -> None:
        """`last` is the slot record to go on from, None before the first; `snapshots` are by topic, from the progress.

        `parking` is what is to be parked besides; `parked_reader` and `rename` serve to replay what was: without
        `rename` the records are what they were.

        Makes the topics for progress and schemas if they are missing; raises as TopicAdmin does.
        """
        self._producer = producer
        self._admin = admin
        self._names = names
        self._settings = settings
        self._source = source
        self._last = last
        self._snapshots = dict(snapshots or {})
        self._topics: dict[str, Topic] = {}
        self._by_table: dict[Table, Topic] = {}
        self._open: KafkaTransaction | None = None
        self._first = True
        """Nothing was committed yet."""
        *_, self._schema_partitions = admin.ensure(*own_specs(names, settings.replication_factor, settings.config))
        # Our next marker on the progress partition also decides records left hanging there (`hanging_transactions`).
        # If that partition can lose its leader, add it to the transaction only after the rows are written.
        self._opens_early = producer.transactional and admin.keeps_leader(names.progress)
        self._parked_is_there = False  # the topic: somebody may have removed it since it was made
        self._parked = ParkedTables(
            last,
            parking or PendingParking(),
            parked_reader,
            rename,
            lambda table: table_key(source.slot, names.topic(*table)),
            self._parked_end,
        )

    @property
    def last(self) -> SlotRecord | None:
        """The last slot record that is known to be committed."""
        return self._last

    @property
    def open(self) -> KafkaTransactionStats | None:
        """The open Kafka transaction, None if there is none."""
        return None if self._open is None else self._open.seen

    @property
    def parked(self) -> Mapping[Table, ParkedTable]:
        """The tables whose events go to the parked topic because they are refused. For any thread."""
        return {table: parked for table, parked in self._parked.tables.items() if not parked.copying}

    @property
    def unparking(self) -> bool:
        """Parked events are to be replayed: call `unpark` between two Kafka transactions."""
        return self._parked.unparking

    @property
    def renamed(self) -> bool:
        """A table is unparked whose records only a new stream names right."""
        return self._parked.renamed

    def hurry(self, within_s: float) -> None:
        """From now on no call to Kafka lasts longer than this. May be called by another thread."""
        self._producer.hurry(within_s)
        self._admin.hurry(within_s)

    def serve(self) -> None:
        """Nothing comes for now: let the producer do its housekeeping. Raises what it found."""
        with self._naming():
            self._producer.serve()

    def publish(self, batch: Batch, now: float) -> None:
        """Produce a batch into the open Kafka transaction; opens one (at `now`, monotonic seconds) if need be.

        Raises what the producer raises; SettingsError if two tables would share a topic; Unpublishable if the events of
        one table are refused. Then the publisher is done.
        """
        with self._naming():
            self._publish(batch, now)

    def _publish(self, batch: Batch, now: float) -> None:
        self._check_order(batch)
        at = self._open
        if at is None:
            self._producer.begin()
            at = self._open = KafkaTransaction(now, self._first)
        if batch.schemas:
            self._publish_schemas(batch.schemas)
        if batch.copies:
            self._parked.copied(batch.copies, batch.end_lsn)
        tables: dict[Table, TableBatch] = {}
        for table in batch.tables:
            parked = self._parked.get((table.schema, table.name), copied=batch.copies is not None)
            if parked is not None:
                self._park(at, parked, table)
            else:
                tables[table.schema, table.name] = table
        self._find(tables)
        for name, table in tables.items():
            topic = self._by_table[name]
            at.touched[topic.name] = topic
            at.count(table)
            for partition, messages in enumerate(split(table.messages, table.everywhere, topic.partitions)):
                if messages:
                    self._producer.produce(topic.name, partition, messages)
        if batch.copies:
            self._publish_copies(batch.copies)
        at.add(batch)
        for content in batch.requests:
            if table_of(DISCARD, content) is not None:
                self._producer.flush()  # what is on its way there is given up, too, and nothing of it half
            self._parked.request(content)
            wanted = to_copy(content)
            if wanted is not None:
                # Durable with the request: whoever starts next finds it.
                self._publish_copies([wanted_again(self._source.slot, self._names.topic(*wanted), *wanted)])

    def expect_commit(self) -> None:
        """Say that the open Kafka transaction is to be committed soon, and until then there is time.

        Raises what the producer raises.
        """
        if self._open is not None:
            with self._naming():
                self._open_progress(self._open)
                self._producer.prepare()

    def commit(self) -> CommitResult:
        """Commit the open Kafka transaction, between two PostgreSQL transactions.

        Raises what the producer raises: then nothing, or all, was made durable, and the progress tells which.
        """
        with self._naming():
            return self._commit()

    def _commit(self) -> CommitResult:
        at = self._open
        assert at is not None, "no Kafka transaction is open"
        assert not at.inside, "half a PostgreSQL transaction would become visible"
        assert at.end_lsn or self._last is not None, "no position to go on from"
        self._open_progress(at)
        offsets = self._producer.flush()
        for (name, partition), end in offsets.items():
            topic = at.touched.get(name)
            if topic is not None:
                topic.offsets[partition] = end
            elif name == self._names.parked:
                self._parked.passed(end)
        slot_record = self._slot_record(at)
        tables = (self._table_message(topic, slot_record) for topic in at.touched.values())
        self._produce_progress([*tables, {"key": slot_record.key(), "value": slot_record.value()}])
        self._producer.commit()
        self._open = None
        self._first = False
        self._last = slot_record
        self._parked.settled()
        return at.durable(slot_record, self.parked)

    def _open_progress(self, at: KafkaTransaction) -> None:
        """Take the progress into the transaction, which is a request: beside the rows, not after them.

        But no sooner than it has to be: as long as it is open there, what other slots have committed cannot be read.
        """
        if at.touched and self._opens_early and not at.opens_progress:
            at.opens_progress = True
            self._produce_progress([{"key": table_key(self._source.slot, ""), "value": None}])

    def abort(self) -> None:
        """Give up the open Kafka transaction, if there is one: what it held was never visible and comes again."""
        if self._open is not None:
            self._open = None
            self._producer.abort()

    def declare_gap(self, lsn: int, tables: Iterable[Table], now: float) -> list[TableSnapshot]:
        """What was committed between the progress and `lsn` is missing: say so, and that `tables` are to be copied.

        In a Kafka transaction of its own: whoever starts next goes on from `lsn`, and finds what is to be copied.
        Raises as `publish` and `commit`.
        """
        assert self._open is None, "a gap lies between two Kafka transactions"
        assert self._last is not None
        copies = [wanted_again(self._source.slot, self._names.topic(*table), *table) for table in tables]
        with self._naming():
            self._producer.begin()
            at = self._open = KafkaTransaction(now, self._first)
            at.gap_lsn = self._last.lsn
            at.end_lsn = lsn
            self._publish_copies(copies)
            self._commit()
        return copies

    def _publish_copies(self, copies: list[TableSnapshot]) -> None:
        assert self._open is not None
        self._find((copy.schema, copy.table) for copy in copies)
        for copy in copies:
            topic = self._by_table[copy.schema, copy.table]
            topic.snapshot = copy.snapshot
            self._open.touched[topic.name] = topic
        messages: list[Message] = [{"key": copy.key(), "value": copy.value()} for copy in copies]
        self._producer.produce(self._names.snapshots, _SNAPSHOTS_PARTITION, messages)

    def unpark(self, now: float) -> CommitResult:
        """Replay the next piece of a table's parked events, in a Kafka transaction of its own.

        Raises as `publish` and `commit`, and what the reader of the parked topic raises.
        """
        assert self._open is None, "a replay begins between two Kafka transactions"
        assert self._last is not None
        with self._naming():
            self._publish(self._parked.piece(self._last.lsn), now)
            return self._commit()

    def _park(self, at: KafkaTransaction, parked: ParkedTable, table: TableBatch) -> None:
        name = (table.schema, table.name)
        self._parked.begins(name)
        if not self._parked_is_there:
            self._parked_end()
        if not parked.copying:
            at.parked_counts[name] = at.parked_counts.get(name, 0) + sum(table.counts.values())
        messages = records(self._parked.key_of(name), parked, table)
        while some := list(islice(messages, _PARKED_RECORDS)):
            self._producer.produce(self._names.parked, _PARKED_PARTITION, some)

    def _parked_end(self) -> int:
        self._admin.ensure(parked_spec(self._names, self._settings.replication_factor, self._settings.config))
        self._parked_is_there = True
        [offset] = self._admin.end_offsets({self._names.parked: 1})[self._names.parked]
        return offset

    def _naming(self) -> AbstractContextManager[None]:
        topics = self._topics
        return self._parked.naming(lambda topic: topics[topic].table if topic in topics else None)

    def _check_order(self, batch: Batch) -> None:
        """Pair-assert with `ack_tracker`: positions only grow, whoever sends a transaction again."""
        before = self._open.end_lsn if self._open is not None else 0
        if not before and self._last is not None:
            before = self._last.lsn
        assert not batch.end_lsn or batch.end_lsn >= before, (
            f"a batch up to {format_lsn(batch.end_lsn)} after {format_lsn(before)}"
        )
        beside = batch.copies is not None and self._last is not None
        assert batch.end_lsn or batch.open or self._open is not None or beside, (
            "a batch without a position ends no transaction"
        )

    def _find(self, tables: Iterable[Table]) -> None:
        """Have the topics of these tables in `_by_table`; the new ones are asked for together: they can be many."""
        new: dict[str, Table] = {}
        for table in tables:
            if table in self._by_table:
                continue
            name = self._names.topic(*table)
            other = self._topics[name].table if name in self._topics else new.setdefault(name, table)
            if other != table:
                raise SettingsError(
                    f"the tables {'.'.join(other)} and {'.'.join(table)} would share the topic {name}",
                    "Put {schema} into the setting sink.topic: {prefix}.{schema}.{table}.",
                )
        if not new:
            return
        settings = self._settings
        specs = [TopicSpec(name, settings.partitions, settings.replication_factor, settings.config) for name in new]
        partitions = dict(zip(new, self._admin.ensure(*specs), strict=True))
        # Asked for before the first record of ours: so the table record is right for the partitions that get none.
        for name, offsets in self._admin.end_offsets(partitions).items():
            topic = Topic(name, new[name], offsets, self._snapshots.get(name))
            self._topics[name] = self._by_table[topic.table] = topic

    def _publish_schemas(self, schemas: list[tuple[str, str]]) -> None:
        by_partition: dict[int, list[Message]] = {}
        for fingerprint, text in schemas:
            key = fingerprint.encode()
            partition = partition_for(key, self._schema_partitions)
            by_partition.setdefault(partition, []).append({"key": key, "value": text.encode()})
        for partition, messages in by_partition.items():
            self._producer.produce(self._names.schemas, partition, messages)
        if not self._producer.transactional:
            # Readers see a row as soon as it is written: then its schema must be there.
            self._producer.flush()

    def _produce_progress(self, messages: list[Message]) -> None:
        self._producer.produce(self._names.progress, _PROGRESS_PARTITION, messages)

    def _table_message(self, topic: Topic, slot_record: SlotRecord) -> Message:
        schema, table = topic.table
        parked = self._parked.tables.get(topic.table)
        record = TableRecord(
            slot=self._source.slot,
            topic=topic.name,
            schema=schema,
            table=table,
            commit_lsn=slot_record.commit_lsn if parked is None else min(slot_record.commit_lsn, parked.lsn),
            offsets=tuple(topic.offsets),
            snapshot=topic.snapshot,
        )
        return {"key": record.key(), "value": record.value()}

    def _slot_record(self, at: KafkaTransaction) -> SlotRecord:
        last = self._last
        carried = last is not None and not at.transactions
        return SlotRecord(
            slot=self._source.slot,
            lsn=at.end_lsn or (0 if last is None else last.lsn),
            commit_lsn=last.commit_lsn if last is not None and carried else at.commit_lsn,
            commit_ts=last.commit_ts if last is not None and carried else at.commit_ts,
            system_id=self._source.system_id,
            timeline=self._source.timeline,
            transactions=at.transactions,
            rows=at.rows,
            parked=tuple(self._parked.tables.values()),
            gap_lsn=at.gap_lsn,
        )
