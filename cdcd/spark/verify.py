"""Compares the rows of a mirror, or the rows that the topics fold to, with PostgreSQL at one LSN. Writers may go on.

Before: `load` holds a snapshot of PostgreSQL at an LSN; `Cdc` gives the rows of the other side at the same LSN.
After: a report that names the keys that differ.

The algorithm: both sides write each row as one text, and hash it. The hash of a row's key puts the row into a bucket.
For each bucket, both sides give the number of rows and the sum of the hashes. PostgreSQL computes its sums itself, in
parallel ranges, so that only sums travel. Then both sides give the rows of the buckets that differ, and no others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from cdcd.lsn import format_lsn
from cdcd.source.identifiers import identifier
from cdcd.spark import sql_expressions as c
from cdcd.spark.load import Snapshot
from cdcd.spark.reading.cuts import both_forms
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.types import ddl
from cdcd.spark.state.collapse import UNREPRESENTABLE
from cdcd.terminal.visible_text import visible

BUCKETS: Final = 4096
_SHOWN_MAX: Final = 1000
_HASH_DIGITS: Final = 15
"""How many hex digits of a row's MD5 are summed: 60 bits."""
_BUCKET: Final = f"(('x' || lpad(left(k, 8), 16, '0'))::bit(64)::bigint % {BUCKETS})"
_VALUE: Final = f"('x' || lpad(left(r, {_HASH_DIGITS}), 16, '0'))::bit(64)::bigint"


@dataclass(frozen=True)
class TableDifference:
    """One row that is not the same on both sides."""

    difference: str
    """changed, missing (only PostgreSQL has the row) or extra (PostgreSQL does not have it)."""
    key: str


@dataclass(frozen=True)
class TableReport:
    """The result for one table."""

    table: str
    rows: int
    """Rows in PostgreSQL."""
    differences: tuple[TableDifference, ...]
    """The first 1,000 of them."""
    different: int
    """How many keys differ."""
    not_compared: tuple[str, ...]
    """Columns of a type for which the two sides cannot make the same text, and those that are masked or left out."""


@dataclass(frozen=True)
class Report:
    """The result for all tables."""

    lsn: int
    """That of PostgreSQL's snapshot: both sides have every transaction that committed below it, and no other."""
    tables: tuple[TableReport, ...]
    seconds: float
    run: int | None = None
    """The mirror's published run that the other side starts from; None if the topics alone are compared."""
    published_lsn: int | None = None
    """The LSN of that run. The topics give the later events, up to `lsn`."""

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not any(table.different for table in self.tables)

    def as_json(self) -> str:
        """One JSON object."""
        published = None if self.published_lsn is None else format_lsn(self.published_lsn)
        texts = {"lsn": format_lsn(self.lsn), "published_lsn": published}
        return json.dumps(asdict(self) | texts | {"ok": self.ok}, ensure_ascii=False)

    def as_text(self) -> str:
        """What is compared, then one line a table, followed by one line a difference."""
        width = max((len(table.table) for table in self.tables), default=0)
        lines = [f"{self._compared()}; in {self.seconds:.1f} s"]
        for table in self.tables:
            verdict = f"{table.different} DIFFER" if table.different else "equal"
            left = f"   not compared: {', '.join(table.not_compared)}" if table.not_compared else ""
            lines.append(f"{table.table:{width}}  {table.rows:>12,} rows  {verdict}{left}")
            lines += [f"    {each.difference:8} {each.key}" for each in table.differences[:20]]
            if table.different > 20:
                lines.append(f"    and {table.different - 20} more")
        return "\n".join(map(visible, lines))

    def _compared(self) -> str:
        lsn = format_lsn(self.lsn)
        if self.published_lsn is None:
            return f"PostgreSQL at {lsn}, and the rows that the topics give up to {lsn}"
        return (
            f"PostgreSQL at {lsn}, and the mirror: its run {self.run}, published at {both_forms(self.published_lsn)}, "
            f"with the later events of the topics up to {lsn}"
        )


