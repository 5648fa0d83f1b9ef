"""Worlds that play one scene again and again: what was found once, and is too rare to wait for.

Before: `world` has everything; a scene says what is done in SQL, and what else is as it must be.
After: `test_simulation` plays them as they are, `test_mutations` with the bug that they have found.
"""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import ClassVar

from sim.checker import BrokenPromise
from sim.contradictions import CONTRADICTIONS
from sim.fake_disk import Disk
from sim.fake_kafka import Transaction
from sim.fake_postgres import Table
from sim.publication import GivenPublication
from sim.replica import Life
from sim.snapshots import SimSnapshot
from sim.snapshots_checker import Seen
from sim.sql import POISON, TABLES, Row, Session
from sim.world import WITH_STRANGER, World

from cdcd.config.settings import TableSettings, TablesSettings
from cdcd.daemon.snapshot_coordinator import SnapshotState
from cdcd.daemon.wiring import StreamResources
from cdcd.errors import FatalError, Fenced, RequestRejected
from cdcd.progress.snapshot_records import RUNNING
from cdcd.source.table_selection import TablePattern

_MASKED = ("note", "more")
"""Columns that are masked in a scene."""
_VALUE = re.compile(rb"(note|more) \d")
"""A value of such a column."""
_HASH_SECRET = "0123456789abcdef"
_EVERYTHING = ("insert", "update", "delete", "truncate")


class Scene(World):
    """Does `act` some times, with pauses; two_phase is on."""

    faults = 0

    def __init__(self, seed: int, times: int = 12) -> None:
        super().__init__(seed, two_phase=True)
        self._left = times
        self._faults = self.faults
        self._is_calm = False
        self.link_room = 300
        self.database.resolve_share = 0.0

    def _sql(self) -> None:
        self._left -= 1
        self._sql_due = self.now + self.rng.choice([0.02, 0.2, 3.0])
        if self.server.slot is not None:
            self.act()

    def _start_together(self) -> None:
        """There are two replicas, and they start at once."""
        self.disks = {name: Disk(self.rng) for name in "ab"}
        self.lives = dict.fromkeys("ab")
        self._starts = dict.fromkeys("ab", self.now)

    def act(self) -> None:
        """What is done in SQL, all at one moment."""
        raise NotImplementedError

    def prepare(self, writes: int) -> None:
        """Prepare a transaction."""
        session = Session(self.database)
        for _ in range(writes):
            session.write()
        session.prepare()

    def resolve(self, *, commit: bool) -> None:
        """End the transaction that was prepared first."""
        self.database.resolve(self.database.prepared[0], commit=commit)

    def commit(self, writes: int) -> None:
        """Commit a transaction."""
        session = Session(self.database)
        for _ in range(writes):
            session.write()
        session.commit()


class RolledBackBeforeALargeOne(Scene):
    """A Prepare, its Rollback Prepared and the first rows of a large transaction come in one burst.

    The pipeline told the tracker of the Begin before it told of the Prepare, which ended it: an idle position was
    committed between two pieces of the large transaction, and made half of it visible.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.synchronous = True  # idle positions come often
        self.server.block_chance = 0.0

    def act(self) -> None:
        self.prepare(1)
        self.resolve(commit=False)
        self.commit(self.rng.randint(3, 20))


class PreparedWithoutRows(Scene):
    """A transaction that changes no published table is prepared; others commit; it commits; then all is cut off.

    The hold of the acknowledgement ended with a COMMIT PREPARED without rows, at a position between the two. After a
    restart the COMMIT PREPARED came alone, which looks as if rows were lost: GapError, at every start.
    """

    faults = 15

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._fault_chance = 0.03

    def act(self) -> None:
        if self.database.prepared:
            self.resolve(commit=True)
        else:
            self.prepare(0)
            self.commit(1)


class RequestsPassedOver(Scene):
    """The rows of some transactions are requests for nothing, which the daemon passes over; connections break.

    Such a transaction came again behind the last published one: its row was taken for one of another history.
    """

    faults = 15

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._fault_chance = 0.05
        self.database.request_share = self.rng.choice([0.0, 0.5])  # without the right, or without a sense

    def act(self) -> None:
        if self.rng.random() < 0.5:
            self.commit(1)
        self.database.forge()


class TwoFirstStarts(Scene):
    """Two daemons start at once, and neither slot nor topics are there.

    Between its two questions (is there a slot; is there a progress) the other had made the slot and published: the
    progress without a slot was a GapError.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=4)
        self._start_together()
        self._kafka_pauses = 0.7

    def act(self) -> None:
        self.commit(1)


