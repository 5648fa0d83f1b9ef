"""A frame for a query that Spark plans once: to plan it again after each stage would take longer than the query.

Before: `new_rows` counts keys, which takes few bytes of each row, and leaves few rows for the next stage.
Source: Spark documentation, "Adaptive Query Execution". Only a session can be without it, and other threads use the
mirror's session. A copy of it, made once, has no catalogs as long as nobody asks it for a table.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

_ADAPTIVE: Final = "spark.sql.adaptive.enabled"

_copies: Final[WeakKeyDictionary[SparkSession, SparkSession]] = WeakKeyDictionary()
_making: Final = Lock()


def cloned(session: Any) -> SparkSession:
    """A copy of the session, with settings of its own."""
    copy: SparkSession = type(session)(session.sparkContext, session._jsparkSession.cloneSession())  # noqa: SLF001
    return copy


def planned_once(rows: DataFrame) -> DataFrame:
    """The same rows. A query of them has as many tasks in each further stage as there are cores."""
    session: Any = rows.sparkSession
    if session.conf.get(_ADAPTIVE) != "true":
        return rows
    with _making:
        copy: Any = _copies.get(session)
        if copy is None:
            copy = cloned(session)
            copy.conf.set(_ADAPTIVE, "false")
            copy.conf.set("spark.sql.shuffle.partitions", str(session.sparkContext.defaultParallelism))
            _copies[session] = copy
    frames = session._jvm.org.apache.spark.sql.classic.Dataset  # noqa: SLF001
    plan = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    return DataFrame(frames.ofRows(copy._jsparkSession, plan), copy)  # noqa: SLF001
