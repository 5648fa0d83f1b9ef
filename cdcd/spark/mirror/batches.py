"""The records that a run reads, table by table; those of many small batches in one Spark job.

Before: `planner` says from which offset to which. After: `table_merge` decodes a batch.

A Spark job takes a tenth of a second, however little it does. So the records of all small batches are read together,
and kept in memory. A small batch then has one partition, which needs no shuffle. The records of a large batch are read
by the job that decodes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

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
class Headers:
    """The first bytes of the records of a batch, which name their schemas."""

    values: Sequence[bytes]
    keys: Sequence[bytes]


class Batch:
    """The records of one table in one run. Use it in a `with` block: at its end Spark forgets what it keeps."""

    def __init__(self, records: DataFrame, offsets: int, headers: Headers | None = None) -> None:
        """`records`: kafka (partition, offset, timestamp, key), value; at `offsets` offsets.

        `headers`: theirs, if these are persisted.
        """
        self.records = records
        self.offsets = offsets
        self._headers = headers
        self._kept = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @property
    def is_read(self) -> bool:
        """Whether the records are persisted."""
        return self._headers is not None

    def headers(self) -> Headers:
        """The headers of all records, which are persisted for the next steps."""
        if self._headers is None:
            self.records = self.keep(self.records)
            self._headers = _distinct(_headers(self.records))
        return self._headers

    def keep(self, frame: DataFrame) -> DataFrame:
        """Persist what the first job that uses it computes."""
        kept = frame.persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.callback(kept.unpersist)
        return kept


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
                    lengths = {topic: sum(ends) - sum(first) for topic, (first, ends) in small.items()}
                    self._together = {
                        topic: _of_topic(records, topic, length, found) for topic, length in lengths.items()
                    }
                stack.callback(self._forget)
            yield

    def _forget(self) -> None:
        self._together = {}

    @contextmanager
    def read(self, plan: MirroredTable, before: MirroredTable | None) -> Iterator[Batch]:
        """The records of a plan."""
        if plan.topic in self._together:
            with self._together[plan.topic] as batch:
                yield batch
            return
        with self.kafka.errors(f"reading {plan.topic}"):
            start = starts(plan, before)
            records = self.kafka.ranges({kafka_topic(plan.topic): (start, plan.offsets)})
            if kafka_topic(plan.topic) != plan.topic:
                self.writers.of(plan.schema, plan.name, plan.topic, "value")
                records = of_table(records, self.writers.of_others(plan.schema, plan.name))
            records = records.where("value IS NOT NULL").select(_place(), "value")
            length = _length(plan, before)
            if length <= SMALL_MAX:
                records = records.coalesce(1)
            with Batch(records, length) as batch:
                yield batch


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


def _of_topic(records: DataFrame, topic: str, offsets: int, found: Sequence[Row]) -> Batch:
    own = records.where(f.col("topic") == topic).drop("topic").coalesce(1)
    return Batch(own, offsets, _distinct([row for row in found if row["topic"] == topic]))


def _headers(records: DataFrame, *more: str) -> list[Row]:
    """The headers of values and keys that there are, and the columns `more` with them."""
    return list(records.select(*more, header().alias("value"), _key_header().alias("key")).distinct().collect())


def _key_header() -> Column:
    """Null for a key that names no schema, as that of a truncate on a compacted topic."""
    names_schema = [f.startswith("kafka.key", f.lit(start)) for start in (MARKER, b"\x00")]
    return f.when(names_schema[0] | names_schema[1], header("kafka.key"))


def with_keys_of(records: DataFrame, start: bytes | None) -> DataFrame:
    """Records whose value is empty where the key begins with other bytes than `start` (None: where a schema wrote it).

    The value of such a record has no schema for `decode`.
    """
    key = _key_header()
    is_other = key.isNotNull() if start is None else key != f.lit(start)
    return records.withColumn("value", f.when(is_other, f.lit(b"")).otherwise(f.col("value")))


def _distinct(rows: Sequence[Row]) -> Headers:
    values = sorted({bytes(row["value"]) for row in rows})
    return Headers(values, sorted({bytes(row["key"]) for row in rows if row["key"] is not None}))