class RefusedTakeovers(Scene):
    """The first starts make the slot, and then Kafka refuses the daemon, until a person grants what it needs.

    The slot stayed behind, and kept WAL without end. So it did if another replica had taken it meanwhile, and was
    refused, too.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=6)
        self.refuses_takeovers_until = self.now + self.rng.random() * 20
        self._kafka_failures = 0.0
        self._kafka_pauses = 0.8
        self._start_together()
        if seed % 2:
            del self.lives["b"], self.disks["b"], self._starts["b"]

    def _kafka_call(self, step: str) -> None:
        """Kafka takes its time to refuse."""
        if step == "start" and self.now < self.refuses_takeovers_until:
            until = self.now + self.rng.random() * 5
            while self.now < until:
                self.step_or_sleep(until)
        super()._kafka_call(step)

    def died(self, life: Life, stop: FatalError | None) -> None:
        super().died(life, stop)
        is_unused = self.checker.last is None and not any(self.lives.values())
        if isinstance(stop, RequestRejected) and is_unused and self.server.up:
            assert self.server.slot is None, "a start that failed has left its slot"

    def act(self) -> None:
        self.commit(1)


class MarkersLost(Scene):
    """Transactions that are aborted stay undecided: in all their partitions, in the progress alone, or in others.

    The progress was waited for, in which it should be read what to decide; and where the slot began was taken for an
    acknowledgement, so that the first transaction of all was committed, and came again.
    """

    faults = 15

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._fault_chance = 0.05

    def _lose_markers(self, transaction: Transaction) -> set[tuple[str, int]]:
        progress = {place for place in transaction.touched if place[0] == "p.progress"}
        if self.broker.hanging or not progress:
            return set()
        return self.rng.choice([progress, set(transaction.touched), set(transaction.touched) - progress])

    def act(self) -> None:
        self.commit(2)


class CoordinatorMoves(Scene):
    """The coordinator moves amid commits; some partitions never get the marker of a transaction that is committed.

    The next start must find out that it is: by the rows that readers see, by what PostgreSQL was told, or by the ends
    that the progress gives. The schemas and the snapshots were taken for aborted, although the progress counts them.
    """

    faults = 5

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._fault_chance = 0.01
        self.coordinator.moves = 8
        self.coordinator.chance = 0.7

    def act(self) -> None:
        self.commit(self.rng.randint(1, 4))


class ForgottenProducers(Scene):
    """The stream rests for a week again and again, and Kafka forgets one of the daemon's producers, or both.

    Nobody else is there: a daemon that ends, because it takes itself for fenced, is a bug.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=20)
        for name in list(self.lives)[1:]:
            del self.lives[name], self.disks[name], self._starts[name]
        self._kafka_failures = 0.0

    def act(self) -> None:
        for _ in range(self.rng.randint(0, 2)):
            self._forget()
        self.commit(1)

    def died(self, life: Life, stop: FatalError | None) -> None:
        super().died(life, stop)
        if isinstance(stop, Fenced):
            raise stop


class LostWhileTakingOver(Scene):
    """A connection breaks, unnoticed, while Kafka is being taken over; the other daemon gets the slot and publishes.

    The progress that the first one then read was ahead of what it had asked the server before: a GapError, as if the
    server had lost what it had committed.
    """

    faults = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._start_together()
        self._fault_chance = 0.1

    def act(self) -> None:
        self.commit(2)

    def _misfortune(self) -> None:
        if self._faults <= 0 or self.rng.random() > self._fault_chance:
            return
        self._faults -= 1
        opening = [life for life in self.lives.values() if life is not None and life.state == "opening" and life.link]
        if opening:
            self.half_open(self.rng.choice(opening))
        else:
            self._terminate()


