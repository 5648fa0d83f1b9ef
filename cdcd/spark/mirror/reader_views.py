"""Shows the published run to readers without Python: by views, by the view `cdcd_published`, and by Iceberg's tags.

Before: `run_log` has published a run. After: anybody's SQL reads the views, other engines the tags.

No catalog switches several views as one. So they are switched in this order, and a reader can tell:

1. `cdcd_published` says that it is switching to the run (`switching_to`).
2. The views (and tags) of the tables with another version are made anew, and those of tables that have left go.
3. `cdcd_published` says the run.

If `cdcd_published` says one run, and no `switching_to`, before and after a reader has used the views, they were all at
the LSN of this run. A process that dies in between leaves `switching_to`: the next one makes all views anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from pyspark.errors import AnalysisException

from cdcd.errors import SettingsError
from cdcd.lsn import format_lsn
from cdcd.spark.mirror.run_log import MirroredTable, Run
from cdcd.spark.mirror.targets.target import Target, unqualified
from cdcd.spark.reading.sql_texts import sql_text

PUBLISHED_VIEW: Final = "cdcd_published"

_OWN_CATALOG: Final = "spark_catalog"
"""Spark's name for the catalog of each session: a Hive metastore, or memory."""
_COLUMNS: Final = (
    "mirror: string, run: bigint, switching_to: bigint, lsn: bigint, lsn_text: string, commit_ts: timestamp_ltz,"
    " table: string, view: string, target: string, version: bigint, error: string"
)


@dataclass
class ReaderViews:
    """Makes the views and tags of one mirror."""

    target: Target
    views: str = ""
    """catalog.schema of the views, for this mirror alone; empty: no views."""
    tags: bool = False
    """Set the tag `cdcd_{mirror}` on each table."""
    _shown: tuple[int, str] | None = None
    """Number and token of the run that this process has shown last."""

    def show(self, run: Run) -> None:
        """Bring the views and tags to a published run, unless they are there."""
        if self._shown == (run.run, run.token):
            return
        if self.views:
            self._switch(run)
        if self.tags:
            for table in run.tables:
                if table.error is None and table.version is not None and self.target.exists(table.target):
                    version = self.target.readable(table.target, table.version)
                    self.target.tag(table.target, f"cdcd_{run.mirror}", version)
        self._shown = run.run, run.token

    def _switch(self, run: Run) -> None:
        sql = self.target.spark.sql
        sql(f"CREATE SCHEMA IF NOT EXISTS {self.views}")
        shown, shown_run, is_whole = self._found(run.mirror)
        wanted = {self._view(table): table for table in run.tables if table.key is not None}
        versions = {view: table.version for view, table in wanted.items()}
        if is_whole and shown_run == run.run and shown == versions:
            return
        self._say(run, wanted, shown_run, run.run)
        for view in shown.keys() - wanted.keys():
            sql(f"DROP VIEW IF EXISTS {view}")
        for view, table in wanted.items():
            is_there = is_whole and view in shown and shown[view] == table.version
            if not is_there and table.error is None and self.target.exists(table.target):
                self._set(view, self._select(table))
        self._say(run, wanted, run.run, None)

    def _set(self, view: str, query: str) -> None:
        """Make the view, or give it another query, so that a reader finds it at any moment.

        In Spark's own catalog CREATE OR REPLACE drops the view before it makes it anew. Other catalogs replace it in
        one step, and have no ALTER VIEW.
        """
        changes = view.partition(".")[0] == _OWN_CATALOG and self.target.exists(view)
        self.target.spark.sql(f"{'ALTER' if changes else 'CREATE OR REPLACE'} VIEW {view} AS {query}")

    def _view(self, table: MirroredTable) -> str:
        return f"{self.views}.{unqualified(table.target)}"

    def _select(self, table: MirroredTable) -> str:
        if table.version is None:
            return f"SELECT * FROM {table.target} WHERE false"
        return f"SELECT * FROM {table.target} VERSION AS OF {self.target.readable(table.target, table.version)}"

    def _found(self, mirror: str) -> tuple[dict[str, int | None], int | None, bool]:
        """By view, the version that `cdcd_published` says; its run; and whether no switch was under way."""
        try:
            rows = self.target.spark.table(f"{self.views}.{PUBLISHED_VIEW}").collect()
        except AnalysisException:  # there is none
            return {}, None, False
        if others := {row["mirror"] for row in rows} - {mirror}:
            raise SettingsError(
                f"{self.views} has the views of the mirror {min(others)}, and is to have those of {mirror}",
                "Give each mirror a schema of views of its own",
                code="mirror-settings-invalid",
            )
        shown = {row["view"]: row["version"] for row in rows}
        runs = {row["run"] for row in rows}
        return shown, next(iter(runs), None), bool(rows) and all(row["switching_to"] is None for row in rows)

    def _say(
        self, run: Run, wanted: Mapping[str, MirroredTable], shown_run: int | None, switching_to: int | None
    ) -> None:
        stamp = datetime.fromtimestamp(run.commit_ts / 1e6, UTC).isoformat() if run.commit_ts else None
        rows = [
            {"mirror": run.mirror, "run": shown_run, "switching_to": switching_to, "lsn": run.lsn,
             "lsn_text": format_lsn(run.lsn), "commit_ts": stamp, "table": table.shown, "view": view,
             "target": table.target, "version": table.version, "error": table.error}
            for view, table in wanted.items()
        ]  # fmt: skip
        document = sql_text(json.dumps(rows))
        query = f"SELECT inline(from_json({document}, 'array<struct<{_COLUMNS}>>'))"
        self._set(f"{self.views}.{PUBLISHED_VIEW}", query)
