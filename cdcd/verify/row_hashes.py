"""Hashes of the rows of a topic and of a table, divided by their keys into files, and compared part by part.

Before: `topic_hashes` hashes the events of a topic, `table_process` the rows of a table.
After: `hash_comparison` looks only at keys whose hashes differ.

An event's row is compared by its bytes: Avro has one form of a value, and the daemon writes rows of a snapshot as it
writes rows of the stream. So equal bytes under one schema are equal rows. Other bytes may be equal rows, too: of
another schema, or with a value that the event leaves out. These are looked at one by one.

Hot path, compiled: every event and every row passes once. One row is 32 bytes in a file, and a part of the files is in
memory at a time.
"""

from __future__ import annotations

import os
from _imp import source_hash
from pathlib import Path
from typing import Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, read_i64_le, write_i64_be
from mypy_extensions import i64

from cdcd.avro.envelope_head import after_long, header_size, read_long
from cdcd.avro.single_object import HEADER_SIZE
from cdcd.reading.decoder import not_an_event
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.source.pg_types import Attribute
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.record_consumer import RecordConsumer

_PART_BITS: Final = 8
PARTS: Final = 1 << _PART_BITS
_FLUSH_BYTES: Final = 16_384
_RECORD_BYTES: Final = 32

_SHORT_KEY_BYTES: Final = 7
_MASK: Final = 0x7FFF_FFFF_FFFF_FFFF
_ODD: Final = 0x58476D1CE4E5B9D1
"""Its ones are spread over all its bits."""

_SHARES: Final = 16
"""A part that differs is divided into so many shares, and only the shares that differ are compared row by row."""

GONE: Final = 0
"""Instead of a row's hash: the event removes the row."""
UNKNOWN: Final = 1
"""Instead of a row's hash: the bytes of the event do not tell the row."""

PLACE_BITS: Final = 48
"""A place is the number of a partition or heap, and so many bits of the position in it."""


def schema_size(data: bytes) -> i64:
    """How many bytes of a key or event name its schema. Raises DecodeError if it is none of cdcd's."""
    size = header_size(data)
    if size == 0 or len(data) < size:
        raise not_an_event(data)
    return size


@final
class KeyedHash:
    """Hashes keys and rows. With another secret the hashes are others, so nobody can prepare rows that share one.

    Unlike `hash`, it gives the same in all processes that have the secret. It is Python's SipHash-1-3, with which
    Python finds out whether a module's source has changed. A short key, such as a number, is mixed with the secret
    instead: that takes a tenth of the time, and no two short keys have the same hash.
    """

    def __init__(self, secret: int) -> None:
        """`secret`: a random number of 63 bits."""
        self.secret = secret
        self._secret: i64 = secret

    def key(self, key: bytes, at: i64) -> i64:
        """The hash of a record's key without its schema: from `at` on."""
        end: i64 = len(key)
        if end - at > _SHORT_KEY_BYTES:
            return read_i64_le(source_hash(self.secret, key[at:]), 0)
        # Each step can be undone: the size and the bytes, the secret, and twice a product with an odd number.
        found: i64 = end - at
        while at < end:
            found = found << 8 | key[at]
            at += 1
        found ^= self._secret
        found = (found ^ found >> 32) * _ODD & _MASK
        found = (found ^ found >> 29) * _ODD & _MASK
        return found ^ found >> 32

    def row(self, value: bytes, at: i64) -> i64:
        """The hash of a row, which begins at `at`; neither GONE nor UNKNOWN."""
        found = read_i64_le(source_hash(self.secret, value[at:]), 0)
        return found if found != GONE and found != UNKNOWN else 2


