"""One table of one run: its events between two cuts, decoded, collapsed and merged.

Before: `mirror` has planned the run. After: the target's new version goes into the run's row.

Whatever is read beside the events, the values of unchanged columns and the copies of rows without a key, is read from
the version that the last run published. So doing it again gives the same rows, however far it got before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from cdcd.errors import GapError, RequestRejected
from cdcd.spark.mirror.merge_sql import DELETED, INSERTED, Deletes, merge
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import Evolution, evolve
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.decoding import decode, start
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.types import ddl
from cdcd.spark.reading.writer_schemas import Writer, Writers
from cdcd.spark.state import keyless_rows
from cdcd.spark.state.as_of import check_keyed, with_unknown
from cdcd.spark.state.collapse import (
    COMMIT_LSN,
    COMMIT_TS,
    META,
    OP,
    SEQ,
    UNCHANGED,
    UNREPRESENTABLE,
    after_truncate,
    collapse,
    facts,
    fill_moved,
    key_names,
    positioned,
)

_OURS: Final = frozenset(
    (COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE, DELETED, keyless_rows.HASH, keyless_rows.COPY, OP, UNCHANGED)
)


@dataclass(frozen=True)
class Applied:
    """What became of a table."""

    table: MirroredTable
    events: int


class Applier:
    """Merges tables, one call a table. May be used by several threads."""

    def __init__(self, kafka: KafkaReader, writers: Writers, target: Target, deletes: Deletes, *, follow: bool) -> None:
        self._kafka = kafka
        self._writers = writers
        self._target = target
        self._deletes: Deletes = deletes
        self._follow = follow

    def apply(self, plan: MirroredTable, before: MirroredTable | None, token: str) -> Applied:
        """Bring the table of the plan from `before`, as it was published last (None: never), to the plan's offsets.

        `token`: the plan's own; what is made on the way is named by it.
        """
        known = () if before is None else before.offsets
        starts = [*known, *(0 for _ in range(len(plan.offsets) - len(known)))]
        with self._kafka.errors(f"reading {plan.topic}"):
            records = self._kafka.ranges({plan.topic: (starts, plan.offsets)})
            kept = f.struct("partition", "offset", "timestamp", "key").alias("kafka")
            raw = records.where("value IS NOT NULL").select(kept, "value").persist(StorageLevel.MEMORY_AND_DISK)
            try:
                return self._apply(raw, plan, before, token)
            finally:
                raw.unpersist()

    def load(self, table: str, rows: DataFrame, writer: Writer, key: Sequence[str]) -> int | None:
        """Put these rows, and nothing else, into the target; returns its version."""
        self._evolve(table, [writer], key, overwrites=True)
        if not key:
            row = f.struct(*(column["name"] for column in writer.columns))
            hashed = rows.withColumn("_row", row).withColumn("_lost", f.col(UNREPRESENTABLE))
            hashed = hashed.withColumn(keyless_rows.HASH, keyless_rows.row_hash()).drop("_row", "_lost")
            copy = f.row_number().over(Window.partitionBy(keyless_rows.HASH).orderBy(keyless_rows.HASH))
            rows = hashed.withColumn(keyless_rows.COPY, copy.cast("bigint"))
        if DELETED in self._target.columns(table):
            rows = rows.withColumn(DELETED, f.lit(False))
        for name, kind in self._target.columns(table).items():
            if name not in rows.columns:
                rows = rows.withColumn(name, f.lit(None).cast(kind))
        rows.writeTo(table).overwrite(f.lit(True))
        return self._target.version(table)

    def _apply(self, raw: DataFrame, plan: MirroredTable, before: MirroredTable | None, token: str) -> Applied:
        writers, key = self._met(raw, plan, before)
        if not writers:
            return Applied(replace(plan, key=key, version=None if before is None else before.version), 0)
        changed = self._evolve(plan.target, writers, key or ())
        events = positioned(decode(raw, writers, changed.columns, plan.topic), changed.columns, key or ())
        if plan.loaded_lsn:
            events = events.where(f.col("_pos.lsn") >= plan.loaded_lsn)
        found = facts(events)
        events = after_truncate(events, found)
        emptied = found.truncated is not None
        is_needed = (found.moved or not key) and not emptied
        base = None if before is None or not is_needed else self._target.at(plan.target, before.version)
        columns = changed.columns
        names = [column["name"] for column in columns]
        if key:
            check_keyed(found, plan.table, had_key=found.keyed or bool(before is not None and before.key))
            if found.moved:
                events = fill_moved(events, _with_columns(base, columns), columns, key)
            source = collapse(events, columns, found.unchanged).withColumn(INSERTED, with_unknown())
            merge_key, fallible = list(key), key_names(key, columns)
        else:
            source = self._copies(events, base, names, plan)
            merge_key, fallible = [keyless_rows.HASH, keyless_rows.COPY], []
            names += merge_key
        view = f"cdcd_source_{token}_{abs(hash(plan.topic))}"
        source = source.persist(StorageLevel.MEMORY_AND_DISK)
        source.createOrReplaceTempView(view)
        statement = merge(
            plan.target, view, merge_key, fallible, names, found.unchanged, deletes=self._deletes, emptied=emptied,
            marked=DELETED in self._target.columns(plan.target),
        )  # fmt: skip
        try:
            self._target.spark.sql(statement)
        finally:
            self._target.spark.catalog.dropTempView(view)
            source.unpersist()
        return Applied(replace(plan, key=list(key or ()), version=self._target.version(plan.target)), found.events)

    def _met(
        self, raw: DataFrame, plan: MirroredTable, before: MirroredTable | None
    ) -> tuple[list[Writer], list[str] | None]:
        """The schemas that wrote the batch, and the columns of the table's key."""
        keyed = f.when(f.col("kafka.key").isNotNull(), start("kafka.key"))
        met = raw.select(start().alias("value"), keyed.alias("key")).distinct().collect()
        values = sorted({bytes(row["value"]) for row in met})
        keys = sorted({bytes(row["key"]) for row in met if row["key"] is not None})
        where = (plan.schema, plan.name, plan.topic)
        writers = self._writers.find(values, *where, "value")
        kinds = {each.key for each in self._writers.find(keys, *where, "key")}
        if before is not None and before.key is not None:
            kinds.add(tuple(before.key))
        if len(kinds) > 1:
            shown = " and ".join(sorted(f"({', '.join(kind)})" for kind in kinds))
            raise RequestRejected(
                f"the key of {plan.table} has changed, from or to {shown}: rows of before and after cannot be matched",
                f"Drop {plan.target}, and load the table anew with `cdcd spark snapshot`",
            )
        if kinds:
            return writers, list(kinds.pop())
        known = self._writers.of(*where, "key")  # of a batch of truncates, which have no keys
        return writers, list(known[-1].key) if known else [] if values else None

    def _evolve(
        self, table: str, writers: Sequence[Writer], key: Sequence[str], *, overwrites: bool = False
    ) -> Evolution:
        """Make the table, or alter it, so that the batch fits."""
        target = self._target
        exists = target.exists(table)
        existing = {n: kind for n, kind in target.columns(table).items() if n not in _OURS} if exists else {}
        changed = evolve(target, table, existing, writers, follow=self._follow, overwrites=overwrites)
        taken = sorted(_OURS & {column["name"] for column in changed.columns})
        if taken:
            raise RequestRejected(
                f"{table}: the source has a column {taken[0]}, a name that the mirror uses itself",
                "Rename it in PostgreSQL, or leave it out by a column list in the publication",
            )
        if not exists:
            columns = [f"`{column['name']}` {ddl(column['type'])}" for column in changed.columns]
            own = META + (f", {DELETED} boolean" if self._deletes == "soft" else "")
            copies = "" if key else f", {keyless_rows.HASH} string, {keyless_rows.COPY} bigint"
            target.create(table, f"{', '.join(columns)}, {own}{copies}")
        else:
            marks = self._deletes == "soft" and DELETED not in target.columns(table)
            added = [*changed.added, *([(DELETED, "boolean")] if marks else [])]
            if added:
                target.add_columns(table, added)
        for name, kind in changed.widened:
            target.widen(table, name, kind)
        return changed

    def _copies(
        self, events: DataFrame, base: DataFrame | None, names: Sequence[str], plan: MirroredTable
    ) -> DataFrame:
        """What a bag's events come to, as copies to add and to take away, numbered from 1 for each distinct row."""
        net = keyless_rows.net(events).where("_net <> 0")
        if base is None:
            counted = net.withColumn("_have", f.lit(0).cast("bigint"))
        else:
            alive = base.where(f"NOT coalesce({DELETED}, false)") if DELETED in base.columns else base
            have = alive.groupBy(keyless_rows.HASH).agg(f.count("*").alias("_have"))
            counted = net.join(have, keyless_rows.HASH, "left").fillna(0, ["_have"])
        counted = counted.persist()
        missing = counted.where("_have + _net < 0").count()
        if missing:
            counted.unpersist()
            raise GapError(
                f"{plan.table} has no key, and {missing} rows that were deleted are not in {plan.target}",
                "Its topic does not go back to its beginning: load it anew, with `cdcd spark snapshot`",
            )
        low, high = f.least("_have", f.expr("_have + _net")), f.greatest("_have", f.expr("_have + _net"))
        numbered = counted.withColumn(keyless_rows.COPY, f.explode(f.sequence(low + 1, high)))
        return numbered.select(
            *(f.col("_last._row").getField(name).alias(name) for name in names),
            keyless_rows.HASH,
            keyless_rows.COPY,
            f.col("_pos.lsn").alias(COMMIT_LSN),
            f.col("_pos.seq").alias(SEQ),
            f.col("_last._ts").alias(COMMIT_TS),
            f.col("_last._lost").alias(UNREPRESENTABLE),
            f.col("_last._lost").alias(INSERTED),
            f.when(f.col("_net") > 0, "u").otherwise("d").alias(OP),
            f.expr("cast(array() as array<string>)").alias(UNCHANGED),
        )


def _with_columns(base: DataFrame | None, columns: Sequence[dict[str, Any]]) -> DataFrame | None:
    """The base with a null for each column that it did not have yet."""
    if base is None:
        return None
    for column in columns:
        if column["name"] not in base.columns:
            base = base.withColumn(column["name"], f.lit(None).cast(ddl(column["type"])))
    return base