class ZombieThatPublishes(Scene):
    """A daemon loses its connection, unnoticed, and publishes what it has while the other takes over."""

    faults = 30

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=20)
        self._start_together()
        self._fault_chance = 0.05
        self._kafka_pauses = 0.7

    def act(self) -> None:
        self.commit(2)

    def _misfortune(self) -> None:
        if self._faults <= 0 or self.rng.random() > self._fault_chance:
            return
        streaming = [life for life in self.lives.values() if life is not None and life.state == "streaming"]
        if streaming:
            self._faults -= 1
            self.half_open(streaming[0])
            for other in self.lives.values():
                if other is not None and other.state == "waiting":
                    other.due = self.now


class TornSpool(Scene):
    """A bit of what was spooled is turned on the disk, then the transaction commits.

    Most damage shows by itself: lengths do not fit, rows come without their relation. A turned bit of a value does not.
    """

    def act(self) -> None:
        for disk in self.disks.values():
            disk.tearing = True
        self.prepare(30)
        self.resolve(commit=True)


class PreparedBeyondTheSpool(Scene):
    """A prepared transaction is larger than the spool, until a person does what the daemon says.

    The server sends it in one piece, streaming or not: the daemon started again without end.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=6)
        self._give_spool(2000)
        self.refusals = 0

    def _give_spool(self, bytes_max: int) -> None:
        spool = self.settings.spool.model_copy(update={"memory_bytes": 200, "bytes_max": bytes_max})
        self.settings = self.settings.model_copy(update={"spool": spool})

    def act(self) -> None:
        if self.database.prepared:
            self.resolve(commit=True)
        else:
            self.prepare(60)

    def died(self, life: Life, stop: FatalError | None) -> None:
        if stop is not None and "the prepared transactions do not fit" in stop.message:
            assert "raise spool.bytes_max" in stop.hint
            self.refusals += 1
            self._give_spool(1 << 20)
            stop = None
        super().died(life, stop)

    def contradict(self, choice: float) -> None:
        assert self.refusals, "a spool of 2,000 bytes has held a larger transaction"


class SubtransactionsByTheThousand(Scene):
    """A transaction in progress has thousands of subtransactions, in memory and on disk; some are rolled back.

    Each took 250 bytes of memory that nothing counted.
    """

    faults = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed, times=2)
        self.server.block_chance = self.rng.choice([0.001, 0.01, 0.1])
        self._fault_chance = 0.001
        self._kafka_pauses = 0.0
        self.settings = self.settings.model_copy(
            update={
                "source": self.settings.source.model_copy(update={"streaming": "on"}),
                "spool": self.settings.spool.model_copy(update={"memory_bytes": self.rng.choice([200, 20_000])}),
            }
        )

    def act(self) -> None:
        session = Session(self.database)
        session.blocks(self.rng.choice([30, 300, 300, 300, 300, 300, 7_000]))
        session.commit()


class SwappedNames(Scene):
    """Tables swap their names, in transactions that write to them before and after: in blocks, prepared, and plain.

    A table was forgotten as soon as another had its name, though a transaction in blocks had yet to bring its rows.
    """

    faults = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.server.block_chance = self.rng.choice([0.0, 0.05, 0.3])
        self._fault_chance = 0.01
        source = self.settings.source.model_copy(update={"streaming": "on"})
        self.settings = self.settings.model_copy(update={"source": source})

    def act(self) -> None:
        if self.database.prepared:
            self.resolve(commit=self.rng.random() < 0.7)
            return
        session = Session(self.database)
        for _ in range(self.rng.randint(1, 3)):
            for _ in range(self.rng.randint(0, 6)):
                session.write()
            session.swap()
        for _ in range(self.rng.randint(0, 6)):
            session.write()
        if self.rng.random() < 0.3:
            session.prepare()
        else:
            session.commit()


class ReplacedTables(World):
    """Tables with rows swap their names, now and then, in transactions that write to them before and after, or not.

    The daemon took what was written to the other table for changes of the first one: the topic had rows of both.
    """

    swaps = 3

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 40)
        if not self.checker.has_snapshots:
            self._take_snapshots()
        self.snapshot_pace_s = 0.1
        self._is_calm = False
        self._faults, self._fault_chance = 20, 0.02

    def _sql(self) -> None:
        super()._sql()
        if self.server.slot is None or not self.swaps or self.rng.random() > 0.1:
            return
        self.swaps -= 1
        session = Session(self.database)
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            session.swap()
            for _ in range(self.rng.choice([0, 0, 1])):
                session.write()
        self.note(f"swap, {session.commit()}")
        if self.rng.random() < 0.5:
            self._kill()

    def _heal(self) -> None:
        """At times swap once more, and write nothing after it; or write one row, and swap back."""
        super()._heal()
        choice = self.rng.choice(["swap", "there and back", "", ""])
        if choice:
            self._swap_alone()
        if choice == "there and back":
            session = Session(self.database)
            session.update(TABLES[0].oid)
            session.commit()
            self._swap_alone()

    def _swap_alone(self) -> None:
        session = Session(self.database)
        session.swap()
        self.note(f"swap alone, {session.commit()}")


class SnapshotsUnderFaults(World):
    """Large tables are read slowly, fresh snapshots are asked for, and all faults of the world happen meanwhile."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 40)
        if not self.checker.has_snapshots:
            self._take_snapshots()
        self.snapshot_pace_s = 0.3
        self._is_calm = False
        self._faults = 10
        self._fault_chance = self.rng.choice([0.01, 0.03])
        self.server.synchronous = self.rng.random() < 0.8
        self.database.truncate_weight = 8

    def _sql(self) -> None:
        super()._sql()
        if self.rng.random() < 0.1:
            self.database.message()


