"""Renders Spark's rows as PostgreSQL's text, so that the Spark tests can compare them with the server's rows."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from support import topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

META = ("_commit_lsn", "_seq", "_commit_ts", "_unrepresentable")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def content(rows: DataFrame, columns: Sequence[str] | None = None, ignore: Sequence[str] = ()) -> Counter[topics.Row]:
    """The rows as texts of their columns (default: all, in order), in the form of `workload.content`."""
    from pyspark.sql import functions as f

    names = [name for name in rows.columns if name not in (*META, *ignore)]
    types = dict(rows.dtypes)
    # Years before 1 and after 9999 are unrepresentable. All others fit Python's own types.
    shown = rows.select(
        *(f.unix_micros(name).alias(name) if types[name] == "timestamp" else f.col(name) for name in names),
        "_unrepresentable",
    )
    wanted = list(columns or names)
    return Counter(tuple(_text(row, name, types[name]) for name in wanted) for row in shown.collect())


def _text(row: Any, name: str, spark_type: str) -> str | None:
    value = row[name]
    if value is None:
        return (row["_unrepresentable"] or {}).get(name)
    if spark_type == "timestamp":
        value = EPOCH + dt.timedelta(microseconds=value)
    if spark_type == "bigint" and name == "at":  # the workload's only column of type time
        value = (EPOCH + dt.timedelta(microseconds=value)).time()
    if isinstance(value, bytearray):
        value = bytes(value)
    if hasattr(value, "asDict"):
        value = value.asDict()
    pg_type = {"float": "float4"}.get(spark_type, spark_type)
    return topics.text_of(value, {"type": ["null", ""], "pg_type": pg_type})
