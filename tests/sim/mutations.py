"""Deliberate bugs, each of which breaks a promise: what proves that the simulation can fail.

Before: `test_mutations` puts one in place. After: `world` must fail within some seeds. They patch the uncompiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from sim.replica import SimProducer, SimReplicationStream

import cdcd.sink.hanging_transactions
import cdcd.sink.partitioner
import cdcd.sink.publisher
import cdcd.transaction.spool
from cdcd.avro.event_encoder import EventEncoder
from cdcd.daemon.kafka_takeover import KafkaTakeover
from cdcd.daemon.sink_link import Commit, SinkLink
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.daemon.stream_reader import StreamReader
from cdcd.errors import GapError
from cdcd.pgoutput import messages
from cdcd.progress.ack_tracker import AckTracker
from cdcd.sink.batch_queue import BatchQueue
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.commit_schedule import CommitSchedule
from cdcd.sink.hanging_transactions import Evidence
from cdcd.sink.kafka.alternating_producer import AlternatingProducer
from cdcd.sink.kafka.undecided_transactions import UndecidedTransactions
from cdcd.sink.kafka_transaction import KafkaTransaction
from cdcd.sink.publisher import Publisher
from cdcd.source.stream_messages import decode_keepalive
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool, SpooledTransaction
from cdcd.transaction.spooled_transactions import SpooledTransactions
from cdcd.transaction.stream_state import BETWEEN_TRANSACTIONS

Mutation = Callable[[], AbstractContextManager[Any]]

MUTATIONS: dict[str, Mutation] = {}
"""By what is wrong."""


def mutation(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Put the decorated function in the place of `owner.name`; its own name, in words, says what is wrong."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        MUTATIONS[function.__name__.replace("_", " ")] = lambda: patch.object(owner, name, function)
        return function

    return register


# Acknowledgements


@mutation(AckTracker, "ack")
def acknowledge_what_was_received(self: AckTracker) -> int:
    self._acked = max(self._acked, self._received)
    return self._acked


@mutation(AckTracker, "ack")
def acknowledge_a_quiet_server_before_the_slot_record(self: AckTracker) -> int:
    return max(AckTracker._original_ack(self), self.idle_position())  # type: ignore[attr-defined]


AckTracker._original_ack = AckTracker.ack  # type: ignore[attr-defined]


@mutation(AckTracker, "idle_position")
def remember_that_it_was_caught_up(self: AckTracker) -> int:
    """A stored flag: set when it was so, and never looked at again."""
    if self._received == self._durable and not self._in_transaction and not self._held:
        self._resolved["caught up"] = 1 << 62
        self._held["caught up"] = 1 << 62
    return self._server_position if "caught up" in self._resolved and self._server_position > self._durable else 0


@mutation(AckTracker, "on_prepare")
def let_a_prepared_transaction_be_forgotten(self: AckTracker, gid: str, prepare_lsn: int) -> None:
    self._in_transaction = False
    self._advance_server_position(prepare_lsn)


@mutation(AckTracker, "on_commit_prepared")
def end_the_hold_before_the_rows_are_durable(self: AckTracker, gid: str, end_lsn: int) -> None:
    self.on_rollback_prepared(gid)


@mutation(Assembler, "_keepalive")
def take_a_keepalive_inside_a_transaction_for_quiet(self: Assembler, frame: bytes) -> None:
    keepalive = decode_keepalive(frame)
    self.last_idle_keepalive_lsn = self.received_lsn = keepalive.wal_end
    self._state = BETWEEN_TRANSACTIONS
    self.reply_requested = self.reply_requested or keepalive.reply


# Kafka transactions


class _ProgressLater:
    """A producer that commits the rows first, and the progress in a transaction of its own."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def produce(self, topic: str, partition: int, records: list[Any]) -> None:
        if topic.endswith(".progress"):
            self._producer.commit()
            self._producer.begin()
        self._producer.produce(topic, partition, records)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)


_publisher_init = Publisher.__init__


@mutation(Publisher, "__init__")
def progress_outside_the_transaction(self: Publisher, producer: Any, *arguments: Any, **named: Any) -> None:
    _publisher_init(self, _ProgressLater(producer), *arguments, **named)


_add = KafkaTransaction.add


@mutation(KafkaTransaction, "add")
def commit_inside_a_postgresql_transaction(self: Any, batch: Any) -> None:
    _add(self, batch)
    self.is_inside = False
    self.end_lsn = self.end_lsn or 1 << 32


