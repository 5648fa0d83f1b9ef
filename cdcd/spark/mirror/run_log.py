"""The table of a mirror's runs: what is planned, and what is published. The last published row is what readers see.

Before: `mirror` plans a run. After: readers take each table at the version that the row names.

The problem: formats commit one table at a time. So a run is written down before its first MERGE, with every offset, and
published after its last one by changing one row. A process that dies between leaves a plan, and whoever comes next does
exactly that plan again; what it finds done, it leaves. Two processes at once meet at the plan: one of them loses.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import Fenced
from cdcd.spark.mirror.targets.target import Target

PLANNED: Final = "planned"
PUBLISHED: Final = "published"

_TABLES: Final = """array<struct<topic: string, schema: string, name: string, target: string, key: array<string>,
    offsets: array<bigint>, loaded_lsn: bigint, version: bigint>>"""
_COLUMNS: Final = f"""mirror string, run bigint, state string, slot string, lsn bigint, commit_lsn bigint,
    commit_ts timestamp, position bigint, at timestamp, token string, tables {_TABLES}"""


@dataclass(frozen=True)
class MirroredTable:
    """A table as of a run."""

    topic: str
    schema: str
    name: str
    target: str
    key: list[str] | None
    """None until its first event has come."""
    offsets: list[int]
    """Of each partition, up to where it is merged."""
    loaded_lsn: int
    """It was loaded from PostgreSQL as of this LSN: earlier events are in it; 0 if it was not."""
    version: int | None
    """Of the target; None if it never held a row."""

    @property
    def table(self) -> str:
        """schema.name, PostgreSQL's."""
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True)
class Run:
    """One run: all tables at exactly `lsn` once it is published."""

    mirror: str
    run: int
    state: str
    slot: str
    lsn: int
    commit_lsn: int
    commit_ts: int
    """Microseconds since 1970 UTC; 0 if nothing was ever committed."""
    position: int
    """Of the slot record on the progress topic."""
    tables: tuple[MirroredTable, ...] = field(repr=False)
    token: str = field(default_factory=lambda: uuid4().hex, compare=False)

    def by_topic(self) -> dict[str, MirroredTable]:
        """The tables by topic."""
        return {table.topic: table for table in self.tables}


class Runs:
    """Reads and writes the rows of one mirror."""

    def __init__(self, target: Target, table: str, mirror: str) -> None:
        self._target = target
        self._spark = target.spark
        self.table = table
        self._mirror = mirror

    def create(self) -> None:
        """Make the table, unless it is there."""
        if not self._target.exists(self.table):
            self._target.create(self.table, _COLUMNS)

    def last(self) -> tuple[Run | None, Run | None]:
        """The last run that was published, and the one that was planned after it; None where there is none."""
        rows = self._own().orderBy("run", ascending=False).limit(2).collect()
        runs = [_run(row) for row in rows]
        planned = runs[0] if runs and runs[0].state == PLANNED else None
        published = next((run for run in runs if run.state == PUBLISHED), None)
        return published, planned

    def published(self, at_most: str) -> Run | None:
        """The newest published run that meets a condition on the row."""
        rows = (
            self._own().where(f"state = '{PUBLISHED}' AND {at_most}").orderBy("run", ascending=False).limit(1).collect()
        )
        return _run(rows[0]) if rows else None

    def write(self, run: Run) -> None:
        """Add the run's row, or change it if it is there; raises Fenced if another process has planned the same run."""
        document = asdict(run)
        stamp = datetime.fromtimestamp(run.commit_ts / 1e6, UTC).isoformat() if run.commit_ts else None
        document |= {"commit_ts": stamp, "at": datetime.now(UTC).isoformat()}
        view = f"cdcd_run_{run.token}"
        # As JSON: rows of Python's would be sent to the executors, and converted there.
        row = f.from_json(f.lit(json.dumps(document)), _COLUMNS)
        self._spark.range(0, 1, 1, 1).select(row.alias("row")).select("row.*").createOrReplaceTempView(view)
        try:
            self._spark.sql(
                f"MERGE INTO {self.table} t USING {view} s ON t.mirror = s.mirror AND t.run = s.run"
                " WHEN MATCHED AND t.token = s.token THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        except Exception as error:
            if any(word in str(error) for word in ("Concurrent", "ValidationException", "CommitFailed")):
                raise self._fenced(run.run) from error
            raise
        finally:
            self._spark.catalog.dropTempView(view)
        tokens = {row["token"] for row in self._own().where(f"run = {run.run}").select("token").collect()}
        if tokens != {run.token}:
            raise self._fenced(run.run)

    def prune(self, keep: int) -> None:
        """Remove all but the last `keep` runs: what they published can then not be asked for any more."""
        published, _ = self.last()
        if published is not None:
            oldest = published.run - keep
            self._spark.sql(f"DELETE FROM {self.table} WHERE mirror = '{self._mirror}' AND run <= {oldest}")

    def _own(self) -> DataFrame:
        return self._spark.table(self.table).where(f"mirror = '{self._mirror}'")

    def _fenced(self, run: int) -> Fenced:
        return Fenced(
            f"another process runs the mirror {self._mirror}: it has taken run {run}",
            "Run one at a time, or give the second one another name",
        )


def _run(row: Any) -> Run:
    values = row.asDict(recursive=True)
    stamp = values["commit_ts"]
    tables: Sequence[dict[str, Any]] = values["tables"] or ()
    return Run(
        **{name: values[name] for name in ("mirror", "run", "state", "slot", "lsn", "commit_lsn", "position", "token")},
        commit_ts=0 if stamp is None else round(stamp.timestamp() * 1e6),
        tables=tuple(MirroredTable(**table) for table in tables),
    )