class TablesUnderAlteration(SnapshotsUnderFaults):
    """Somebody alters and writes tables all the time."""

    def _sql(self) -> None:
        super()._sql()
        if self.rng.random() < 0.3:
            session = Session(self.database)
            session.alter()
            session.write()
            session.commit()


class ChangedKeys(TablesUnderAlteration):
    """Tables get other keys all the time, also while they are read, and while the daemon lags or dies.

    The rows that were not written since stayed under the old key. Those of before the first snapshot stayed even after
    it: it began without a truncate event.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.snapshot_pace_s = self.rng.choice([0.05, 0.3])
        self.database.key_share = 0.9
        self.database.identity_share = 0.0
        self.database.request_share = 0.1


class PausedSnapshots(SnapshotsUnderFaults):
    """A person pauses, resumes and slows snapshots all the time, and daemons start again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.pauses.chance = 0.3


class StoppedSnapshots(SnapshotsUnderFaults):
    """A person stops snapshots at all moments, and asks for some again, while daemons die and start again."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.stops.chance = 0.3
        self.database.request_share = 0.1


class NeverCopied(SnapshotsUnderFaults):
    """The settings forbid to copy one of the tables, which have rows before there is a slot."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        table = self.rng.choice(TABLES)
        name = f"{table.schema}.{table.name}"
        entry = TableSettings.model_validate({"match": name, "snapshot": "never"})
        self.settings = self.settings.model_copy(update={"table": (entry,)})
        self.checker.snapshots.never = frozenset({f"p.{name}"})
        self.database.request_share = 0.0

    def contradict(self, choice: float) -> None:
        """Nothing more: a topic that lacks rows is not made whole."""


class AddedColumns(TablesUnderAlteration):
    """Columns are added with defaults, which the catalog forgets, as after VACUUM FULL.

    A daemon that started again had forgotten them, too: the next schema told readers that older rows hold null.
    """

    has_defaults = True

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.database.key_share = self.database.identity_share = 0.0


