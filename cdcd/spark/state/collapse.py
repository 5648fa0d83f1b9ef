"""Collapses many events into the last state of each key: what a MERGE needs, and a reader of rows.

Before: `decoding` gives typed events.
After: `as_of` makes a table's rows of the states, the mirror's `table_merge` merges them into a table.

The rules. Events have the WAL's order, (commit_lsn, seq). A row of a snapshot (`r`) is an upsert like any other, and
stands just before the changes that the snapshot does not show.

1. A truncate voids every event before it.
2. The state of a key is its last event. An event may lack a column (`unchanged`: a TOAST value that PostgreSQL did not
   send). The column then has the value of the key's last event that has it, else the value of the row before these
   events.
3. A key change is a delete and an insert with one LSN and consecutive seqs; separate changes have different LSNs. A
   column that the insert lacks is in the row just deleted, under the old key, perhaps after several key changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from cdcd.avro.type_forms import FALLIBLE_KINDS, kind_of
from cdcd.spark.reading.decoding import WriterOrder, entries_before
from cdcd.spark.reading.missing_values import missing_values
from cdcd.spark.reading.types import ddl
from cdcd.spark.state.key_bounds import PARTS, Keys, keys_of_groups, least_and_most

COMMIT_LSN: Final = "_commit_lsn"
SEQ: Final = "_seq"
COMMIT_TS: Final = "_commit_ts"
UNREPRESENTABLE: Final = "_unrepresentable"
"""Column -> PostgreSQL's text, for values that are null here but not in PostgreSQL. Null: even the text is unknown."""

OP: Final = "_x0_op"
UNCHANGED: Final = "_x0_unchanged"
FIRST_OP: Final = "_x0_first_op"
"""The column of a collapsed row that has the op of its first event."""
EVENTS: Final = "_x0_events"
"""The column of a collapsed row that says how many events its key has."""
ODD: Final = "_x0_odd"
"""The column of a collapsed row that is true if some event has no key, is a truncate, or has an unknown schema.

No column of a table can have such names: `_x0_` would be the escape of a zero byte, see `avro_names`."""
_OPS: Final = "crudt"
META_NAMES: Final = (COMMIT_LSN, SEQ, COMMIT_TS, UNREPRESENTABLE)
META: Final = f"{COMMIT_LSN} bigint, {SEQ} bigint, {COMMIT_TS} timestamp_ltz, {UNREPRESENTABLE} map<string,string>"


@dataclass(frozen=True)
class BatchStats:
    """Counts and facts of a batch of events. They say which steps the batch needs."""

    events: int
    unknown: int
    """Records that are no events of the schemas that the batch was decoded by: `events` lacks them."""
    ops: dict[str, int]
    """Events by op."""
    last_truncate: tuple[int, int] | None
    """Commit LSN and seq of the last truncate."""
    unchanged: tuple[str, ...]
    """Columns that some event lacks."""
    has_incomplete_key_change: bool
    """Some row changed its key, and lacks a column."""
    unkeyed: int
    """Updates and deletes that came without a key; 0 if a truncate voids them all."""
    has_keyed_rows: bool
    """Some row came with a key."""
    has_lost_key: bool
    """The newest rows came without a key."""
    keys: Keys
    """The keys of all rows."""
    inserted: Keys
    """The keys of the inserts."""
    others: Keys
    """The keys of all rows but the inserts."""


def fallible_names(key: Sequence[str], columns: Sequence[dict[str, Any]]) -> list[str]:
    """The key's columns that may hold values which Avro cannot: two such keys may differ in their text alone."""
    types = {column["name"]: column["type"] for column in columns}
    return [name for name in key if kind_of(types[name]) in FALLIBLE_KINDS]


def ordered_names(key: Sequence[str], columns: Sequence[dict[str, Any]]) -> list[str]:
    """The key's columns of types that Spark and the files' statistics order in one way, and Python's values hold."""
    types = {column["name"].lower(): ddl(column["type"]) for column in columns}
    kinds = {name: types[name.lower()].partition("(")[0] for name in key}
    return [name for name, kind in kinds.items() if kind in ("int", "bigint", "string", "date", "decimal")]


