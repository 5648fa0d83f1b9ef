"""Worlds in which PostgreSQL, Kafka and the settings do not tell one story, or in which others write under one prefix.

Before: `world` has everything; most of its seeds end well, some with a contradiction.
After: `scenes` lists these worlds; `test_mutations` plays them with the bug that only they notice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

from sim.fake_disk import Disk
from sim.fake_kafka import Entry, FakeProducer, Transaction, nothing
from sim.fake_postgres import Server
from sim.replica import Killed, Life, SimClients, SimProducer, SteppedThread, postgres_facts
from sim.sql import TABLES
from sim.world import World

from cdcd.config.settings import Settings
from cdcd.daemon.adoption import Adoption
from cdcd.daemon.adoption_proof import Compared, Proof
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.start_judgement import StartJudgement
from cdcd.errors import FatalError, Fenced, GapError, KafkaUnavailable, PostgresUnavailable, RequestRejected
from cdcd.lsn import base_for
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
            reader.end(PostgresUnavailable("the connection was reset", code="postgres-interrupted"))
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


class LostSlot(World):
    """The slot is dropped or moved while nobody reads, with changes behind it; `on_slot_lost` is "repair".

    Only the rows that differ are published, while the stream goes on, tables change, and daemons die.
    """

    loses_topics = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 20)
        if not self.checker.has_snapshots:
            self._take_snapshots()

    def contradict(self, choice: float) -> None:
        source = self.settings.source.model_copy(update={"on_slot_lost": "repair"})
        self.settings = self.settings.model_copy(update={"source": source})
        for _ in range(self.rng.choice([1, 3])):
            self._stop_all()
            self.database.request_share = 0.0
            for _ in range(self.rng.choice([5, 60])):
                self.database.act()
            self.database.end_all()
            self.database.request_share = self.rng.choice([0.0, 0.5])
            self.server.log("other")
            self.lose()
            self._is_calm = False
            self._make_good(self.rng.choice([0, 5, 30]), self.rng.choice([0, 3, 8]))

    def lose(self) -> None:
        """Drop the slot, or move it."""
        slot = self.server.slot
        assert slot is not None
        if self.rng.random() < 0.5:
            self.note("the slot is dropped")
            self.server.slot = None
        else:
            slot.confirmed = slot.saved = self.server.end
            self.slot_created(self.server.end)


class _Adopter(Life):
    """The process of `cdcd adopt`. Its thread runs at once, and it may be killed at any call."""

    def __init__(self, world: World, calls: float) -> None:
        super().__init__(world, "adopt", Disk(world.rng))
        self.calls = calls
        """So many calls later it is killed."""

    def check(self) -> None:
        self.calls -= 1
        self.dead = self.dead or self.calls <= 0
        super().check()


class _AdopterClients(SimClients):
    def thread(self, target: Callable[[], None], name: str) -> Any:
        thread = SteppedThread(self._life, target)
        thread.start = target  # type: ignore[method-assign]
        return thread


class _Adopting(World):
    """`cdcd adopt` is killed at some moments, and run again.

    What a killed daemon or adoption has left open, Kafka often leaves undecided. The adoption was refused then, without
    a way out.
    """

    loses_topics = 0.0
    different: tuple[str, ...] = ()
    """The tables that differ at the other server."""
    _adopter: _Adopter

    def kill(self, name: str, *, quick: bool) -> None:
        if name == "adopt":
            self._adopter.dead = True
        else:
            super().kill(name, quick=quick)

    def _lose_more_markers(self, *, more: bool) -> None:
        self.loses_markers = 0.5 if more else World.loses_markers
        self.broker.may_still_commit = more

    def _is_committing(self) -> bool:
        """Whether a daemon has written all of a Kafka transaction, and not committed it."""
        return any(placed.key == b"s" for each in self.broker.open_transactions() for placed in each.records)

    def adopt(self, proof: Proof) -> bool:
        """Run `cdcd adopt`; False if it was killed or refused, or Kafka was away."""
        calls = self.rng.choice([self.rng.randint(1, 50), self.rng.randint(35, 50), inf])  # a whole one has about 50
        life = self._adopter = _Adopter(self, calls)
        clients = _AdopterClients(self, life)

        def compare(last: SlotRecord, _: object) -> Compared:
            self.checker.look()
            assert last == self.checker.last or self.different
            record = life.server.log("running")
            return Compared(record.end - life.server.lsn_base, self.different)

        self.running.append(life)
        life.busy.add("main")
        try:
            fallbacks = Fallbacks(judgement=StartJudgement(postgres_facts, lambda *_: []))
            adopted = Adoption(self.settings, clients, compare, fallbacks).run(proof)
            self.note(f"adopted at {adopted.lsn:X}")
        except (Killed, KafkaUnavailable, PostgresUnavailable) as error:
            self.note(f"no adoption: {error!r}")
            return False
        except (RequestRejected, Fenced) as error:
            self.note(f"no adoption: {error!r}")
            assert self.different
            return False
        finally:
            self.running.pop()
            self.checker.look()
        return True


class AdoptedServer(_Adopting):
    """Everything is published. Then the tables are on another server, whose LSNs begin again lower, or higher.

    Once it is adopted, the stream goes on, under faults.
    """

    def contradict(self, choice: float) -> None:
        rng, last = self.rng, self.checker.last
        if last is None or last.incomplete:
            return
        self.database.end_all()
        self._lose_more_markers(more=True)
        self._stop_all()
        if self.server.running or not self.checker.has_all():
            return
        end = self.server.end
        lsn = rng.choice([0x100_0028, 0x8000_0000, end + 0x1000, end + (3 << 32)]) + 8 * rng.randint(0, 1000)
        self.note(f"another server, whose WAL ends at {lsn:X}")
        self.server.become("7000000000000000007", lsn, base_for(lsn, end))
        self._expect_refusal("it is another server")
        self._stop_all()
        proof = rng.choice([Proof.COMPARED, Proof.SAID, Proof.REPAIRED])
        self.checker.adopts = True
        for _ in range(40):
            self._kafka_failures = rng.choice([0.0, 0.05])
            if self.adopt(proof) or not self.checker.adopts:
                break  # the record is there, even if nobody heard of it
            self.step()
        self._kafka_failures = 0.0
        self._lose_more_markers(more=False)
        self._expects_gap = False
        assert not self.checker.adopts, "nothing was recorded"
        taken, until = len(self._snapshots), self.now + 30
        while self.now < until:
            self.step()
        # A table without a topic cannot be compared: it is copied.
        is_kept = proof is Proof.REPAIRED or len(self._snapshots) == taken
        assert is_kept, "a table of the new server was taken for another one"
        self._make_good(rng.choice([5, 30]), rng.choice([0, 3, 8]))


class RefusedAdoption(_Adopting):
    """An adoption is refused, or is killed at some moment, while a daemon of the old server streams.

    Nothing has changed then: the old server's daemons go on, exactly once.
    """

    different = ("public.t",)

    def contradict(self, choice: float) -> None:
        rng = self.rng
        self.other = Server(rng, self.server.version, TABLES, self.now)
        self.other.system_id = "7000000000000000007"
        self._lose_more_markers(more=True)
        self._left, self._kafka_pauses, self._sql_pause = 200, 0.5, 0.02
        self.coordinator.moves, self.coordinator.chance = rng.choice([0, 2]), 1.0
        for _ in range(rng.choice([1, 2, 4])):
            self._due = self.now + rng.random() * rng.choice([0.1, 3])
            self.at(self._due, self._adopt_in_vain)
            while self.now <= self._due:
                self.step()
        self.coordinator.rest()
        self._lose_more_markers(more=False)
        self._kafka_pauses = self._usual_pauses
        self._make_good(rng.choice([5, 30]), rng.choice([0, 3, 8]))

    def _adopt_in_vain(self) -> None:
        """Do it while a daemon waits inside of a call, with a Kafka transaction that is open."""
        if not self._is_committing() and self._left > 0:
            self._due = self.now + 0.001
            self.at(self._due, self._adopt_in_vain)
            return
        self._kafka_failures = self.rng.choice([0.0, 0.05])
        self.adopt(Proof.COMPARED)
        self._kafka_failures = 0.0

    def server_of(self, name: str) -> Server:
        return self.other if name == "adopt" else self.server

    def slot_created(self, lsn: int) -> None:
        if self.running[-1].server is self.server:
            super().slot_created(lsn)


CONTRADICTIONS = [
    LostSlot,
    AdoptedServer,
    RefusedAdoption,
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