@mutation(Publisher, "_publish_schemas")
def publish_schemas_after_the_rows(self: Publisher, schemas: list[tuple[str, str]]) -> None:
    later: list[tuple[str, str]] = getattr(self, "later", [])
    self.later = schemas  # type: ignore[attr-defined]
    if later:
        _publish_schemas(self, later)


_publish_schemas = Publisher._publish_schemas


@mutation(SimProducer, "__init__")
def fence_nobody(self: SimProducer, world: Any, transactional_id: str | None) -> None:
    world.producers = getattr(world, "producers", 0) + 1
    _producer_init(self, world, f"{transactional_id}-{world.producers}")


_producer_init = SimProducer.__init__


@mutation(AlternatingProducer, "start")
def fence_with_the_second_producer_when_its_turn_comes(self: Any, stopping: Any) -> bool:
    first, second = self._both
    begin = second.begin

    def late() -> None:
        second.begin = begin
        second.start(stopping)
        begin()

    second.begin = late
    return bool(first.start(stopping))


@mutation(KafkaTakeover, "_take_over")
def read_the_progress_before_fencing(self: Any, server: Any) -> Any:
    last = self._progress.last_record()
    self._progress.last_record = lambda: last
    return _take_over(self, server)


_take_over = KafkaTakeover._take_over


@mutation(Publisher, "_slot_record")
def go_on_from_the_commit_lsn(self: Publisher, transaction: Any, gap_lsn: int) -> Any:
    record = _slot_record(self, transaction, gap_lsn)
    return type(record)(**{**vars(record), "lsn": transaction.commit_lsn or record.lsn})


_slot_record = Publisher._slot_record


def _split_at_random(records: list[Any], everywhere: list[int], partitions: int) -> list[list[Any]]:
    lists: list[list[Any]] = [[] for _ in range(partitions)]
    for at, record in enumerate(records):
        for number in range(partitions):
            if at in everywhere or number == (len(record["value"]) + at) % partitions:
                lists[number].append(record)
    return lists


MUTATIONS["rows to any partition"] = lambda: patch.object(cdcd.sink.publisher, "split", _split_at_random)


def _split_without_keys(records: list[Any], everywhere: list[int], partitions: int) -> list[list[Any]]:
    lists = _split(records, everywhere, partitions)
    unkeyed = [record for at, record in enumerate(records) if record.get("key") is None and at not in everywhere]
    moved = unkeyed[1::2]
    lists[0] = [record for record in lists[0] if not any(record is each for each in moved)]
    lists[-1] = [*lists[-1], *moved]
    return lists


_split = cdcd.sink.partitioner.split
MUTATIONS["rows without keys to any partition"] = lambda: patch.object(
    cdcd.sink.publisher, "split", _split_without_keys
)


@mutation(BatchBuilder, "add_to_every_partition")
def truncate_one_partition(self: BatchBuilder, table: int, op: int, value: bytes) -> None:
    self.add(table, op, None, value)


# The way there


@mutation(SinkLink, "put")
def drop_the_batch_that_finds_no_room(self: SinkLink, batch: Any) -> None:
    self._queue.put(batch)


@mutation(StreamReader, "_collect")
def count_seq_anew_in_every_batch(self: StreamReader, synchronous: bool) -> None:
    encoder = self._assembler._consumer
    assert isinstance(encoder, EventEncoder)
    encoder.seq = 0
    _collect(self, synchronous)


_collect = StreamReader._collect


@mutation(SpooledTransactions, "abort_stream")
def ignore_the_subxid(self: SpooledTransactions, message: messages.StreamAbort) -> None:
    if message.xid == message.subxid:
        _abort(self, message)


_abort = SpooledTransactions.abort_stream


@mutation(SpooledTransactions, "abort_stream")
def abort_all_for_one_subxid(self: SpooledTransactions, message: messages.StreamAbort) -> None:
    _abort(self, messages.StreamAbort(message.xid, message.xid))


_assembler_init = Assembler.__init__


@mutation(Assembler, "__init__")
def skip_one_byte_too_far(
    self: Assembler, decoder: Any, relations: Any, consumer: Any, spool: Any, durable_lsn: int, **limits: int
) -> None:
    _assembler_init(self, decoder, relations, consumer, spool, durable_lsn + bool(durable_lsn), **limits)


@mutation(Assembler, "__init__")
def skip_nothing(
    self: Assembler, decoder: Any, relations: Any, consumer: Any, spool: Any, durable_lsn: int, **limits: int
) -> None:
    _assembler_init(self, decoder, relations, consumer, spool, 0, **limits)


