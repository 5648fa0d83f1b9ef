"""`cdcd verify`: whether the topics hold what the tables hold, at one LSN, while writers go on.

Before: `cli.main` has loaded the settings; a daemon runs. After: a person reads what differs, or a script the JSON.

1. The server's side is a snapshot of an exact LSN (`source.checksums`).
2. The progress topic tells when Kafka holds everything before that LSN. What the topics hold up to there is read,
   `read_committed`, and folded in the order of the commits, a table after the other (`commit_order`, `fold`).
3. Both sides are parted by the digest of the key, 4,096 parts a table, each with its number of rows and the sum of
   their digests. Of the parts that differ, and only of those, the rows' digests are compared, so every key that differs
   is named. What a key's digest says is no order: it is the same on both sides, whatever the collation.

Values are compared by the text that PostgreSQL's output functions write, which `postgres_text` makes of Avro's.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TextIO

import fastavro
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.clock import monotonic_s
from cdcd.config.settings import Settings
from cdcd.errors import DecodeError, KafkaUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.records import ParkedTable, SlotRecord, parse_record
from cdcd.reading.consumer import committed_consumer, received
from cdcd.reading.decoder import SchemaId, schema_id
from cdcd.reading.postgres_text import Render, renderers, without_logical_types
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.reading.table_schemas import TableSchemas, published
from cdcd.sink.kafka.client_config import client_config
from cdcd.sink.kafka.errors import kafka_error, to_cdcd_error
from cdcd.sink.topics import TopicNames
from cdcd.source.session import Session
from cdcd.source.table_selection import select_published
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.commit_order import CommitOrder, Position
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums
from cdcd.verify.row_store import BUCKET_DIGITS, SHORT, SUM_DIGITS, Part, RowStore, piece, shown

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0
BATCH_ROWS_MAX: Final = 2_000
BATCH_WAIT_S: Final = 0.2
PROGRESS_BEHIND: Final = 1_000
"""How far before its end the progress topic is read: the newest slot record is there."""
WAITING_MAX: Final = 50_000
"""Events that wait for those of a partition that is behind: then the others are held."""


@dataclass
class Verdict:
    """What was found of one table."""

    table: str
    topic: str
    rows: int = 0
    rows_in_kafka: int = 0
    events: int = 0
    cut_off: bool = False
    """The topic's oldest events are gone: rows may be missing for that reason."""
    differ: int = 0
    missing: int = 0
    extra: int = 0

    @property
    def equal(self) -> bool:
        """Whether there is no difference."""
        return not (self.differ or self.missing or self.extra)

    def as_text(self) -> str:
        """One line."""
        said = f"{self.rows:,} rows, equal" if self.equal else self._differences()
        hint = "; the topic's oldest events are gone (retention), and rows with them" if self.cut_off else ""
        return f"{self.table}: {said}{hint}"

    def _differences(self) -> str:
        counts = {"differ": self.differ, "missing in Kafka": self.missing, "only in Kafka": self.extra}
        said = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"{said} (PostgreSQL has {self.rows:,} rows, Kafka {self.rows_in_kafka:,})"


@dataclass(frozen=True)
class Difference:
    """One key that is not the same on both sides. For a table without a key, the key is the whole row."""

    table: str
    difference: str
    """differs, missing (in Kafka), extra (in Kafka)."""
    key: dict[str, str | None] = field(default_factory=dict)

    def as_text(self) -> str:
        """One line."""
        key = " ".join(f"{name}={'null' if value is None else value}" for name, value in self.key.items())
        return f"    {self.difference:8} {key}"


def verify(settings: Settings, tables: Sequence[str], *, wait_s: float, as_json: bool, out: TextIO) -> bool:
    """Compare the published tables (of `tables`: schema.table, `*` stands for any characters) and write what was found.

    Waits `wait_s` at most for Kafka to get to the snapshot's LSN. Returns whether all is equal. Raises RequestRejected
    if one of `tables` is not published, or the daemon does not get on; else what the rooms raise.
    """
    comparison = _Comparison(settings, out, as_json)
    try:
        return comparison.run(tables, wait_s)
    except KafkaException as error:
        raise to_cdcd_error(kafka_error(error), "reading topics", settings.sink.bootstrap_servers) from error


