"""Merges one batch of a table without a key: it counts rows, and numbers equal ones, so that a MERGE can name them.

Before: `batch_changes` has decoded the events, `keyless_rows` counts rows. After: `table_write` merges the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import GapError
from cdcd.spark.mirror.batch_changes import Changes
from cdcd.spark.mirror.batches import Batch
from cdcd.spark.mirror.merge_sql import DELETED, MergeSource
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import OWN_COLUMNS
from cdcd.spark.mirror.table_write import Attempt, TableWriter, source_view
from cdcd.spark.reading.missing_values import MissingValue
from cdcd.spark.reading.types import ddl
from cdcd.spark.state import keyless_rows
from cdcd.spark.state.as_of import with_columns
from cdcd.spark.state.collapse import COMMIT_LSN, COMMIT_TS, OP, SEQ, UNCHANGED, UNREPRESENTABLE, after_truncate


def merge_keyless(
    batch: Batch,
    made: Changes,
    plan: MirroredTable,
    before: MirroredTable | None,
    base: DataFrame | None,
    attempt: Attempt,
    writer: TableWriter,
) -> None:
    """Merge the events. `base`: the published rows; None if there are none, or a truncate voids them."""
    columns, fills, last = made.columns, made.fills, made.succession.last
    truncates = made.stats.last_truncate is not None
    events = keyless_rows.with_columns_of(after_truncate(made.events, made.stats), last)
    if base is not None and before is not None and (fills or _is_counted_otherwise(before, base, made)):
        events, base, truncates = _counted_anew(events, base, columns, fills, last), None, True
    names = [column["name"] for column in columns]
    rows = batch.keep(_numbered(batch, events, base, names, plan))
    row_key = [keyless_rows.HASH, keyless_rows.DUPLICATE]
    source = MergeSource(source_view(plan, attempt), row_key, [], names + row_key, made.stats.unchanged)
    if (before is None or before.version is None) and not attempt.has_appended:
        writer.append_existing(rows, source, attempt)
    else:
        writer.merge(rows, source, truncates=truncates, missing=fills)


def _is_counted_otherwise(before: MirroredTable, base: DataFrame, made: Changes) -> bool:
    """Whether the published rows have a column that the last events of a batch lack, or have under another name.

    Or as another type: their hashes are of the values as they were.
    """
    types = {name.lower(): kind for name, kind in base.dtypes}
    now = {each["name"].lower(): ddl(each["type"]).replace("timestamp_ltz", "timestamp") for each in made.columns}
    if any(types.get(name, kind) != kind for name, kind in now.items()):
        return True
    known = before.columns or [name for name in base.columns if name not in OWN_COLUMNS]
    return not {name.lower() for name in known} <= {name.lower() for name in made.succession.last}


def _counted_anew(
    events: DataFrame,
    base: DataFrame,
    columns: Sequence[dict[str, Any]],
    fills: Mapping[str, MissingValue | None],
    last: Sequence[str],
) -> DataFrame:
    """The events with the published rows before them, as the last schema has these: their hashes are others now."""
    stale = [name for name in fills if name in base.columns]
    known = {name: each for name, each in fills.items() if each is not None}
    rows = with_columns(base.drop(*stale), columns, known)
    if DELETED in base.columns:
        # A live row may get the hash of a dead one, which is newer: the MERGE would let it lie.
        newest = base.agg(f.max(COMMIT_LSN)).first()[0]
        rows = rows.where(f"NOT coalesce({DELETED}, false)").withColumn(COMMIT_LSN, f.lit(newest).cast("bigint"))
    anew = keyless_rows.as_events(rows, events)
    return events.unionByName(keyless_rows.with_columns_of(anew, last))


def _numbered(
    batch: Batch, events: DataFrame, base: DataFrame | None, names: Sequence[str], plan: MirroredTable
) -> DataFrame:
    """The rows to add and to delete, equal rows numbered from 1; raises GapError if one to delete is missing."""
    net = keyless_rows.net_counts(events).where("_net <> 0")
    if base is None:
        counted = net.withColumn("_have", f.lit(0).cast("bigint"))
    else:
        existing = base.where(f"NOT coalesce({DELETED}, false)") if DELETED in base.columns else base
        have = existing.groupBy(keyless_rows.HASH).agg(f.count("*").alias("_have"))
        counted = net.join(have, keyless_rows.HASH, "left").fillna(0, ["_have"])
    counted = batch.keep(counted)
    missing = counted.where("_have + _net < 0").count()
    if missing:
        raise GapError(
            f"{plan.table} has no key, and {missing} rows that were deleted are not in {plan.target}",
            "Its topic does not go back to its beginning: load it again with `cdcd spark snapshot`",
            code="mirror-load-again",
        )
    low, high = f.least("_have", f.expr("_have + _net")), f.greatest("_have", f.expr("_have + _net"))
    numbered = counted.withColumn(keyless_rows.DUPLICATE, f.explode(f.sequence(low + 1, high)))
    return numbered.select(
        *(f.col("_last._row").getField(name).alias(name) for name in names),
        keyless_rows.HASH,
        keyless_rows.DUPLICATE,
        f.col("_order.lsn").alias(COMMIT_LSN),
        f.col("_order.seq").alias(SEQ),
        f.col("_last._ts").alias(COMMIT_TS),
        f.col("_last._lost").alias(UNREPRESENTABLE),
        f.when(f.col("_net") > 0, "u").otherwise("d").alias(OP),
        f.expr("cast(array() as array<string>)").alias(UNCHANGED),
    )
