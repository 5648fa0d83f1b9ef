"""Hashes the rows of a topic's events.

Before: `hash_comparison` reads events from Kafka. After: `row_hashes` compares the hashes with those of the table.

Hot path, compiled: every event passes once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64

from cdcd.avro.envelope_head import after_long, read_long
from cdcd.reading.consumer import Message
from cdcd.reading.decoder import is_key_of_row, not_an_event
from cdcd.reading.json_translator import JsonTranslator
from cdcd.verify.row_hashes import GONE, PLACE_BITS, UNKNOWN, HashFiles, KeyedHash, image_at, schema_size

_DELETE: Final = 0x64
_TRUNCATE: Final = 0x74

_OTHER_TABLE: Final = 0
_OTHER_SCHEMA: Final = 1
_CURRENT: Final = 2
"""The kinds of events, by their headers: of another table, or of the table, with or without the schema of its rows."""


@final
class TopicHashes:
    """Takes the events of a topic, those of each partition in the order of their offsets."""

    def __init__(
        self,
        files: HashFiles,
        hashed: KeyedHash,
        before_lsn: int,
        has_rows_schema: Callable[[bytes], bool],
        translator: JsonTranslator | None = None,
        is_of_table: Callable[[bytes], bool] | None = None,
    ) -> None:
        """Events that were committed at `before_lsn` or later are passed over.

        `has_rows_schema` says of the header of an event whether its schema is the one that the rows of the table have.
        `translator`: of a topic with JSON.
        `is_of_table`: whether the event is one of the table, for a topic that other tables share.
        """
        self._files = files
        self._hashed = hashed
        self._before_lsn: i64 = before_lsn
        self._has_rows_schema = has_rows_schema
        self._translator = translator
        self._is_of_table = is_of_table
        self._known: dict[bytes, int] = {}
        """The kinds of the headers that have come."""
        self._header = b""
        """The header of the last event; empty before the first."""
        self._kind: i64 = _OTHER_SCHEMA
        """That of the last header."""
        self._key_header = b""
        """The header of the last key, which `key_headers` has under `_key_partition`."""
        self._key_partition = -1
        self.floors: dict[int, int] = {}
        """By partition, the offset of its last truncate event."""
        self.key_headers: dict[int, set[bytes]] = {}
        """By partition, the headers of the keys since its last truncate event; an empty one for events without a
        key."""
        self.without_key = 0
        """Events of rows that have no key."""
        self.ended: set[int] = set()
        """The partitions that were taken to their ends."""

    def take(self, messages: list[Message], ends: dict[int, int]) -> None:
        """Take records, which have no errors. `ends`: by partition, the offset at which the caller stops.

        Raises DecodeError if one is no event.
        """
        # To have `map` call the methods takes half as long as to call them here.
        for value, key, partition, offset in zip(
            map(Message.value, messages),
            map(Message.key, messages),
            map(Message.partition, messages),
            map(Message.offset, messages),
            strict=False,
        ):
            assert partition is not None
            assert offset is not None
            end = ends[partition]
            if value is not None and offset < end:
                assert isinstance(value, bytes)
                assert key is None or isinstance(key, bytes)
                try:
                    if self._translator is None:
                        self.add(key, value, partition, offset)
                    else:
                        if key is not None and is_key_of_row(key):
                            key = self._translator.key(key)  # noqa: PLW2901
                        self.add(key, self._translator.event(value), partition, offset)
                except IndexError:
                    raise not_an_event(value) from None
            if offset + 1 >= end:
                self.ended.add(partition)

    def add(self, key: bytes | None, value: bytes, partition: int, offset: int) -> bool:
        """Take an event. Returns whether it counts. Raises IndexError if it is cut off, DecodeError if it is none."""
        if not self._header or not value.startswith(self._header):
            self._begin_schema(value)
        if self._kind == _OTHER_TABLE:
            return False
        size: i64 = len(self._header)
        op: i64 = value[size + 1]
        lsn = read_long(value, size + 2)
        if lsn >= self._before_lsn:
            return False
        if op == _TRUNCATE:
            self.floors[partition] = offset
            self.key_headers[partition] = set()
            self._key_partition = -1
            return True
        if key is None:
            self.without_key += 1
            self.key_headers.setdefault(partition, set()).add(b"")
            return True
        if partition != self._key_partition or not key.startswith(self._key_header):
            self._key_partition = partition
            self._key_header = key[: schema_size(key)]
            self.key_headers.setdefault(partition, set()).add(self._key_header)
        row: i64 = UNKNOWN
        if op == _DELETE:
            row = GONE
        elif self._kind == _CURRENT:
            at = image_at(value, after_long(value, size + 2), self._is_of_table is not None)
            if at != 0:
                row = self._hashed.row(value, at)
        place = i64(partition) << PLACE_BITS | i64(offset)
        self._files.add(self._hashed.key(key, len(self._key_header)), row, place, lsn)
        return True

    def _begin_schema(self, value: bytes) -> None:
        header = value[: schema_size(value)]
        known = self._known.get(header)
        if known is None:
            if self._is_of_table is not None and not self._is_of_table(header):
                known = _OTHER_TABLE
            else:
                known = _CURRENT if self._has_rows_schema(header) else _OTHER_SCHEMA
            self._known[header] = known
        self._header = header
        self._kind = known
