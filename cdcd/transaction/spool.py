"""Frames of transactions that may yet be rolled back: in memory up to a bound, then in a file a transaction.

Before: `assembler` appends what comes in stream blocks, or between Begin Prepare and Prepare.
After: `assembler` reads a transaction back, in the order of arrival, when its commit has come.
Source: `apply_spooled_messages`, `subxact_info_add` and `stream_abort_internal` in PostgreSQL's worker.c.

Where a subtransaction begins, its offset is noted. Subtransactions nest, so whatever was appended after the beginning
of one belongs to it or to its own: its rollback cuts the spool at that offset.

Nothing here outlives the process: after a restart the server sends again, and what lies in the directory is garbage. So
nothing is synced, and stale files are removed. A checksum a frame tells a disk that forgets from one that works.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from cdcd.errors import SpoolFull, Stop
from cdcd.transaction.changes import RelationChanges
from cdcd.transaction.relations import Relation
from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile

_HEADER_BYTES: Final = 8  # length 4, CRC-32 4, both little-endian
_OBJECT_BYTES: Final = 64
"""About what a bytes object costs beside its content."""


@final
class Spool:
    """All spooled transactions of one stream, and the bounds that they share."""

    def __init__(self, directory: SpoolDirectory, memory_bytes: int, bytes_max: int) -> None:
        """Make `directory`, or empty it: it must be this daemon's alone. Raises Stop if it cannot be used."""
        self._directory = directory
        self._memory_max: i64 = memory_bytes
        self._bytes_max: i64 = bytes_max
        self._memory: i64 = 0
        self._on_disk: i64 = 0
        self._spooled: dict[int, Spooled] = {}
        self._number = 0
        try:
            directory.make_empty()
        except OSError as error:
            raise Stop(
                f"the spool directory {directory.path} cannot be made: {error.strerror}",
                "Set spool.directory to one that this user may write to",
            ) from error

    @property
    def size_bytes(self) -> int:
        """What is spooled now, in memory and on disk."""
        return self._memory + self._on_disk

    def open(self, streamed: bool) -> Spooled:
        """A new, empty transaction; `streamed` tells that its frames carry xids."""
        self._number += 1
        spooled = Spooled(self, self._number, self._directory.file(self._number), streamed)
        self._spooled[self._number] = spooled
        return spooled

    def close(self) -> None:
        """Remove everything."""
        self._directory.remove()

    def grew(self, size: i64) -> None:
        """A transaction took in so many bytes of memory; the largest goes to disk if all are too much."""
        self._memory += size
        if self._memory > self._memory_max:
            largest = max(self._spooled.values(), key=_memory_of)
            self._make_room(largest.memory)
            largest.spill()

    def moved(self, memory: i64, on_disk: i64) -> None:
        """A transaction's use of memory and of disk changed by so much."""
        self._memory += memory
        self._on_disk += on_disk

    def forget(self, number: int) -> None:
        """A transaction has ended."""
        del self._spooled[number]

    def full(self, why: str) -> SpoolFull:
        """The error of a spool that cannot take more."""
        return SpoolFull(
            f"the spool in {self._directory.path} is full ({why}; {self._on_disk:,} bytes are on disk)",
            "Give it more room (spool.bytes_max, or a larger disk for spool.directory); until the daemon is started "
            "anew, large transactions wait on the server's own disk instead",
        )

    def _make_room(self, size: i64) -> None:
        if self._on_disk + size > self._bytes_max:
            raise self.full(f"spool.bytes_max is {self._bytes_max:,}")