class _Comparison:
    """One run of the command."""

    def __init__(self, settings: Settings, out: TextIO, as_json: bool) -> None:
        sink, url = settings.sink, settings.avro.registry_url
        self._settings = settings
        self._names = TopicNames(sink.prefix, sink.topic)
        self._config = client_config(sink.bootstrap_servers, "cdcd-verify", sink.librdkafka)
        registry = None if url is None else {"url": url, **settings.avro.registry_config}
        self._reader = _EventReader(SchemaFinder(self._config, self._names.schemas, registry))
        self._out = out
        self._as_json = as_json
        self._bar = ProgressBar(sys.stderr)

    def run(self, tables: Sequence[str], wait_s: float) -> bool:
        source = self._settings.source
        wanted = self._wanted(tables)
        sizes = {"short": SHORT, "bucket_digits": BUCKET_DIGITS, "sum_digits": SUM_DIGITS}
        with Checksums(source.dsn, source.application_name, **sizes) as server:
            log.info("comparing", extra={"lsn": format_lsn(server.lsn), "tables": len(wanted)})
            self._wait_for_kafka(server.lsn, {(schema, name) for schema, name, _ in wanted}, wait_s)
            equal = True
            for schema, name, made in wanted:
                table = _table(source.publication, schema, name, made)
                with TemporaryDirectory(prefix="cdcd-verify-") as folder:
                    fold = RowStore(Path(folder) / "rows", [table.columns.index(column) for column in table.key])
                    try:
                        verdict = self._compare(server, table, made, fold)
                    finally:
                        fold.close()
                equal = equal and verdict.equal
        return equal

    def _wanted(self, tables: Sequence[str]) -> list[tuple[str, str, TableSchemas]]:
        source = self._settings.source
        with Session(source.dsn, source.application_name) as session:
            types = TypeOptions(self._settings.avro.numeric, any_encoding=session.encoding == "SQL_ASCII")
            found = list(published(session, source.publication, self._names, types))
        names = set(select_published(tables, [made.table for _, _, made in found], source.publication))
        if not names:
            raise RequestRejected(
                f"the publication {source.publication} has no tables, or does not exist",
                f'Add some: ALTER PUBLICATION "{source.publication}" ADD TABLE ...',
            )
        return [each for each in found if each[2].table in names]

    # Kafka

    def _wait_for_kafka(self, lsn: int, tables: set[tuple[str, str]], wait_s: float) -> None:
        """Wait until a slot record says that everything before `lsn` is in Kafka, on the topics of these tables."""
        topic, slot = self._names.progress, self._settings.source.slot
        consumer = committed_consumer(self._config)
        deadline_s = monotonic_s() + wait_s
        reached = 0
        aside: list[ParkedTable] = []
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=REQUEST_TIMEOUT_S)
            consumer.assign([TopicPartition(topic, 0, max(low, high - PROGRESS_BEHIND))])
            while reached < lsn or aside:
                if reached >= lsn and (monotonic_s() > deadline_s or not all(each.copying for each in aside)):
                    name = f"{aside[0].schema}.{aside[0].table}"
                    raise RequestRejected(
                        f"the topic of {name} is not whole since {format_lsn(aside[0].lsn)}: {aside[0].reason}",
                        f"Wait for its copy, or run cdcd unpark {name}; or leave it out",
                    )
                if monotonic_s() > deadline_s:
                    at = f"got to {format_lsn(reached)}" if reached else "has no record of this slot"
                    raise RequestRejected(
                        f"Kafka did not get to {format_lsn(lsn)} within {wait_s:.0f} s: {topic} {at}",
                        "Is the daemon running? It must be, and --wait gives it more time",
                    )
                self._bar.show(f"waiting for Kafka to get from {format_lsn(reached)} to {format_lsn(lsn)}")
                for message in received(consumer.consume(BATCH_ROWS_MAX, BATCH_WAIT_S), self._bootstrap):
                    key, value = message.key(), message.value()
                    if key is not None and value is not None:
                        record = parse_record(bytes(key), bytes(value))
                        if isinstance(record, SlotRecord) and record.slot == slot:
                            reached = record.lsn
                            aside = [each for each in record.parked if (each.schema, each.table) in tables]
        finally:
            consumer.close()
            self._bar.clear()

    @property
    def _bootstrap(self) -> str:
        return self._settings.sink.bootstrap_servers

    def _read(self, topic: str, lsn: int, fold: RowStore, columns: Sequence[str], verdict: Verdict) -> None:
        """Fold every event of the topic that was committed before `lsn`, in the order of the commits."""
        consumer = committed_consumer(self._config, **{"enable.partition.eof": True})
        try:
            there = consumer.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
            if there.error is not None:
                return  # no event yet, no topic
            # All that is written now: what was committed before the LSN is among it. An open transaction ends soon.
            ends, begin = self._ends(topic, list(there.partitions))
            verdict.cut_off = any(begin.values())
            total = sum(ends.values()) - sum(begin.values())
            order: CommitOrder[_Change] = CommitOrder(p for p, end in ends.items() if end > begin[p])
            consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in order.left])
            held: set[int] = set()
            while order.left:
                for message in consumer.consume(BATCH_ROWS_MAX, BATCH_WAIT_S):
                    partition, offset = int(message.partition() or 0), int(message.offset() or 0)
                    error = message.error()
                    if error is not None and error.code() == KafkaError._PARTITION_EOF:
                        if offset >= ends[partition]:
                            order.end(partition)
                        continue
                    for event in received([message], self._bootstrap):
                        verdict.events += 1
                        if event.value() is not None:
                            change = self._change(bytes(event.value() or b""), lsn, fold.keyed, columns)
                            if change is not None:
                                order.put(partition, *change)
                    if offset + 1 >= ends[partition]:
                        order.end(partition)
                for partition, position, item in order.take():
                    _apply(fold, partition, position, item)
                before, held = held, order.held(held, WAITING_MAX)
                consumer.pause([TopicPartition(topic, partition) for partition in held - before])
                consumer.resume([TopicPartition(topic, partition) for partition in before - held])
                percent = 100 * verdict.events // max(1, total)
                self._bar.show(f"{verdict.table}: {verdict.events:,} events read, {percent} %")
        finally:
            consumer.close()
            self._bar.clear()

    def _ends(self, topic: str, partitions: list[int]) -> tuple[dict[int, int], dict[int, int]]:
        """Where the partitions end, uncommitted records included, and where they begin."""
        consumer = Consumer(
            {**self._config, "group.id": "cdcd-verify", "isolation.level": "read_uncommitted"}, logger=log
        )
        try:
            marks = {
                p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=REQUEST_TIMEOUT_S)
                for p in partitions
            }
        finally:
            consumer.close()
        if any(mark is None for mark in marks.values()):
            raise KafkaUnavailable(f"Kafka ({self._bootstrap}) did not say where {topic} ends")
        return {p: high for p, (_, high) in marks.items()}, {p: low for p, (low, _) in marks.items()}

    def _change(self, data: bytes, lsn: int, keyed: bool, columns: Sequence[str]) -> tuple[Position, _Change] | None:
        """What an event says, and where; None if that was committed later than the snapshot."""
        event, shape = self._reader.read(data)
        source, op = event["source"], event["op"]
        if source["commit_lsn"] >= lsn:
            return None
        gone = row = None
        if event["before"] is not None and (op == "d" or not keyed):
            gone = [p or "" for p in shape.pieces(event, "before", columns)]
        if event["after"] is not None:
            row = shape.pieces(event, "after", columns)
        return (source["commit_lsn"], source["seq"]), _Change(op, source["lsn"], gone, row)

    # Comparing

    def _compare(self, server: Checksums, table: ChecksummedTable, made: TableSchemas, fold: RowStore) -> Verdict:
        verdict = Verdict(made.table, made.topic)
        self._read(made.topic, server.lsn, fold, table.columns, verdict)
        ours = fold.finish()
        self._bar.show(f"{made.table}: PostgreSQL makes its checksums")
        theirs = {bucket: Part(rows, total) for bucket, rows, total in server.parts(table)}
        verdict.rows = sum(part.rows for part in theirs.values())
        verdict.rows_in_kafka = sum(part.rows for part in ours.values())
        differing = sorted(b for b in ours.keys() | theirs.keys() if ours.get(b) != theirs.get(b))
        found = list(_differences(server, table, fold, differing, verdict)) if differing else []
        self._bar.clear()
        if self._as_json:
            for difference in found:
                self._out.write(json.dumps(difference.__dict__, ensure_ascii=False) + "\n")
            summary = {**verdict.__dict__, "equal": verdict.equal, "lsn": format_lsn(server.lsn)}
            self._out.write(json.dumps(summary, ensure_ascii=False) + "\n")
        else:
            self._out.writelines(f"{line}\n" for line in [verdict.as_text(), *(each.as_text() for each in found)])
        self._out.flush()
        return verdict