@final
class HashFiles:
    """The hashes of one side, in files of a directory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths = str(folder / name)
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

    def flush(self) -> None:
        """Write everything, so that another process can take it."""
        for part in range(PARTS):
            self._flush(part)

    def take(self, part: i64) -> bytes:
        """Return what was added to a part, in this order, and remove it."""
        self._flush(part)
        path = Path(self._path(part))
        found = path.read_bytes()
        path.unlink()
        return found

    def _flush(self, part: i64) -> None:
        data = self._buffers[part].getvalue()
        # A file object takes longer to make than the bytes to write.
        file = os.open(self._path(part), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        self._buffers[part].truncate(0)

    def _path(self, part: i64) -> str:
        return f"{self._paths}{part}"


@final
class TableHashes(RecordConsumer):
    """Takes the events that the rows of a table give, and hashes them."""

    def __init__(self, files: HashFiles, hashed: KeyedHash, names_table: bool = False) -> None:
        """`names_table`: the events name their table, because others share its topic."""
        self._files = files
        self._hashed = hashed
        self._names_table = names_table
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
        at = image_at(value, after_long(value, HEADER_SIZE + 2), self._names_table)
        self._files.add(self._hashed.key(key, HEADER_SIZE), self._hashed.row(value, at), self._place, 0)

    def set_hash(self, table: i64, key_hash: i64) -> None:
        pass

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
    _divide(found, topic, table, floors, 1, 0, _sum(topic, floors, 1, 0), _sum(table, {}, 1, 0))
    if found.keys:
        _find_events(found, topic, floors)
    return found


def _divide(
    found: PartDifferences,
    topic: bytes,
    table: bytes,
    floors: dict[int, int],
    shares: i64,
    share: i64,
    of_topic: tuple[i64, i64],
    of_table: tuple[i64, i64],
) -> None:
    """Compare one share of so many by the sums of both sides; halve it where they differ, down to the smallest share.

    If they do not, the topic has just one event for each row of the table: its newest then. So each row is equal, and
    need not be looked at.
    """
    if of_topic == of_table:
        found.rows_in_topic += int(of_topic[0])
        return
    if shares == _SHARES:
        _compare(found, topic, table, floors, share)
        return
    rows, total = _sum(topic, floors, 2 * shares, share)
    table_rows, table_total = _sum(table, {}, 2 * shares, share)
    half, table_half = (rows, total), (table_rows, table_total)
    rest = (of_topic[0] - rows, of_topic[1] - total)
    table_rest = (of_table[0] - table_rows, of_table[1] - table_total)
    _divide(found, topic, table, floors, 2 * shares, share, half, table_half)
    _divide(found, topic, table, floors, 2 * shares, share + shares, rest, table_rest)


def _sum(part: bytes, floors: dict[int, int], shares: i64, share: i64) -> tuple[i64, i64]:
    """The number of rows or events, and the sum of the products of both hashes: the same for the same rows."""
    rows: i64 = 0
    total: i64 = 0
    at: i64 = 0
    end: i64 = len(part)
    while at < end:
        key = read_i64_be(part, at)
        if _is_of(key, shares, share) and (not floors or _counts(read_i64_be(part, at + 16), floors)):
            rows += 1
            total += key * read_i64_be(part, at + 8)  # compiled, it wraps, alike on both sides
        at += _RECORD_BYTES
    return rows, total


def _is_of(key: i64, shares: i64, share: i64) -> bool:
    return (key >> _PART_BITS) & (shares - 1) == share


def _share(key: i64) -> i64:
    return (key >> _PART_BITS) & (_SHARES - 1)


def _compare(found: PartDifferences, topic: bytes, table: bytes, floors: dict[int, int], share: i64) -> None:
    """Compare one share of a part, row by row."""
    newest: dict[int, int] = {}
    ambiguous: set[int] = set()
    at: i64 = 0
    end: i64 = len(topic)
    while at < end:
        place = read_i64_be(topic, at + 16)
        if _is_of(read_i64_be(topic, at), _SHARES, share) and _counts(place, floors):
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
    while at < end:
        if _is_of(read_i64_be(table, at), _SHARES, share):
            key = int(read_i64_be(table, at))
            known = newest.get(key)
            row: i64 = GONE
            if known is not None:
                row = read_i64_be(topic, i64(known) + 8)
                newest[key] = -1  # seen
            if row != GONE:
                found.rows_in_topic += 1
            if row != read_i64_be(table, at + 8) or key in ambiguous:
                found.keys.append(key)
                found.places.append(int(read_i64_be(table, at + 16)))
        at += _RECORD_BYTES
    for key, known in newest.items():
        if known >= 0 and (read_i64_be(topic, i64(known) + 8) != GONE or key in ambiguous):
            found.keys.append(key)
            found.rows_in_topic += 1


def _find_events(found: PartDifferences, topic: bytes, floors: dict[int, int]) -> None:
    """Note where the events of the keys are: so nobody has to read the whole topic for them."""
    wanted = set(found.keys)
    in_shares: i64 = 0
    for each in found.keys:
        in_shares |= 1 << _share(i64(each))
    at: i64 = 0
    end: i64 = len(topic)
    while at < end:
        key = read_i64_be(topic, at)
        if in_shares >> _share(key) & 1 and int(key) in wanted:
            place = read_i64_be(topic, at + 16)
            if _counts(place, floors):
                found.events.append(int(place))
        at += _RECORD_BYTES


def _counts(place: i64, floors: dict[int, int]) -> bool:
    """Whether an event comes after the last truncate event of its partition."""
    floor = floors.get(int(place >> PLACE_BITS))
    return floor is None or (place & ((1 << PLACE_BITS) - 1)) > i64(floor)


def image_at(value: bytes, at: i64, names_table: bool = False) -> i64:
    """Where the new row of an event begins, if its old one is left out; else 0. `at`: after the commit LSN."""
    for _ in range(4):  # seq, lsn, xid, commit_ts
        at = after_long(value, at)
    if value[at] != 0:  # the origin
        at = _after_text(value, at + 1)
    else:
        at += 1
    if names_table:
        at = _after_text(value, _after_text(value, at))
    at = _after_text(value, at)  # the identity
    if value[at] != 0 or value[at + 1] == 0:
        return 0
    return at + 2


def _after_text(value: bytes, at: i64) -> i64:
    return after_long(value, at) + read_long(value, at)
