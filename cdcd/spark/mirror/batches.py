"""The records that a run reads, table by table; those of many small batches in one Spark job.

Before: `planner` says from which offset to which. After: `table_merge` decodes a batch.

A Spark job takes a tenth of a second, however little it does. So the records of all small batches are read together,
and kept in memory. A small batch then has one partition, which needs no shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from cdcd.avro.single_object import MARKER
from cdcd.progress.records import kafka_topic
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.reading.decoding import header, of_table
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.writer_schemas import Writers

SMALL_MAX: Final = 5_000
"""Offsets of a small batch."""

Work: TypeAlias = "tuple[MirroredTable, MirroredTable | None]"
"""A table as planned, and as it was last published (None: never)."""


@dataclass(frozen=True)
class Batch:
    """The records of one table in one run."""

    raw: DataFrame
    """kafka (partition, offset, timestamp, key), value; persisted."""
    values: Sequence[bytes]
    """The headers of all values."""
    keys: Sequence[bytes]
    """Those of all keys."""


class Batches:
    """Reads batches. Several threads may use it."""

    def __init__(self, kafka: KafkaReader, writers: Writers) -> None:
        self.kafka = kafka
        self.writers = writers
        self._together: Mapping[str, Batch] = {}
        """By topic: small batches that were read together."""

    @contextmanager
    def together(self, work: Sequence[Work]) -> Iterator[None]:
        """Read the small ones of these batches now: `read` then gives them without another job."""
        small = {plan.topic: (starts(plan, before), plan.offsets) for plan, before in work if _is_small(plan, before)}
        with ExitStack() as stack:
            if len(small) > 1:
                # An error may be that of one topic: then each table reads by itself, and one has the error.
                with suppress(Exception):
                    records = self.kafka.ranges(small).where("value IS NOT NULL").select("topic", _place(), "value")
                    records = records.coalesce(self.kafka.parallelism).persist(StorageLevel.MEMORY_AND_DISK)
                    stack.callback(records.unpersist)
                    found = _headers(records, "topic")
                    self._together = {topic: _of_topic(records, topic, found) for topic in small}
                stack.callback(self._forget)
            yield

    def _forget(self) -> None:
        self._together = {}

    @contextmanager
    def read(self, plan: MirroredTable, before: MirroredTable | None) -> Iterator[Batch]:
        """The records of a plan."""
        if plan.topic in self._together:
            yield self._together[plan.topic]
            return
        with self.kafka.errors(f"reading {plan.topic}"):
            start = starts(plan, before)
            records = self.kafka.ranges({kafka_topic(plan.topic): (start, plan.offsets)})
            if kafka_topic(plan.topic) != plan.topic:
                self.writers.of(plan.schema, plan.name, plan.topic, "value")
                records = of_table(records, self.writers.of_others(plan.schema, plan.name))
            raw = records.where("value IS NOT NULL").select(_place(), "value")
            if _length(plan, before) <= SMALL_MAX:
                raw = raw.coalesce(1)
            raw = raw.persist(StorageLevel.MEMORY_AND_DISK)
            try:
                yield Batch(raw, *_distinct(_headers(raw)))
            finally:
                raw.unpersist()


def starts(plan: MirroredTable, before: MirroredTable | None) -> list[int]:
    """The first offset of each partition that is not merged yet."""
    known = () if before is None else before.offsets
    return [*known, *(0 for _ in range(len(plan.offsets) - len(known)))]


def _place() -> Column:
    return f.struct("partition", "offset", "timestamp", "key").alias("kafka")


def _length(plan: MirroredTable, before: MirroredTable | None) -> int:
    return sum(plan.offsets) - sum(starts(plan, before))


def _is_small(plan: MirroredTable, before: MirroredTable | None) -> bool:
    """Whether the batch is read together with others. The records of tables that share a topic are not told apart."""
    return 0 < _length(plan, before) <= SMALL_MAX and kafka_topic(plan.topic) == plan.topic


def _of_topic(records: DataFrame, topic: str, found: Sequence[Row]) -> Batch:
    own = records.where(f.col("topic") == topic).drop("topic").coalesce(1)
    return Batch(own, *_distinct([row for row in found if row["topic"] == topic]))


def _headers(records: DataFrame, *more: str) -> list[Row]:
    """The headers of values and keys that there are, and the columns `more` with them."""
    # The key of a truncate on a compacted topic names no schema.
    names_schema = [f.startswith("kafka.key", f.lit(start)) for start in (MARKER, b"\x00")]
    key = f.when(names_schema[0] | names_schema[1], header("kafka.key"))
    return list(records.select(*more, header().alias("value"), key.alias("key")).distinct().collect())


def _distinct(rows: Sequence[Row]) -> tuple[list[bytes], list[bytes]]:
    values = sorted({bytes(row["value"]) for row in rows})
    return values, sorted({bytes(row["key"]) for row in rows if row["key"] is not None})
