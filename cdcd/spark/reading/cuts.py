"""Cuts: which offsets of every topic belong to one LSN, read from the progress topic.

Before: the sink commits table records and a slot record with the rows.
After: `change_consumer`, `copy_format` and `mirror` read up to
a cut, and so see exactly the transactions below its LSN, in all tables at once.

The problem: the end offsets of several partitions, asked for one after the other, are no transaction boundary: a merge
that reads up to them breaks what holds between tables. The algorithm: a cut is a slot record; of each topic the newest
table record at or before it says where the topic ends. Readers that keep their last cut read only what came after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from cdcd.errors import GapError, RequestRejected, SettingsError
from cdcd.lsn import format_lsn, parse_lsn
from cdcd.progress.records import SlotRecord, TableRecord, parse_record
from cdcd.spark.reading.kafka import EARLIEST, KafkaReader

Moment: TypeAlias = "int | str | datetime"
"""An LSN as a number or as PostgreSQL's text, or a time (one without a zone is UTC)."""

_VALUE: Final = """
    version int, slot string, lsn string, commit_lsn string, commit_ts bigint, transactions bigint, rows bigint,
    topic string, offsets array<bigint>
"""


@dataclass(frozen=True)
class Cut:
    """All tables as they were at exactly `lsn`: every transaction whose commit LSN is below it, and no other."""

    slot: str
    lsn: int
    commit_lsn: int
    """Of the last transaction inside; 0 if there is none."""
    commit_ts: int
    """Of the last transaction inside: microseconds since 1970 UTC; 0 if there is none."""
    position: int
    """The offset of its slot record on the progress topic."""
    tables: Mapping[str, TableRecord] = field(repr=False)
    """By topic: every table that has one."""
    parked: tuple[str, ...] = ()
    """Tables (schema.table) that stand where they were parked: their events since are not on their topics."""

    def ends(self, topic: str) -> tuple[int, ...]:
        """Of each partition of the topic, the offset after the last record inside."""
        return self.tables[topic].offsets

    def topic(self, table: str) -> str:
        """The topic of `schema.table`; raises RequestRejected if it has none yet."""
        for topic, record in self.tables.items():
            if f"{record.schema}.{record.table}" == table:
                return topic
        known = ", ".join(sorted(f"{r.schema}.{r.table}" for r in self.tables.values()))
        raise RequestRejected(
            f"there is no topic of a table {table} at {format_lsn(self.lsn)}", f"Those that have one: {known}"
        )