def flatten(events: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str]) -> DataFrame:
    """Events as flat columns. Those of logical messages are among them: see `without_messages`.

    _order (lsn: the commit LSN, seq), _lsn, OP, _ts, _row (the new row, or the deleted one), UNCHANGED,
    _lost (column -> text, for values that Avro cannot hold), _before and _lost_before (the old row, if PostgreSQL sent
    all of it), _unkeyed (the table has a key, and the event came without), _key.
    """
    lost, lost_before = _texts("op = 'd'"), _texts("true")
    return events.selectExpr(  # as text: each function of PySpark's is a call of Java's, and there would be hundreds
        "named_struct('lsn', source.commit_lsn, 'seq', source.seq) AS _order",
        "source.lsn AS _lsn",
        f"op AS {OP}",
        "source.commit_ts AS _ts",
        "if(op = 'd', before, after) AS _row",
        f"unchanged AS {UNCHANGED}",
        f"{lost} AS _lost",
        "if(identity = 'full', before, NULL) AS _before",
        f"{lost_before} AS _lost_before",
        f"{'kafka.key IS NULL' if key else 'false'} AS _unkeyed",
        f"{_key(key, columns)} AS _key",
    )


def without_messages(events: DataFrame) -> DataFrame:
    """Flat events without those of logical messages."""
    return events.where(f"NOT {OP} <=> 'm'")


def without_lost_columns(events: DataFrame, columns: Sequence[dict[str, Any]], order: WriterOrder) -> DataFrame:
    """Flat events, of which none has the value of a column that was dropped after it and came again.

    PostgreSQL's rows of before then have what any row has that is older than a column: its default, or null.
    """
    missing = missing_values(order.writers)
    for name, last in order.returned.items():
        [column] = [each for each in columns if each["name"].lower() == name.lower()]
        earlier = f.col("_order") < _place(*last)
        default = missing[name].value(column["type"]) if name in missing else f.lit(None).cast(ddl(column["type"]))
        known = f.array_remove(UNCHANGED, column["name"])
        changed = {UNCHANGED: f.when(earlier, known).otherwise(f.col(UNCHANGED))}
        for row, lost in ("_row", "_lost"), ("_before", "_lost_before"):
            value = f.col(row)
            without = value.withField(column["name"], default)
            changed[row] = f.when(earlier & value.isNotNull(), without).otherwise(value)
            texts = _texts_without(lost, column["name"])
            changed[lost] = f.when(earlier, f.when(f.size(texts) > 0, texts)).otherwise(f.col(lost))
        events = events.withColumns(changed)
    return events


def batch_stats(events: DataFrame, ordered: Sequence[str] = ()) -> BatchStats:
    """Look through flat events that are persisted. `ordered`: the columns of the key to give the bounds of.

    Twice, if there are truncates, or events without a key or without all columns.
    """
    found = events.selectExpr(*_counts(ordered)).collect()[0].asDict()
    return _stats_of(found, ordered, _details(events) if _needs_details(found) else {})


def stats_in_one_pass(events: DataFrame) -> BatchStats:
    """As `batch_stats`, without bounds, for events that Spark would compute anew in a second pass."""
    details = _details(events)
    found = dict.fromkeys([*_OPS, "unknown"], 0) | {op: row["events"] for op, row in details.items()}
    return _stats_of(found, (), details)


def _needs_details(found: Mapping[str, Any]) -> bool:
    """Whether events of which `_counts` has found this must be looked through once more."""
    return bool(found["t"] or found["unkeyed"] or found["lacking"])