class MaskedColumns(World):
    """All texts are masked, while transactions stream, prepare and roll back, and all faults of the world happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 40, two_phase=True)
        masks = dict.fromkeys(_MASKED, "hash")
        entry = TableSettings.model_validate({"match": "*.*", "mask": masks})
        tables = TablesSettings(hash_secret=_HASH_SECRET)
        self.settings = self.settings.model_copy(update={"table": (entry,), "tables": tables})
        self.checker.shown = _hashed

    def step(self, *, daemons: bool = True) -> bool:
        stepped = super().step(daemons=daemons)
        for name, disk in self.disks.items():
            for path, data in disk.files.items():
                if found := _VALUE.search(data):
                    raise BrokenPromise(f"{path} on the disk of {name} has the value {found[0].decode()!r}")
        return stepped


class ChosenKeys(TablesUnderAlteration):
    """The settings have the keys: a part of the primary key, other columns, and columns of a table that has none.

    They say, too, what decides the partitions: all go to one, or a column of the key does.
    """

    tables: ClassVar = [
        replace(TABLES[0], key=("id", "note"), chosen=("id",)),
        replace(TABLES[1], chosen=("id", "note")),
        replace(TABLES[2], chosen=("id",)),
    ]

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        rng = Random(f"partitions {seed}")
        self._columns = [rng.choice([*table.chosen, ""]) for table in self.tables]
        entries = [
            TableSettings.model_validate(
                {
                    "match": f"*.{table.name}*",
                    "key": table.chosen,
                    "partition_by": {"column": column} if column else rng.choice(["one", "key"]),
                }
            )
            for table, column in zip(self.tables, self._columns, strict=True)
        ]
        self.settings = self.settings.model_copy(update={"table": tuple(entries)})
        self.checker.place = self._place

    def _place(self, event: Seen) -> object:
        for entry in self.settings.table:
            schema, _, name = event.topic.removeprefix("p.").partition(".")
            if event.key is None or not TablePattern(entry.match).matches(schema, name):
                continue
            if entry.partition_by == "one":
                return ""
            if isinstance(entry.partition_by, dict):
                row = event.value["after"] or event.value["before"]
                return row.get(entry.partition_by["column"], event.key)
        return event.key


def _hashed(row: Row | None) -> Row | None:
    """The row with the masked columns as readers see them."""
    if row is None:
        return None
    return {name: _hash(value) if name in _MASKED and value is not None else value for name, value in row.items()}


def _hash(value: str) -> str:
    return blake2b(value.encode(), key=_HASH_SECRET.encode(), digest_size=16).hexdigest()


class RepairsUnderFaults(SnapshotsUnderFaults):
    """Rows are repaired while tables are read, written, altered and truncated, and all faults of the world happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.database.repair_rng = Random(f"repairs {seed}")
        self.database.repair_share = 0.7


class LostTopics(World):
    """Kafka loses topics, most often one of a table that has a snapshot."""

    loses_topics = 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 20)
        if not self.checker.has_snapshots:
            self._take_snapshots()


class LostParkedEvents(World):
    """The topic with the parked events is deleted, made again or cut while a table is parked, and no daemon runs.

    A daemon that ran noticed it, and started again without a word: the next start looked at every topic but this one.
    """

    def __init__(self, seed: int) -> None:
        while Random(f"stranger {seed}").random() >= WITH_STRANGER:
            seed += 1_000
        super().__init__(seed)

    def contradict(self, choice: float) -> None:
        last = self.checker.last
        if last is not None and last.parked and any(self._committed("p.parked")):
            self._stop_all()
            self._lose("p.parked")
            self._expect_refusal("the parked events are lost")


