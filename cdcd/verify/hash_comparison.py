"""Finds the keys whose rows may differ between a topic and a table, by hashes of the events' bytes.

Before: `comparison` has a snapshot of PostgreSQL, and a topic that is complete up to its LSN.
After: `comparison` looks at the values of these keys alone.

Each side is read once, and hashed, both at the same time: the topic here (`topic_hashes`), the table by COPY in another
process (`table_hashing`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import Final, Literal

from cdcd.avro.avro_names import namespace
from cdcd.progress.records import kafka_topic
from cdcd.reading.consumer import BEGINNING, TopicReader
from cdcd.reading.decoder import SchemaId, schema_id
from cdcd.reading.json_translator import JsonTranslator
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.event_rows import EventReader, row_schema
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums
from cdcd.verify.row_hashes import (
    PARTS,
    PLACE_BITS,
    HashFiles,
    KeyedHash,
    differences,
    schema_size,
)
from cdcd.verify.table_hashing import TableHashing
from cdcd.verify.topic_hashes import TopicHashes

KEYS_MAX: Final = 200_000
"""More keys that may differ are not looked at one by one."""
HEAPS_MAX: Final = 1 << 15

_MESSAGES: Final = 500
"""A batch: few enough records to stay in the cache of a core, and not to make Python look for garbage among them."""
_BATCHES: Final = 20
"""After so many the comparison looks at the other side, and shows how far it is."""
_FETCHED_AHEAD: Final = {"queued.max.messages.kbytes": 8_192}
"""Of each partition: librdkafka's own 64 MB would be most of the memory."""
_WAIT_S: Final = 0.5
_SECRET_BITS: Final = 63
_ITEM_BITS: Final = 16


@dataclass(frozen=True)
class Candidates:
    """What may differ between a topic and a table."""

    keys: frozenset[int]
    """The hashes of the keys."""
    hashed: KeyedHash
    places: Mapping[int, list[tuple[int, int]]]
    """Where the table has rows with such keys: by the number of the heap, block and item."""
    offsets: Mapping[int, list[int]]
    """Where the topic has events with such keys: by partition, ascending."""
    rows: int
    rows_in_kafka: int
    events: int
    oldest_events_gone: bool
    event_keys: frozenset[tuple[str, ...]]
    """As `topic_replay.ReplayedTopic.keys`."""

    def has(self, key: bytes) -> bool:
        """Whether the row of a record with this key may differ."""
        return self.hashed.key(key, schema_size(key)) in self.keys