def _counts(ordered: Sequence[str] = ()) -> list[str]:
    """Aggregates of flat events for `_stats_of`, in SQL. `ordered`: as there."""
    made = {each: f"count_if({OP} = '{each}')" for each in _OPS} | {
        "unknown": f"count_if({OP} IS NULL)",
        "unkeyed": "count_if(_unkeyed)",
        "lacking": f"count_if(size({UNCHANGED}) > 0)",
    }
    for some, has_op in ("c", f"{OP} = 'c'"), ("rud", f"{OP} IN ('r', 'u', 'd')"):
        values = [f"if({has_op}, _key.`{name}`, NULL)" for name in ordered]
        made |= {f"{some}_{index}": part for index, part in enumerate(least_and_most(values))}
    return [f"{value} AS `{name}`" for name, value in made.items()]


def _stats_of(
    found: Mapping[str, Any], ordered: Sequence[str] = (), details: Mapping[str, Row] | None = None
) -> BatchStats:
    """The stats of events of which `_counts` has found this, and `_details` more, if `_needs_details` says so."""
    details = details or {}
    ops = {each: found[each] for each in _OPS if found[each]}
    groups = {
        some: (sum(found[each] for each in some), [found[f"{some}_{index}"] for index in range(PARTS * len(ordered))])
        for some in ("c", "rud")
    }
    truncate = details.get("t")
    voided = () if truncate is None else tuple(truncate["last"])

    def last(some: str, which: str) -> tuple[int, ...]:
        known = (details[op][which] for op in some if op in details)
        return max((tuple(each) for each in known if each is not None), default=())

    last_keyed = last("crud", "last_keyed")
    return BatchStats(
        events=sum(ops.values()),
        unknown=found["unknown"],
        ops=ops,
        last_truncate=None if truncate is None else (truncate["last"]["lsn"], truncate["last"]["seq"]),
        unchanged=tuple(sorted({name for each in details.values() for name in each["unchanged"]})),
        has_incomplete_key_change="c" in details and bool(details["c"]["unchanged"]),
        unkeyed=sum(details[op]["unkeyed"] for op in "ud" if op in details and last(op, "last_unkeyed") > voided),
        has_keyed_rows=bool(last_keyed) or (not details and bool(ops)),
        has_lost_key=last("cr", "last_unkeyed") > max(last_keyed, voided),
        keys=keys_of_groups(ordered, list(groups.values())),
        inserted=keys_of_groups(ordered, [groups["c"]]),
        others=keys_of_groups(ordered, [groups["rud"]]),
    )


def _details(events: DataFrame) -> dict[str, Row]:
    """By op: what needs a look at the events' places, and at the columns that they lack."""
    found = events.where(f.col(OP).isNotNull()).groupBy(OP).agg(
        f.count("*").alias("events"),
        f.max("_order").alias("last"),
        f.array_distinct(f.flatten(f.collect_set(UNCHANGED))).alias("unchanged"),
        f.count_if("_unkeyed").alias("unkeyed"),
        f.max(f.when(f.col("_unkeyed"), f.col("_order"))).alias("last_unkeyed"),
        f.max(f.when(~f.col("_unkeyed"), f.col("_order"))).alias("last_keyed"),
    )  # fmt: skip
    return {row[OP]: row for row in found.collect()}


def _place(lsn: int, seq: int) -> Column:
    """A place among the events, to compare `_order` with."""
    return f.struct(f.lit(lsn).cast("bigint").alias("lsn"), f.lit(seq).cast("bigint").alias("seq"))


def after_truncate(events: DataFrame, stats: BatchStats) -> DataFrame:
    """The events that count: those after the last truncate."""
    if stats.last_truncate is None:
        return events
    return events.where(f.col("_order") > _place(*stats.last_truncate))