@mutation(Relations, "resolve")
def keep_the_first_version_of_a_table(self: Any, message: messages.Relation) -> Any:
    versions = self.__dict__.setdefault("versions", {})
    return versions.setdefault(message.relation_oid, _resolve(self, message))


_resolve = Relations.resolve


@mutation(SpooledTransaction, "frames")
def hand_on_memory_before_the_disk(self: SpooledTransaction) -> Any:
    memory = list(self._frames)
    yield memory
    if self.disk_bytes:
        yield from self._from_disk()


@mutation(Spool, "on_growth")
def let_the_spool_grow(self: Spool, spooled: SpooledTransaction, size: int) -> None:
    self._memory_bytes += size


MUTATIONS["trust the disk"] = lambda: patch.object(cdcd.transaction.spool, "crc32", lambda *_: 0)

MUTATIONS["accept a slot that was moved"] = lambda: patch(
    "cdcd.daemon.kafka_takeover.check_continuity", lambda *_, **__: True
)


@mutation(CommitSchedule, "_must_commit")
def commit_when_the_next_batch_comes(self: CommitSchedule, now: float, transaction: Any, more: bool) -> bool:
    return more and not transaction.is_inside


@mutation(SinkLink, "_on_durable")
def wake_nobody_for_the_acknowledgement(self: SinkLink, result: Any, commit_s: float) -> None:
    self._committed.append(Commit(result, commit_s, 0.0))


_handover_init = BatchQueue.__init__


@mutation(BatchQueue, "__init__")
def wake_nobody_when_there_is_room(self: BatchQueue, batches_max: int, bytes_max: int, on_room: object) -> None:
    _handover_init(self, batches_max, bytes_max, lambda: None)


MUTATIONS["take the rows of undecided progress for visible"] = lambda: patch.object(
    UndecidedTransactions, "_rows_visible", lambda *_: True
)


def _told_of_where_the_slot_began(known: Evidence) -> bool:
    seen_lsn = 0 if known.visible is None else known.visible.lsn
    return known.undecided is not None and seen_lsn < known.confirmed_lsn <= known.undecided.lsn


MUTATIONS["take where the slot began for an acknowledgement"] = lambda: patch.object(
    cdcd.sink.hanging_transactions, "_was_acknowledged", _told_of_where_the_slot_began
)
_decide_hanging = cdcd.sink.hanging_transactions.decide_hanging
MUTATIONS["leave undecided what hangs of the second producer"] = lambda: patch(
    "cdcd.daemon.kafka_takeover.decide_hanging",
    lambda admin, producers, *more: _decide_hanging(admin, producers[:1], *more),
)
MUTATIONS["leave undecided what hangs"] = lambda: patch("cdcd.daemon.kafka_takeover.decide_hanging", lambda *_: 0)

# Bugs that the simulation has found


@mutation(StreamReader, "_collect")
def forget_that_a_transaction_began_behind_a_prepare(self: StreamReader, synchronous: bool) -> None:
    """[b P r][B ...: in one burst, the tracker heard of the Begin before the Prepare, so an idle position cut it."""
    prepared = any(phase.kind == messages.PREPARE for phase in self._assembler.prepared_outcomes)
    _collect(self, synchronous)
    if prepared:
        self._tracker._in_transaction = False


@mutation(AckTracker, "on_commit_prepared")
def let_go_of_a_prepared_transaction_without_rows(self: AckTracker, gid: str, end_lsn: int) -> None:
    """Its COMMIT PREPARED alone came again after a restart: rows that were never sent, as it seemed, for ever."""
    if end_lsn > self._received:
        self.on_rollback_prepared(gid)
    else:
        _committed(self, gid, end_lsn)


_committed = AckTracker.on_commit_prepared


class _Anybody:
    """Equal to every process id."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


MUTATIONS["take the news of another daemon for a gap"] = lambda: patch.object(
    SimReplicationStream, "backend_pid", _Anybody()
)


@mutation(SlotSetup, "ensure")
def take_the_slot_of_another_daemon_for_a_lost_one(self: SlotSetup, stream: Any) -> None:
    """Two daemons started at once: between our two questions the other made the slot, and published."""
    if self._slot.state() is None and self._progress.last_record() is not None:
        raise GapError("the slot does not exist any more")
    _ensure_slot(self, stream)


_ensure_slot = SlotSetup.ensure
