"""The table of a mirror's runs: the planned one, and the published ones. Readers see the last published run.

Before: `planner` plans a run. After: readers take each table at the version that the run's row names.

The problem: a table format commits one table at a time. So the mirror writes a run into this table before the run's
first MERGE, with every offset. It publishes the run after the last MERGE, by one more row. A process that dies in
between leaves its plan. The next process carries out exactly that plan, and skips the tables that are already merged.
If two processes run one mirror, both write the same run number, and one of them gets an error.

A row is only added, in one commit: that takes a part of a MERGE's time. So a run that was planned has two rows. A
process adds a row to the version of the table that it has read: if another row has come since, the commit fails, and
the process reads again. As long as the table has that version, it need not. Nor if the next version is the commit that
has added the process's own row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from cdcd.errors import Fenced
from cdcd.source.table_selection import qualified_name
from cdcd.spark.mirror.per_table import Kind, Layout
from cdcd.spark.mirror.targets.target import Target

RUNS_TABLE: Final = "cdcd_runs"

PLANNED: Final = "planned"
PUBLISHED: Final = "published"

_YOUNGER_FIELDS: Final = {
    "columns": "array<string>", "error": "string", "kind": "string", "events": "bigint", "seconds": "double",
}  # fmt: skip
"""Fields of a table that the table of an older cdcd lacks."""
_TABLES: Final = f"""array<struct<topic: string, schema: string, name: string, target: string, key: array<string>,
    offsets: array<bigint>, loaded_lsn: bigint, version: bigint,
    {", ".join(f"{name}: {kind}" for name, kind in _YOUNGER_FIELDS.items())}>>"""
_COLUMNS: Final = f"""mirror string, run bigint, state string, slot string, lsn bigint, commit_lsn bigint,
    commit_ts timestamp_ltz, progress_offset bigint, at timestamp_ltz, token string, tables {_TABLES}"""


@dataclass(frozen=True)
class MirroredTable:
    """One table in one run."""

    topic: str
    schema: str
    name: str
    target: str
    key: list[str] | None
    """The key's columns, none if it has no key; None until its first event has come."""
    offsets: list[int]
    """The end offset of each partition: the events before it are merged."""
    loaded_lsn: int
    """The table was loaded from PostgreSQL at this LSN, and holds earlier events; 0 if it was not loaded."""
    version: int | None
    """The target's version; None if the target never held a row."""
    columns: list[str] | None = None
    """The columns of its last events; None if nobody knows them."""
    error: str | None = None
    """Why the run has left the table as it was: see `quarantine`. None: the table is at the run's LSN."""
    kind: Kind | None = None
    """Its kind, if the settings give its table several, and this is not the first one. Else None."""
    events: int | None = None
    """The events that the run has merged; None: the run has not merged the table, or nobody has counted."""
    seconds: float | None = None
    """How long the run has read and merged them."""

    @property
    def id(self) -> str:
        """Tells it from the other tables of its run: the topic, with the further kind."""
        return self._with_kind(self.topic)

    @property
    def unmerged(self) -> MirroredTable:
        """The table in a run that has not merged it."""
        return replace(self, events=None, seconds=None)

    @property
    def table(self) -> str:
        """Its name in PostgreSQL: schema.name."""
        return qualified_name(self.schema, self.name)

    @property
    def shown(self) -> str:
        """The name that people read: schema.name, with the further kind."""
        return self._with_kind(self.table)

    def _with_kind(self, name: str) -> str:
        return name if self.kind is None else f"{name} as {self.kind}"


