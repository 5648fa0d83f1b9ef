"""Hashes of the rows of a topic and of a table, divided by their keys into files, and compared part by part.

Before: `hash_comparison` reads events from Kafka and rows from COPY. After: it looks only at keys whose hashes differ.

An event's row is compared by its bytes: Avro has one form of a value, and the daemon writes rows of a snapshot as it
writes rows of the stream. So equal bytes under one schema are equal rows. Other bytes may be equal rows, too: of
another schema, or with a value that the event leaves out. These are looked at one by one.

Hot path, compiled: every event and every row passes once. One row is 32 bytes in a file, and a part of the files is in
memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i64_be
from mypy_extensions import i64

from cdcd.avro.envelope_head import after_long, header_size, read_long
from cdcd.avro.single_object import HEADER_SIZE
from cdcd.reading.consumer import Message
from cdcd.reading.decoder import not_an_event
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.source.pg_types import Attribute
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.record_consumer import RecordConsumer

PARTS: Final = 256
_FLUSH_BYTES: Final = 16_384
_RECORD_BYTES: Final = 32

_GONE: Final = 0
"""Instead of a row's hash: the event removes the row."""
_UNKNOWN: Final = 1
"""Instead of a row's hash: the bytes of the event do not tell the row."""

_CREATE: Final = 0x63
_READ: Final = 0x72
_UPDATE: Final = 0x75
_DELETE: Final = 0x64
_TRUNCATE: Final = 0x74

PLACE_BITS: Final = 48
"""A place is the number of a partition or heap, and so many bits of the position in it."""


def schema_size(data: bytes) -> i64:
    """How many bytes of a key or event name its schema. Raises DecodeError if it is none of cdcd's."""
    size = header_size(data)
    if size == 0:
        raise not_an_event(data)
    return size


def key_hash(key: bytes) -> i64:
    """The hash of a record's key, whatever schema it names."""
    return hash(key[schema_size(key) :])


