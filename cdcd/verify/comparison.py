"""Compares topics with tables at one LSN, while writers go on.

Before: `cdcd verify` names tables; a daemon is running. After: `cdcd verify` prints the differences.

1. Take a snapshot of PostgreSQL at an exact LSN (`postgres_checksums`).
2. Wait until the progress topic shows that Kafka has everything before that LSN (`progress_wait`). Then replay the
   committed events of each topic in commit order (`topic_replay`, `commit_order`, `row_store`).
3. On both sides, divide each table by the digest of the key into 4,096 parts. Compare the number of rows in each part
   and the sum of their digests. In a part that differs, compare the digests of the rows, to name every key that
   differs. The digests sort the same way under every collation.

Values are compared as text, as PostgreSQL's output functions write it. `reading.postgres_text` makes the same text from
Avro's values.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cdcd.config.settings import Settings
from cdcd.lsn import format_lsn
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.reading.table_schemas import TableSchemas, selected_schemas
from cdcd.sink.kafka.client_config import client_config
from cdcd.sink.topics import TopicNames
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.event_rows import EventReader, column_names, row_schema
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums
from cdcd.verify.progress_wait import wait_for_progress
from cdcd.verify.row_store import Part, RowStore, display
from cdcd.verify.topic_replay import BATCH_ROWS_MAX, WAITING_MAX, TopicReplay

log = logging.getLogger(__name__)

CHANGED: Final = "changed"
"""Both sides have the key, with different values."""
MISSING: Final = "missing"
"""Only PostgreSQL has the row."""
EXTRA: Final = "extra"
"""Only Kafka has the row."""


@dataclass(frozen=True)
class Difference:
    """One key that differs. In a table without a key, the key is the whole row."""

    table: str
    difference: str
    """CHANGED, MISSING or EXTRA."""
    key: dict[str, str | None] = field(default_factory=dict)
    """Column to PostgreSQL's text of the value; None is null."""


@dataclass(frozen=True)
class TableResult:
    """The result of comparing one table."""

    table: str
    topic: str
    lsn: int
    rows: int
    """Rows in PostgreSQL."""
    rows_in_kafka: int
    events: int
    oldest_events_gone: bool
    """Retention has removed the topic's first events: rows may be missing for that reason."""
    differences: tuple[Difference, ...]
    other_keys: tuple[tuple[str, ...], ...] = ()
    """Keys of the topic's events other than that of the table: it has changed since. Empty columns: events without a
    key. Only events since the last truncate event count."""

    @property
    def is_equal(self) -> bool:
        """Whether there is no difference."""
        return not self.differences

    def count(self, difference: str) -> int:
        """How many differences are of this kind."""
        return sum(each.difference == difference for each in self.differences)