@dataclass(frozen=True)
class Run:
    """One run: once it is published, all tables are at exactly `lsn`, but for those in quarantine."""

    mirror: str
    run: int
    state: str
    slot: str
    lsn: int
    commit_lsn: int
    commit_ts: int
    """Microseconds since 1970 UTC; 0 if nothing was ever committed."""
    progress_offset: int
    """Where the slot record of its cut lies on the progress topic."""
    tables: tuple[MirroredTable, ...] = field(repr=False)
    token: str = field(default_factory=lambda: uuid4().hex, compare=False)
    """Names this plan: another plan of the same number has another token."""

    @property
    def quarantined(self) -> dict[str, str]:
        """The tables (as `shown`) that are not at the run's LSN, each with its error."""
        return {table.shown: table.error for table in self.tables if table.error is not None}

    @property
    def events(self) -> int:
        """The events that it has merged."""
        return sum(table.events or 0 for table in self.tables)

    def by_id(self) -> dict[str, MirroredTable]:
        """The tables by their `id`: the topic, or of a further kind `TOPIC as KIND`."""
        return {table.id: table for table in self.tables}


class RunLog:
    """Reads and writes the runs of one mirror."""

    def __init__(self, target: Target, catalog: str, mirror: str, show: Callable[[Run], None]) -> None:
        """`catalog`: catalog.schema, where all tables of the mirror lie. `mirror`: its name.

        `show` shows a published run to readers: see `reader_views`. It may be called again for the same run.
        """
        self.show = show
        self._target = target
        self._spark = target.spark
        self._catalog = catalog
        self.table = f"{catalog}.{RUNS_TABLE}"
        self._layout = Layout(properties=target.log_properties)
        self._mirror = mirror
        self._known = 0
        """The newest published run that this process has seen."""
        self._read: tuple[int | None, tuple[Run | None, Run | None]] | None = None
        """A version of the table, and what `last` has found in it or in a later one."""

    def create(self) -> None:
        """Make the schema and the table, unless they exist."""
        self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {self._catalog}")
        if not self._target.exists(self.table):
            self._target.create(self.table, _COLUMNS, self._layout)
            if (version := self._target.version(self.table)) in (None, 0):  # nobody has added a row since
                self._know(version, None, None)
            return
        known = self._spark.table(self.table).schema["tables"].dataType.elementType.fieldNames()
        for name, kind in _YOUNGER_FIELDS.items():
            if name not in known:
                self._spark.sql(f"ALTER TABLE {self.table} ADD COLUMNS (tables.element.{name} {kind})")

    def last(self) -> tuple[Run | None, Run | None]:
        """The last published run, and the run planned after it; None where there is none."""
        version = self._target.version(self.table)
        if self._read is None or self._read[0] != version:
            self._know(version, *self._read_last())
        assert self._read is not None
        return self._read[1]

    def _read_last(self) -> tuple[Run | None, Run | None]:
        # Most runs lie in a file of their own. Files of before the last known run are skipped by their statistics.
        rows = self._newest(f"run >= {self._known}")
        # There is none if a person has put the table back to an earlier state.
        if self._known and all(row["state"] != PUBLISHED for row in rows):
            rows = self._newest("true")
        runs = [parse_run(row) for row in rows]
        planned = runs[0] if runs and runs[0].state == PLANNED else None
        published = next((run for run in runs if run.state == PUBLISHED), None)
        return published, planned

    def _know(self, version: int | None, published: Run | None, planned: Run | None) -> None:
        self._read = version, (published, planned)
        self._known = 0 if published is None else published.run

    def _newest(self, condition: str) -> list[Row]:
        """The newest rows: of a run's two rows, the published one first."""
        return list(self._own().where(condition).orderBy("run", "state", ascending=False).limit(2).collect())

    def published(self, at_most: str) -> Run | None:
        """The newest published run whose row meets this condition in SQL."""
        rows = (
            self._own().where(f"state = '{PUBLISHED}' AND {at_most}").orderBy("run", ascending=False).limit(1).collect()
        )
        return parse_run(rows[0]) if rows else None

    def times(self, run: int) -> dict[str, datetime]:
        """By state, when a process has written the run's rows."""
        return {row["state"]: row["at"].astimezone(UTC) for row in self._own().where(f"run = {run}").collect()}

    def write(self, run: Run) -> None:
        """Add the run's row. Raises Fenced if another process has planned or published the same run, or a later one."""
        document = asdict(run)
        stamp = datetime.fromtimestamp(run.commit_ts / 1e6, UTC).isoformat() if run.commit_ts else None
        at = datetime.now(UTC)
        document |= {"commit_ts": stamp, "at": at.isoformat()}
        # As JSON: Spark would send rows of Python's to the executors, and convert them there. Of VALUES it computes the
        # columns while it plans, and compiles nothing for them.
        row = f.from_json(f.lit(json.dumps(document)), _COLUMNS)
        rows = self._spark.sql("VALUES (0)").select(row.alias("row")).select("row.*")
        self._target.again_after_conflicts(self.table, lambda: self._add(run, rows, at))

    def _add(self, run: Run, rows: DataFrame, at: datetime) -> None:
        published, planned = self.last()
        if _is_taken(run, planned or published):
            # Unless an earlier try has added the row, and got a conflict for an answer.
            own = self._own().where(f"run = {run.run} AND state = '{run.state}' AND token = '{run.token}'")
            if [row["at"].astimezone(UTC) for row in own.select("at").collect()] != [at]:
                raise self._fenced(run.run)
            return
        assert self._read is not None
        (seen, _), self._read = self._read, None
        self._target.put(self.table, rows, seen)
        version = self._target.follower(self.table, seen)
        if version is not None:  # the commits since then are one, and this is one: nobody else has added a row
            self._know(version, *((run, None) if run.state == PUBLISHED else (published, run)))

    def prune(self, keep: int, older_than: datetime) -> None:
        """Remove all but the last `keep` runs, and runs of before this time. Readers can then no longer ask for those.

        The newest published run stays.
        """
        published, _ = self.last()
        if published is not None:
            is_old = f"(run <= {published.run - keep} OR at < timestamp_ltz '{older_than:%Y-%m-%d %H:%M:%S}Z')"
            own = f"mirror = '{self._mirror}' AND run < {published.run}"
            self._target.commit(self.table, f"DELETE FROM {self.table} WHERE {own} AND {is_old}")

    def remove_old_files(self) -> None:
        """Remove the table's own older versions, of which it has two or three a run."""
        self._target.adopt(self.table, self._layout)  # an older cdcd may have made it
        self._target.compact(self.table)
        self._target.remove_old_files(self.table, None)

    def oldest_versions(self) -> dict[str, int]:
        """By target, the oldest version that a published run names."""
        tables = self._own().where(f"state = '{PUBLISHED}'").selectExpr("run", "inline(tables)")
        oldest = tables.where("version IS NOT NULL").groupBy("target").agg(f.min_by("version", "run").alias("version"))
        return {row["target"]: row["version"] for row in oldest.collect()}

    def _own(self) -> DataFrame:
        self._target.refresh(self.table)
        return self._spark.table(self.table).where(f"mirror = '{self._mirror}'")

    def _fenced(self, run: int) -> Fenced:
        return Fenced(
            f"another process runs the mirror {self._mirror}: it has taken run {run}",
            "Run one process at a time, or give the second mirror another name",
            code="mirror-fenced",
        )


def _is_taken(run: Run, newest: Run | None) -> bool:
    """Whether another process has planned or published the same run, or a later one. `newest`: the table's row."""
    if newest is None or newest.run < run.run:
        return False
    is_own_plan = newest.run == run.run and newest.state == PLANNED and newest.token == run.token
    return run.state == PLANNED or not is_own_plan


def parse_run(row: Any) -> Run:
    """The run of a row of the table."""
    values = row.asDict(recursive=True)
    stamp = values["commit_ts"]
    tables: Sequence[dict[str, Any]] = values["tables"] or ()
    plain = ("mirror", "run", "state", "slot", "lsn", "commit_lsn", "progress_offset", "token")
    return Run(
        **{name: values[name] for name in plain},
        commit_ts=0 if stamp is None else round(stamp.timestamp() * 1e6),
        tables=tuple(MirroredTable(**table) for table in tables),
    )
