"""A world from a seed: PostgreSQL, Kafka, two replicas of the daemon, and everything that can befall them.

Before: `run` and the tests give a seed. After: `World.run` returns, or raises what went wrong with a short trace.

One process, one thread. Each step one of those who can go on is chosen, and does a little; when nobody can, the clock
jumps to where somebody can. Whatever waits inside a call (a broker that takes its time) lets the world go on meanwhile
on top of its stack. Then the faults stop, and within HEALED_S everything must be in Kafka and the slot confirmed.
"""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, ClassVar

from sim.checker import BrokenPromise, Checker
from sim.coordinator import Coordinator
from sim.fake_disk import Disk
from sim.fake_kafka import Entry, FakeBroker, Transaction
from sim.fake_postgres import TIMEOUT_S, Link, Server, ServerCopy, Table
from sim.fake_registry import SimRegistry
from sim.formats import ROW, settings_with
from sim.formats import choice as format_choice
from sim.headers_checker import choice
from sim.heaps import Files
from sim.pauses import Pauses
from sim.replica import Life
from sim.snapshots import SimSnapshot
from sim.sql import POISON, TABLES, Database
from sim.stops import Stops

from cdcd.config.settings import (
    OutboxSettings,
    Settings,
    SinkSettings,
    SnapshotSettings,
    SourceSettings,
    SpoolSettings,
    TableSettings,
)
from cdcd.errors import FatalError, Fenced, GapError, KafkaUnavailable, PostgresUnavailable, RequestRejected
from cdcd.progress.records import kafka_topic

HEALED_S = 400.0
STEPS_MAX = 100_000
DEPTH_MAX = 6
TRACE_MAX = 60


class Failure(Exception):
    """A seed that fails: what happened, and what came before."""

    def __init__(self, seed: int, error: BaseException, trace: list[str]) -> None:
        lines = "\n".join(f"    {line}" for line in trace)
        super().__init__(f"seed {seed}: {type(error).__name__}: {error}\n{lines}")
        self.seed = seed
        self.error = error


WITH_SNAPSHOTS = 0.35
"""The share of worlds whose tables hold rows before there is a slot."""

WITH_REGISTRY = 0.15
"""The share of worlds with a schema registry that is slow, and away at times."""

WITH_OUTBOX = 0.12
"""The share of worlds with an outbox."""

WITH_SHARED_TOPIC = 0.1
"""The share of worlds in which two tables share a topic."""

FORMATS_WITH_SHARED_TOPIC = 0.3
"""The same, of the worlds whose events are not cdcd's own in Avro."""

WITH_STRANGER = 0.2
"""The share of worlds with a table whose topic Kafka refuses."""


WITH_PAUSES = 0.3
"""Of the worlds with snapshots, the share in which a person pauses and slows them."""


