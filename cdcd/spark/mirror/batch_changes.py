"""The events of one table in one run, decoded, in the columns that the table in the lake gets for them.

Before: `batches` has read the records. After: `table_merge` merges the events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import RequestRejected
from cdcd.spark.mirror.batch_schemas import batch_schemas, last_headers, writers_after_truncate
from cdcd.spark.mirror.batches import Batch, with_keys_of
from cdcd.spark.mirror.per_table import PerTable, TableRules
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.schema_evolution import Evolution, Succession, TargetSchema
from cdcd.spark.mirror.targets.target import Target
from cdcd.spark.reading.decoding import WriterOrder, decode, forget_readers, in_order
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.writer_schemas import Writer, Writers
from cdcd.spark.state.collapse import (
    BatchStats,
    batch_stats,
    flatten,
    ordered_names,
    without_lost_columns,
    without_messages,
)


@dataclass(frozen=True)
class Events:
    """The events of a batch, decoded by its schemas."""

    events: DataFrame
    """They are flat, in the table's columns. Some may be void by a truncate, and some may be logical messages."""
    columns: list[dict[str, Any]]
    key: Sequence[str]
    rules: TableRules
    missing: Mapping[str, MissingValue]
    """By column: the value of the rows that are older than the column."""
    fills: Mapping[str, MissingValue | None]
    """By column that this batch brings: the value that the published rows get; None: null."""
    succession: Succession
    of_table: Mapping[str, str]
    """All columns of the table: name -> Spark's type."""

    @property
    def ordered(self) -> list[str]:
        """The columns of the key that have bounds."""
        return ordered_names(self.key, self.columns)


@dataclass(frozen=True)
class Changes(Events):
    """The events of a batch, looked through: without those of logical messages, and persisted while the batch is."""

    stats: BatchStats

    @property
    def count(self) -> int:
        """How many events there are."""
        return self.stats.events


@dataclass(frozen=True)
class Written(Events):
    """The events of a batch that is written into its table: nothing but their number was kept."""

    count: int
    """How many events there are."""


@dataclass(frozen=True)
class NoChanges:
    """A batch without events."""

    key: list[str] | None


@dataclass(frozen=True)
class _Schemas:
    """The schemas of a batch, and the columns that its table has for them."""

    writers: Sequence[Writer]
    order: WriterOrder
    key: Sequence[str]
    succession: Succession
    evolution: Evolution
    only: _OneSchema | None = None
    """A guess: others may have written some of the records."""


@dataclass(frozen=True)
class _OneSchema:
    """The schema of all values of a batch, and that of its keys (None: it has no keys)."""

    value: Writer
    key: Writer | None


