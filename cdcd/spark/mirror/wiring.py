"""Makes a mirror: its options, and the parts that work together.

Before: `Cdc.mirror` has the topics and the user's options. After: `mirror` runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pyspark.sql import SparkSession

from cdcd.errors import SettingsError
from cdcd.spark.arguments import TableList, Tables
from cdcd.spark.mirror.batches import Batches
from cdcd.spark.mirror.histories import HistoryMerger
from cdcd.spark.mirror.merge_sql import Deletes
from cdcd.spark.mirror.mirror import Mirror
from cdcd.spark.mirror.per_table import PerTable, TableNames, TableOptions
from cdcd.spark.mirror.planner import MirrorPlace, Planner
from cdcd.spark.mirror.quarantine import Quarantine, TableErrors
from cdcd.spark.mirror.reader_views import ReaderViews
from cdcd.spark.mirror.run_log import RunLog
from cdcd.spark.mirror.targets.delta import Delta
from cdcd.spark.mirror.targets.iceberg import Iceberg
from cdcd.spark.packages import Format
from cdcd.spark.reading.topics import Topics

_TARGETS: Final = {"delta": Delta, "iceberg": Iceberg}


def _say_nothing(_: str) -> None: ...


@dataclass(frozen=True)
class MirrorOptions:
    """How a mirror works."""

    name: str = "mirror"
    """The mirror's name, among those that share the schema: letters, digits and _."""
    deletes: Deletes = "hard"
    """With "soft", deleted rows stay, and _is_deleted is set in them."""
    schema_changes: Literal["stop", "follow"] = "stop"
    """If the format cannot follow a change of columns: "stop" with an error, or "follow" as `schema_evolution` says."""
    table_errors: TableErrors = "quarantine"
    """What an error that one table has does: see `quarantine`. With "stop" it ends the run, and so all tables stay."""
    rows_max: int = 5_000_000
    """Events that a run takes at most, if a cut allows that."""
    parallel: int = 4
    """Tables that are merged at the same time."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """More TBLPROPERTIES for new tables."""
    table_names: TableNames = "lower"
    """What names become in the lake: see `PerTable`."""
    views: str = ""
    """catalog.schema of views for readers, of this mirror alone: see `reader_views`. Empty: none."""
    tags: bool = False
    """Give what is published a tag, cdcd_{name}, in each table: Iceberg only."""
    per_table: Sequence[TableOptions | Mapping[str, Any]] = ()
    """What holds for some tables: the fields of `TableOptions`."""
    on_step: Callable[[str], None] = _say_nothing
    """Is called with each step before it is done."""


def make_mirror(
    spark: SparkSession,
    topics: Topics,
    tables: Tables,
    catalog: str,
    format: Format,  # noqa: A002  # the word that Spark uses
    options: MirrorOptions,
) -> Mirror:
    """Make the mirror of the `tables` in `catalog` (as catalog.schema).

    Tables that match later join by themselves. Each is called {schema}_{table} in the catalog, unless `per_table` says
    another name.
    Raises SettingsError for an unknown format or option, or for a name that a mirror cannot have.
    """
    _check("table format", format, tuple(_TARGETS))
    _check("deletes", options.deletes, ("hard", "soft"))
    _check("schema_changes", options.schema_changes, ("stop", "follow"))
    _check("table_names", options.table_names, ("lower", "escaped", "postgresql"))
    _check("table_errors", options.table_errors, ("quarantine", "stop"))
    for name in "rows_max", "parallel":
        if getattr(options, name) < 1:
            raise SettingsError(f"{name} = {getattr(options, name)} is below 1", code="mirror-settings-invalid")
    if not options.name.replace("_", "").isalnum():
        raise SettingsError(
            f"{options.name!r} is no name for a mirror", "Use letters, digits and _", code="mirror-settings-invalid"
        )
    catalog = _quoted(catalog)
    views = _quoted(options.views) if options.views else ""
    if views == catalog:
        raise SettingsError(
            f"views = {options.views!r} has the tables themselves",
            "Name another schema",
            code="mirror-settings-invalid",
        )
    if options.tags and format == "delta":
        raise SettingsError("Delta has no tags", "Leave tags out, or use views", code="mirror-settings-invalid")
    target = _TARGETS[format](spark, options.properties, options.on_step)
    entries = [TableOptions.of(each) for each in options.per_table]
    for entry in entries:
        target.check_layout(entry.layout)
    per_table = PerTable(entries, options.deletes, options.schema_changes, names=options.table_names)
    wanted = TableList(TableList.of(tables).patterns, tuple(entries))
    place = MirrorPlace(options.name, catalog, wanted, per_table)
    quarantine = Quarantine(options.table_errors, options.on_step)
    planner = Planner(topics.cuts, topics.names, place, options.rows_max, options.on_step, quarantine)
    merger = HistoryMerger(Batches(topics.kafka, topics.writers, target.session_for_few), target, per_table)
    run_log = RunLog(target, catalog, options.name, ReaderViews(target, views, options.tags).show)
    return Mirror(options.name, planner, run_log, merger, target, options.parallel, options.on_step, quarantine)


def _check(what: str, given: object, allowed: Sequence[str]) -> None:
    if given not in allowed:
        shown = " or ".join(f'"{each}"' for each in allowed)
        raise SettingsError(f"there is no {what} {given!r}", f"Use {shown}", code="mirror-settings-invalid")


def _quoted(catalog: str) -> str:
    """catalog.schema with quotes where Spark's SQL needs them, unless a person has written some."""
    if "`" in catalog:
        return catalog
    return ".".join(part if re.fullmatch(r"\w+", part, re.ASCII) else f"`{part}`" for part in catalog.split("."))
