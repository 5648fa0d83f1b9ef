"""Reads ranges of topics, committed records only.

Before: `reading.cuts` says from which offset to which. After: `decoding` decodes the records.
Source: Spark, "Structured Streaming + Kafka Integration Guide"; KIP-98 (isolation levels).

Spark's own default is read_uncommitted, which shows the rows of aborted transactions: it is always overridden here.
A range may end before the broker has shown its last record (commit markers are written partition by partition):
Spark's executors poll until it does. A range whose start was deleted by retention is an error, never a shorter range.

Spark has two Kafka sources for batches, and takes the older one unless told otherwise: it makes objects of each record,
and of these the binary row that the newer one writes at once, a fifth faster. What is told is a setting of the session,
so it is told for the moment in which the source is chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from cdcd.errors import CdcdError, GapError, KafkaUnavailable, RequestRejected

Ranges: TypeAlias = "Mapping[str, tuple[Sequence[int], Sequence[int]]]"
"""By topic: of each partition the first offset, and the one after the last."""

EARLIEST: Final = -2
LATEST: Final = -1

_OLDER_SOURCES: Final = "spark.sql.sources.useV1SourceList"


class KafkaReader:
    """Reads from one cluster. `options` are properties of Kafka's Java client, by its own names."""

    def __init__(self, spark: SparkSession, bootstrap: str, options: Mapping[str, str]) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._options = {
            # At the end of a range the consumer waits for what never comes: 500 ms a partition by default.
            "kafka.fetch.max.wait.ms": "20",
            # The 500 of the default make a poll of every half millisecond: reading took twice as long.
            "kafka.max.poll.records": "5000",
            **{f"kafka.{name}": value for name, value in options.items()},
            "kafka.bootstrap.servers": bootstrap,
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "true",
        }

    def ranges(self, ranges: Ranges) -> DataFrame:
        """The records of these ranges: topic, partition, offset, timestamp, key, value."""
        starts = {topic: dict(enumerate(start)) for topic, (start, _) in ranges.items()}
        ends = {topic: dict(enumerate(end)) for topic, (_, end) in ranges.items()}
        assigned = {topic: sorted(partitions) for topic, partitions in ends.items()}
        reader = self._spark.read.format("kafka").options(**self._options)
        reader = reader.option("assign", json.dumps(assigned)).option("startingOffsets", json.dumps(starts))
        return self._load(reader.option("endingOffsets", json.dumps(ends)))

    def whole(self, topic: str, since: int = EARLIEST) -> DataFrame:
        """The records of a topic that are committed now; `since` (an offset) is for topics of one partition."""
        reader = self._spark.read.format("kafka").options(**self._options)
        if since == EARLIEST:
            return self._load(reader.option("subscribe", topic).option("startingOffsets", "earliest"))
        reader = reader.option("assign", json.dumps({topic: [0]}))
        starts = json.dumps({topic: {"0": since}})
        return self._load(reader.option("startingOffsets", starts).option("endingOffsets", "latest"))

    def _load(self, reader: DataFrameReader) -> DataFrame:
        """With the newer of Spark's two sources."""
        conf = self._spark.conf
        older = conf.get(_OLDER_SOURCES) or ""
        conf.set(_OLDER_SOURCES, ",".join(name for name in older.split(",") if name.strip() != "kafka"))
        try:
            return reader.load()
        finally:
            conf.set(_OLDER_SOURCES, older)

    def stream(self, topic: str, options: Mapping[str, str]) -> DataFrame:
        """The records of a topic as a stream; `options` are those of Spark's Kafka source."""
        reader = self._spark.readStream.format("kafka").options(**{"startingOffsets": "earliest", **options})
        return reader.options(**self._options).option("subscribe", topic).load()

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn what Spark raises about Kafka into errors of cdcd: GapError, RequestRejected or KafkaUnavailable."""
        try:
            yield
        except CdcdError:
            raise
        except Exception as error:  # Py4J's or PySpark's own, by where the job failed: the text tells more
            named = _named(str(error), what, self._bootstrap)
            if named is None:
                raise
            raise named from error


def _named(text: str, what: str, bootstrap: str) -> CdcdError | None:
    if "UnknownTopicOrPartition" in text:
        return RequestRejected(
            f"{what}: the topic does not exist at {bootstrap}", "Check bootstrap and prefix; cdcd run makes the topics"
        )
    if "failOnDataLoss" in text or "Some data may have been lost" in text or "OffsetOutOfRange" in text:
        return GapError(
            f"{what}: the topic does not hold all of the wanted range any more; retention has deleted its start",
            "Load the mirror's table anew, with `cdcd spark snapshot`, and raise the topic's retention.ms",
        )
    if "TimeoutException" in text and "kafka" in text.lower():
        return KafkaUnavailable(
            f"{what}: Kafka at {bootstrap} does not answer", "Check bootstrap and the security properties"
        )
    return None
