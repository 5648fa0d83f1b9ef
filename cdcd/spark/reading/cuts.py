"""Cuts: which offsets of every topic belong to one LSN, read from the progress topic.

Before: the sink commits table records and a slot record together with the rows.
After: `topics` and the mirror's `planner` read up to a cut, and see exactly the transactions below its LSN, in all
tables at once.

The problem: the end offsets of several partitions, read one after the other, are no transaction boundary. A merge that
reads up to them breaks constraints between tables. The algorithm: a cut is a slot record. For each topic, the newest
table record at or before the slot record says where the topic ends. A reader that keeps its last cut reads only the
records after it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from cdcd.errors import GapError, RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.progress.records import SlotRecord, TableRecord, parse_record
from cdcd.source.table_selection import qualified_name
from cdcd.spark.arguments import Position, TableList, Tables, lsn_or_time
from cdcd.spark.reading.kafka import EARLIEST, KafkaReader

_VALUE: Final = """
    version int, slot string, lsn string, commit_lsn string, commit_ts bigint, transactions bigint, rows bigint,
    topic string, offsets array<bigint>
"""


@dataclass(frozen=True)
class Cut:
    """All tables as they stood at exactly `lsn`: every transaction with a commit LSN below it, and no other."""

    slot: str
    lsn: int
    commit_lsn: int
    """The commit LSN of the last transaction inside; 0 if there is none."""
    commit_ts: int
    """The commit time of the last transaction inside, in microseconds since 1970 UTC; 0 if there is none."""
    progress_offset: int
    """The offset of its slot record on the progress topic."""
    tables: Mapping[str, TableRecord] = field(repr=False)
    """By topic: the table record of every table that has one."""
    incomplete: tuple[str, ...] = ()
    """Tables (schema.table) that are parked or deferred: their newest events are not on their own topics yet."""
    lsn_base: int = 0
    """The daemon has added it to the server's own LSNs (`cdcd.lsn`)."""

    def ends(self, topic: str) -> tuple[int, ...]:
        """The end offset of each partition of the topic: the offset after the last record inside."""
        return self.tables[topic].offsets

    def matching(self, tables: Tables | TableList) -> dict[str, TableRecord]:
        """The tables that match the patterns, by schema.table."""
        wanted = TableList.of(tables)
        found: dict[str, TableRecord] = {}
        for record in self.tables.values():
            if record.schema and wanted.matches(record.schema, record.table):
                name = qualified_name(record.schema, record.table)
                if name in found:
                    raise _two_topics(name, found[name].topic, record.topic)
                found[name] = record
        return {name: found[name] for name in sorted(found)}

    def topic(self, table: str) -> str:
        """The topic of `schema.table`; raises RequestRejected if it has none yet, or has been moved to another."""
        names = {topic: qualified_name(r.schema, r.table) for topic, r in self.tables.items() if r.schema}
        found = [
            topic
            for topic, name in names.items()
            if table in (name, f"{self.tables[topic].schema}.{self.tables[topic].table}")
        ]
        if len(found) > 1:
            raise _two_topics(table, *found[:2])
        if found:
            return found[0]
        known = ", ".join(sorted(names.values()))
        raise RequestRejected(
            f"there is no topic of a table {table} at {format_lsn(self.lsn)}",
            f"These tables have a topic: {known}",
            code="topic-missing",
        )


def _two_topics(table: str, one: str, other: str) -> RequestRejected:
    return RequestRejected(
        f"the table {table} has had two topics, {one} and {other}, and nothing tells a reader which one goes on",
        "A setting has moved the table: read its topic by another program, and leave the table out here; or start over "
        "under another sink.prefix",
        code="topics-collide",
    )