class Comparison:
    """One table: PostgreSQL under a snapshot, and the rows that should be equal."""

    def __init__(self, snapshot: Snapshot, table: str, rows: DataFrame, rows_key: Sequence[str]) -> None:
        """`rows`: the other side's, at the snapshot's LSN, as `Cdc.rows` or a mirror gives them."""
        self._snapshot = snapshot
        self._table = table
        writer = snapshot.writer(table)
        described = {each["name"]: each for each in writer.described()}
        types = {each["name"]: each["type"] for each in writer.columns}
        hidden = snapshot.hidden.get(table, frozenset())
        fit = {
            name: name not in hidden and c.is_comparable(types[name], described[name]["pg_type"]) for name in described
        }
        self._columns = [each for each in writer.columns if fit[each["name"]]]
        self._left_out = tuple(name for name in described if not fit[name])
        self._key = tuple(name for name in rows_key if fit[name])
        in_postgres = {
            each["name"]: _sql_text(identifier(c.postgres_name(described[each["name"]])), each["type"])
            for each in self._columns
        }
        keys = [in_postgres[name] for name in self._key] or list(in_postgres.values())
        self._postgres = f"md5({_sql_joined(keys)}) AS k, md5({_sql_joined(list(in_postgres.values()))}) AS r"
        self._postgres_key = f"{_sql_joined(keys)} AS key"
        missing = missing_values([writer])
        in_spark = {each["name"]: _spark_text(rows, each, missing.get(each["name"])) for each in self._columns}
        spark_keys = [in_spark[name] for name in self._key] or list(in_spark.values())
        self._spark = rows.select(
            f.md5(_joined(spark_keys)).alias("k"),
            f.md5(_joined(list(in_spark.values()))).alias("r"),
            _joined(spark_keys).alias("key"),
        )

    def compare(self) -> TableReport:
        """Compare the sums of all buckets, then the rows of the buckets that differ."""
        postgres = _totals(self._snapshot.sums(self._table, f"{_BUCKET} AS bucket", _VALUE, self._postgres))
        spark = _totals(self._spark.groupBy(_bucket().alias("bucket")).agg(f.count("*"), f.sum(_number("r"))))
        rows = sum(count for count, _ in postgres.values())
        suspects = sorted(b for b in postgres.keys() | spark.keys() if postgres.get(b) != spark.get(b))
        if not suspects:
            return TableReport(self._table, rows, (), 0, self._left_out)
        different, shown = self._differences(suspects)
        return TableReport(self._table, rows, shown, different, self._left_out)

    def _differences(self, buckets: Sequence[int]) -> tuple[int, tuple[TableDifference, ...]]:
        """The keys in these buckets that differ: how many, and the first of them."""
        listed_buckets = ", ".join(map(str, buckets))
        selected = f"{self._postgres}, {self._postgres_key}"
        postgres = self._snapshot.read(self._table, selected, where=f"{_BUCKET} IN ({listed_buckets})")
        postgres = postgres.select("key", "r").groupBy("key", "r").agg(f.count("*").alias("here"))
        spark = self._spark.where(_bucket().isin(list(buckets)))
        spark = spark.groupBy("key", "r").agg(f.count("*").alias("there"))
        unequal = postgres.join(spark, ["key", "r"], "full").fillna(0, ["here", "there"]).where("here <> there")
        by_key = unequal.groupBy("key").agg(f.sum("here").alias("here"), f.sum("there").alias("there")).persist()
        try:
            word = f.when(f.col("here") > f.col("there"), "missing").when(f.col("here") < f.col("there"), "extra")
            listed = by_key.select(word.otherwise("changed").alias("difference"), "key").orderBy("key")
            found = tuple(
                TableDifference(row["difference"], self._shown(row["key"]))
                for row in listed.limit(_SHOWN_MAX).collect()
            )
            return by_key.count(), found
        finally:
            by_key.unpersist()

    def _shown(self, key: str) -> str:
        """A key's text as a person reads it: `id=7`."""
        names = self._key or tuple(each["name"] for each in self._columns)
        values, at = [], 0
        while at < len(key):
            if key[at] == "N":
                values.append("NULL")
                at += 1
                continue
            end = key.index(":", at)
            size = int(key[at:end])
            values.append(key[end + 1 : end + 1 + size])
            at = end + 1 + size
        return " ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))


def _totals(sums: DataFrame) -> dict[int, tuple[int, int]]:
    """By bucket: the number of rows and the sum of their hashes. PostgreSQL gives each bucket once a range."""
    totals: dict[int, tuple[int, int]] = {}
    for bucket, count, value in sums.collect():
        before = totals.get(int(bucket), (0, 0))
        totals[int(bucket)] = (before[0] + int(count), before[1] + int(value))
    return totals


def _bucket() -> Column:
    return f.conv(f.substring("k", 1, 8), 16, 10).cast("bigint") % BUCKETS


def _number(column: str) -> Column:
    return f.conv(f.substring(column, 1, _HASH_DIGITS), 16, 10).cast("decimal(38,0)")


def _sql_text(expression: str, avro: Any) -> str:
    fits = c.representable(expression, avro)
    text = c.text_in_postgres(expression, avro)
    if fits == "true":
        return text
    return f"CASE WHEN {fits} THEN {text} WHEN NOT ({fits}) THEN format('%s', {expression}) END"


def _sql_joined(texts: Sequence[str]) -> str:
    return " || ".join(f"coalesce(length({text}) || ':' || {text}, 'N')" for text in texts)


def _spark_text(rows: DataFrame, column: dict[str, Any], missing: MissingValue | None) -> Column:
    name, avro = column["name"], column["type"]
    lost = f.col(UNREPRESENTABLE).getItem(name)
    if name not in rows.columns:  # no event knows the column yet
        if missing is None:
            return lost
        return f.lit(missing.text) if missing.avro is None else c.text_in_spark(missing.value(avro), avro)
    value = f.col(name)
    if dict(rows.dtypes)[name] != ddl(avro):  # an older or wider column, or one that was dropped and added
        value = value.try_cast(ddl(avro))
    return f.coalesce(c.text_in_spark(value, avro), lost)


def _joined(texts: Sequence[Column]) -> Column:
    return f.concat(*(f.coalesce(f.concat(f.length(t).cast("string"), f.lit(":"), t), f.lit("N")) for t in texts))
