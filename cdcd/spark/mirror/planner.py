"""Plans a mirror's runs: up to which cut the next run reads, and what each table looks like at that cut.

Before: `reading.cuts` gives the cuts, `run_log` the last published run. After: `mirror` carries out the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cdcd.errors import GapError, RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.progress.records import TableRecord
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import split_name
from cdcd.spark.arguments import TableList
from cdcd.spark.mirror.per_table import Kind, PerTable
from cdcd.spark.mirror.quarantine import Quarantine
from cdcd.spark.mirror.run_log import PLANNED, MirroredTable, Run
from cdcd.spark.reading.cuts import Cut, Cuts


@dataclass(frozen=True)
class Lag:
    """How far the published tables are behind Kafka."""

    bytes: int
    """WAL between the published LSN and the newest cut's."""
    events: int
    """Offsets, markers included, that are not merged."""
    seconds: float
    """Time between the last published commit and the newest commit in Kafka."""


@dataclass(frozen=True)
class MirrorPlace:
    """The tables that a mirror follows, and where they go."""

    name: str
    """The mirror's name, among the mirrors that share the catalog."""
    catalog: str
    """catalog.schema of all its tables."""
    tables: TableList
    per_table: PerTable = field(default_factory=PerTable)

    def target(self, schema: str, table: str, further: Kind | None = None) -> str:
        """The name of a table in the lake. A table keeps the one that it was published under."""
        return f"{self.catalog}.`{self.per_table.target(schema, table, further).replace('`', '``')}`"


class Planner:
    """Plans runs. Keeps the newest cut that it has read, so that it reads each progress record once."""

    def __init__(
        self,
        cuts: Cuts,
        names: TopicNames,
        place: MirrorPlace,
        rows_max: int,
        on_step: Callable[[str], None],
        quarantine: Quarantine,
    ) -> None:
        """`rows_max`: events that a run takes at most, if a cut allows that."""
        self.cuts = cuts
        self._quarantine = quarantine
        self._names = names
        self._place = place
        self._rows_max = rows_max
        self._step = on_step
        self._cut: Cut | None = None
        self._idle: list[str] = []
        """The patterns that matched no table when the last run was planned."""

    def newest(self) -> Cut:
        """The newest cut in Kafka."""
        return self.cuts.at(None, self._cut)

    def plan(self, published: Run | None, loaded: Mapping[str, MirroredTable]) -> Run | None:
        """The next run after the `published` one; None if there is nothing to do.

        `loaded`: by id, tables that were loaded and are not published yet; the run publishes them.
        A table in quarantine stays as it is until it is to be tried again. Raises RequestRejected or GapError if these
        topics cannot be mirrored after that run.
        """
        known = known_tables(published, loaded)
        due = self._quarantine.due(known.values())
        is_first_look = self._cut is None
        cut = self._next_cut(published, known, loaded)
        if published is not None:
            _check_continues(published, cut)
        self._cut = self._cut if self._cut is not None and self._cut.progress_offset > cut.progress_offset else cut
        # The settings of a new process may name further tables, or kinds.
        has_new = is_first_look and any(table.id not in known for table, _ in self._complete(cut, known))
        is_at_cut = published is not None and cut.progress_offset <= published.progress_offset
        if is_at_cut and not (loaded or due or has_new):
            return None
        tables = dict(loaded)
        for before, record in self._complete(cut, known):
            start = replace(before, schema=record.schema, name=record.table, error=None)
            if before.error is not None and before.id not in due:
                tables[before.id] = before
            elif any(old > new for old, new in zip(before.offsets, record.offsets, strict=False)):
                error = GapError(
                    f"the topic {record.topic} ends before the offset up to which it was mirrored: it was made again",
                    "Load the table again with `cdcd spark snapshot`",
                    code="mirror-load-again",
                )
                tables[before.id] = self._quarantine.put(start, error)
            else:
                tables[before.id] = replace(start, offsets=list(record.offsets))
        for record in cut.matching(self._place.tables).values():
            for before in self._tables_of(record, known):
                if before.id in known:  # a table whose snapshot runs stays as it is
                    tables.setdefault(before.id, before)
        self._part_shared_targets(tables, known)
        run = Run(
            mirror=self._place.name,
            run=1 if published is None else published.run + 1,
            state=PLANNED,
            slot=cut.slot,
            lsn=cut.lsn,
            commit_lsn=cut.commit_lsn,
            commit_ts=cut.commit_ts,
            progress_offset=cut.progress_offset,
            tables=tuple(tables.values()),
        )
        # The LSN may stand still while a snapshot ends or a parked table is replayed: then there is something to do.
        is_idle = published is not None and cut.lsn == published.lsn and not touched(run, known)
        return None if is_idle and not loaded else run

    def lag(self, published: Run | None) -> Lag:
        """How far the tables are behind the topics."""
        cut = self.newest()
        behind: dict[str, int] = {}
        for table, record in self._complete(cut, known_tables(published, {})):
            behind[record.topic] = max(behind.get(record.topic, 0), sum(record.offsets) - sum(table.offsets))
        events = sum(behind.values())
        if published is None:
            return Lag(cut.lsn, events, 0.0)
        return Lag(cut.lsn - published.lsn, events, max(0, cut.commit_ts - published.commit_ts) / 1e6)

    def new_tables(self, topic: str, schema: str, name: str) -> list[MirroredTable]:
        """The tables of one topic, one a kind, as no run has published them yet."""
        return [
            MirroredTable(topic, schema, name, self._place.target(schema, name, kind), None, [], 0, None, kind=kind)
            for kind in (None, *self._place.per_table.further_kinds(schema, name))
        ]

    def tables_to_load(self, name: str, below: Cut | None) -> list[MirroredTable]:
        """The tables of one of PostgreSQL (schema.table) before its load. `below`: the last cut before it, which has
        the topic that a setting may have given the table.
        """
        schema, table = split_name(name)
        known = {} if below is None else below.matching([name])
        topic = known[name].topic if name in known else self._names.topic(schema, table)
        return self.new_tables(topic, schema, table)

    def _next_cut(
        self, published: Run | None, known: Mapping[str, MirroredTable], loaded: Mapping[str, MirroredTable]
    ) -> Cut:
        """The cut up to which the next run reads."""
        offset = -1 if published is None else published.progress_offset
        applied: dict[str, list[int]] = {}
        for table in known.values():
            applied[table.topic] = min(applied.get(table.topic, table.offsets), table.offsets, key=sum)
        cut = self.cuts.within(self._rows_max, self._cut, applied, offset)
        self._name_idle_patterns(cut, is_first=not known)
        for name in sorted(cut.matching(self._place.tables).keys() & set(cut.incomplete)):
            self._step(f"{name} is parked, or its snapshot runs: until that ends the table stays as it is")
        for name, record in cut.matching(self._place.tables).items():
            is_loaded = record.topic in known and known[record.topic].loaded_lsn > 0
            if record.snapshot is not None and record.snapshot.where and not is_loaded:
                self._step(f"{name} is not whole: its snapshot has only the rows with {record.snapshot.where}")
            if record.snapshot is not None and record.snapshot.stopped:
                self._step(f"the snapshot of {name} was stopped: until there is a new one the table stays as it is")
        loaded_lsn = max((table.loaded_lsn for table in loaded.values()), default=0)
        # A table may not be published as of an LSN before its own.
        return self.cuts.at(loaded_lsn) if cut.lsn < loaded_lsn else cut

    def _part_shared_targets(self, tables: dict[str, MirroredTable], known: Mapping[str, MirroredTable]) -> None:
        """Of tables with one name in the lake only one goes on: the one that is there, or else in small letters."""

        def place(table: MirroredTable) -> tuple[bool, bool, str]:
            is_there = table.id in known and known[table.id].version is not None
            return not is_there, table.name != table.name.lower(), table.id

        owners: dict[str, str] = {}
        for table in sorted(tables.values(), key=place):
            owner = owners.setdefault(table.target, table.shown)
            if owner != table.shown and table.error is None:
                error = SettingsError(
                    f"{owner} and {table.shown} would both become {table.target}",
                    "Give one of them another name: target in [[tables]]",
                    code="mirror-settings-invalid",
                )
                before = known.get(table.id) or replace(table, key=None, offsets=[])
                tables[table.id] = self._quarantine.put(before, error)

    def _name_idle_patterns(self, cut: Cut, *, is_first: bool) -> None:
        """Say once which patterns match no table; raise RequestRejected if none does, and nothing is mirrored yet."""
        with_topics = [(record.schema, record.table) for record in cut.tables.values() if record.schema]
        idle = self._place.tables.idle(with_topics)
        if is_first and with_topics and not cut.matching(self._place.tables):
            raise RequestRejected(
                f"no table with a topic matches {', '.join(idle) or self._place.tables}",
                "Write them as schema.table. A table has a topic from its first event on",
                code="tables-missing",
            )
        for each in idle:
            if each not in self._idle:
                self._step(f"no table with a topic matches {each}")
        self._idle = idle

    def _complete(self, cut: Cut, known: Mapping[str, MirroredTable]) -> Iterator[tuple[MirroredTable, TableRecord]]:
        """The matching tables that are complete in Kafka: a table whose snapshot runs waits for the snapshot's end."""
        for record in cut.matching(self._place.tables).values():
            if record.snapshot is None or record.snapshot.done:
                for table in self._tables_of(record, known):
                    yield table, record

    def _tables_of(self, record: TableRecord, known: Mapping[str, MirroredTable]) -> list[MirroredTable]:
        """The tables of a topic as they are known, or new."""
        return [known.get(new.id, new) for new in self.new_tables(record.topic, record.schema, record.table)]