class CutWhileItWrites(LostTopics):
    """A topic loses its last records while the daemon writes to it, and is soon longer than before.

    The daemon looked only whether the topic was shorter than it had been: it went on without what was lost.
    """

    def contradict(self, choice: float) -> None:
        sink = self.settings.sink.model_copy(update={"on_topic_lost": "resnapshot"})
        self.settings = self.settings.model_copy(update={"sink": sink})
        self.watches_topics = True
        topics = [topic for topic in self.broker.topics if topic.count(".") == 2 and any(self._committed(topic))]
        if not topics:
            return
        topic = self.rng.choice(topics)
        partition, offsets = self.rng.choice([each for each in enumerate(self._committed(topic)) if each[1]])
        self.broker.cut(topic, partition, offsets[-1])
        self.checker.lost(topic)
        self.note(f"cut: {topic}")
        self._sql_pause = 0.002
        self._make_good(40, 0)


class RepublishedTable(LostTopics):
    """A table leaves the publication, its topic is deleted, and the table is published again.

    The snapshot record still said that the topic has the table's rows: it got new events only.
    """

    def contradict(self, choice: float) -> None:
        self.watches_topics = True
        tables = [table for table in self.server.tables.values() if self._topic_of(table) in self.broker.topics]
        table = self.rng.choice(tables)
        topic = self._topic_of(table)
        if not any(self._committed(topic)):
            return
        if self.rng.random() < 0.5:
            self._stop_all()
        earlier = [life.opened for life in self.lives.values() if life is not None]
        self.database.unpublished.add(table.oid)
        self.broker.delete(topic)
        self.checker.lost(topic)
        self.note(f"not published any more, and deleted: {topic}")
        self._until(lambda: self._streams_anew(earlier), "no stream after the topic was deleted")
        if self.rng.random() < 0.3:
            self._stop_all()
        self.database.unpublished.clear()
        self._make_good(20, 0)

    @staticmethod
    def _topic_of(table: Table) -> str:
        return f"p.{table.schema}.{table.name}"

    def _streams_anew(self, earlier: list[StreamResources | None]) -> bool:
        lives = [life for life in self.lives.values() if life is not None and life.state == "streaming"]
        return any(all(life.opened is not each for each in earlier) for life in lives)


class FollowedPublication(World):
    """The settings leave a table out, and then they do not: the daemon alters its publication, and copies the table.

    What the publication publishes changes with it. Daemons die meanwhile.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 20)
        if not self.checker.has_snapshots:
            self._take_snapshots()
        self.database.publication = GivenPublication(self.database, self.settings.source.slot)
        source = self.settings.source.model_copy(update={"tables": ("*.*",)})
        self.settings = self.settings.model_copy(update={"source": source})

    def contradict(self, choice: float) -> None:
        given = self.database.publication
        assert given is not None
        table = self.rng.choice([each for each in self.server.tables.values() if each.schema != POISON.schema])
        self._ask_for([f"{table.schema}.{table.name}"], self.rng.choice([_EVERYTHING, _EVERYTHING[:3]]))
        assert given.entries.keys() == self.server.tables.keys() - {table.oid}
        assert self.checker.last is not None
        self.checker.snapshots.lost(f"p.{table.schema}.{table.name}", self.checker.last.lsn)
        self._ask_for([], _EVERYTHING)
        assert given.entries.keys() == self.server.tables.keys()
        self._make_good(20, self.rng.choice([0, 5]))

    def _ask_for(self, exclude: list[str], publish: tuple[str, ...]) -> None:
        """Start daemons with such settings, until the publication is as they say."""
        given = self.database.publication
        assert given is not None
        source = self.settings.source.model_copy(update={"exclude": tuple(exclude), "publish": publish})
        self.settings = self.settings.model_copy(update={"source": source})
        self._stop_all()
        before = given.comment
        self._until(lambda: given.comment != before, f"the publication does not follow {exclude} {publish}")
        assert given.operations == source.asked.operations
        if self.rng.random() < 0.5:
            self._stop_all()  # often before the daemon has streamed
        self._until(self._streams, "no stream after the publication was altered")

    def _streams(self) -> bool:
        return any(life is not None and life.state == "streaming" for life in self.lives.values())


class BrokenSnapshots(World):
    """A snapshot breaks many times. Before it goes on, rows move into blocks that are done, or into another file.

    Updates leave large values unchanged: only a snapshot shows these. A requested snapshot that broke went on with the
    truncate event that it had begun with: that removed the rows which were there already.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        if not self.checker.has_snapshots:
            self._take_snapshots()
        while len(self.database.ledger) < 40:
            self.database.act()
        self.database.end_all()
        self.database.unsent_share = 0.9
        self.database.blocks_share = 0.0
        self.snapshot_pace_s = 0.05
        self._sql_pause = 0.3
        self._is_calm = False
        self._faults = 3
        self._left = 1

    def _sql(self) -> None:
        super()._sql()
        if self.server.slot is not None and self.checker.snapshots.done():
            self.database.request(TABLES[0].oid)
        self._left = int(self._faults > 0)

    def _misfortune(self) -> None:
        standing = self.checker.snapshots.standing.values()
        begun = {(each.schema, each.table) for each in standing if each.state == RUNNING and each.done}
        if self._faults <= 0 or not begun:
            return
        for name, life in self.lives.items():
            opened = None if life is None else life.opened
            is_reading = opened is not None and opened.snapshots.state is SnapshotState.READING
            if is_reading and self.rng.random() < 0.05:
                self._faults -= 1
                self.kill(name, quick=True)
                for oid, table in self.server.tables.items():
                    if (table.schema, table.name) in begun:
                        self._move_rows(oid)

    def _move_rows(self, oid: int) -> None:
        if self.rng.random() < 0.4:
            self.database.end_all()
            self.note(self.database.rewrite(oid))
            return
        for _ in range(30):
            session = Session(self.database)
            session.update(oid)
            session.commit()