class Comparison:
    """Compares the tables of a publication with their topics."""

    def __init__(
        self,
        settings: Settings,
        bar: ProgressBar,
        waiting_max: int = WAITING_MAX,
        batch_rows_max: int = BATCH_ROWS_MAX,
    ) -> None:
        """`waiting_max` and `batch_rows_max` are those of TopicReplay."""
        sink, url = settings.sink, settings.avro.registry_url
        self._settings = settings
        self._names = TopicNames(sink.prefix, sink.topic)
        self._config = client_config(sink.bootstrap_servers, "cdcd-verify", sink.librdkafka)
        registry = None if url is None else {"url": url, **settings.avro.registry_config}
        events = EventReader(SchemaFinder(self._config, self._names.schemas, registry).find)
        self._replay = TopicReplay(self._config, events, bar, waiting_max, batch_rows_max)
        self._bar = bar

    def run(self, tables: Sequence[str], wait_s: float) -> Iterator[TableResult]:
        """Compare the published tables, or `tables` (schema.table; `*` is any characters), one after the other.

        Waits at most `wait_s` seconds until Kafka reaches the snapshot's LSN. Raises RequestRejected if one of `tables`
        is not published, or if Kafka does not reach the LSN; DecodeError; PostgresUnavailable; KafkaUnavailable.
        """
        source = self._settings.source
        wanted = selected_schemas(
            tables, source.dsn, source.application_name, source.publication, self._names, self._settings.avro.numeric
        )
        names = [(schema, name) for schema, name, _ in wanted]
        with Checksums(source.dsn, source.application_name, source.publication, names) as server:
            log.info("comparing", extra={"lsn": format_lsn(server.lsn), "tables": len(wanted)})
            wait_for_progress(
                self._config, self._names.progress, source.slot, server.lsn, set(names), wait_s, self._bar
            )
            for schema, name, schemas in wanted:
                table = _table(schema, name, schemas)
                with TemporaryDirectory(prefix="cdcd-verify-") as folder:
                    store = RowStore(Path(folder) / "rows", [table.columns.index(column) for column in table.key])
                    try:
                        result = self._compare(server, table, schemas, store)
                    finally:
                        store.close()
                yield result

    def _compare(
        self, server: Checksums, table: ChecksummedTable, schemas: TableSchemas, store: RowStore
    ) -> TableResult:
        replayed = self._replay.replay(schemas.topic, server.lsn, table.columns, store)
        in_kafka = store.finish()
        self._bar.show(f"{schemas.table}: PostgreSQL computes checksums")
        in_postgres = {bucket: Part(rows, total) for bucket, rows, total in server.parts(table)}
        buckets = sorted(b for b in in_kafka.keys() | in_postgres.keys() if in_kafka.get(b) != in_postgres.get(b))
        differences = tuple(_differences(server, table, store, buckets)) if buckets else ()
        self._bar.clear()
        return TableResult(
            schemas.table,
            schemas.topic,
            server.lsn,
            sum(part.rows for part in in_postgres.values()),
            sum(part.rows for part in in_kafka.values()),
            replayed.events,
            replayed.oldest_events_gone,
            differences,
            tuple(sorted(replayed.keys - {table.key})),
        )


def _differences(
    server: Checksums, table: ChecksummedTable, store: RowStore, buckets: Sequence[str]
) -> Iterator[Difference]:
    """The keys that differ in these buckets, one bucket after the other."""
    waiting = list(reversed(buckets))
    in_postgres: dict[str, tuple[list[str], list[str]]] = {}
    for bucket, key_tokens, row in server.rows(table, buckets):
        while waiting and waiting[-1] != bucket:
            yield from _bucket_differences(table, store, waiting.pop(), in_postgres)
            in_postgres.clear()
        key = "".join(key_tokens) if table.key else row
        in_postgres.setdefault(key, (key_tokens, []))[1].append(row)
    while waiting:
        yield from _bucket_differences(table, store, waiting.pop(), in_postgres)
        in_postgres.clear()


def _bucket_differences(
    table: ChecksummedTable, store: RowStore, bucket: str, in_postgres: dict[str, tuple[list[str], list[str]]]
) -> Iterator[Difference]:
    """The keys that differ in one bucket. `in_postgres`: by key, the key's tokens and the digests of its rows."""
    in_kafka = {key: (tokens, [row] * times) for key, tokens, row, times in store.rows(bucket)}
    for key in sorted(in_kafka.keys() | in_postgres.keys()):
        tokens, rows = in_kafka.get(key, ([], []))
        postgres_tokens, postgres_rows = in_postgres.get(key, ([], []))
        if sorted(rows) == sorted(postgres_rows):
            continue
        if rows and postgres_rows and table.key:
            kind = CHANGED
        else:
            kind = MISSING if len(rows) < len(postgres_rows) else EXTRA
        names = table.key or table.columns
        values = map(display, tokens or postgres_tokens)
        yield Difference(qualified_name(table.schema, table.name), kind, dict(zip(names, values, strict=True)))


def _table(schema: str, name: str, schemas: TableSchemas) -> ChecksummedTable:
    key = () if schemas.key is None else column_names(schemas.key)
    return ChecksummedTable(schema, name, column_names(row_schema(schemas.value)), key)