def collapse(
    events: DataFrame, columns: Sequence[dict[str, Any]], unchanged: Sequence[str], *, of_key: Collection[str] = ()
) -> DataFrame:
    """One row a key: its columns, the META ones, OP (d: the row is deleted; u: it exists), UNCHANGED, and `of_key`.

    `unchanged`: the columns that events may lack. UNCHANGED names the columns that no event of the key has.
    `of_key`: some of FIRST_OP, EVENTS and ODD; with `unchanged` there is FIRST_OP alone.
    """
    if unchanged:
        return _completed(events, columns, unchanged)
    names = events.schema["_key"].dataType.fieldNames()
    # As columns: Spark shuffles the events once for both windows only if it sees that their keys are the same.
    keys = {f"_key_{index}": f.col("_key").getField(name) for index, name in enumerate(names)}
    newest_first = Window.partitionBy(*keys).orderBy(f.col("_order").desc())
    # For row_number() = 1 Spark would sort the events before it shuffles them, and then again.
    found = {"_later": f.lag(f.lit(1)).over(newest_first)}
    is_odd = f.col(OP).isNull() | (f.col(OP) == "t") | f.col("_unkeyed")
    whole = newest_first.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    told = {FIRST_OP: f.last(OP), EVENTS: f.count("*"), ODD: f.max(is_odd)}
    found |= {name: told[name].over(whole) for name in of_key}
    return single_rows(events.withColumns(keys).withColumns(found).where("_later IS NULL"), columns)


def _completed(events: DataFrame, columns: Sequence[dict[str, Any]], unchanged: Sequence[str]) -> DataFrame:
    """As `collapse`, with the values that a key's last event lacks, and an earlier one has."""
    toasted = [column for column in columns if column["name"] in unchanged]
    last = f.struct(OP, "_ts", "_row", UNCHANGED, "_lost")
    found = events.groupBy("_key").agg(
        f.max("_order").alias("_order"),
        f.max_by(last, f.col("_order")).alias("_last"),
        f.min_by(OP, f.col("_order")).alias(FIRST_OP),
        *(_known(column["name"]).alias(f"_known_{index}") for index, column in enumerate(toasted)),
    )
    values = {column["name"]: f.col("_last._row").getField(column["name"]) for column in columns}
    lost = f.col("_last._lost")
    still = f.col(f"_last.{UNCHANGED}")
    for index, column in enumerate(toasted):
        name, known = column["name"], f.col(f"_known_{index}")
        filled = f.array_contains(f.col(f"_last.{UNCHANGED}"), name) & known.isNotNull()
        values[name] = f.when(filled, known.getField("value")).otherwise(values[name])
        text = f.create_map(f.lit(name), known.getField("lost"))
        lost = f.when(filled & known.getField("flagged"), joined(lost, text)).otherwise(lost)
        still = f.when(filled, f.array_remove(still, name)).otherwise(still)
    return found.select(
        *(value.alias(name) for name, value in values.items()),
        f.col("_order.lsn").alias(COMMIT_LSN),
        f.col("_order.seq").alias(SEQ),
        f.col("_last._ts").alias(COMMIT_TS),
        lost.alias(UNREPRESENTABLE),
        f.when(f.col(f"_last.{OP}") == "d", f.lit("d")).otherwise(f.lit("u")).alias(OP),
        still.alias(UNCHANGED),
        FIRST_OP,
    )


def row_of_event(columns: Sequence[dict[str, Any]]) -> list[str]:
    """A flat event's row, in SQL: the table's columns, and the META ones."""
    return [
        *(f"_row.`{column['name']}` AS `{column['name']}`" for column in columns),
        f"_order.lsn AS {COMMIT_LSN}",
        f"_order.seq AS {SEQ}",
        f"_ts AS {COMMIT_TS}",
        f"_lost AS {UNREPRESENTABLE}",
    ]


def single_rows(events: DataFrame, columns: Sequence[dict[str, Any]]) -> DataFrame:
    """Flat events of different keys, in the form of `collapse`."""
    return events.selectExpr(
        *row_of_event(columns),
        f"if({OP} = 'd', 'd', 'u') AS {OP}",
        UNCHANGED,
        *(name for name in events.columns if name in (FIRST_OP, EVENTS, ODD)),
    )


