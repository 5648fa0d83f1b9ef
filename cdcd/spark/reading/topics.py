"""The topics of one prefix: their names, cuts and schemas, and the events of their tables as DataFrames.

Before: `cuts` says where the topics end, `writer_schemas` which schemas wrote them.
After: `Cdc` gives the events to users; the mirror reads up to its next cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.errors import GapError, RequestRejected
from cdcd.progress.records import TableRecord, kafka_topic
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import qualified_name, shell_word, split_name
from cdcd.spark.reading.cuts import Cuts
from cdcd.spark.reading.decoding import WriterOrder, common_columns, decode, header, in_order, of_table
from cdcd.spark.reading.kafka import KafkaReader
from cdcd.spark.reading.missing_values import MissingValue, missing_values
from cdcd.spark.reading.writer_schemas import RegistryWriters, TopicWriters, Writer, Writers

_KAFKA: Final = ("partition", "offset", "timestamp", "key")


@dataclass(frozen=True)
class Topics:
    """Reads the topics of one prefix. A table record, which a cut has, names the table."""

    names: TopicNames
    kafka: KafkaReader
    cuts: Cuts
    writers: Writers

    @classmethod
    def of(
        cls, names: TopicNames, kafka: KafkaReader, registry: str | Mapping[str, Any] | None, slot: str | None
    ) -> Self:
        """The topics with these names. `registry`, `slot`: as for `Cdc`."""
        if registry is None:
            writers: Writers = TopicWriters(kafka, names.schemas)
        else:
            writers = RegistryWriters.connect({"url": registry} if isinstance(registry, str) else registry)
        return cls(names, kafka, Cuts(kafka, names.progress, slot), writers)

    def events(
        self, record: TableRecord, starts: Sequence[int], since_lsn: int = 0, until_lsn: int | None = None
    ) -> DataFrame:
        """The events of a table from the offsets `starts` (one a partition) to the end that the record names.

        Only events with a commit LSN from `since_lsn` on, and below `until_lsn`.
        """
        records = self.kafka.ranges({kafka_topic(record.topic): (starts, record.offsets)})
        events = self._decode(records, record)
        if since_lsn:
            events = events.where(f.col("source.commit_lsn") >= since_lsn)
        if until_lsn is not None:
            events = events.where(f.col("source.commit_lsn") < until_lsn)
        return events

    def stream(self, record: TableRecord, options: Mapping[str, str]) -> DataFrame:
        """The events of a table as they come. `options`: those of Spark's Kafka source."""
        return self._decode(self.kafka.stream(kafka_topic(record.topic), options), record)

    def columns(self, record: TableRecord) -> list[dict[str, Any]]:
        """The columns of all versions of a table; raises RequestRejected if it has no event yet."""
        return common_columns(self._value_writers(record))

    def writer_order(self, record: TableRecord, starts: Sequence[int], until_lsn: int) -> WriterOrder:
        """The schemas of the events below an LSN, from these offsets to the record's."""
        known = self._value_writers(record)
        records = self.kafka.ranges({kafka_topic(record.topic): (starts, record.offsets)})
        return in_order(self._own(records, record).where("value IS NOT NULL"), known, record.topic, until_lsn)

    def missing_values(self, record: TableRecord) -> dict[str, MissingValue]:
        """What rows hold in younger columns of a table; raises as `columns`."""
        return missing_values(self._value_writers(record))

    def hidden(self, table: str, topic: str, columns: Iterable[str]) -> frozenset[str]:
        """Which of a table's own columns its events have masked, or not at all; none before its first event.

        `table`: as `qualified_name` writes it.
        """
        known = self.writers.of(*split_name(table), topic, "value")
        shown = {each["name"] for writer in known for each in writer.columns}
        left_out = frozenset(columns) - shown if any(writer.leaves_out for writer in known) else frozenset[str]()
        return left_out.union(*(writer.masked for writer in known))

    def key(self, record: TableRecord, events: DataFrame) -> tuple[str, ...]:
        """The columns of the key of a table's events, none if they have none.

        If the table had other keys, Spark looks through the events: those before the last truncate event do not count,
        and a new snapshot begins with one. Raises GapError if the others have keys of several kinds.
        """
        where = (record.schema, record.table, record.topic, "key")
        keys = {each.key for each in self.writers.of(*where)}
        if len(keys) > 1:
            keys = {each.key for each in self.writers.find(last_key_headers(events), *where)}
        if len(keys) > 1:
            name, kinds = qualified_name(record.schema, record.table), sorted(f"({', '.join(key)})" for key in keys)
            raise GapError(
                f"the key of {name} has changed: it has events under {' and '.join(kinds)}",
                f"Run cdcd snapshot {shell_word(name)}, and ask for a later position",
                code="cut-incomplete",
            )
        return next(iter(keys), ())

    def _decode(self, records: DataFrame, record: TableRecord) -> DataFrame:
        known = self._value_writers(record)
        return decode(self._own(records, record), known, common_columns(known), record.topic)

    def _own(self, records: DataFrame, record: TableRecord) -> DataFrame:
        """The records of this table, whose topic other tables may share: the bytes of each, and where it lies."""
        if kafka_topic(record.topic) != record.topic:
            records = of_table(records, self.writers.of_others(record.schema, record.table))
        return records.select(f.struct(*_KAFKA).alias("kafka"), "value")

    def _value_writers(self, record: TableRecord) -> list[Writer]:
        found = self.writers.of(record.schema, record.table, record.topic, "value")
        if not found:
            raise RequestRejected(
                f"no event of {record.schema}.{record.table} was published yet",
                "Its schema comes with the first event",
                code="topic-missing",
            )
        return found


def last_key_headers(events: DataFrame) -> list[bytes]:
    """The first bytes of the keys of the events after the last truncate event."""
    order = f.struct("source.commit_lsn", "source.seq")
    groups = events.groupBy((f.col("op") == "t").alias("truncates"), header("kafka.key").alias("header"))
    rows = groups.agg(f.max(order).alias("last")).collect()
    truncated = max((tuple(row["last"]) for row in rows if row["truncates"]), default=())
    return sorted(bytes(row["header"]) for row in rows if row["header"] is not None and tuple(row["last"]) > truncated)
