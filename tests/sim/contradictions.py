"""Worlds in which PostgreSQL, Kafka and the settings do not tell one story, or in which others write under one prefix.

Before: `world` has everything; most of its seeds end well, some with a contradiction.
After: `scenes` lists these worlds; `test_mutations` plays them with the bug that only they notice.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf

from sim.fake_disk import Disk
from sim.fake_kafka import Entry, FakeProducer, Transaction, nothing
from sim.fake_postgres import Server
from sim.replica import Life, SimProducer
from sim.sql import TABLES
from sim.world import World

from cdcd.config.settings import Settings
from cdcd.errors import FatalError, Fenced, GapError, KafkaUnavailable, PostgresUnavailable
from cdcd.progress.records import SlotRecord, TableRecord, parse_slot_record, parse_table_record
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.sink.batches import Message
from cdcd.sink.topics import TopicNames, TopicSpec, own_specs


class MovedSlot(World):
    """The slot is moved while nobody reads."""

    def contradict(self, choice: float) -> None:
        self.move_slot()


class LostProgress(World):
    """The progress topic is deleted, with or without the snapshots topic.

    The start began where the slot stood: after a crash of the server, all since its last checkpoint was published
    twice.
    """

    def contradict(self, choice: float) -> None:
        self.lose_progress("p.progress", *(["p.snapshots"] if choice < 0.4 else []))


class CutProgress(World):
    """The progress topic loses its last records, in the crash that puts the slot back to its last checkpoint.

    The transactions that they told of were published twice.
    """

    def contradict(self, choice: float) -> None:
        self._stop_all()
        self.database.crash()
        self.server.restart()
        assert self.server.slot is not None
        log = self.broker.log("p.progress", 0)
        records = {
            at: parse_slot_record(b"s", entry.value)
            for at, entry in enumerate(log)
            if entry.key == b"s" and entry.value and entry.state == "committed" and not entry.is_marker
        }
        ends = [at for at, record in records.items() if record.lsn >= self.server.slot.confirmed][:-1]
        if not ends or self.broker.hanging:
            return
        end = self.rng.choice(ends)
        known = {
            parse_table_record(entry.key, entry.value).topic
            for entry in log[:end]
            if entry.key and entry.key.startswith(b"s/") and entry.value and entry.state == "committed"
        }
        is_seen = any(
            placed.topic in known and self.checker._decode(placed.value)["source"]["commit_lsn"] >= records[end].lsn
            for transaction in self.broker.committed
            if any(placed.topic == "p.progress" and placed.offset > end for placed in transaction.records)
            for placed in transaction.records
            if placed.topic.count(".") == 2
        )
        self.broker.cut("p.progress", 0, end + 1)
        if is_seen:
            self._expect_refusal("the last records of the progress are lost")


class BroughtBackProgress(World):
    """The progress topic is lost, and somebody makes it again and brings its records back, as the hint says.

    They lie at lower offsets then. The daemon looked for table records behind the end of the topic, compared no topic
    with any, and took the progress for cut as soon as it streamed: it started again every few seconds, without end.
    """

    def contradict(self, choice: float) -> None:
        self._stop_all()
        records = {seen.key: seen.value for seen in self.broker.visible("p.progress")[0]}
        last = self.checker.last
        if self.broker.hanging or last is None or last.tables_offset <= len(records):
            return
        self.broker.create(self.broker.delete("p.progress"))
        place = "p.progress", 0
        log = self.broker.log(*place)
        log += [Entry(key, value, None, place) for key, value in records.items() if value is not None]
        self.note("the records of the progress are brought back")
        tables = sorted(topic for topic in self.broker.topics if topic.count(".") == 2 and any(self._committed(topic)))
        self.watches_topics = True
        if choice < 0.5 and tables:
            self.broker.delete(self.rng.choice(tables))
            self._expect_refusal("a topic is lost")
            return
        self._make_good(20, 0)
        until = self.now + 60
        while self.now < until:
            self.step()
        assert not any("Kafka has lost records" in line for line in self.trace), "a progress that is there was missed"


class PutBackServer(World):
    """The server's data directory is put back to an earlier state, and written to beyond its end. No new timeline.

    The rows of the new history were dropped, because their positions were published already.
    """

    def contradict(self, choice: float) -> None:
        self.put_server_back()


class PutBackBeforeMessages(PutBackServer):
    """The new history has messages outside of transactions, and no rows.

    They were dropped, too: only rows were taken for a sign of another history.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 2)  # often nothing is published before

    def write_another_history(self) -> None:
        self.database.request_share = 0.0
        self.database.message()