def with_unknown(source: str = "") -> str:
    """UNREPRESENTABLE in SQL, with a null text for each column that no event has: its row is older than the topic.

    `source`: what names the collapsed rows, as `s.` does.
    """
    lost, unchanged = f"{source}{UNREPRESENTABLE}", f"{source}{UNCHANGED}"
    unknown = f"map_from_entries(transform({unchanged}, name -> struct(name, cast(NULL AS string))))"
    both = f"WHEN {lost} IS NULL THEN {unknown} ELSE map_concat({lost}, {unknown})"
    return f"CASE WHEN size({unchanged}) = 0 THEN {lost} {both} END"


def keyed_rows(base: DataFrame, columns: Sequence[dict[str, Any]], key: Sequence[str]) -> DataFrame:
    """The rows of a table as flat events have theirs: _key, _row and _lost."""
    row = f.struct(*(f.col(c["name"]).cast(ddl(c["type"])).alias(c["name"]) for c in columns))
    rows = base.select(row.alias("_row"), f.col(UNREPRESENTABLE).alias("_lost"))
    return rows.withColumn("_key", f.expr(_key(key, columns)))


def fill_key_changes(
    events: DataFrame, base: DataFrame | None, columns: Sequence[dict[str, Any]], key: Sequence[str]
) -> DataFrame:
    """Give rows that changed their key the columns that they lack: rule 3. Runs Spark jobs: call it only if necessary.

    `base`: the table before these events, with UNREPRESENTABLE; None if there was none.
    """
    schema = events.schema["_row"].dataType
    before = None
    if base is not None:
        before = keyed_rows(base, columns, key)
    while True:
        is_incomplete = (f.col(OP) == "c") & (f.size(UNCHANGED) > 0)
        events = events.localCheckpoint()
        incomplete = events.where(is_incomplete)
        if incomplete.isEmpty():
            return events
        names = sorted({name for row in incomplete.select(f.explode(UNCHANGED)).distinct().collect() for name in row})
        left = events.where(f.col(OP) == "d").select(
            f.col("_order.lsn").alias("_commit"), (f.col("_order.seq") + 1).alias("_next"), f.col("_lsn").alias("_by"),
            f.col("_key").alias("_old"),
        )  # fmt: skip
        # An insert's missing values are unknown if no delete of the same change precedes it: a row filter has made the
        # insert of an update, or compaction has removed the delete. A delete before it is of another change then.
        is_next = (f.col("_at.lsn") == f.col("_commit")) & (f.col("_at.seq") == f.col("_next"))
        origin = incomplete.select(f.col("_order").alias("_at"), "_lsn").join(
            left, is_next & (f.col("_lsn") == f.col("_by")), "left"
        ).select("_at", "_old")  # fmt: skip
        earlier = events.where(f"{OP} <> 'd'").select(
            "_key", "_order", "_row", "_lost", UNCHANGED, is_incomplete.alias("_open")
        )
        met = origin.join(earlier, f.col("_old").eqNullSafe(f.col("_key")) & (f.col("_order") < f.col("_at")), "left")
        sources = met.groupBy("_at", "_old").agg(*(_source(name).alias(f"_s_{i}") for i, name in enumerate(names)))
        if before is not None:
            old = before.select(f.col("_key").alias("_k"), f.struct("_row", "_lost").alias("_base"))
            sources = sources.join(old, f.col("_old").eqNullSafe(f.col("_k")), "left").drop("_k")
        with_sources = events.join(sources, f.col("_order") == f.col("_at"), "left")
        events = _filled(with_sources, names, schema, has_base=before is not None).select(*events.columns)


def _source(name: str) -> Column:
    """The newest event under the old key that has the column's value, or is itself a key change that still lacks it."""
    decides = ~f.array_contains(UNCHANGED, name) | f.col("_open")
    value = f.struct(
        f.array_contains(UNCHANGED, name).alias("open"),
        f.col("_row").getField(name).alias("value"),
        f.col("_lost").getItem(name).alias("lost"),
        _flagged(f.col("_lost"), name).alias("flagged"),
    )
    return f.max_by(f.when(decides, value), f.when(decides, f.col("_order")))


