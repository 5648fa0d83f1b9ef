"""Reads ranges of topics, committed records only.

Before: `cuts` says from which offset to which. After: `decoding` decodes the records.
Source: Spark, "Structured Streaming + Kafka Integration Guide"; KIP-98 (isolation levels).

Spark's own default is read_uncommitted, which shows the rows of aborted transactions. This module always overrides it.
The broker may not show the last record of a range yet, because it writes commit markers partition by partition. Spark's
executors poll until the broker does. If retention has deleted the start of a range, that is an error: a range is never
read short.

Spark has two Kafka sources for batches, and takes the older one by default. The older one makes objects of each record,
and then a binary row of the objects. The newer one writes the binary row at once, and is a fifth faster. A setting of
the session chooses between them, so this module changes the setting only while Spark chooses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from cdcd.errors import CdcdError, GapError, KafkaUnavailable, RequestRejected, SettingsError

Ranges: TypeAlias = "Mapping[str, tuple[Sequence[int], Sequence[int]]]"
"""By topic: the first offset of each partition, and the offset after the last (end-exclusive)."""

EARLIEST: Final = -2
"""Spark's own number for the first offset that the broker still has."""

_TASK_OFFSETS_MIN: Final = 50_000
"""Offsets that are worth a task of their own."""
_TASKS_PER_CORE: Final = 4
"""Ranges differ in their bytes: with more tasks than cores none of the cores waits long."""
_OLDER_SOURCES: Final = "spark.sql.sources.useV1SourceList"


