"""Compares topics with tables at one LSN, while writers go on.

Before: `cdcd verify` names tables; a daemon is running. After: `cdcd verify` prints the differences.

1. Wait until no snapshot of the tables is under way, and take one of PostgreSQL at an exact LSN (`postgres_checksums`).
2. Wait until the progress topic shows that Kafka has everything before that LSN (`progress_wait`). Then replay the
   committed events of each topic in commit order (`topic_replay`, `commit_order`, `row_store`).
3. Compare hashes of the rows' bytes (`hash_comparison`), and then the values of those keys alone whose hashes differ.
   Where hashes cannot tell, as for a table without a key, compare checksums of all values: on both sides, divide the
   table by the digest of the key into 4,096 parts. Compare the number of rows in each part and the sum of their
   digests. In a part that differs, compare the digests of the rows, to name every key that differs. The digests sort
   the same way under every collation.

Values are compared as text, as PostgreSQL's output functions write it. `reading.postgres_text` makes the same text from
Avro's values.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected, TextUnconvertible
from cdcd.lsn import format_lsn
from cdcd.reading.json_translator import JsonTranslator
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.reading.table_schemas import TableSchemas, selected_schemas
from cdcd.sink.kafka.client_config import client_config
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.event_rows import EventReader, column_names, missing_tokens, row_schema
from cdcd.verify.hash_comparison import Candidates, HashComparison, table_namespace
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums, unconvertible
from cdcd.verify.progress_wait import check_still_whole, partial_tables, wait_for_progress, wait_until_whole
from cdcd.verify.row_store import Part, RowStore, display
from cdcd.verify.topic_replay import BATCH_ROWS_MAX, OFFSETS_MAX, WAITING_MAX, TopicReplay

log = logging.getLogger(__name__)

_PLACES_AT_ONCE: Final = 1_000

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
    schema: str = ""
    name: str = ""
    """The table, as PostgreSQL names it."""
    key: tuple[str, ...] = ()
    """The columns of its key; empty if it has none."""
    has_masked_key: bool = False
    """A column of its key is masked: PostgreSQL finds no row by such a key."""

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
        files: Path | None = None,
    ) -> None:
        """`waiting_max` and `batch_rows_max` are those of TopicReplay. `bar.show` is called all the time.

        `files`: how the names of the directories for its files begin; None: they lie where this machine has temporary
        files.
        """
        sink, url = settings.sink, settings.avro.registry_url
        self._settings = settings
        self._names = settings.topic_names()
        self._made: dict[str | int, str] = {}
        """The schemas of events in JSON, which are in no topic and no registry."""
        self._config = client_config(sink.bootstrap_servers, "cdcd-verify", sink.client_properties)
        registry = None if url is None else {"url": url, **settings.avro.registry_config}
        find = SchemaFinder(self._config, self._names.schemas, registry, known=self._made).find
        events = EventReader(find)
        self._hashes = HashComparison(self._config, find, events, settings.avro.numeric, bar)
        self._replay = TopicReplay(self._config, events, bar, waiting_max, batch_rows_max)
        self._bar = bar
        self._files = files
        self.is_waiting = False
        """It waits for Kafka to reach the LSN of its snapshot."""

    def run(self, tables: Sequence[str], wait_s: float, *, of_gap: bool = False) -> Iterator[TableResult]:
        """Compare the published tables, or `tables` (schema.table; `*` is any characters), one after the other.

        `of_gap`: the daemon asks, because the topics lack the changes of a gap; else the topics must be whole. Waits at
        most `wait_s` seconds until Kafka reaches the snapshot's LSN. Raises RequestRejected if one of `tables` is not
        published, or if Kafka does not reach the LSN; DecodeError; PostgresUnavailable; KafkaUnavailable.
        """

        def reach(server_lsn: int, names: set[tuple[str, str]]) -> int:
            slot, progress = self._settings.source.slot, self._names.progress
            self.is_waiting = True
            try:
                lsn = wait_for_progress(self._config, progress, slot, server_lsn, names, wait_s, self._bar)
                if not of_gap:
                    check_still_whole(self._settings, names)
                return lsn
            finally:
                self.is_waiting = False

        def be_whole(names: set[tuple[str, str]]) -> None:
            wait_until_whole(self._settings, names, wait_s, self._bar)

        partial = set() if tables else partial_tables(self._settings)
        if partial:
            names = ", ".join(sorted(qualified_name(*each) for each in partial))
            log.warning("not compared, because their snapshots have left out rows: %s", names)
        return self._run(tables, reach, partial, be_whole=None if of_gap else be_whole)

    def run_at(self, lsn: int, leave_out: Collection[tuple[str, str]]) -> tuple[int, list[TableResult]]:
        """Compare the published tables, except some, as they are now with everything that Kafka has before `lsn`.

        Returns the LSN of the snapshot of the tables, too, as the server knows it. Raises as `run`.
        """
        taken: list[int] = []

        def reach(server_lsn: int, _: set[tuple[str, str]]) -> int:
            taken.append(server_lsn)
            return lsn

        results = list(self._run((), reach, leave_out))
        return taken[0], results

    def _run(
        self,
        tables: Sequence[str],
        reach: Callable[[int, set[tuple[str, str]]], int],
        leave_out: Collection[tuple[str, str]] = (),
        be_whole: Callable[[set[tuple[str, str]]], None] | None = None,
    ) -> Iterator[TableResult]:
        """`reach` takes the LSN of the snapshot and the tables, and returns the LSN in Kafka up to which to compare.

        `be_whole` takes the tables before the snapshot is taken, and returns when their topics lack no rows. None: they
        may lack some.
        """
        source = self._settings.source
        selected = selected_schemas(
            tables,
            source.login,
            source.application_name,
            source.publication,
            self._names,
            self._settings.avro.numeric,
            self._settings.column_rules(),
        )
        outbox = self._settings.outbox.rules
        wanted = [each for each in selected if each[:2] not in leave_out and not outbox.matches(*each[:2])]
        if tables and selected and not wanted:
            raise RequestRejected(
                f"{qualified_name(*selected[0][:2])} is the outbox: no topic has its rows",
                "Name the other tables: cdcd verify TABLE ...",
                code="arguments-invalid",
            )
        names = [(schema, name) for schema, name, _ in wanted]
        if be_whole is not None:
            be_whole(set(names))
        with Checksums(
            source.login,
            source.application_name,
            source.publication,
            names,
            source.primary_login,
            self._settings.column_rules(),
        ) as server:
            log.info("comparing", extra={"lsn": format_lsn(server.lsn), "tables": len(wanted)})
            lsn = reach(server.lsn, set(names))
            for schema, name, schemas in wanted:
                table = _table(schema, name, schemas)
                parent, prefix = (
                    (None, "cdcd-verify-") if self._files is None else (self._files.parent, self._files.name)
                )
                with TemporaryDirectory(prefix=prefix, dir=parent) as folder:
                    store = RowStore(Path(folder) / "rows", [table.columns.index(column) for column in table.key])
                    try:
                        result = self._compare(server, table, schemas, store, Path(folder), lsn)
                    finally:
                        store.close()
                yield result

    def _compare(
        self, server: Checksums, table: ChecksummedTable, schemas: TableSchemas, store: RowStore, folder: Path, lsn: int
    ) -> TableResult:
        translator = self._translator(schemas)
        try:
            found = self._hashes.candidates(server, table, schemas.topic, lsn, folder, translator)
        except TextUnconvertible as error:
            raise unconvertible(table) from error
        if found is None:
            return self._compare_values(server, table, schemas, store, lsn, translator)
        differences: tuple[Difference, ...] = ()
        if found.keys:
            topic, columns = schemas.topic, table.columns
            is_few = sum(map(len, found.offsets.values())) <= OFFSETS_MAX
            if not (is_few and self._replay.replay_at(topic, lsn, columns, store, found.offsets, translator)):
                of_table = _namespace(table, schemas)
                self._replay.replay(topic, lsn, columns, store, found.has, translator, of_table)
            if store.has_lacked_value:
                # The event of another key may tell the value: that of the row before its key changed, or the first one
                # that knows a new column.
                store.clear()
                return self._compare_values(server, table, schemas, store, lsn, translator)
            store.finish()
            differences = tuple(_candidate_differences(server, table, store, found))
        return TableResult(
            schemas.table,
            schemas.topic,
            lsn,
            found.rows,
            found.rows_in_kafka,
            found.events,
            found.oldest_events_gone,
            differences,
            tuple(sorted(found.event_keys - {table.key})),
            table.schema,
            table.name,
            table.key,
            server.relation(table).has_masked_key,
        )

    def _translator(self, schemas: TableSchemas) -> JsonTranslator | None:
        """None: the topic has Avro."""
        self._made.clear()
        encoding = self._settings.sink.encoding
        if encoding == "avro":
            return None
        note, with_schemas = self._made.__setitem__, encoding == "json-schema"
        return JsonTranslator(schemas.key, schemas.value, note, with_schemas=with_schemas)

    def _compare_values(
        self,
        server: Checksums,
        table: ChecksummedTable,
        schemas: TableSchemas,
        store: RowStore,
        lsn: int,
        translator: JsonTranslator | None,
    ) -> TableResult:
        topic, of_table = schemas.topic, _namespace(table, schemas)
        replayed = self._replay.replay(topic, lsn, table.columns, store, None, translator, of_table)
        # No event may know a column that was added last.
        store.fill(missing_tokens(row_schema(schemas.value), table.columns))
        in_kafka = store.finish()
        self._bar.show(f"{schemas.table}: PostgreSQL computes checksums")
        in_postgres = {bucket: Part(rows, total) for bucket, rows, total in server.parts(table)}
        buckets = sorted(b for b in in_kafka.keys() | in_postgres.keys() if in_kafka.get(b) != in_postgres.get(b))
        differences = tuple(_differences(server, table, store, buckets)) if buckets else ()
        self._bar.clear()
        return TableResult(
            schemas.table,
            schemas.topic,
            lsn,
            sum(part.rows for part in in_postgres.values()),
            sum(part.rows for part in in_kafka.values()),
            replayed.events,
            replayed.oldest_events_gone,
            differences,
            tuple(sorted(replayed.keys - {table.key})),
            table.schema,
            table.name,
            table.key,
            server.relation(table).has_masked_key,
        )


def _candidate_differences(
    server: Checksums, table: ChecksummedTable, store: RowStore, found: Candidates
) -> Iterator[Difference]:
    """The keys among the candidates that differ, in the order of their buckets."""
    in_postgres: dict[str, dict[str, tuple[list[str], list[str]]]] = {}
    for number, heap in enumerate(server.heaps(table)):
        places = found.places.get(number, [])
        for at in range(0, len(places), _PLACES_AT_ONCE):
            for bucket, key_tokens, row in server.rows_at(table, heap, places[at : at + _PLACES_AT_ONCE]):
                rows = in_postgres.setdefault(bucket, {})
                rows.setdefault("".join(key_tokens), (key_tokens, []))[1].append(row)
    for bucket in sorted(in_postgres.keys() | store.buckets()):
        yield from _bucket_differences(table, store, bucket, in_postgres.get(bucket, {}))


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


def _namespace(table: ChecksummedTable, schemas: TableSchemas) -> str:
    return table_namespace(schemas.topic, table.schema, table.name)


def _table(schema: str, name: str, schemas: TableSchemas) -> ChecksummedTable:
    key = () if schemas.key is None else column_names(schemas.key)
    return ChecksummedTable(schema, name, column_names(row_schema(schemas.value)), key)