def _filled(events: DataFrame, names: Sequence[str], schema: Any, *, has_base: bool) -> DataFrame:
    row, lost, still = f.col("_row"), f.col("_lost"), f.col(UNCHANGED)
    values = {field.name: row.getField(field.name) for field in schema.fields}
    for index, name in enumerate(names):
        wanted = f.col("_at").isNotNull() & f.array_contains(UNCHANGED, name)
        found = f.col(f"_s_{index}")
        ready = wanted & ~f.coalesce(found.getField("open"), f.lit(False))
        value, text, flagged = (found.getField(part) for part in ("value", "lost", "flagged"))
        unknown = found.isNull()
        if has_base:
            in_base = found.isNull() & f.col("_base").isNotNull()
            value = f.when(in_base, f.col("_base._row").getField(name)).otherwise(value)
            text = f.when(in_base, f.col("_base._lost").getItem(name)).otherwise(text)
            flagged = f.when(in_base, _flagged(f.col("_base._lost"), name)).otherwise(flagged)
            unknown = found.isNull() & f.col("_base").isNull()
        values[name] = f.when(ready, value).otherwise(values[name])
        with_text = joined(lost, f.create_map(f.lit(name), text))
        lost = f.when(ready & (unknown | flagged), with_text).otherwise(lost)
        still = f.when(ready, f.array_remove(still, name)).otherwise(still)
    filled = f.struct(*(value.cast(schema[name].dataType).alias(name) for name, value in values.items()))
    changed = events.select(
        "*", f.when(row.isNotNull(), filled).alias("_row2"), lost.alias("_lost2"), still.alias("_still2")
    )
    renamed = {"_row2": "_row", "_lost2": "_lost", "_still2": UNCHANGED}
    return changed.drop("_row", "_lost", UNCHANGED).withColumnsRenamed(renamed)


def _known(name: str) -> Column:
    """The last value of a column that some event of the key has."""
    has = (f.col(OP) != "d") & ~f.array_contains(UNCHANGED, name)
    value = f.struct(
        f.col("_row").getField(name).alias("value"),
        f.col("_lost").getItem(name).alias("lost"),
        _flagged(f.col("_lost"), name).alias("flagged"),
    )
    return f.max_by(f.when(has, value), f.when(has, f.col("_order")))


def _flagged(lost: Column, name: str) -> Column:
    """Whether the column's value is one that Avro cannot hold, also if the text of the value is unknown (null)."""
    return f.coalesce(f.map_contains_key(lost, name), f.lit(False))


def _key(key: Sequence[str], columns: Sequence[dict[str, Any]]) -> str:
    fields = [f"'{name}', _row.`{name}`" for name in key]
    fields += [f"'{name}_lost', _lost['{name}']" for name in fallible_names(key, columns)]
    if not fields:
        return "named_struct('none', 0)"
    return f"if(_row IS NOT NULL, named_struct({', '.join(fields)}), NULL)"


def _texts_without(lost: str, name: str) -> Column:
    return f.map_filter(lost, lambda column, _: column != name)


def _texts(is_before: str) -> str:
    """Column -> text, for values that Avro cannot hold in one image of the row; null if there are none.

    No lambda takes part: Spark compiles no step that has one, and would copy each event three times more.
    """
    entries, first = "unrepresentable", entries_before("unrepresentable")
    start, length = f"if({is_before}, 1, {first} + 1)", f"if({is_before}, {first}, size({entries}) - {first})"
    columns, texts = (f"slice({entries}.{name}, {start}, {length})" for name in ("column", "text"))
    return f"if(size({entries}) > 0 AND {length} > 0, map_from_arrays({columns}, {texts}), NULL)"


def joined(one: Column, other: Column) -> Column:
    """Two maps of texts as one map; null counts as empty."""
    empty = f.expr("cast(map() as map<string,string>)")
    return f.map_concat(f.coalesce(one, empty), f.coalesce(other, empty))