@dataclass(frozen=True, slots=True)
class _Change:
    """What an event says."""

    op: str
    lsn: int
    gone: list[str] | None
    """The pieces of the row that is no more as it was."""
    row: list[str | None] | None


def _apply(fold: RowStore, partition: int, position: Position, change: _Change) -> None:
    if change.op == "t":
        fold.truncate(partition)
    if change.gone is not None:
        fold.remove(partition, *position, change.gone, change_lsn=change.lsn)
    if change.row is not None:
        fold.put(partition, *position, change.row, fresh=change.op != "u", change_lsn=change.lsn)


def _differences(
    server: Checksums, table: ChecksummedTable, fold: RowStore, buckets: Sequence[str], verdict: Verdict
) -> Iterator[Difference]:
    """Name the keys that differ in these parts, a part after the other."""
    waiting = list(reversed(buckets))
    theirs: dict[str, tuple[list[str], list[str]]] = {}

    def compare(bucket: str) -> Iterator[Difference]:
        ours = {key: (pieces, [row] * times) for key, pieces, row, times in fold.rows(bucket)}
        for key in sorted(ours.keys() | theirs.keys()):
            pieces, rows = ours.get(key, ([], []))
            pieces_there, rows_there = theirs.get(key, ([], []))
            if sorted(rows) == sorted(rows_there):
                continue
            kind = (
                "differs"
                if rows and rows_there and table.key
                else "missing"
                if len(rows) < len(rows_there)
                else "extra"
            )
            verdict.differ += kind == "differs"
            verdict.missing += kind == "missing"
            verdict.extra += kind == "extra"
            names = table.key or table.columns
            values = map(shown, pieces or pieces_there)
            yield Difference(verdict.table, kind, dict(zip(names, values, strict=True)))

    for bucket, pieces, row in server.rows(table, buckets):
        while waiting and waiting[-1] != bucket:
            yield from compare(waiting.pop())
            theirs.clear()
        key = "".join(pieces) if table.key else row
        theirs.setdefault(key, (pieces, []))[1].append(row)
    while waiting:
        yield from compare(waiting.pop())
        theirs.clear()


