"""A table's events as DataFrames, batch and streaming.

Before: `reading.cuts` says where the topics end, `writer_schemas` what wrote them. After: whoever uses `Cdc.changes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import RequestRejected
from cdcd.spark.reading.decoding import common_columns, decode
from cdcd.spark.reading.kafka import KafkaReader, Ranges
from cdcd.spark.reading.writer_schemas import Writer, Writers

_KAFKA: Final = ("partition", "offset", "timestamp", "key")


def batch(
    kafka: KafkaReader, ranges: Ranges, writers: Sequence[Writer], topic: str, since_lsn: int, until_lsn: int | None
) -> DataFrame:
    """The events of one topic in these ranges with a commit LSN from `since_lsn` on and below `until_lsn`."""
    events = decode(_records(kafka.ranges(ranges)), writers, common_columns(writers), topic)
    if since_lsn:
        events = events.where(f.col("source.commit_lsn") >= since_lsn)
    if until_lsn is not None:
        events = events.where(f.col("source.commit_lsn") < until_lsn)
    return events


def stream(kafka: KafkaReader, writers: Sequence[Writer], topic: str, options: Mapping[str, str]) -> DataFrame:
    """The events of one topic as they come."""
    return decode(_records(kafka.stream(topic, options)), writers, common_columns(writers), topic)


def known_writers(writers: Writers, schema: str, table: str, topic: str) -> list[Writer]:
    """The schemas of a table's events; raises RequestRejected if there is none yet."""
    found = writers.of(schema, table, topic, "value")
    if not found:
        raise RequestRejected(f"no event of {schema}.{table} was published yet", "Its schema comes with the first one")
    return found


def _records(records: DataFrame) -> DataFrame:
    """The columns value and kafka: where the record lies, when it was published, its key's bytes."""
    return records.select(f.struct(*_KAFKA).alias("kafka"), "value")