class Intruder(World):
    """A daemon with the same slot and prefix is led to another server, which has a slot of that name, too.

    It fenced the right daemon, and only then it saw the other system id.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 30)
        self._is_calm = False
        self._faults = 0
        self.coordinator.moves = 0  # nobody can see a first commit that is not decided yet
        self.disks = {"a": Disk(self.rng), "x": Disk(self.rng)}
        self.lives = {"a": None}
        self._starts = {"a": self.now}
        self.other = Server(self.rng, self.server.version, TABLES, self.now)
        self.other.system_id = "7000000000000000002"
        self.other.create_slot(two_phase=False)
        self.refusals = 0

    def server_of(self, name: str) -> Server:
        return self.other if name == "x" else self.server

    def step(self, *, daemons: bool = True) -> bool:
        if "x" not in self.lives and self.checker.last is not None:
            self.lives["x"], self._starts["x"] = None, self.now
        assert self.other.slot is not None
        reader = self.other.slot.reader
        if reader is not None and (reader.link.gone or reader.link.lost):
            reader.end(PostgresUnavailable("the connection was reset"))
        able = super().step(daemons=daemons)
        for owner in self.broker.owners.values():
            assert isinstance(owner, SimProducer)
            assert owner._life.name == "a", "the intruder has fenced the right daemon"
        return able

    def died(self, life: Life, stop: FatalError | None) -> None:
        if life.name == "x":
            assert isinstance(stop, GapError)
            self._expects_gap = True
            self.refusals += 1
        assert not isinstance(stop, Fenced), "the right daemon was fenced"
        super().died(life, stop)
        self._expects_gap = False

    def contradict(self, choice: float) -> None:
        while not self.refusals:
            self.step()


class SharedPrefix(World):
    """Another slot publishes under the same prefix: it writes to the topics of cdcd itself, and may leave a transaction
    open there for a while.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 30)
        self._is_calm = False
        self.checker.strangers = {"p-t"}
        self.names = TopicNames("p")
        self.theirs = self.names.topic("other", "x")
        self.neighbour: FakeProducer | None = None
        self._due = self.now
        self._lsn = 0x2_0000_0000
        if self.rng.random() < 0.7:  # it was there first
            for spec in [*own_specs(self.names, 1, {}), TopicSpec(self.theirs, 1, 1)]:
                self.broker.create(spec)
            self._write()

    def step(self, *, daemons: bool = True) -> bool:
        if self.now >= self._due and self.theirs in self.broker.topics:
            self._write()
        return super().step(daemons=daemons)

    def _heal(self) -> None:
        if self.neighbour is not None:
            self._write()
        self._due = inf
        super()._heal()

    def _write(self) -> None:
        """Write a transaction, or end the one that is open."""
        calls = self.broker.on_call, self.broker.on_done
        self.broker.on_call = self.broker.on_done = nothing
        self._due = self.now + self.rng.random() * self.rng.choice([0.1, 3])
        if self.neighbour is None:
            self._begin()
        else:
            neighbour, self.neighbour = self.neighbour, None
            with suppress(KafkaUnavailable):  # Kafka may have ended it
                neighbour.commit() if self.rng.random() < 0.7 else neighbour.abort()
        self.broker.on_call, self.broker.on_done = calls

    def _begin(self) -> None:
        self.neighbour = neighbour = FakeProducer(self.broker, "p-t")
        neighbour.start(lambda: False)
        neighbour.begin()
        self._lsn += 0x100
        neighbour.produce(self.theirs, 0, [{"key": b"k", "value": b"v"}])
        snapshot = TableSnapshot("t", self.theirs, "other", "x", DONE, self._lsn)
        beginning = SlotBeginning("t", self.server.system_id, 0, 0x2_0000_0000)
        written: list[Message] = [{"key": each.key(), "value": each.value()} for each in (snapshot, beginning)]
        neighbour.produce(self.names.snapshots, 0, written)
        table = TableRecord("t", self.theirs, "other", "x", self._lsn - 8, (1,))
        slot = SlotRecord("t", self._lsn, self._lsn - 8, 1, self.server.system_id, 1, 1, 1)
        neighbour.produce(self.names.progress, 0, [{"key": e.key(), "value": e.value()} for e in (table, slot)])

    def _lose_markers(self, transaction: Transaction) -> set[tuple[str, int]]:
        return set() if transaction.producer == "p-t" else super()._lose_markers(transaction)


class TwoPrefixes(World):
    """Two daemons use one slot, each with a prefix of its own, one after the other.

    The second one begins where the slot stands: nothing of the first one's topics is its own. The first one must not go
    on once changes went to the other prefix alone.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 30)
        self._is_calm = False
        self._faults = 0
        self.disks = {"a": Disk(self.rng), "b": Disk(self.rng)}
        self.lives = {"a": None}
        self._starts = {"a": self.now}
        self.checker.strangers = {"q-s", "q-s.2"}
        self._other_settings = self.settings.model_copy(
            update={"sink": self.settings.sink.model_copy(update={"prefix": "q"})}
        )

    def settings_of(self, name: str) -> Settings:
        return self._other_settings if name == "b" else self.settings

    def contradict(self, choice: float) -> None:
        self._stop_all()
        self.lives, self._starts = {"b": None}, {"b": self.now}
        slot, last = self.server.slot, self.checker.last
        assert slot is not None
        assert last is not None
        for _ in range(20):
            self.database.act()
        self.database.end_all()
        self.server.log("other")
        while slot.confirmed < self.server.end:
            self.step()
        assert any(self.broker.visible("q.progress")), "the other prefix has no progress"
        self._stop_all()
        self.lives, self._starts = {"a": None}, {"a": self.now}
        self._expect_refusal("the slot's changes went to another prefix")


CONTRADICTIONS = [
    MovedSlot,
    LostProgress,
    CutProgress,
    BroughtBackProgress,
    PutBackServer,
    PutBackBeforeMessages,
    Intruder,
    SharedPrefix,
    TwoPrefixes,
]
