"""A person stops the snapshots of tables, and asks for some again: and the judgement whether the daemon obeys.

Before: `world` lets the person act now and then. After: requests in `sql`; `snapshots_checker` hands in the records.

Once the progress has passed a request, the table's record says that its snapshot was stopped, unless it was complete,
or somebody has asked for a new one since. It stays so until somebody asks. A table whose snapshot was stopped gets the
changes that were deferred meanwhile: `snapshots_checker` judges them as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

from sim.sql import REQUESTS, Database, Session

from cdcd.progress.daemon_requests import STOP
from cdcd.progress.snapshot_records import RUNNING, STOPPED, TableSnapshot
from cdcd.sink.topics import TopicNames

if TYPE_CHECKING:
    from sim.world import World


class Stops:
    """The person."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = Random(f"stops {seed}")
        self.chance = 0.0
        """How often something is done after something was done in SQL."""

    def act(self) -> None:
        """Stop a snapshot, or ask for a new one, sometimes."""
        if self._rng.random() >= self.chance or not self._world.server.up:
            return
        table = self._rng.choice(sorted((each.schema, each.name) for each in self._world.database.published()))
        session = Session(self._world.database)
        if self._rng.random() < 0.7:
            session.ask(REQUESTS, *table, action=STOP)
        else:
            session.ask(REQUESTS, *table)
        self._world.note(f"stop, or ask for, the snapshot of {table[1]}, {session.commit()}")

    def rest(self) -> None:
        """Every table that was stopped gets a new snapshot."""
        published = {(each.schema, each.name) for each in self._world.database.published()}
        for table in sorted({each.table for each in self._world.database.stops} & published):
            session = Session(self._world.database)
            session.ask(REQUESTS, *table)
            session.commit()


class StopsChecker:
    """The judgement. `demand` fails with the text, unless the condition holds."""

    def __init__(self, names: TopicNames, database: Database, demand: Callable[[bool, str], None]) -> None:
        self._names = names
        self._db = database
        self._demand = demand
        self._judged = 0
        """How many of the requests to stop were judged."""
        self._stopped: set[str] = set()
        """The topics whose records say for the first time that they were stopped, since the last cut."""

    def take(self, before: TableSnapshot | None, record: TableSnapshot) -> None:
        """A record of a table comes. `before`: the one before it."""
        was_stopped = before is not None and before.state == STOPPED
        if record.state == STOPPED and not was_stopped:
            self._stopped.add(record.topic)
        self._demand(not (was_stopped and record.state == RUNNING), f"{record.topic}: stopped, and it goes on")

    def compare(self, standing: Mapping[str, TableSnapshot], asked: Mapping[str, int], lsn: int) -> None:
        """Judge the requests up to a cut at `lsn`. `asked`: by topic, the LSN of the last request for a snapshot."""
        stops = [(self._names.topic(*each.table), each.end_lsn) for each in self._db.stops if each.end_lsn <= lsn]
        for topic in self._stopped:
            self._demand(topic in {each for each, _ in stops}, f"{topic}: nobody has asked to stop it")
        self._stopped.clear()
        published = {self._names.topic(each.schema, each.name) for each in self._db.published()}
        for topic, at in stops[self._judged :]:
            record = standing.get(topic)
            is_over = record is None or record.has_ended or topic not in published  # it has another name by now
            self._demand(is_over or asked.get(topic, 0) > at, f"{topic}: it was to stop at {at:X}")
        self._judged = len(stops)
