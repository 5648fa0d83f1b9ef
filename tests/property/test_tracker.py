"""A stream of any shape, with crashes: the ack never passes what a restart would need again."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cdcd.progress.ack_tracker import AckTracker

GIDS = st.sampled_from("abc")
SIZES = st.integers(1, 50)


@dataclass(frozen=True)
class Record:
    """A WAL record that ends or prepares a transaction."""

    kind: str
    start: int
    end: int
    gid: str = ""


class Stream(RuleBasedStateMachine):
    """A server that tells its WAL in order, a daemon that may crash, and a Kafka that commits some time later.

    `confirmed` is what the server was told last, `progress` what Kafka holds: all that survives a crash.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wal = 100
        self.history: list[Record] = []
        self.open = False
        self.confirmed = 100
        self.progress = 100
        self.connect()

    def connect(self) -> None:
        self.tracker = AckTracker(self.confirmed, self.progress)
        self.queue: list[int] = []
        self.spooled: set[str] = set()
        for record in self.history:
            if record.start >= self.confirmed:
                self.tracker.on_begin()
                self.receive(record)

    def write(self, kind: str, size: int, gid: str = "") -> None:
        record = Record(kind, self.wal, self.wal + size, gid)
        self.wal = record.end
        self.history.append(record)
        self.receive(record)

    def receive(self, record: Record) -> None:
        """What the daemon does with the end of a transaction, the first time or after a crash."""
        if record.kind == "prepare":
            self.tracker.on_prepare(record.gid, record.start)
            self.spooled.add(record.gid)
        elif record.kind == "rollback":
            self.tracker.on_skipped(record.end)
            self.tracker.on_rollback_prepared(record.gid)
        elif record.kind == "empty" or record.end <= self.progress:
            self.tracker.on_skipped(record.end)
            self.tracker.on_commit_prepared(record.gid, record.end)
        else:
            assert record.kind == "commit" or record.gid in self.spooled, "the rows of a prepared transaction are lost"
            self.tracker.on_received(record.end)
            self.tracker.on_commit_prepared(record.gid, record.end)
            self.queue.append(record.end)

    def prepared(self) -> dict[str, Record]:
        """The prepared transactions that nothing resolved."""
        found = {}
        for record in self.history:
            if record.kind == "prepare":
                found[record.gid] = record
            elif record.gid:
                found.pop(record.gid)
        return found

    @precondition(lambda self: not self.open)
    @rule()
    def begin(self) -> None:
        self.tracker.on_begin()
        self.open = True

    @precondition(lambda self: self.open)
    @rule(kind=st.sampled_from(["commit", "empty"]), size=SIZES)
    def commit(self, kind: str, size: int) -> None:
        self.open = False
        self.write(kind, size)

    @precondition(lambda self: self.open)
    @rule(gid=GIDS, size=SIZES)
    def prepare(self, gid: str, size: int) -> None:
        # The assembler names a prepared transaction by xid and gid: a name never comes twice before it is durable.
        on_its_way = any(record.gid == gid and record.end > self.progress for record in self.history)
        if gid not in self.prepared() and not on_its_way:
            self.open = False
            self.write("prepare", size, gid)

    @precondition(lambda self: not self.open)
    @rule(kind=st.sampled_from(["commit prepared", "rollback"]), gid=GIDS, size=SIZES)
    def resolve(self, kind: str, gid: str, size: int) -> None:
        if gid in self.prepared():
            self.write(kind, size, gid)

    @rule(ahead=st.integers(0, 1000))
    def keepalive(self, ahead: int) -> None:
        if self.open:
            self.tracker.on_keepalive(self.wal + ahead)
        else:
            self.wal += ahead
            self.tracker.on_keepalive(self.wal)

    @rule()
    def commit_idle_position(self) -> None:
        position = self.tracker.idle_position()
        if position:
            self.queue.append(position)

    @rule(count=st.integers(1, 5))
    def kafka_commits(self, count: int) -> None:
        done, self.queue = self.queue[:count], self.queue[count:]
        if done:
            self.progress = done[-1]
            self.tracker.on_durable(self.progress)

    @rule()
    def status_update(self) -> None:
        acked = self.tracker.ack()
        assert acked >= self.confirmed, "the ack went back"
        self.confirmed = acked

    @rule(kafka_committed=st.integers(0, 5))
    def crash(self, kafka_committed: int) -> None:
        """The daemon dies, perhaps before it heard what Kafka had committed."""
        for end_lsn in self.queue[:kafka_committed]:
            self.progress = end_lsn
        self.open = False
        self.connect()

    @invariant()
    def the_slot_is_never_ahead_of_the_progress(self) -> None:
        assert self.tracker.ack() <= self.progress

    @invariant()
    def a_restart_gets_all_that_kafka_does_not_hold(self) -> None:
        acked = self.tracker.ack()
        prepares: dict[str, Record] = {}
        for record in self.history:
            if record.kind == "prepare":
                prepares[record.gid] = record
            elif record.kind == "commit":
                assert record.end <= self.progress or acked <= record.start
            elif record.kind == "commit prepared":
                assert record.end <= self.progress or acked <= prepares[record.gid].start
        for record in self.prepared().values():
            assert acked <= record.start

    @invariant()
    def an_idle_stream_can_always_be_acked_to_its_end(self) -> None:
        if not (self.open or self.queue or self.prepared()):
            idle = self.tracker.idle_position()
            assert max(idle, self.tracker.durable_lsn) == max(self.tracker.server_position, self.progress)


TestStream = Stream.TestCase
TestStream.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
