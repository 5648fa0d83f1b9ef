"""The records that a run reads, table by table; those of many small batches in one Spark job.

Before: `planner` says from which offset to which. After: `table_merge` decodes a batch.

A Spark job takes a tenth of a second, however little it does. So the records of all small batches are read together. If
their tables are small too, a session with settings for few rows runs all that is made of them, and the driver holds the
records: what Spark selects of such rows it computes while it plans, without a job. The records of a large batch are
read by the job that decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Self, TypeAlias

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from cdcd.avro.single_object import MARKER
from cdcd.progress.records import kafka_topic
from cdcd.spark.mirror.run_log import MirroredTable
from cdcd.spark.mirror.targets.target import EXACT_DATES
from cdcd.spark.reading.decoding import header, of_table
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.sql_texts import sql_text
from cdcd.spark.reading.writer_schemas import Writers

SMALL_MAX: Final = 5_000
"""Offsets of a small batch."""

_HELD_BYTES_MAX: Final = 256 * 1024
"""Bytes of the values of a batch that the driver holds. Each byte may become one value of a row."""
_HELD_TOGETHER_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of all batches that the driver holds."""

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

    def __init__(
        self, records: DataFrame, offsets: int, headers: Headers | None = None, *, is_held: bool = False
    ) -> None:
        """`records`: kafka (partition, offset, timestamp, key), value; at `offsets` offsets.

        `headers`: theirs, if these are read. `is_held`: the driver holds them.
        """
        self.records = records
        self.offsets = offsets
        self._headers = headers
        self.is_held = is_held
        self._kept = ExitStack()
        self._lock = Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    @property
    def is_read(self) -> bool:
        """Whether the records are read, so that no step reads them from Kafka again."""
        return self._headers is not None

    def headers(self) -> Headers:
        """The headers of all records, which are persisted for the next steps."""
        with self._lock:
            if self._headers is None:
                self.records = self.keep(self.records)
                self._headers = _distinct(_headers(self.records))
            return self._headers

    def keep(self, frame: DataFrame) -> DataFrame:
        """Keep rows that are made of the records, for several steps.

        Spark persists what the first job computes. Or the driver holds the rows, if it holds the records.
        """
        if self.is_held:
            return held(frame)
        kept = frame.persist()
        self._kept.callback(kept.unpersist)
        return kept

    def keep_whole(self, frame: DataFrame) -> DataFrame:
        """As `keep`, for steps that take all columns: Spark persists one column with less work."""
        return held(frame) if self.is_held else self.keep(frame.selectExpr("struct(*) AS row")).select("row.*")


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
        """By topic, the batches of these tables, which are kept until the stack is closed."""
        ranges = {topic: (starts(*work), work[0].offsets) for topic, work in works.items()}
        records = self.kafka.ranges(ranges, session).where("value IS NOT NULL").select("topic", _place(), "value")
        records = records.coalesce(self.kafka.parallelism).persist()
        stack.callback(records.unpersist)
        found = _headers(records, "topic")
        headers = {topic: _distinct([row for row in found if row["topic"] == topic]) for topic in works}
        fitting = _fitting(headers) if session.conf.get(EXACT_DATES) == "true" else []
        of_driver = held(records.where(f.col("topic").isin(fitting))) if fitting else records

        def batch(topic: str) -> Batch:
            is_held = topic in fitting
            own = (of_driver if is_held else records.coalesce(1)).where(f"topic = {sql_text(topic)}")
            return Batch(own.selectExpr("kafka", "value"), _length(*works[topic]), headers[topic], is_held=is_held)

        return {topic: batch(topic) for topic in works}

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


def _fitting(headers: Mapping[str, Headers]) -> list[str]:
    """The topics whose batches the driver may hold, by the headers of all."""
    fitting, total = [], 0
    for topic, each in sorted(headers.items(), key=lambda item: item[1].value_bytes):
        total += each.value_bytes
        if each.value_bytes <= _HELD_BYTES_MAX and total <= _HELD_TOGETHER_BYTES_MAX:
            fitting.append(topic)
    return fitting


def held(rows: DataFrame) -> DataFrame:
    """The same rows, held by the driver. Their session has EXACT_DATES."""
    java: Any = rows._jdf  # noqa: SLF001
    session: Any = rows.sparkSession
    return DataFrame(session._jsparkSession.createDataFrame(java.collectAsList(), java.schema()), session)  # noqa: SLF001


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