class ChangeReader:
    """Decodes the batches of tables. Several threads may use it.

    The schemas of a batch are known once its records are read, but decoding needs them before. Most batches have one
    schema, that of the batch before. So a large batch is decoded by that schema while it is read; only if some record
    turns out to have another one, all are looked through first.
    """

    def __init__(self, writers: Writers, target: Target, per_table: PerTable) -> None:
        forget_readers(target.spark)
        self._writers = writers
        self._target = target
        self._per_table = per_table
        self._last: dict[str, _OneSchema] = {}
        """By the table's id: the schema of the last batch, if it had one alone."""

    def read(
        self,
        batch: Batch,
        plan: MirroredTable,
        before: MirroredTable | None,
        wait_for_plan: Callable[[], object],
        *,
        by_key: bool = True,
    ) -> Changes | NoChanges:
        """The decoded events of a batch. The table has been made for them, or altered, as `likely` says.

        Without `by_key`, the events count as those of a table without a key, and each truncate is one event.
        """
        schemas = None if batch.is_read else self._likely(plan, before, wait_for_plan, by_key=by_key)
        if schemas is not None and schemas.only is not None:
            made = self._looked_through(batch, self._events(batch, plan, before, schemas, by_key=by_key))
            if not made.stats.unknown:
                self._last[plan.id] = schemas.only
                return made if made.stats.events else NoChanges(list(made.key))
        found = self._found(batch, plan, before, wait_for_plan, by_key=by_key)
        if isinstance(found, NoChanges):
            return found
        return self._looked_through(batch, self._events(batch, plan, before, found, by_key=by_key))

    def likely(
        self,
        batch: Batch,
        plan: MirroredTable,
        before: MirroredTable | None,
        wait_for_plan: Callable[[], object],
        *,
        by_key: bool = True,
    ) -> Events | None:
        """The events of a batch that nobody has read, by the schema that it most likely has; None if nothing tells it.

        An event whose op is null has another schema. No Spark job has computed the events. A table that was not there
        has been made: after `wait_for_plan`, unless no run knows it.
        """
        schemas = None if batch.is_read else self._likely(plan, before, wait_for_plan, by_key=by_key)
        return None if schemas is None else self._events(batch, plan, before, schemas, by_key=by_key)

    def _likely(
        self,
        plan: MirroredTable,
        before: MirroredTable | None,
        wait_for_plan: Callable[[], object],
        *,
        by_key: bool,
    ) -> _Schemas | None:
        """The schemas of a batch that nobody has looked through; None if nothing tells them.

        A table is made for them only if no others exist, and altered for none.
        """
        where = plan.schema, plan.name, plan.topic
        exists = self._target.exists(plan.target)
        is_new = not exists or self._target.version(plan.target) is None
        only = None if is_new else self._last.get(plan.id)
        if only is None:
            values, keys = (
                (not is_new and self._writers.known(*where, subject)) or self._writers.of(*where, subject)
                for subject in ("value", "key")
            )
            if len(values) != 1 or len(keys) > 1:
                return None
            only = _OneSchema(values[0], keys[0] if keys else None)
        key = only.key.key if only.key is not None and by_key else ()
        if by_key and before is not None and before.key is not None and tuple(before.key) != key:
            return None
        writers = [only.value]
        succession = self.succession(plan, before, writers)
        schema = TargetSchema(self._target, self._per_table.rules(plan.schema, plan.name, plan.kind))
        # Only a table that no run knows is made before the plan is written: it is empty, and any plan takes it so.
        # One that was dropped waits. A shorter plan, after a crash, could lack the truncate that its rows begin with.
        if is_new and (exists or before is not None):
            wait_for_plan()
        fit = schema.fit if is_new else schema.fit_for
        evolution = fit(plan.target, writers, key, succession)
        return (
            None if evolution is None else _Schemas(writers, WriterOrder(writers, {}), key, succession, evolution, only)
        )

    def _found(
        self,
        batch: Batch,
        plan: MirroredTable,
        before: MirroredTable | None,
        wait_for_plan: Callable[[], object],
        *,
        by_key: bool,
    ) -> _Schemas | NoChanges:
        """The schemas of a batch, which is looked through."""
        headers = batch.headers()
        raw = batch.records
        key: list[str] | None = []
        if by_key:
            writers, key = batch_schemas(
                self._writers,
                headers.values,
                headers.keys,
                plan,
                before,
                lambda found: last_headers(raw, found, plan.topic),
            )
        else:
            writers = self._writers.find(headers.values, plan.schema, plan.name, plan.topic, "value")
        if not writers:
            return NoChanges(key)
        self._note(plan, writers, headers.keys if by_key else ())
        order = in_order(raw, writers, plan.topic)
        schema = TargetSchema(self._target, self._per_table.rules(plan.schema, plan.name, plan.kind))
        succession = self.succession(plan, before, order.writers)
        wait_for_plan()
        try:
            evolution = schema.fit(plan.target, writers, key or (), succession)
        except RequestRejected:
            # A table that was replaced has other columns, and none of its rows is there yet: no column was renamed.
            later = writers_after_truncate(raw, writers, plan.topic) if by_key else None
            if later is None or not later.writers:
                raise
            anew = Succession(later.writers[0].names, True, later.writers)
            evolution = schema.fit(plan.target, writers, key or (), anew)
        return _Schemas(writers, order, key or (), succession, evolution)

    def _note(self, plan: MirroredTable, writers: Sequence[Writer], keys: Sequence[bytes]) -> None:
        self._last.pop(plan.id, None)
        if len(writers) == 1 and len(keys) <= 1:
            found = self._writers.find(keys, plan.schema, plan.name, plan.topic, "key")
            self._last[plan.id] = _OneSchema(writers[0], found[0] if found else None)

    def _events(
        self,
        batch: Batch,
        plan: MirroredTable,
        before: MirroredTable | None,
        schemas: _Schemas,
        *,
        by_key: bool,
    ) -> Events:
        columns, key = schemas.evolution.columns, schemas.key
        records, only = batch.records, schemas.only
        if only is not None and by_key:
            records = with_keys_of(records, None if only.key is None else only.key.header)
        takes_unknown, is_held = only is not None, batch.is_held
        events = decode(records, schemas.writers, columns, plan.topic, takes_unknown=takes_unknown, is_held=is_held)
        if not by_key:  # every partition has a truncate: all but one of them count as messages
            events = events.withColumn("op", f.expr("if(op = 't' AND kafka.partition > 0, 'm', op)"))
        if plan.loaded_lsn:  # so do events that the load contains
            events = events.withColumn("op", f.expr(f"if(source.commit_lsn < {plan.loaded_lsn}, 'm', op)"))
        events = without_lost_columns(flatten(events, columns, key), columns, schemas.order)
        if key:  # only rows without a key are found by their old values
            events = events.drop("_before", "_lost_before")
        missing = missing_values(schemas.writers)
        fills = self._fills(plan, before, schemas.evolution, missing)
        rules = self._per_table.rules(plan.schema, plan.name, plan.kind)
        of_table = schemas.evolution.of_table
        return Events(events, columns, key, rules, missing, fills, schemas.succession, of_table)

    def _looked_through(self, batch: Batch, made: Events) -> Changes:
        events = without_messages(batch.keep_whole(made.events))
        stats = batch_stats(events, made.ordered)
        fills = {} if stats.last_truncate is not None else made.fills
        return Changes(**vars(made) | {"events": events, "fills": fills}, stats=stats)

    def begins_anew(self, batch: Batch, plan: MirroredTable) -> bool:
        """Whether the batch has a truncate."""
        writers = self._writers.find(batch.headers().values, plan.schema, plan.name, plan.topic, "value")
        return bool(writers) and last_headers(batch.records, writers, plan.topic) is not None

    def last_columns(self, batch: Batch, plan: MirroredTable) -> list[str] | None:
        """The columns of the batch's last events; if it has none, those that the plan knows."""
        found = self._writers.find(batch.headers().values, plan.schema, plan.name, plan.topic, "value")
        return in_order(batch.records, found, plan.topic).names if found else plan.columns

    def base(self, plan: MirroredTable, before: MirroredTable) -> DataFrame:
        """The rows that the last run published, under the present names of the columns.

        A version has the names that its columns had then. A person who renames a column leaves it in its place.
        """
        base, present = self._target.at(plan.target, before.version), list(self._target.columns(plan.target))
        for old, new in zip(base.columns, present, strict=False):
            if old not in present and new not in base.columns:
                base = base.withColumnRenamed(old, new)
        return base

    def _fills(
        self,
        plan: MirroredTable,
        before: MirroredTable | None,
        evolution: Evolution,
        missing: Mapping[str, MissingValue],
    ) -> dict[str, MissingValue | None]:
        """By column that this plan adds, or that came again: the value that the published rows get; None: null.

        An earlier attempt may have added the columns.
        """
        if before is None or before.version is None or not (missing or evolution.returned):
            return {}
        published = {name.lower() for name in self.base(plan, before).columns}
        added = [each["name"] for each in evolution.columns if each["name"].lower() not in published]
        stale = [name for name in evolution.returned if name.lower() in published]
        return {name: missing[name] for name in added if name in missing} | {name: missing.get(name) for name in stale}

    def succession(self, plan: MirroredTable, before: MirroredTable | None, writers: Sequence[Writer]) -> Succession:
        """The columns that the table had before these schemas of a batch, as the published run names them.

        A table without rows has the columns of the batch's first events. The run of an older cdcd names no columns: the
        schema before these of the batch is likely the one that was published.
        """
        if before is None or before.version is None:  # a person may have made the table, with more columns
            return Succession(writers[0].names, True, writers)
        known = self._writers.known(plan.schema, plan.name, plan.topic, "value")
        earlier = next(reversed(known[: known.index(writers[0])]), None) if writers[0] in known else None
        if before.columns is not None:
            return Succession(before.columns, True, writers, earlier)
        return Succession(earlier.names if earlier is not None else None, False, writers, earlier)
