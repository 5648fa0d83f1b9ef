"""The records that a run reads, table by table; those of many small batches in one Spark job.

Before: `planner` says from which offset to which. After: `table_merge` decodes a batch.

A Spark job takes a tenth of a second, however little it does. So the records of all small batches are read together,
and kept in memory. A small batch then has one partition, which needs no shuffle. If its table is small too, a session
with settings for few rows reads it, and runs all that is made of it. The records of a large batch are read by the job
that decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Final, Self, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession
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

_SMALL_BYTES_MAX: Final = 1024 * 1024
"""Bytes of the values of a small batch, once it is read."""

Work: TypeAlias = "tuple[MirroredTable, MirroredTable | None]"
"""A table as planned, and as it was last published (None: never)."""


@dataclass(frozen=True)
class Headers:
    """The first bytes of the records of a batch, which name their schemas."""

    values: Sequence[bytes]
    keys: Sequence[bytes]
    value_bytes: int
    """The length of all values of the batch together."""


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
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @property
    def is_read(self) -> bool:
        """Whether the records are persisted."""
        return self._headers is not None

    @property
    def is_small(self) -> bool:
        """Whether the driver may hold the events."""
        return self._headers is not None and self.offsets <= SMALL_MAX and self._headers.value_bytes <= _SMALL_BYTES_MAX

    def headers(self) -> Headers:
        """The headers of all records, which are persisted for the next steps."""
        with self._lock:
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

    def __init__(self, kafka: KafkaReader, writers: Writers, session_for_few: Callable[..., SparkSession]) -> None:
        """`session_for_few`: gives the session for few changes of tables, by their names."""
        self.kafka = kafka
        self.writers = writers
        self._session_for_few = session_for_few
        self._together: Mapping[str, Batch] = {}
        """By topic: batches that are read once, the small ones in one Spark job."""
        self._shared: frozenset[str] = frozenset()
        """The topics among them of which several tables take the batch."""

    @contextmanager
    def together(self, work: Sequence[Work]) -> Iterator[None]:
        """Inside the `with` block, `read` gives small batches without a Spark job, and reads no topic for each kind."""
        by_topic: dict[str, list[Work]] = {}
        for each in work:
            by_topic.setdefault(each[0].topic, []).append(each)
        # A table that was in quarantine, or was loaded, may begin at another place than the topic's others.
        alike = {topic: works[0] for topic, works in by_topic.items() if len({_range(*each) for each in works}) == 1}
        shared = frozenset(topic for topic in alike if len(by_topic[topic]) > 1)
        small: dict[SparkSession, dict[str, Work]] = {}
        # An error may be that of one table: then each table reads by itself, and one has the error.
        for topic, each in alike.items():
            if _is_small(*each):
                with suppress(Exception):
                    session = self._session_for_few(*(plan.target for plan, _ in by_topic[topic]))
                    small.setdefault(session, {})[topic] = each
        with ExitStack() as stack:
            made: dict[str, Batch] = {}
            for session, works in small.items():
                if len(works) > 1:
                    with suppress(Exception):
                        made |= self._read_together(works, session, stack)
            for topic in shared:
                with suppress(Exception):
                    batch = made[topic] if topic in made else self._batch(*by_topic[topic])
                    made[topic] = stack.enter_context(batch)
            self._together, self._shared = made, shared
            stack.callback(self._forget)
            yield

    def _read_together(self, works: Mapping[str, Work], session: SparkSession, stack: ExitStack) -> dict[str, Batch]:
        """By topic, the batches of these tables, which are persisted until the stack is closed."""
        ranges = {topic: (starts(*work), work[0].offsets) for topic, work in works.items()}
        records = self.kafka.ranges(ranges, session).where("value IS NOT NULL").select("topic", _place(), "value")
        records = records.coalesce(self.kafka.parallelism).persist(StorageLevel.MEMORY_AND_DISK)
        stack.callback(records.unpersist)
        found = _headers(records, "topic")
        return {topic: _of_topic(records, topic, _length(*work), found) for topic, work in works.items()}

    def _forget(self) -> None:
        self._together, self._shared = {}, frozenset()

    @contextmanager
    def read(self, plan: MirroredTable, before: MirroredTable | None) -> Iterator[Batch]:
        """The records of a plan."""
        batch = self._together.get(plan.topic)
        with self.kafka.errors(f"reading {plan.topic}"):
            if batch is not None and plan.topic in self._shared:
                batch.headers()  # so the first table reads for all
                yield batch
                return
            with batch or self._batch((plan, before)) as own:
                yield own

    def _batch(self, *works: Work) -> Batch:
        """The batch that these tables take."""
        plan, before = works[0]
        length = _length(plan, before)
        session = self._session_for_few(*(each.target for each, _ in works)) if length <= SMALL_MAX else None
        records = self.kafka.ranges({kafka_topic(plan.topic): (starts(plan, before), plan.offsets)}, session)
        if kafka_topic(plan.topic) != plan.topic:
            self.writers.of(plan.schema, plan.name, plan.topic, "value")
            records = of_table(records, self.writers.of_others(plan.schema, plan.name))
        records = records.where("value IS NOT NULL").select(_place(), "value")
        return Batch(records.coalesce(1) if length <= SMALL_MAX else records, length)


def starts(plan: MirroredTable, before: MirroredTable | None) -> list[int]:
    """The first offset of each partition that is not merged yet."""
    known = () if before is None else before.offsets
    return [*known, *(0 for _ in range(len(plan.offsets) - len(known)))]


def _range(plan: MirroredTable, before: MirroredTable | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(starts(plan, before)), tuple(plan.offsets)


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
    """By `more`, the headers of values and keys that there are, and the bytes of their values."""
    headers = records.select(*more, header().alias("header"), _key_header().alias("key"), f.length("value").alias("of"))
    return list(headers.groupBy(*more, "header", "key").agg(f.sum("of").alias("bytes")).collect())


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
    values = sorted({bytes(row["header"]) for row in rows})
    keys = sorted({bytes(row["key"]) for row in rows if row["key"] is not None})
    return Headers(values, keys, sum(row["bytes"] for row in rows))