class KafkaReader:
    """Reads from one Kafka cluster."""

    def __init__(self, spark: SparkSession, bootstrap: str, options: Mapping[str, str]) -> None:
        """`options`: properties of Kafka's Java client, by its own names."""
        self._spark = spark
        self._bootstrap = bootstrap
        self._asks = True
        """Whether this process asks for ends of topics: see `end`."""
        self._options = {
            # At the end of a range the consumer waits for records that never come: 500 ms a partition by default.
            "kafka.fetch.max.wait.ms": "1",
            # A poll should take all that a fetch has brought: the broker sends the next fetch while Spark decodes this
            # one. Kafka's defaults are 500 records and 64 KiB, and reading takes twice as long. But for five minutes
            # Spark keeps the last poll of each task.
            "kafka.max.poll.records": "10000",
            "kafka.receive.buffer.bytes": str(1024 * 1024),
            **{f"kafka.{name}": value for name, value in options.items()},
            "kafka.bootstrap.servers": bootstrap,
            "kafka.isolation.level": "read_committed",
        }

    @property
    def parallelism(self) -> int:
        """Spark tasks that run at the same time."""
        return int(self._spark.sparkContext.defaultParallelism)

    def ranges(self, ranges: Ranges, spark: SparkSession | None = None) -> DataFrame:
        """The records of these ranges: topic, partition, offset, timestamp, key, value.

        A long range is read by several tasks. `spark`: the session that reads them (None: the reader's own).
        """
        spark = spark or self._spark
        starts = {topic: dict(enumerate(start)) for topic, (start, _) in ranges.items()}
        ends = {topic: dict(enumerate(end)) for topic, (_, end) in ranges.items()}
        assigned = {topic: sorted(partitions) for topic, partitions in ends.items()}
        reader = self._batch(spark).option("assign", json.dumps(assigned))
        reader = reader.option("startingOffsets", json.dumps(starts)).option("endingOffsets", json.dumps(ends))
        length = sum(sum(end) - sum(start) for start, end in ranges.values())
        tasks = min(length // _TASK_OFFSETS_MIN, _TASKS_PER_CORE * self.parallelism)
        if tasks > sum(map(len, assigned.values())):
            reader = reader.option("minPartitions", tasks)
        return _load(spark, reader)

    def whole(self, topic: str, since: int = EARLIEST) -> DataFrame:
        """The committed records of a topic. `since`: the first offset; only for a topic of one partition."""
        reader = self._batch(self._spark)
        if since == EARLIEST:
            return _load(self._spark, reader.option("subscribe", topic).option("startingOffsets", "earliest"))
        reader = reader.option("assign", json.dumps({topic: [0]}))
        starts = json.dumps({topic: {"0": since}})
        return _load(self._spark, reader.option("startingOffsets", starts).option("endingOffsets", "latest"))

    def end(self, topic: str) -> int | None:
        """The offset after the last committed record of a topic of one partition, without a Spark job.

        None: only Spark can ask, for instance because it has the login as a delegation token.
        """
        if not self._asks:
            return None
        spark: Any = self._spark
        kafka = spark._jvm.org.apache.kafka  # noqa: SLF001
        partition = kafka.common.TopicPartition(topic, 0)
        committed = kafka.clients.admin.ListOffsetsOptions(kafka.common.IsolationLevel.READ_COMMITTED)
        options = {
            name.removeprefix("kafka."): value for name, value in self._options.items() if name.startswith("kafka.")
        }
        try:
            client = kafka.clients.admin.Admin.create(options)
            try:
                wanted = {partition: kafka.clients.admin.OffsetSpec.latest()}
                return int(client.listOffsets(wanted, committed).partitionResult(partition).get().offset())
            finally:
                client.close()
        except Exception as error:  # Py4J's
            translated = _to_cdcd_error(str(error), f"asking for the end of {topic}", self._bootstrap)
            if translated is not None:
                raise translated from error
            self._asks = False
            return None

    def _batch(self, spark: SparkSession) -> DataFrameReader:
        return spark.read.format("kafka").options(**self._options, failOnDataLoss="true")

    def stream(self, topic: str, options: Mapping[str, str]) -> DataFrame:
        """The records of a topic as a stream. `options`: those of Spark's Kafka source; with failOnDataLoss = "false"
        a stream goes on behind what retention has deleted. Raises SettingsError for those that choose topics.
        """
        taken = sorted(name for name in options if name.lower() in ("subscribe", "subscribepattern", "assign"))
        if taken:
            raise SettingsError(
                f"a stream of changes reads the topic of one table, and {taken[0]} names others",
                "Leave it out, and make a stream for each table",
                code="arguments-invalid",
            )
        reader = self._spark.readStream.format("kafka").options(**{"startingOffsets": "earliest", **options})
        return reader.options(**self._options).option("subscribe", topic).load()

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Translate Spark's errors about Kafka into GapError, RequestRejected or KafkaUnavailable.

        `what`: what the caller does, as "reading shop.progress"; the message begins with it.
        """
        try:
            yield
        except CdcdError:
            raise
        except Exception as error:  # Py4J's or PySpark's, by where the job failed: only the text tells the cause
            translated = _to_cdcd_error(str(error), what, self._bootstrap)
            if translated is None:
                raise
            raise translated from error


def _load(spark: SparkSession, reader: DataFrameReader) -> DataFrame:
    """Load with the newer of Spark's two sources."""
    older = spark.conf.get(_OLDER_SOURCES) or ""
    spark.conf.set(_OLDER_SOURCES, ",".join(name for name in older.split(",") if name.strip() != "kafka"))
    try:
        return reader.load()
    finally:
        spark.conf.set(_OLDER_SOURCES, older)


def _to_cdcd_error(text: str, what: str, bootstrap: str) -> CdcdError | None:
    if "UnknownTopicOrPartition" in text:
        return RequestRejected(
            f"{what}: the topic does not exist at {bootstrap}",
            "Check bootstrap and prefix; the daemon makes the topics",
            code="topic-missing",
        )
    if "failOnDataLoss" in text or "Some data may have been lost" in text or "OffsetOutOfRange" in text:
        return GapError(
            f"{what}: retention has deleted the start of the wanted range",
            "Load the mirror's table again with `cdcd spark snapshot`, and raise the topic's retention.ms",
            code="events-expired",
        )
    if "TimeoutException" in text and "kafka" in text.lower():
        return KafkaUnavailable(
            f"{what}: Kafka at {bootstrap} does not answer",
            "Check bootstrap and the security properties",
            code="kafka-unavailable",
        )
    return None