class World:
    """One seed."""

    has_registry = 0.0
    """The share of worlds with a schema registry. A scene, which is about something else, has none."""

    shares_topic = False
    """Whether tables share a topic."""

    has_outbox = False
    """Whether a scene has an outbox."""

    has_format = ""
    """The format of events, as `formats.choice` gives it, of a scene."""

    loses_topics = 0.3
    """The share of worlds in which Kafka loses topics at last."""

    tables: ClassVar = TABLES

    has_defaults = False
    """Whether columns are added with a default."""

    loses_markers = 0.1
    """Of the Kafka transactions that are aborted, so many stay undecided in their partitions."""

    def __init__(self, seed: int, events: int = 60, *, two_phase: bool = False) -> None:
        """`events`: about how many things are done in SQL; `two_phase`: most of them for transactions that prepare."""
        self.seed = seed
        self.rng = rng = Random(seed)
        self.now = 1000.0
        self.steps = 0
        self.trace: deque[str] = deque(maxlen=TRACE_MAX)
        self.running: list[Life] = []
        """Whose code runs; more than one while somebody waits inside a call."""
        self.defaults_left: dict[tuple[int, str], int] = {}
        """By table and column, how often the catalog tells a default before it has forgotten it."""
        self._calendar: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()

        version = rng.choice([15, 18] if two_phase else [14, 15, 16, 18])
        # A dice of its own: without a stranger, a world goes on as it did.
        has_stranger = Random(f"stranger {seed}").random() < WITH_STRANGER
        self.server = Server(rng, version, [*self.tables, POISON] if has_stranger else self.tables, self.now)
        self.server.block_chance = rng.choice([0.0, 0.1, 0.5, 1.0])
        self.server.synchronous = rng.random() < 0.4
        self.server.nasty = rng.random() < 0.2
        self.database = Database(self.server, rng)
        self.database.key_rng = Random(seed)
        self.files = Files(self.database)
        """Where the rows of the tables lie."""
        # Not both: with the identity FULL the stream does not tell the key, so that it may be one of two.
        alters = self.database.key_rng.choice(["keys", "identities", "neither"])
        self.database.key_share = 0.5 if alters == "keys" else 0.0
        self.database.identity_share = 0.5 if alters == "identities" else 0.0
        self.database.prepare_share = 0.5 if two_phase else rng.choice([0.05, 0.3])
        self.database.resolve_share = rng.choice([0.3, 0.9])
        if seed % 8 == 5:
            self.database.blocks_share, self.database.blocks_max = 0.1, 300
        self.local = rng.random() < 0.5
        self.link_room = rng.choice([4, 30, 300])

        self.broker = FakeBroker()
        self.broker.refused = f"p.{POISON.schema}."
        self.broker.on_call = self._kafka_call
        self.broker.on_done = self._kafka_done
        self.broker.loses_markers = lambda each: (
            self.coordinator.lost_markers(each) if each.state == "committed" else self._lose_markers(each)
        )
        self.kafka_up = True
        self._limbo: list[Transaction] = []
        self._kafka_failures = 0.0
        self._kafka_pauses = rng.choice([0.05, 0.3])
        self._usual_pauses = self._kafka_pauses

        self.batches_max = rng.choice([2, 5, 64])
        self.replay_bytes = rng.choice([1, 300, 1 << 20])
        self.settings = self._settings(rng, two_phase=two_phase or (version >= 15 and rng.random() < 0.6))
        with_headers = self.settings.sink.model_copy(update={"headers": choice(seed)})
        self.settings = self.settings.model_copy(update={"sink": with_headers})
        if type(self) is World and Random(f"outbox {seed}").random() < WITH_OUTBOX:
            self.has_outbox = True
        if self.has_outbox:
            # The number in an event's id would count those of the outbox, too.
            without_headers = self.settings.sink.model_copy(update={"headers": ()})
            outbox = OutboxSettings(table="public.outbox", message_prefix="outbox")
            self.settings = self.settings.model_copy(update={"sink": without_headers, "outbox": outbox})
            self.database.outbox_share = 0.3
            self.database.outbox_rng = Random(f"outbox of {seed}")
        self.format = self.has_format if type(self) is not World else format_choice(seed)
        if self.format:
            self.settings = settings_with(self.settings, self.format, seed)
        share = FORMATS_WITH_SHARED_TOPIC if self.format else WITH_SHARED_TOPIC
        if type(self) is World and Random(f"shared {seed}").random() < share:
            self.shares_topic = True
            entry = TableSettings(match="public.*", topic="{prefix}.public")
            self.settings = self.settings.model_copy(update={"table": (entry,)})
        if self.format == ROW:
            self.database.truncate_weight = 0
        self.checker = Checker(self.broker, self.database, self.settings)
        replicas = rng.choice(["a", "ab"])
        self.disks = {name: Disk(rng) for name in replicas}
        self.lives: dict[str, Life | None] = dict.fromkeys(replicas)
        late = rng.choice([0.0, 2.0])
        self._starts = {name: self.now + rng.random() * late for name in replicas}
        self._left = rng.randint(events // 2, events * 2)
        self._sql_due = 0.0
        self._sql_pause = rng.choice([0.0, 0.0, 0.002, 0.1])
        self._faults = rng.choice([0, 3, 8, 20])
        self._fault_chance = rng.choice([0.005, 0.02, 0.06])
        self.registry: SimRegistry | None = None
        share = WITH_REGISTRY if type(self) is World else self.has_registry
        if not (has_stranger or self.format or self.shares_topic) and Random(f"registry {seed}").random() < share:
            self.registry = SimRegistry(self, Random(f"outages {seed}"))
        self._is_calm = not self._faults and not has_stranger and self.registry is None
        if self._is_calm:
            self._kafka_pauses = 0.0
        self.coordinator = Coordinator(self, seed, moves=not self._is_calm)
        self.broker.moves_coordinator = self.coordinator.move
        self.has_lost_feature = False
        """A stream has ended because of what it cannot receive, or can receive again."""
        self._stops: list[tuple[str, FatalError]] = []
        self._expects_gap = False
        self.watches_topics = False
        """The daemons watch the topics: until then nothing befalls these."""
        self._expects_refusal = False
        self.refuses_takeovers_until = 0.0
        """Until then the ACLs do not let the daemon have its transactional.ids."""
        self.is_another_history = False
        """The server was put back, so the ledger is not what Kafka has."""
        self._backup: ServerCopy | None = None
        """A copy of the server's data directory."""
        self._snapshots: list[SimSnapshot] = []
        self.database.locked = lambda: set().union(*(each.locked for each in self._snapshots if each.alive))
        self.snapshot_pace_s = 0.0
        """How long it takes a connection to read the next rows of a snapshot, at most."""
        self.pauses = Pauses(self, seed)
        self.stops = Stops(self, seed)
        # No row says that a snapshot replaces others.
        if not two_phase and rng.random() < WITH_SNAPSHOTS and self.format != ROW:
            self._take_snapshots()

    def _take_snapshots(self) -> None:
        """Fill the tables before there is a slot: these rows come by snapshots."""
        taken = SnapshotSettings(workers=self.rng.randint(1, 3), chunk_bytes=8192)
        self.settings = self.settings.model_copy(update={"snapshot": taken})
        self.checker.has_snapshots = True
        self.database.truncate_weight = 0
        for _ in range(self.rng.choice([0, 100, 300])):
            self.database.act()
        self.database.end_all()
        self.database.truncate_weight = 1
        self.database.request_share = 0.5
        self.database.rewrite_share = 0.2
        self._sql_pause = self.rng.choice([0.002, 0.02, 0.1])
        self.snapshot_pace_s = self.rng.choice([0.0, 0.05, 0.3, 0.3])
        if type(self) is World and Random(f"pauses {self.seed}").random() < WITH_PAUSES:
            self.pauses.chance = 0.1

    @staticmethod
    def _settings(rng: Random, *, two_phase: bool) -> Settings:
        source = SourceSettings(dsn="d", slot="s", two_phase=two_phase, streaming=rng.choice(["auto", "auto", "off"]))
        sink = SinkSettings(bootstrap_servers="b", prefix="p", partitions=rng.randint(1, 3))
        sink = sink.model_copy(
            update={
                "transaction_rows_max": rng.choice([1, 10, 100_000]),
                "transaction_bytes_max": rng.choice([300, 1 << 20]),
                "transaction_linger_ms": rng.choice([1, 250]),
                "queue_bytes_max": rng.choice([1000, 20_000, 1 << 20]),
            }
        )
        spool = SpoolSettings(directory="/spool").model_copy(
            update={
                "memory_bytes": rng.choice([200, 20_000, 1 << 20]),
                # What is prepared must fit.
                "bytes_max": 1 << 20 if two_phase else rng.choice([2000, 1 << 20]),
            }
        )
        return Settings(source=source, snapshot=SnapshotSettings(mode="never"), sink=sink, spool=spool)

    def server_of(self, name: str) -> Server:
        """The server to which the settings of a replica lead."""
        return self.server

    def settings_of(self, name: str) -> Settings:
        """The settings of a replica."""
        return self.settings

    # A run

    def run(self) -> None:
        """Live through it; raises Failure."""
        logging.getLogger("cdcd").setLevel(logging.CRITICAL + 1)
        try:
            self._live()
        except Exception as error:
            raise Failure(self.seed, error, list(self.trace)) from error

    def _live(self) -> None:
        while self._left > 0 or (self._faults > 0 and self.rng.random() < 0.98):
            self.step()
        self._heal()
        until = self.now + HEALED_S
        while not self.checker.done() or any(each.state == "committed" for each in self.broker.hanging):
            if self.now > until:
                raise BrokenPromise(f"{HEALED_S:g} s after the faults stopped not everything is in Kafka")
            self.step()
        self.checker.close()
        # A loop over thousands of subtransactions, or a stream that starts again without a feature, takes its time.
        if self._is_calm and not (self.checker.has_snapshots or self.database.blocks_share or self.has_lost_feature):
            self.checker.demand_prompt(acks=not self.settings.source.two_phase)
        if self.checker.last is not None:
            self.contradict(self.rng.random())

    def _heal(self) -> None:
        """Faults stop, transactions end."""
        self.note("the faults stop")
        self._faults = 0
        self._kafka_failures = 0.0
        self.coordinator.rest()
        if self.registry is not None:
            self.registry.heal()
        for disk in self.disks.values():
            disk.full = disk.tearing = False
        self.kafka_up = True
        if not self.server.up:
            self.server.restart()
        self.database.end_all()
        self.pauses.rest()
        self.stops.rest()

    def contradict(self, choice: float) -> None:
        """Sometimes, while nobody reads, something is put into a state that cannot be true: it must be refused."""
        if choice < 0.1:
            self.move_slot()
        elif self.rng.random() < self.loses_topics:
            self._lose_topics()
        elif choice < 0.2:
            self.lose_progress("p.progress")
        elif choice < 0.25:
            self.lose_progress("p.progress", "p.snapshots")
        elif choice < 0.4:
            self.put_server_back()

    def move_slot(self) -> None:
        """The slot is moved: what lies between is gone."""
        self._stop_all()
        self.server.log("other")
        assert self.server.slot is not None
        self.server.slot.confirmed = self.server.slot.saved = self.server.end
        self._expect_refusal("the slot is moved")

    def lose_progress(self, *topics: str) -> None:
        """Topics of cdcd itself are deleted, after a crash of the server: its slot may be confirmed to far back."""
        self._stop_all()
        self.database.crash()
        self.server.restart()
        is_traced = "p.snapshots" not in topics or any(
            any(self.broker.visible(topic)) for topic in self.broker.topics if topic.count(".") == 2
        )
        for topic in topics:
            self.broker.delete(topic)
        if is_traced:
            self._expect_refusal(f"{', '.join(topics)} is lost")

    def put_server_back(self) -> None:
        """The server's data directory is put back to an earlier state, and then written to beyond where it ended."""
        last = self.checker.last
        if self._backup is None or last is None or last.incomplete:
            return  # a replay of deferred events would publish what was true
        self._stop_all()
        end = self.server.put_back(self._backup)
        self.is_another_history = True
        while self.server.end <= last.lsn or self.rng.random() < 0.9:
            self.write_another_history()
        self.database.end_all()
        hidden = [each for each in self.database.ledger if end <= each.commit_lsn < last.lsn]
        is_lost = last.commit_lsn >= max(end, self.checker.created) and last.commit_lsn % 8 == 0
        has_events = any(each.events for each in hidden if each.commit_lsn > last.commit_lsn)
        if is_lost or (has_events and last.commit_lsn < end):
            self._expect_refusal(f"the server is put back to {end:X}")

    def write_another_history(self) -> None:
        """Do something in SQL after the server was put back."""
        self.database.act()

    def _lose_topics(self) -> None:
        """Kafka loses what was published, or is another Kafka: that is refused, or made good by new snapshots."""
        rng, broker = self.rng, self.broker
        rows = {placed.topic for transaction in broker.committed for placed in transaction.records}
        # The topic of a table that has another name now is nobody's, and may go.
        names = self.settings.topic_names()
        places = {names.topic(table.schema, table.name) for table in self.database.published()}
        tables = sorted(rows & set(map(kafka_topic, places)))
        # While parked events are replayed, they may be on the tables' own topics before their loss is noticed.
        last = self.checker.last
        is_parked = last is not None and last.parked and not (last.deferred or any(p.is_replaying for p in last.parked))
        own = sorted(rows & {"p.schemas", "p.snapshots", *(["p.parked"] if is_parked else [])})
        what = rng.choice(
            ["topic", "topic", "topic", "own topic", "cluster", "policy"] if tables else ["cluster", "policy"]
        )
        makes_good = what == "topic" and self.checker.has_snapshots and rng.random() < 0.6
        if makes_good:
            sink = self.settings.sink.model_copy(update={"on_topic_lost": "resnapshot"})
            self.settings = self.settings.model_copy(update={"sink": sink})
        self.watches_topics = True
        if what not in ("topic", "own topic") or rng.random() < 0.5:
            self._stop_all()
        if rng.random() < 0.3:
            broker.ids = dict.fromkeys(broker.ids, "")  # brokers before 2.8
        before, is_cut = len(broker.committed), False
        if what == "cluster":
            broker.cluster_id = "another"
        elif what == "policy":
            topic = rng.choice(["p.progress", "p.schemas", "p.snapshots"])
            broker.specs[topic] = replace(broker.specs[topic], config={"cleanup.policy": "delete"})
        else:
            topic = rng.choice(tables if what == "topic" else own)
            is_cut = self._lose(topic) == "cut"
            if makes_good:
                places |= self.checker.snapshots.standing.keys()  # a shared topic has rows of tables that were renamed
                for place in sorted(each for each in places if kafka_topic(each) == topic):
                    self.checker.lost(place)
        self.note(f"Kafka is another: {what}")
        if makes_good:
            left, faults = rng.choice([0, 5, 30]), rng.choice([0, 3])
            # What a daemon writes over lost records, and aborts, hides that they are lost.
            self._make_good(left, 0 if is_cut else faults)
            return
        was_down = not any(self.lives.values())
        self._expects_gap, self._expects_refusal = what != "policy", what == "policy"
        self._stops.clear()
        self._until(lambda: len(self._stops) >= len(self.lives), f"nobody noticed: {what}")
        assert not was_down or len(broker.committed) == before, "something was published after a loss"

    def _make_good(self, left: int, faults: int) -> None:
        """The daemons take new snapshots of the tables whose topics have lost records."""
        self._left, self._faults = left, faults
        self._until(lambda: self._left == 0, "no end of SQL")
        self._heal()
        self._until(self.checker.done, "the lost topic was not made good")

    def _lose(self, topic: str) -> str:
        """Delete a topic, make it again, or cut it. Returns which."""
        rng, broker = self.rng, self.broker
        how = rng.choice(["delete", "make again", "cut"])
        self.note(f"{how}: {topic}")
        if how == "cut":
            partition, offsets = rng.choice([each for each in enumerate(self._committed(topic)) if each[1]])
            broker.cut(topic, partition, rng.randint(0, offsets[-1]))
            return how
        logs = broker.topics[topic]
        spec = broker.delete(topic)
        if how == "make again":
            knows_ids = any(broker.ids.values())
            broker.create(spec)
            if not knows_ids:
                broker.ids[topic] = ""
            elif rng.random() < 0.5:  # and as long as it was: only its id tells
                broker.topics[topic] = [
                    [Entry(None, None, None, (topic, p), is_marker=True)] * len(log) for p, log in enumerate(logs)
                ]
        return how

    def _committed(self, topic: str) -> list[list[int]]:
        """The offsets of the committed records of each partition, without those that only decided what hung."""
        return [
            [at for at, each in enumerate(log) if each.value is not None and each.state == "committed"]
            for log in self.broker.topics[topic]
        ]

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        until = self.now + HEALED_S
        while not holds():
            if self.now > until:
                raise BrokenPromise(otherwise)
            self.step()

    def _stop_all(self) -> None:
        """SIGKILL for every daemon; returns when nobody reads the slot."""
        for name in self.lives:
            self.kill(name, quick=True)
        while self.server.slot is not None and self.server.slot.reader is not None:
            self.step(daemons=False)

    def _expect_refusal(self, what: str) -> None:
        """Every daemon refuses to start, and publishes nothing."""
        before = len(self.broker.committed)
        self.note(what)
        self._expects_gap = True
        self._stops.clear()
        while len(self._stops) < len(self.lives):
            self.step()
            assert len(self.broker.committed) == before, f"something was published although {what}"
        for _, stop in self._stops:
            assert isinstance(stop, GapError), f"{what}, and that gave {stop!r}"

    # The scheduler

    def step(self, *, daemons: bool = True) -> bool:
        """Let one of those who can do a little; False if nobody could."""
        self.steps += 1
        if self.steps > STEPS_MAX:
            raise BrokenPromise(f"no end after {STEPS_MAX} steps")
        rng = self.rng
        self.now += rng.random() * 0.001
        for running in self.running:
            is_asking = running.asking and running is self.running[-1] and running.busy == {"main"}
            if ("main" in running.busy and not is_asking) or running.state == "closing":
                running.thawed_at = self.now  # it, or the sink it waits for, is below us on the stack: it cannot go on
        self.server.now = self.now
        while self._calendar and self._calendar[0][0] <= self.now:
            heapq.heappop(self._calendar)[2]()
        self._misfortune()
        able: list[Callable[[], None]] = []
        if self._left > 0 and self.server.up and self.now >= self._sql_due:
            able.append(self._sql)
        reader = self.server.slot.reader if self.server.slot is not None else None
        if reader is not None and (reader.runnable or self.now >= reader.deadline):
            able += [self._serve, self._serve]
        for name, life in self.lives.items():
            if life is None:
                if daemons and self.now >= self._starts[name]:
                    able.append(partial(self._start, name))
                continue
            if life.can_turn():
                able += [life.turn, life.turn]
            if life.can_sink():
                able += [life.turn_sink, life.turn_sink]
            if life.can_watch():
                able.append(life.turn_watch)
        if able:
            rng.choice(able)()
        else:
            self._sleep()
        if not self.running:
            self.checker.look()
        return bool(able)

    def _sleep(self) -> None:
        """Nobody can do anything: the clock jumps to where somebody can."""
        times = [self._calendar[0][0]] if self._calendar else []
        if self._left > 0 and self.server.up:
            times.append(self._sql_due)
        slot = self.server.slot
        if slot is not None and slot.reader is not None:
            times.append(slot.reader.deadline)
        for name, life in self.lives.items():
            if life is None:
                times.append(self._starts[name])
            else:
                times += life.deadlines()
        if any("main" in life.busy and life.running for life in self.running):
            times.append(self.now + 0.01)  # it will not be away for longer
        if times:
            self.now = max(self.now, min(times))

    def step_or_sleep(self, until: float) -> None:
        """Somebody waits on the stack until `until`: let the others go on, if the stack is not too high."""
        if len(self.running) < DEPTH_MAX:
            self.at(until, lambda: None)
            self.step()
        else:
            self.now = min(until, self.now + 0.002)

    def meanwhile(self, chance: float) -> None:
        """Somebody is inside of a call: others may go on."""
        if self.rng.random() < chance and len(self.running) < DEPTH_MAX:
            steps = self.rng.choice([1, 3, 10, 40])
            while steps > 0:
                steps -= 1 if self.step() else 5

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Let something happen later."""
        heapq.heappush(self._calendar, (when, next(self._number), what))

    def note(self, what: str) -> None:
        """A line for the trace."""
        self.trace.append(f"{self.now:10.3f} {what}")

    # Those who do something

    def _sql(self) -> None:
        if self.server.slot is not None and (self._backup is None or self._left % 20 == 0):
            self._backup = self.server.copy()
        self._sql_due = self.now + self.rng.random() * self._sql_pause
        if self.rng.random() < 0.02:
            self._sql_due += self.rng.random() * 8
        if self.server.slot is not None or not self.checker.has_snapshots:
            self._left -= 1
        if self.server.slot is None:
            return  # the slot waits for a moment without transactions; nothing before it counts
        self.note(self.database.act())
        self.pauses.act()
        self.stops.act()

    def _serve(self) -> None:
        slot = self.server.slot
        assert slot is not None
        reader = slot.reader
        assert reader is not None
        link = reader.link
        was_well = link.lost is None and not link.gone
        timed_out = self.now >= reader.deadline and reader._pinged and not link.statuses
        reader.turn()
        life: Life = reader.life  # type: ignore[attr-defined]
        if timed_out:
            self.note(f"wal_sender_timeout for {life.name}")
            if was_well and not life.dead and self.now - life.thawed_at > TIMEOUT_S:
                raise BrokenPromise(f"the server heard nothing from {life.name}, which was well")

    def _start(self, name: str) -> None:
        self.note(f"{name} starts")
        self.lives[name] = Life(self, name, self.disks[name])

    def slot_created(self, lsn: int) -> None:
        """The slot has come into being: from here on counts what is committed."""
        self.note(f"the slot begins at {lsn:X}")
        self.checker.created = lsn
        self.checker.published = len(self.database.ledger)

    # Snapshots

    def took(self, snapshot: SimSnapshot, tables: list[Table]) -> None:
        """A snapshot was taken of these tables."""
        self.note(f"{snapshot.life.name} has a snapshot at {snapshot.lsn:X} of {[table.name for table in tables]}")
        self._snapshots.append(snapshot)
        self.checker.snapshots.took(snapshot, tables)

    def breaks_snapshot(self) -> bool:
        """Whether a snapshot's connection breaks now."""
        return self._faults > 0 and self.rng.random() < 0.002

    def hang_up(self, link: Link) -> None:
        """The client closes: the server notices soon."""
        link.lost = link.lost or PostgresUnavailable("the connection is closed", code="postgres-interrupted")

        def notice() -> None:
            link.gone = True

        self.at(self.now + self.rng.random() * 0.1, notice)

    def died(self, life: Life, stop: FatalError | None) -> None:
        """A process ended by itself; `stop` tells why, if it was not asked to."""
        if self.lives[life.name] is life:
            self.lives[life.name] = None
        life.dead = True
        self._starts[life.name] = self.now + self.rng.random() * 3
        if stop is None:
            return
        self._stops.append((life.name, stop))
        fine = (
            isinstance(stop, Fenced)
            or (isinstance(stop, RequestRejected) and life.jumped)
            or (isinstance(stop, RequestRejected) and self.refuses_takeovers_until > 0)
            or (isinstance(stop, GapError) and self._expects_gap)
            or (isinstance(stop, RequestRejected) and self._expects_refusal)
            or (type(stop) is FatalError and life.disk.full)
            or life.disk.torn  # a write that is missing as a whole shows as rows without their relation, too
        )
        life.disk.torn = False
        if not fine:
            raise stop

    # Kafka

    def _kafka_call(self, step: str) -> None:
        life = self.running[-1]
        if self.coordinator.is_decided_now(step):
            return
        self.meanwhile(self._kafka_pauses)
        life.check()
        if step == "start" and self.now < self.refuses_takeovers_until:
            raise RequestRejected("Kafka refuses the transactional.id", code="statement-refused")
        if step == "start":
            for transaction in self.broker.open_transactions():
                if transaction in self._limbo and self.rng.random() < 0.5:
                    self.note("a commit arrives late")
                    self.broker.commit_late(transaction)
        if step == "serve":
            return
        if step == "coordinator":
            self.coordinator.answer()
        if life.hurried and self.rng.random() < 0.3:
            raise KafkaUnavailable("no time left", code="kafka-unavailable")
        if not self.kafka_up:
            raise KafkaUnavailable("the brokers are away", code="kafka-unavailable")
        if self.rng.random() < self._kafka_failures:
            if step == "commit" and self.rng.random() < 0.5:
                self._limbo += self.broker.open_transactions()
            self.note(f"Kafka fails {life.name} before {step}")
            raise KafkaUnavailable(f"{step} failed", code="kafka-unavailable")

    def _kafka_done(self, step: str) -> None:
        life = self.running[-1]
        if self.coordinator.is_decided_now(step):
            return
        if step == "commit":
            self.note(f"{life.name} has committed to Kafka")
        self.meanwhile(self._kafka_pauses)
        life.check()
        if self.rng.random() < self._kafka_failures:
            self.note(f"Kafka fails {life.name} after {step}")
            raise KafkaUnavailable(f"the answer to {step} is lost", code="kafka-unavailable")

    def _lose_markers(self, transaction: Transaction) -> set[tuple[str, int]]:
        """In all partitions, or in some."""
        if self.broker.hanging or self.rng.random() >= self.loses_markers:
            return set()
        share = self.rng.choice([0.3, 1.0])
        return {place for place in transaction.touched if self.rng.random() < share}

    # Misfortunes

    def kill(self, name: str, *, quick: bool) -> None:
        """SIGKILL; without `quick` the machine dies with it, and the server hears nothing."""
        life = self.lives[name]
        if life is None:
            return
        self.note(f"{name} is killed")
        life.dead = True
        self.lives[name] = None
        self._starts[name] = self.now + self.rng.random() * self.rng.choice([0.1, 5])
        if life.link is not None and quick:
            self.hang_up(life.link)

    def _misfortune(self) -> None:
        if self._faults <= 0 or self.rng.random() >= self._fault_chance or self.server.slot is None:
            return
        self._faults -= 1
        what: Any = self.rng.choice(
            [
                self._kill, self._kill, self._freeze, self._freeze, self._cut, self._half_open, self._half_open,
                self._terminate, self._crash_server, self._crash_kafka, self._fail_kafka, self._slow_kafka,
                self._expire, self._fill,
                self._tear, self._tear, self._jump, self._terminate_daemon, self._late, self._forget,
            ]
        )  # fmt: skip
        what()

    def _some_life(self) -> Life | None:
        found = [life for life in self.lives.values() if life is not None]
        # Rather the one that streams.
        streaming = [life for life in found if life.state == "streaming"]
        return self.rng.choice(streaming or found) if found else None

    def _kill(self) -> None:
        life = self._some_life()
        if life is not None:
            self.kill(life.name, quick=self.rng.random() < 0.7)

    def _freeze(self) -> None:
        """SIGSTOP; its connections stay, unless the server loses patience, or the network."""
        life = self._some_life()
        if life is None:
            return
        life.frozen_until = life.thawed_at = self.now + self.rng.random() * self.rng.choice([0.1, 2, 20])
        self.note(f"{life.name} is frozen until {life.frozen_until:.3f}")
        if life.link is not None and self.rng.random() < 0.6:
            life.link.gone = True

    def _cut(self) -> None:
        life = self._some_life()
        if life is not None and life.link is not None:
            self.note(f"the connection of {life.name} is reset")
            life.link.cut(PostgresUnavailable("the connection was reset", code="postgres-interrupted"), self.rng)

    def _half_open(self) -> None:
        life = self._some_life()
        if life is not None:
            self.half_open(life)

    def half_open(self, life: Life) -> None:
        """The server loses the connection; the client hears of it later, and publishes what it has meanwhile."""
        if life.link is None:
            return
        self.note(f"the connection of {life.name} is half open")
        link = life.link
        link.gone = link.silent = True

        def heard() -> None:
            link.lost = link.lost or PostgresUnavailable("the connection timed out", code="postgres-interrupted")

        self.at(self.now + self.rng.random() * self.rng.choice([0.1, 5]), heard)
        if self.rng.random() < 0.5:
            self._slow_kafka()
            for other in self.lives.values():
                if other is not None and other.state == "waiting":
                    other.due = self.now

    def _terminate(self) -> None:
        slot = self.server.slot
        if slot is not None and slot.reader is not None:
            self.note("pg_terminate_backend")
            slot.reader.end(
                PostgresUnavailable("terminating connection due to administrator command", code="postgres-interrupted")
            )

    def _crash_server(self) -> None:
        if self.server.up:
            self.note("the server crashes")
            self.database.crash()
            self.at(self.now + self.rng.random() * 3, self._restart_server)

    def _restart_server(self) -> None:
        if not self.server.up:
            self.note("the server is back")
            self.server.restart()

    def _crash_kafka(self) -> None:
        self.note("the brokers are away")
        self.kafka_up = False

        def back() -> None:
            self.kafka_up = True

        self.at(self.now + self.rng.random() * self.rng.choice([0.2, 10]), back)

    def _fail_kafka(self) -> None:
        self._kafka_failures = self.rng.choice([0.02, 0.2])

        def over() -> None:
            self._kafka_failures = 0.0

        self.at(self.now + self.rng.random() * 5, over)

    def _slow_kafka(self) -> None:
        self._kafka_pauses = 0.8

        def over() -> None:
            self._kafka_pauses = self._usual_pauses

        self.at(self.now + self.rng.random() * 3, over)

    def _expire(self) -> None:
        for transaction in self.broker.open_transactions():
            self.note("a Kafka transaction takes too long")
            self.broker.expire(transaction)

    def _forget(self) -> None:
        """Kafka forgets a transactional.id. It knows of no open transaction: no partition has joined one.

        What the producer before has left undecided would stay so, until a person ends it.
        """
        busy = {transaction.producer for transaction in self.broker.open_transactions() if transaction.touched}
        busy |= self.broker.pending.keys() | {transaction.producer for transaction in self.broker.hanging}
        idle = sorted(self.broker.owners.keys() - busy)
        if idle:
            transactional_id = self.rng.choice(idle)
            self.note(f"Kafka forgets {transactional_id}")
            self.broker.forget(transactional_id)

    def _late(self) -> None:
        """A request to commit that was given up arrives."""
        for transaction in self._limbo:
            if transaction.state == "open":
                self.note("a commit arrives late")
                self.broker.commit_late(transaction)

    def _fill(self) -> None:
        life = self._some_life()
        if life is None:
            return
        disk = life.disk
        self.note(f"the disk of {life.name} is full")
        disk.full = True

        def free() -> None:
            disk.full = False

        self.at(self.now + self.rng.random() * 5, free)

    def _tear(self) -> None:
        life = self._some_life()
        if life is not None:
            self.note(f"the disk of {life.name} tears")
            life.disk.tearing = True

    def _jump(self) -> None:
        """The monotonic clock of one machine jumps forward."""
        life = self._some_life()
        if life is not None:
            life.clock_offset += self.rng.random() * self.rng.choice([1, 30, 2000])
            life.jumped = True
            self.note(f"the clock of {life.name} jumps to +{life.clock_offset:.3f}")

    def _terminate_daemon(self) -> None:
        life = self._some_life()
        if life is not None:
            self.note(f"SIGTERM for {life.name}")
            life.stopping = True
            life.wake.set()