@final
class HashFiles:
    """The hashes of one side, in files of a directory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._buffers = [BytesWriter() for _ in range(PARTS)]

    def add(self, key: i64, row: i64, place: i64, lsn: i64) -> None:
        """Add a row, or an event: the hashes, where it is, and the commit LSN of the event."""
        part: i64 = key & (PARTS - 1)
        buffer = self._buffers[part]
        write_i64_be(buffer, key)
        write_i64_be(buffer, row)
        write_i64_be(buffer, place)
        write_i64_be(buffer, lsn)
        if len(buffer) >= _FLUSH_BYTES:
            self._flush(part)

    def take(self, part: i64) -> bytes:
        """Return what was added to a part, in this order, and remove it."""
        self._flush(part)
        path = self._path(part)
        found = path.read_bytes()
        path.unlink()
        return found

    def _flush(self, part: i64) -> None:
        with self._path(part).open("ab") as file:
            file.write(self._buffers[part].getvalue())
        self._buffers[part].truncate(0)

    def _path(self, part: i64) -> Path:
        return self._folder / f"{self._name}{part}"


@final
class TopicHashes:
    """Takes the events of a topic, those of each partition in the order of their offsets."""

    def __init__(self, files: HashFiles, before_lsn: int, has_rows_schema: Callable[[bytes], bool]) -> None:
        """Events that were committed at `before_lsn` or later are passed over.

        `has_rows_schema` says of the header of an event whether its schema is the one that the rows of the table have.
        It is asked once a header.
        """
        self._files = files
        self._before_lsn: i64 = before_lsn
        self._has_rows_schema = has_rows_schema
        self.is_current: dict[bytes, bool] = {}
        """What `has_rows_schema` has answered, by header."""
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
        for message in messages:
            value, key = message.value(), message.key()
            partition, offset = message.partition() or 0, message.offset() or 0
            end = ends[partition]
            if value is not None and offset < end:
                assert isinstance(value, bytes)
                assert key is None or isinstance(key, bytes)
                try:
                    self.add(key, value, partition, offset)
                except IndexError:
                    raise not_an_event(value) from None
            if offset + 1 >= end:
                self.ended.add(partition)

    def add(self, key: bytes | None, value: bytes, partition: int, offset: int) -> bool:
        """Take an event. Returns whether it counts. Raises IndexError if it is cut off."""
        size = schema_size(value)
        op: i64 = value[size + 1]
        lsn = read_long(value, size + 2)
        if lsn >= self._before_lsn:
            return False
        if op == _TRUNCATE:
            self.floors[partition] = offset
            self.key_headers[partition] = set()
            return True
        if partition not in self.key_headers:
            self.key_headers[partition] = set()
        if key is None:
            self.without_key += 1
            self.key_headers[partition].add(b"")
            return True
        size_in_key = schema_size(key)
        self.key_headers[partition].add(key[:size_in_key])
        row: i64 = _UNKNOWN
        if op == _DELETE:
            row = _GONE
        elif self._is_current(value[:size]):
            at = _image_at(value, after_long(value, size + 2))
            if at != 0:
                row = _hash(value, at)
        self._files.add(hash(key[size_in_key:]), row, i64(partition) << PLACE_BITS | i64(offset), lsn)
        return True

    def _is_current(self, header: bytes) -> bool:
        known = self.is_current.get(header)
        if known is None:
            known = self.is_current[header] = self._has_rows_schema(header)
        return known


@final
class TableHashes(RecordConsumer):
    """Takes the events that the rows of a table give, and hashes them."""

    def __init__(self, files: HashFiles) -> None:
        self._files = files
        self._place: i64 = 0
        self.rows: i64 = 0
        self.without_key: i64 = 0

    def encode(
        self, messages: list[bytes], copy: CopyFormat, changes: RelationChanges, kinds: bytes, heap: i64
    ) -> None:
        """Take the messages of one COPY, each a row of the table after its ctid. `heap`: the number of the heap."""
        for message in messages:
            at = copy.row_at(message)
            if at:
                block: i64 = i64(read_i32_be(message, at + 4)) & 0xFFFFFFFF
                item: i64 = i64(read_i16_be(message, at + 8)) & 0xFFFF
                self._place = heap << PLACE_BITS | block << 16 | item
                changes.snapshot_row(message, at + 10, kinds, 0)

    def open_table(self, schema: str, name: str) -> int:
        return 0

    def set_key(
        self, schema: str, name: str, columns: tuple[str, ...], oid: int, added: dict[str, Attribute] | None = None
    ) -> None:
        pass

    def add_schema(self, fingerprint: str, text: str) -> None:
        pass

    def request(self, values: dict[str, str]) -> None:
        pass

    def begin(self, commit_lsn: i64, commit_ts: i64) -> None:
        pass

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        self.rows += 1
        if key is None:
            self.without_key += 1
            return
        at = after_long(value, HEADER_SIZE + 2)
        self._files.add(key_hash(key), _hash(value, _image_at(value, at)), self._place, 0)

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        pass

    def commit(self, end_lsn: i64) -> None:
        pass


@final
class PartDifferences:
    """The result of comparing one part."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        """Hashes of keys whose rows may differ."""
        self.places: list[int] = []
        """Where the table has rows with such keys."""
        self.events: list[int] = []
        """Where the topic has events with such keys, since the last truncate event."""
        self.rows_in_topic = 0


def differences(topic: bytes, table: bytes, floors: dict[int, int]) -> PartDifferences:
    """Compare one part of both sides, as `HashFiles.take` returns it. `floors`: those of TopicHashes."""
    found = PartDifferences()
    newest: dict[int, int] = {}
    ambiguous: set[int] = set()
    at: i64 = 0
    end: i64 = len(topic)
    while at < end:
        place = read_i64_be(topic, at + 16)
        if _counts(place, floors):
            key = int(read_i64_be(topic, at))
            known = newest.get(key)
            if known is None:
                newest[key] = int(at)
            else:
                before: i64 = known
                if read_i64_be(topic, before + 16) >> PLACE_BITS == place >> PLACE_BITS:
                    newest[key] = int(at)
                else:
                    before_lsn = read_i64_be(topic, before + 24)
                    lsn = read_i64_be(topic, at + 24)
                    if lsn == before_lsn:
                        ambiguous.add(key)
                    if lsn >= before_lsn:
                        newest[key] = int(at)
        at += _RECORD_BYTES
    at = 0
    end = len(table)
    matched = 0
    while at < end:
        key = int(read_i64_be(table, at))
        known = newest.get(key)
        row: i64 = _GONE
        if known is not None:
            row = read_i64_be(topic, i64(known) + 8)
        if row != _GONE:
            matched += 1
        if row != read_i64_be(table, at + 8) or key in ambiguous:
            found.keys.append(key)
            found.places.append(int(read_i64_be(table, at + 16)))
        if known is not None:
            newest[key] = -1  # seen
        at += _RECORD_BYTES
    extra = 0
    for key, known in newest.items():
        if known >= 0 and (read_i64_be(topic, i64(known) + 8) != _GONE or key in ambiguous):
            found.keys.append(key)
            extra += 1
    found.rows_in_topic = matched + extra
    if found.keys:
        _find_events(found, topic, floors)
    return found


def _find_events(found: PartDifferences, topic: bytes, floors: dict[int, int]) -> None:
    """Note where the events of the keys are: so nobody has to read the whole topic for them."""
    wanted = set(found.keys)
    at: i64 = 0
    end: i64 = len(topic)
    while at < end:
        if int(read_i64_be(topic, at)) in wanted:
            place = read_i64_be(topic, at + 16)
            if _counts(place, floors):
                found.events.append(int(place))
        at += _RECORD_BYTES


def _counts(place: i64, floors: dict[int, int]) -> bool:
    """Whether an event comes after the last truncate event of its partition."""
    floor = floors.get(int(place >> PLACE_BITS))
    return floor is None or (place & ((1 << PLACE_BITS) - 1)) > i64(floor)


def _image_at(value: bytes, at: i64) -> i64:
    """Where the new row of an event begins, if its old one is left out; else 0. `at`: after the commit LSN."""
    for _ in range(4):  # seq, lsn, xid, commit_ts
        at = after_long(value, at)
    if value[at] != 0:  # the origin
        at = _after_text(value, at + 1)
    else:
        at += 1
    at = _after_text(value, at)  # the identity
    if value[at] != 0 or value[at + 1] == 0:
        return 0
    return at + 2


def _after_text(value: bytes, at: i64) -> i64:
    return after_long(value, at) + read_long(value, at)


def _hash(value: bytes, at: i64) -> i64:
    found: i64 = hash(value[at:])
    return found if found not in (_GONE, _UNKNOWN) else 2