class Cuts:
    """Reads the cuts of one slot from the progress topic."""

    def __init__(self, kafka: KafkaReader, topic: str, slot: str | None) -> None:
        """`slot` may be None where only one slot feeds the topic."""
        self._kafka = kafka
        self._topic = topic
        self._slot = slot
        self._known: tuple[Cut, int] | None = None
        """The newest cut, and an end of the topic up to which there is no newer one."""

    def all(self) -> DataFrame:
        """Every cut that the topic still holds, as one row each, in their order.

        Columns: lsn, commit_lsn, commit_ts, transactions, rows, touched (topic -> end offsets), progress_offset.
        """
        slot = self._slot or self._only_slot()
        records = self._records(EARLIEST).where((f.col("key") == slot) | f.col("key").startswith(f"{slot}/"))
        later = Window.orderBy(f.col("offset").desc())
        closed = records.select("*", f.from_json("value", _VALUE).alias("record")).select(
            "key", "record.*", "offset",
            f.last(f.when(f.col("key") == slot, f.col("offset")), ignorenulls=True).over(later)
            .alias("progress_offset"),
        )  # fmt: skip
        is_slot = f.col("key") == slot
        touched = f.collect_list(f.when(~is_slot, f.struct("topic", "offsets")))
        own = {name: f.first(f.when(is_slot, f.col(name)), ignorenulls=True).alias(name) for name in (
            "lsn", "commit_lsn", "commit_ts", "transactions", "rows"
        )}  # fmt: skip
        cuts = closed.where("progress_offset IS NOT NULL").groupBy("progress_offset").agg(
            *own.values(), f.map_from_entries(touched).alias("touched")
        )  # fmt: skip
        return cuts.select(
            _lsn_column("lsn"),
            _lsn_column("commit_lsn"),
            f.timestamp_micros("commit_ts").alias("commit_ts"),
            "transactions",
            "rows",
            "touched",
            "progress_offset",
        ).orderBy("progress_offset")

    def at(self, position: Position | None = None, since: Cut | None = None) -> Cut:
        """The newest cut (None), the first cut that reaches an LSN, or the last cut at or before a time.

        `since`: an older cut that the caller knows; only the records after it are read.
        Raises GapError if Kafka does not hold the position yet, or no longer; RequestRejected if it holds no cut.
        """
        slot = self._slot or self._only_slot()
        if position is None:
            return self._newest(slot, since)
        place = lsn_or_time(position)
        if isinstance(place, datetime):
            found = self._slots(slot, since).where(f.col("commit_ts") <= int(place.timestamp() * 1_000_000))
            offset, wanted = found.agg(f.max("progress_offset")).first()[0], place.isoformat()
        else:
            found = self._slots(slot, since).where(f.col("lsn") >= place)
            offset, wanted = found.agg(f.min("progress_offset")).first()[0], format_lsn(place)
        if offset is None:
            newest = self._newest(slot, since)
            raise GapError(
                f"the topics do not hold {wanted}: the newest cut is {format_lsn(newest.lsn)}, slot {slot}",
                "Wait until the daemon has come so far (cdcd_lag_bytes), or ask for a time that progress still covers",
                code="kafka-behind",
            )
        return self._read(slot, since, int(offset))

    def below(self, lsn: int) -> Cut | None:
        """The last cut at or before an LSN; None if the topic does not go back so far."""
        newest = self.all().where(f"lsn <= {lsn}").agg({"lsn": "max"}).first()
        return None if newest[0] is None else self.at(int(newest[0]))

    def wait_until(self, lsn: int, timeout_s: float) -> None:
        """Wait until the newest cut is at `lsn` or after it; raises GapError after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while (newest := self.at().lsn) < lsn:
            if time.monotonic() > deadline:
                raise GapError(
                    f"the topics have come to {format_lsn(newest)}, and did not reach {format_lsn(lsn)} in "
                    f"{timeout_s:g} s",
                    "Check that the daemon streams (cdcd_lag_bytes), or wait longer: timeout_s",
                    code="kafka-behind",
                )
            time.sleep(0.5)

    def within(
        self, rows_max: int, since: Cut | None, applied: Mapping[str, Sequence[int]], progress_offset: int
    ) -> Cut:
        """The newest cut that is at most `rows_max` events after the `applied` ones; at least the next cut.

        `applied`: end offsets by topic. `progress_offset`: where the slot record that belongs to them lies; -1 before
        the first.
        """
        slot = self._slot or self._only_slot()
        newest = self._newest(slot, since)
        behind = 0
        for topic, record in newest.tables.items():
            known = applied.get(topic, ())
            starts = (*known, *(0 for _ in range(len(record.offsets) - len(known))))
            behind += sum(end - start for end, start in zip(record.offsets, starts, strict=True))
        if behind <= rows_max:
            return newest
        running = f.sum("rows").over(Window.orderBy("progress_offset"))
        slots = self._slots(slot, since).where(f.col("progress_offset") > progress_offset)
        slots = slots.select("progress_offset", (running <= rows_max).alias("fits"))
        found = slots.agg(f.max(f.when(f.col("fits"), f.col("progress_offset"))), f.min("progress_offset")).first()
        chosen = found[0] if found[0] is not None else found[1]
        return newest if chosen is None else self._read(slot, since, int(chosen))

    def _newest(self, slot: str, since: Cut | None) -> Cut:
        """The newest cut. Spark reads the topic only if it has grown since the last time."""
        end = self._kafka.end(self._topic)
        if self._known is not None:
            cut, known_end = self._known
            if end == known_end:
                return cut
            since = cut if since is None or since.progress_offset < cut.progress_offset else since
        if end is not None and since is not None and end <= since.progress_offset:
            since = None  # the topic was made again
        cut = self._read(slot, since, None)
        self._known = None if end is None else (cut, end)
        return cut

    def _read(self, slot: str, since: Cut | None, progress_offset: int | None) -> Cut:
        """The cut of the slot record at this offset (None: the newest)."""
        records = self._records(_after(since)).where((f.col("key") == slot) | f.col("key").startswith(f"{slot}/"))
        if progress_offset is not None:
            records = records.where(f.col("offset") <= progress_offset)
        with self._kafka.errors(f"reading {self._topic}"):
            newest = records.groupBy("key").agg(f.expr("max_by(value, offset) value"), f.expr("max(offset) at"))
            found = newest.collect()
        tables = {} if since is None else dict(since.tables)
        own: SlotRecord | None = None
        at = 0
        for row in found:
            record = parse_record(row["key"].encode(), row["value"].encode())
            if isinstance(record, TableRecord):
                tables[record.topic] = record
            else:
                own, at = record, row["at"]
        if own is None:
            if since is not None:
                return since
            raise RequestRejected(
                f"{self._topic} holds no progress of a slot {slot}",
                "Start cdcd run, and check prefix and slot",
                code="topic-missing",
            )
        if own.event_format:
            raise RequestRejected(
                f"the topics of slot {slot} have events in {own.event_format}, which cdcd spark does not read",
                "Read them with a consumer of such events",
                code="format-unsupported",
            )
        if since is not None and own.lsn < since.lsn:
            raise GapError(
                f"the progress of slot {slot} went back from {format_lsn(since.lsn)} to {format_lsn(own.lsn)}",
                "The topics were made again: start a mirror under another name",
                code="mirror-load-again",
            )
        incomplete = tuple(qualified_name(each.schema, each.table) for each in own.incomplete)
        return Cut(slot, own.lsn, own.commit_lsn, own.commit_ts, at, tables, incomplete, own.lsn_base)

    def _slots(self, slot: str, since: Cut | None) -> DataFrame:
        records = self._records(_after(since)).where(f.col("key") == slot)
        parsed = records.select("offset", f.from_json("value", _VALUE).alias("record"))
        return parsed.select(
            _lsn_column("record.lsn"), "record.commit_ts", "record.rows", f.col("offset").alias("progress_offset")
        )

    def _only_slot(self) -> str:
        with self._kafka.errors(f"reading {self._topic}"):
            keys = self._records(EARLIEST).select("key").where("NOT contains(key, '/')").distinct().collect()
        slots = sorted(row["key"] for row in keys)
        if len(slots) > 1:
            raise SettingsError(
                f"several slots feed {self._topic}: {', '.join(slots)}",
                "Name one of them: Cdc(..., slot=...)",
                code="arguments-invalid",
            )
        if not slots:
            raise RequestRejected(
                f"{self._topic} holds no progress yet",
                "Start cdcd run, and check bootstrap and prefix",
                code="topic-missing",
            )
        self._slot = str(slots[0])
        return self._slot

    def _records(self, since: int) -> DataFrame:
        records = self._kafka.whole(self._topic, since).where("key IS NOT NULL AND value IS NOT NULL")
        records = records.coalesce(1)  # the topic has one partition: Spark, which does not know that, would shuffle it
        return records.selectExpr("string(key) key", "string(value) value", "offset")


def both_forms(lsn: int) -> str:
    """An LSN as PostgreSQL writes it, and as the number that Spark's columns hold: `0/232FD50 (36896080)`."""
    return f"{format_lsn(lsn)} ({lsn})"


def _after(since: Cut | None) -> int:
    return EARLIEST if since is None else since.progress_offset + 1


def _lsn_column(column: str) -> Column:
    parts = f.split(column, "/")
    high, low = (f.conv(parts[index], 16, 10).cast("bigint") for index in (0, 1))
    return (f.shiftleft(high, 32) + low).alias(column.rpartition(".")[2])