class HashComparison:
    """Compares topics with tables, one after the other."""

    def __init__(
        self,
        config: Mapping[str, object],
        find: Callable[[SchemaId], str],
        events: EventReader,
        numeric: Literal["decimal", "string"],
        bar: ProgressBar,
    ) -> None:
        """`config`: properties of the Kafka client. `find` gives a schema's JSON text. `numeric`: `avro.numeric`."""
        self._config = config
        self._find = find
        self._events = events
        self._numeric: Literal["decimal", "string"] = numeric
        self._bar = bar

    def candidates(
        self,
        server: Checksums,
        table: ChecksummedTable,
        topic: str,
        before_lsn: int,
        folder: Path,
        translator: JsonTranslator | None = None,
    ) -> Candidates | None:
        """What may differ. None if hashes cannot tell: every value has to be compared.

        Events that were committed at `before_lsn` or later are passed over. `folder` is empty, and is left empty.
        `translator`: of a topic with JSON.
        Raises TextUnconvertible, DecodeError, KafkaUnavailable, PostgresUnavailable.
        """
        of_table = table_namespace(topic, table.schema, table.name)
        topic = kafka_topic(topic)
        heaps = server.heaps(table)
        if not (table.key and all(heap.in_blocks for heap in heaps) and len(heaps) < HEAPS_MAX):
            return None
        of_rows, of_topic = HashFiles(folder, "table"), HashFiles(folder, "topic")
        hashed = KeyedHash(randbits(_SECRET_BITS))
        with TableHashing(server, table, folder, hashed.secret, self._numeric) as rows:
            is_of_table = partial(self._events.is_of, table_namespace=of_table) if of_table else None
            has_rows = partial(self._has_rows, current=rows.schema)
            events = TopicHashes(of_topic, hashed, before_lsn, has_rows, translator, is_of_table)
            read, is_cut = self._read_topic(topic, events, rows)
            while (in_table := rows.result(_WAIT_S)) is None:
                self._bar.show(f"{table.schema}.{table.name}: {rows.messages:,} rows read")
            self._bar.clear()
        headers = frozenset[bytes]().union(*events.key_headers.values())
        keys = frozenset(self._events.key_columns(header or None) for header in headers)
        if in_table.without_key or events.without_key or len(keys) > 1:
            return None
        found, places, in_topic = set[int](), dict[int, list[tuple[int, int]]](), 0
        offsets: dict[int, list[int]] = {}
        for part in range(PARTS):
            different = differences(of_topic.take(part), of_rows.take(part), events.floors)
            in_topic += different.rows_in_topic
            if len(found) <= KEYS_MAX:
                found.update(different.keys)
                for place in different.events:
                    offsets.setdefault(place >> PLACE_BITS, []).append(place & ((1 << PLACE_BITS) - 1))
                for place in different.places:
                    position = place & ((1 << PLACE_BITS) - 1)
                    where = (position >> _ITEM_BITS, position & ((1 << _ITEM_BITS) - 1))
                    places.setdefault(place >> PLACE_BITS, []).append(where)
        if len(found) > KEYS_MAX:
            return None
        offsets = {partition: sorted(each) for partition, each in offsets.items()}
        return Candidates(frozenset(found), hashed, places, offsets, in_table.rows, in_topic, read, is_cut, keys)

    def _read_topic(self, topic: str, events: TopicHashes, rows: TableHashing) -> tuple[int, bool]:
        """Read a topic; return how many records it has, and whether the oldest are gone. Raises what `rows` raises."""
        with TopicReader(self._config, with_uncommitted=True) as reader:
            bounds = {partition: reader.bounds(topic, partition) for partition in reader.partitions(topic)}
        ends = {partition: end for partition, (first, end) in bounds.items() if end > first}
        total, read = sum(end - first for first, end in bounds.values()), 0

        def on_end(partition: int, offset: int) -> None:
            if offset >= ends[partition]:
                events.ended.add(partition)

        try:
            with TopicReader({**self._config, **_FETCHED_AHEAD}, on_end=on_end) as reader:
                reader.assign((topic, partition, BEGINNING) for partition in ends)
                while len(events.ended) < len(ends):
                    for _ in range(_BATCHES):
                        messages = reader.read_batch(_MESSAGES)
                        events.take(messages, ends)
                        read += len(messages)
                        if len(messages) < _MESSAGES:
                            break
                    rows.result()
                    self._bar.show(f"{topic}: {read:,} events read, {100 * read // max(1, total)} %")
        finally:
            self._bar.clear()
        return read, any(first for first, _ in bounds.values())

    def _has_rows(self, header: bytes, current: dict[str, object]) -> bool:
        """Whether events with this header have rows of the schema `current`."""
        found = schema_id(header)
        if found is None:
            return False
        envelope = json.loads(self._find(found[0]))
        return _is_envelope(envelope) and row_schema(envelope) == current


def table_namespace(topic: str, schema: str, name: str) -> str:
    """The Avro namespace by which the events of a table are told from those of others.

    `topic`: as TopicNames has it. Empty: no other table has the topic.
    """
    return namespace(schema, name) if kafka_topic(topic) != topic else ""


def _is_envelope(schema: dict[str, object]) -> bool:
    fields = schema.get("fields")
    return isinstance(fields, list) and any(each.get("name") == "before" for each in fields)