def known_tables(published: Run | None, loaded: Mapping[str, MirroredTable]) -> dict[str, MirroredTable]:
    """By id, what the next run starts from: each table as it was published, or loaded since."""
    known = ({} if published is None else published.by_id()) | dict(loaded)
    return {each: table.unmerged for each, table in known.items()}


def touched(planned: Run, known: Mapping[str, MirroredTable]) -> set[str]:
    """The ids of the tables that have events for this run, or are new."""
    return {t.id for t in planned.tables if t.id not in known or known[t.id].offsets != t.offsets}


def ends_below(below: Cut | None, topic: str) -> list[int]:
    """The offsets from which on a topic may hold events that a load does not: the ends of the cut below its LSN."""
    return list(below.ends(topic)) if below is not None and topic in below.tables else []


def _check_continues(published: Run, cut: Cut) -> None:
    """Raise if this is not the progress that the published run has read."""
    if cut.slot != published.slot:
        raise RequestRejected(
            f"the mirror {published.mirror} follows the slot {published.slot}, not {cut.slot}",
            "Give each slot's mirror a name of its own",
            code="mirror-settings-invalid",
        )
    if cut.progress_offset < published.progress_offset or cut.lsn < published.lsn:
        raise GapError(
            f"the progress of slot {cut.slot} ends at {format_lsn(cut.lsn)}, offset {cut.progress_offset}, but the "
            f"published run has read it up to {format_lsn(published.lsn)}, offset {published.progress_offset}",
            "The topics were made again: drop the tables, and start a mirror under another name",
            code="mirror-load-again",
        )