class Cuts:
    """Reads the progress of one slot."""

    def __init__(self, kafka: KafkaReader, topic: str, slot: str | None) -> None:
        """`slot` may be None where only one feeds the topic."""
        self._kafka = kafka
        self._topic = topic
        self._slot = slot

    def all(self) -> DataFrame:
        """Every cut: lsn, commit_lsn, commit_ts, transactions, rows, touched (topic -> end offsets), position."""
        slot = self._slot or self._only_slot()
        records = self._records(EARLIEST).where((f.col("key") == slot) | f.col("key").startswith(f"{slot}/"))
        later = Window.orderBy(f.col("offset").desc())
        closed = records.select("*", f.from_json("value", _VALUE).alias("record")).select(
            "key", "record.*", "offset",
            f.last(f.when(f.col("key") == slot, f.col("offset")), ignorenulls=True).over(later).alias("position"),
        )  # fmt: skip
        is_slot = f.col("key") == slot
        touched = f.collect_list(f.when(~is_slot, f.struct("topic", "offsets")))
        own = {name: f.first(f.when(is_slot, f.col(name)), ignorenulls=True).alias(name) for name in (
            "lsn", "commit_lsn", "commit_ts", "transactions", "rows"
        )}  # fmt: skip
        cuts = closed.where("position IS NOT NULL").groupBy("position").agg(
            *own.values(), f.map_from_entries(touched).alias("touched")
        )  # fmt: skip
        return cuts.select(
            _lsn_number("lsn"),
            _lsn_number("commit_lsn"),
            f.timestamp_micros("commit_ts").alias("commit_ts"),
            "transactions",
            "rows",
            "touched",
            "position",
        ).orderBy("position")

    def at(self, moment: Moment | None = None, since: Cut | None = None) -> Cut:
        """The newest cut (None), the first one that reaches an LSN, or the last one of a time.

        `since` is an older cut that is known: only what came after it is read.
        Raises GapError if Kafka does not hold the moment yet, or not any more; Refused if there is nothing at all.
        """
        slot = self._slot or self._only_slot()
        if moment is None:
            return self._read(slot, since, None)
        if isinstance(moment, datetime):
            aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
            found = self._slots(slot, since).where(f.col("commit_ts") <= int(aware.timestamp() * 1_000_000))
            position, wanted = found.agg(f.max("position")).first()[0], moment.isoformat()
        else:
            number = parse_lsn(moment) if isinstance(moment, str) else moment
            found = self._slots(slot, since).where(f.col("lsn") >= number)
            position, wanted = found.agg(f.min("position")).first()[0], format_lsn(number)
        if position is None:
            newest = self._read(slot, since, None)
            raise GapError(
                f"the topics do not hold {wanted}: the newest cut is {format_lsn(newest.lsn)}, slot {slot}",
                "Wait until the daemon has come so far (cdcd_lag_bytes), or ask for a time that progress still covers",
            )
        return self._read(slot, since, int(position))

    def within(self, rows_max: int, since: Cut | None, applied: Mapping[str, Sequence[int]], position: int) -> Cut:
        """The newest cut that is at most `rows_max` events after what is `applied`, but at least the next one.

        `applied`: end offsets by topic; `position`: of the slot record that they belong to, -1 before the first.
        """
        slot = self._slot or self._only_slot()
        newest = self._read(slot, since, None)
        behind = 0
        for topic, record in newest.tables.items():
            known = applied.get(topic, ())
            starts = (*known, *(0 for _ in range(len(record.offsets) - len(known))))
            behind += sum(end - start for end, start in zip(record.offsets, starts, strict=True))
        if behind <= rows_max:
            return newest
        running = f.sum("rows").over(Window.orderBy("position"))
        slots = self._slots(slot, since).where(f.col("position") > position)
        slots = slots.select("position", (running <= rows_max).alias("fits"))
        found = slots.agg(f.max(f.when(f.col("fits"), f.col("position"))), f.min("position")).first()
        chosen = found[0] if found[0] is not None else found[1]
        return newest if chosen is None else self._read(slot, since, int(chosen))

    def _read(self, slot: str, since: Cut | None, position: int | None) -> Cut:
        """The cut of the slot record at `position` (None: the newest)."""
        records = self._records(_after(since)).where((f.col("key") == slot) | f.col("key").startswith(f"{slot}/"))
        if position is not None:
            records = records.where(f.col("offset") <= position)
        with self._kafka.errors(f"reading {self._topic}"):
            newest = records.groupBy("key").agg(f.max_by("value", "offset").alias("value"), f.max("offset").alias("at"))
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
                f"{self._topic} holds no progress of a slot {slot}", "Start cdcd run, and check prefix and slot"
            )
        if since is not None and own.lsn < since.lsn:
            raise GapError(
                f"the progress of slot {slot} went back from {format_lsn(since.lsn)} to {format_lsn(own.lsn)}",
                "The topics were made anew: start the mirror over, under another name",
            )
        parked = tuple(f"{each.schema}.{each.table}" for each in own.parked)
        return Cut(slot, own.lsn, own.commit_lsn, own.commit_ts, at, tables, parked)

    def _slots(self, slot: str, since: Cut | None) -> DataFrame:
        records = self._records(_after(since)).where(f.col("key") == slot)
        parsed = records.select("offset", f.from_json("value", _VALUE).alias("record"))
        return parsed.select(
            _lsn_number("record.lsn"), "record.commit_ts", "record.rows", f.col("offset").alias("position")
        )

    def _only_slot(self) -> str:
        with self._kafka.errors(f"reading {self._topic}"):
            keys = self._records(EARLIEST).select("key").where("NOT contains(key, '/')").distinct().collect()
        slots = sorted(row["key"] for row in keys)
        if len(slots) > 1:
            raise SettingsError(
                f"several slots feed {self._topic}: {', '.join(slots)}", "Name one of them: Cdc(..., slot=...)"
            )
        if not slots:
            raise RequestRejected(
                f"{self._topic} holds no progress yet", "Start cdcd run, and check bootstrap and prefix"
            )
        self._slot = str(slots[0])
        return self._slot

    def _records(self, since: int) -> DataFrame:
        records = self._kafka.whole(self._topic, since).where("key IS NOT NULL AND value IS NOT NULL")
        return records.select(f.col("key").cast("string"), f.col("value").cast("string"), "offset")


def _after(since: Cut | None) -> int:
    return EARLIEST if since is None else since.position + 1


def _lsn_number(column: str) -> Column:
    parts = f.split(column, "/")
    high, low = (f.conv(parts[index], 16, 10).cast("bigint") for index in (0, 1))
    return (f.shiftleft(high, 32) + low).alias(column.rpartition(".")[2])