class RewrittenBeforeTheirTurn(World):
    """Tables are rewritten or truncated after a snapshot was taken, before their rows are read.

    A snapshot does not show the rows of a table that was rewritten after it: they were missing.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 15)
        if not self.checker.has_snapshots:
            self._take_snapshots()
        while len(self.database.ledger) < 20:
            self.database.act()
        self.database.end_all()
        self.settings = self.settings.model_copy(
            update={"snapshot": self.settings.snapshot.model_copy(update={"workers": 1})}
        )
        self.snapshot_pace_s = 0.3
        self._is_calm = False
        self._faults = 0
        self._rewrites = 3

    def took(self, snapshot: SimSnapshot, tables: list[Table]) -> None:
        super().took(snapshot, tables)
        if self._rewrites:
            self._rewrites -= 1
            self.at(self.now + self.rng.random(), self._rewrite)

    def _rewrite(self) -> None:
        if self.server.up:
            self.note(self.database.rewrite())


class RegistryAway(World):
    """The schema registry is slow, and away for long; daemons die, so that others ask it again.

    The daemon answered nobody while it waited: the server gave its connection up, and COMMITs waited for rows that were
    in Kafka.
    """

    has_registry = 1.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 20)
        if self.registry is not None:
            self.registry.away_s = 30.0
            self.registry.answers_within_s = self.rng.choice([0.5, 8.0, 15.0])
            self.registry.is_up = self.rng.random() < 0.5
        self._is_calm = False
        self._faults = 4
        self._fault_chance = 0.01


SCENES = [
    BrokenSnapshots, SnapshotsUnderFaults, PausedSnapshots, StoppedSnapshots, ChangedKeys, AddedColumns,
    MaskedColumns, ReplacedTables, ChosenKeys, RepairsUnderFaults, LostTopics, LostParkedEvents, CutWhileItWrites,
    RepublishedTable, FollowedPublication,
    RolledBackBeforeALargeOne, PreparedWithoutRows,
    RequestsPassedOver, TwoFirstStarts, RefusedTakeovers, MarkersLost, CoordinatorMoves, ForgottenProducers,
    LostWhileTakingOver, ZombieThatPublishes, TornSpool, PreparedBeyondTheSpool, SubtransactionsByTheThousand,
    SwappedNames, RegistryAway, NeverCopied,
    RewrittenBeforeTheirTurn, *CONTRADICTIONS,
]  # fmt: skip