@final
class Spooled:
    """One transaction's frames, in the order of arrival."""

    def __init__(self, spool: Spool, number: int, file: SpoolFile, streamed: bool) -> None:
        self._spool = spool
        self._number = number
        self._file = file
        self.streamed = streamed
        self.memory: i64 = 0
        """What `_frames` occupies, in bytes."""
        self.base: dict[int, RelationChanges] = {}
        """Relations that the stream had announced before this transaction, where it may rely on them (prepared
        ones)."""
        self._frames: list[bytes] = []
        self._size: i64 = 0
        """Of all frames, as they would lie in the file."""
        self._on_disk: i64 = 0
        self._last_subxid: i64 = 0
        self._subxacts: list[tuple[int, int]] = []
        """Subtransactions in order of their first frame: xid, offset of that frame."""
        self._relations: list[tuple[int, int, Relation]] = []
        """What its Relation messages announced: offset of the frame, when it came, the relation."""

    def append(self, subxid: i64, frame: bytes) -> None:
        """Take in the next frame, of the subtransaction `subxid` (the top level counts as one)."""
        if subxid != self._last_subxid:
            self._begin_subxact(subxid)
        self._frames.append(frame)
        size: i64 = len(frame)
        self._size += size + _HEADER_BYTES
        self.memory += size + _OBJECT_BYTES
        self._spool.grew(size + _OBJECT_BYTES)

    def announce(self, arrival: int, relation: Relation) -> None:
        """The frame appended next is a Relation message that came as number `arrival` and says this."""
        self._relations.append((self._size, arrival, relation))

    def relations(self) -> list[tuple[int, Relation]]:
        """What the Relation messages among the frames announce, in order: arrival and relation."""
        return [(arrival, relation) for _, arrival, relation in self._relations]

    def roll_back(self, subxid: i64) -> None:
        """Forget the frames of a subtransaction and of those inside it; it may have none."""
        for place, (known, offset) in enumerate(self._subxacts):
            if known == subxid:
                del self._subxacts[place:]
                self._last_subxid = 0
                self._truncate(offset)
                return

    def frames(self) -> Iterator[list[bytes]]:
        """All frames, about a megabyte at a time; to be read once. Raises Stop if the disk does not give them back."""
        if self._on_disk:
            yield from self._from_disk()
        yield self._frames

    def close(self) -> None:
        """Let go of memory and disk."""
        if self._on_disk:
            self._file.remove()
        self._spool.moved(-self.memory, -self._on_disk)
        self._spool.forget(self._number)
        self._frames = []

    def spill(self) -> None:
        """Move the frames from memory to the file. Raises SpoolFull if they do not fit."""
        out = BytesWriter()
        for frame in self._frames:
            checksum: i64 = crc32(frame)
            write_i32_le(out, i32(len(frame)))
            write_i32_le(out, i32(checksum - 0x1_0000_0000 if checksum >= 0x8000_0000 else checksum))
            out.write(frame)
        data = out.getvalue()
        try:
            self._file.append(data)
        except OSError as error:
            raise self._spool.full(error.strerror or str(error)) from error
        size: i64 = len(data)
        self._spool.moved(-self.memory, size)
        self._on_disk += size
        self.memory = 0
        self._frames = []

    def _begin_subxact(self, subxid: i64) -> None:
        self._last_subxid = subxid
        for known, _ in self._subxacts:
            if known == subxid:
                return
        self._subxacts.append((subxid, self._size))

    def _truncate(self, offset: i64) -> None:
        freed: i64 = 0
        while self._frames and self._size > offset:
            size: i64 = len(self._frames.pop())
            self._size -= size + _HEADER_BYTES
            freed += size + _OBJECT_BYTES
        self.memory -= freed
        self._spool.moved(-freed, 0)
        if self._size > offset:
            self._file.truncate(offset)
            self._spool.moved(0, offset - self._on_disk)
            self._on_disk = offset
            self._size = offset
        while self._relations and self._relations[-1][0] >= offset:
            self._relations.pop()

    def _from_disk(self) -> Iterator[list[bytes]]:
        left: i64 = self._on_disk
        data = b""
        for chunk in self._file.read():
            left -= len(chunk)
            data += chunk
            frames: list[bytes] = []
            at: i64 = 0
            while at + _HEADER_BYTES <= len(data):
                end: i64 = at + _HEADER_BYTES + i64(read_i32_le(data, at))
                if end > len(data):
                    break
                frame = data[at + _HEADER_BYTES : end]
                if crc32(frame) != i64(read_i32_le(data, at + 4)) & 0xFFFF_FFFF:
                    raise self._torn(left + len(data) - at)
                frames.append(frame)
                at = end
            data = data[at:]
            if frames:
                yield frames
        if data or left:
            raise self._torn(left + len(data))

    def _torn(self, left: int) -> Stop:
        return Stop(
            f"the spool file {self._file.path} does not hold what was written to it, {left:,} bytes before its end",
            "Check the disk below spool.directory; nothing is lost: the server sends the transaction again",
        )


def _memory_of(spooled: Spooled) -> int:
    return spooled.memory