def _table(publication: str, schema: str, name: str, made: TableSchemas) -> ChecksummedTable:
    def names(fields: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        return tuple(str(f.get("pg_name", f["name"])) for f in fields if "pg_type" in f)

    key = () if made.key is None else names(made.key["fields"])
    return ChecksummedTable(publication, schema, name, names(_row(made.value)["fields"]), key)


def _row(envelope: dict[str, Any]) -> dict[str, Any]:
    """The schema of the record `Row` in that of an event."""
    [before] = [each for each in envelope["fields"] if each["name"] == "before"]
    row: dict[str, Any] = before["type"][1]
    return row


class _Shape:
    """How the values of events of one schema are written."""

    def __init__(self, envelope: dict[str, Any]) -> None:
        self.parsed = fastavro.parse_schema(without_logical_types(envelope))
        self._columns: dict[str, tuple[str, Render]] = {
            pg_name: (name, render) for name, pg_name, render in renderers(_row(envelope), {})
        }

    def pieces(self, event: dict[str, Any], image: str, columns: Sequence[str]) -> list[str | None]:
        """The pieces of a row, in the order of the table's columns; None for what PostgreSQL did not send."""
        row = event[image]
        unchanged = event["unchanged"] if image == "after" else ()
        lost = {u["column"]: u["text"] for u in event["unrepresentable"] if u["image"] == image}
        found: list[str | None] = []
        for column in columns:
            if column not in self._columns:
                found.append(piece(None))  # added later
                continue
            name, render = self._columns[column]
            value = row[name]
            if name in unchanged:
                found.append(None)
            elif value is None:
                found.append(piece(lost.get(name)))
            else:
                found.append(piece(render(value)))
        return found


class _EventReader:
    """Decodes events, and keeps what it knows of their schemas."""

    def __init__(self, finder: SchemaFinder) -> None:
        self._finder = finder
        self._shapes: dict[SchemaId, _Shape] = {}

    def read(self, data: bytes) -> tuple[dict[str, Any], _Shape]:
        """An event and its shape. Raises DecodeError if it is none."""
        found = schema_id(data)
        if found is None:
            raise DecodeError(f"A record of {len(data)} bytes is no event of cdcd's", "Did somebody else write there?")
        identifier, start = found
        if identifier not in self._shapes:
            self._shapes[identifier] = _Shape(json.loads(self._finder.find(identifier)))
        shape = self._shapes[identifier]
        try:
            event = fastavro.schemaless_reader(io.BytesIO(data[start:]), shape.parsed, None)
        except (EOFError, ValueError, IndexError, OverflowError) as error:
            raise DecodeError(f"A value of {len(data)} bytes does not fit its schema {identifier}: {error}") from error
        assert isinstance(event, dict)
        return event, shape
