"""Frames of transactions that may yet be rolled back: in memory up to a bound, then in a file a transaction.

Before: `assembler` appends what comes in stream blocks, or between Begin Prepare and Prepare.
After: `assembler` reads a transaction back, in the order of arrival, when its commit has come.
Source: `apply_spooled_messages`, `subxact_info_add` and `stream_abort_internal` in PostgreSQL's worker.c.

Where a subtransaction begins, its offset is noted. Subtransactions nest, so whatever was appended after the beginning
of one belongs to it or to its own: its rollback cuts the spool at that offset. (A parent may write after its child has
been released; the child is then rolled back with the parent only, so the cut takes nothing that survives.)

Nothing here outlives the process: after a restart the server sends again, and what lies in the directory is garbage. So
nothing is synced, and stale files are removed. Checksums, kept in memory, tell a disk that forgets from one that works:
one a megabyte (one a frame took longer than all else that the spool does for it).

Logical messages are the exception: in a stream the server gives them the xid of the top level, wherever they were
written (`ReorderBufferApplyMessage`). So one may belong to a subtransaction whose first row comes after it, and nothing
tells whether it goes with its rollback. Such a transaction cannot be published as it was sent:
`has_ambiguous_message` says so.

Relation messages are kept as they came, too: their types and keys are looked up when the transaction is handed on.
While it is in progress nobody else sees what it has made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final
from zlib import crc32

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from cdcd.errors import FatalError, SpoolFull
from cdcd.pgoutput.messages import Relation
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile

_HEADER_BYTES: Final = 4  # a frame's length, little-endian
_SEED: Final = 0x63646364
_OBJECT_BYTES: Final = 64
"""About what a bytes object costs beside its content."""
_PIECE_BYTES: Final = 1 << 20
"""What is written at once: more costs memory, and the time of those who wait behind it."""


@final
class Spool:
    """All spooled transactions of one stream, and the bounds that they share."""

    def __init__(self, directory: SpoolDirectory, memory_bytes: int, bytes_max: int) -> None:
        """Make `directory`, or empty it: it must be this daemon's alone. Raises FatalError if it cannot be used."""
        self._directory = directory
        self._memory_max: i64 = memory_bytes
        self._bytes_max: i64 = bytes_max
        self._memory: i64 = 0
        self._on_disk: i64 = 0
        self._spooled: dict[int, SpooledTransaction] = {}
        self._number = 0
        try:
            directory.make_empty()
        except OSError as error:
            raise FatalError(
                f"the spool directory {directory.path} cannot be made: {error.strerror}",
                "Set spool.directory to one that this user may write to",
            ) from error

    @property
    def size_bytes(self) -> int:
        """What is spooled now, in memory and on disk."""
        return self._memory + self._on_disk

    @property
    def transactions(self) -> int:
        """How many are spooled now."""
        return len(self._spooled)

    @property
    def memory_bytes(self) -> int:
        """What they take in memory."""
        return self._memory

    @property
    def disk_bytes(self) -> int:
        """What they take on disk."""
        return self._on_disk

    def open(self, streamed: bool) -> SpooledTransaction:
        """A new, empty transaction; `streamed` tells that its frames carry xids."""
        self._number += 1
        spooled = SpooledTransaction(self, self._number, self._directory.file(self._number), streamed)
        self._spooled[self._number] = spooled
        return spooled

    def close(self) -> None:
        """Remove everything."""
        self._directory.remove()

    def grew(self, spooled: SpooledTransaction, size: i64) -> None:
        """A transaction took in so many bytes of memory.

        If all are too much, the largest goes to disk; from then on it goes there piece by piece.
        """
        self._memory += size
        if spooled.on_disk and spooled.memory > _PIECE_BYTES:
            self._make_room(spooled.memory)
            spooled.spill()
        elif self._memory > self._memory_max:
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
class SpooledRelation:
    """One Relation message of a spooled transaction."""

    def __init__(self, offset: i64, arrival: int, relation: Relation, body: bytes) -> None:
        self.offset: i64 = offset
        """Of its frame."""
        self.arrival = arrival
        """When it came last: of two, the later one holds for the session."""
        self.relation = relation
        self.body = body


@final
class SpooledMessage:
    """One logical message of a streamed transaction."""

    def __init__(self, offset: i64) -> None:
        self.offset: i64 = offset
        """Of its frame."""
        self.oldest: i64 = 1 << 32
        """The lowest xid of what came after it. Subtransactions get theirs in the order in which they begin."""
        self.is_ambiguous = False
        """One was rolled back that may have had this message."""


@final
class SpooledTransaction:
    """One transaction's frames, in the order of arrival."""

    def __init__(self, spool: Spool, number: int, file: SpoolFile, streamed: bool) -> None:
        self._spool = spool
        self._number = number
        self._file = file
        self.streamed = streamed
        self.memory: i64 = 0
        """What `_frames` occupies, in bytes."""
        self.on_disk: i64 = 0
        """How long the file is: it holds the frames before those in memory."""
        self._segments: list[tuple[int, int]] = []
        """The file in pieces: where each ends, and its checksum. A subtransaction begins with a new one, so that the
        file is cut between two."""
        self._cuts: list[int] = []
        """Where a subtransaction begins among the frames in memory."""
        self.prior_relations: dict[int, RelationChanges] = {}
        """Relations that the stream had announced before this transaction, where it may rely on them (prepared
        ones)."""
        self._frames: list[bytes] = []
        self._size: i64 = 0
        """Of all frames, as they would lie in the file."""
        self._last_subxid: i64 = 0
        self._subxacts: dict[int, int] = {}
        """Subtransactions in order of their first frame: the offset of that frame, by xid."""
        self._relations: list[SpooledRelation] = []
        self._messages: list[SpooledMessage] = []

    def append(self, subxid: i64, frame: bytes) -> None:
        """Take in the next frame, of the subtransaction `subxid` (the top level counts as one)."""
        if subxid != self._last_subxid:
            self._begin_subxact(subxid)
        self._take(frame)

    def append_message(self, frame: bytes) -> None:
        """Take in a logical message, of whichever subtransaction is open."""
        self._messages.append(SpooledMessage(self._size))
        self._last_subxid = 0
        self._take(frame)

    @property
    def has_ambiguous_message(self) -> bool:
        """Nobody can say whether one of the messages was rolled back."""
        return any(message.is_ambiguous for message in self._messages)

    def announce(self, arrival: int, relation: Relation, body: bytes) -> bool:
        """A Relation message came as number `arrival`; if this is true, its frame is to be appended next.

        `body` is what it says. After every Stream Abort the server says it all again: what is known needs no frame.
        """
        for known in reversed(self._relations):
            if known.relation.relation_oid == relation.relation_oid:
                if known.body != body:
                    break
                known.arrival = arrival
                return False
        self._relations.append(SpooledRelation(self._size, arrival, relation, body))
        return True

    def relations(self) -> list[SpooledRelation]:
        """The Relation messages among the frames, in order."""
        return self._relations

    def roll_back(self, subxid: i64) -> None:
        """Forget the frames of a subtransaction and of those inside it; it may have none.

        Raises FatalError if the disk does not let go of them.
        """
        offset = self._subxacts.get(subxid)
        if offset is not None:
            while self._subxacts.popitem()[0] != subxid:
                pass
            self._last_subxid = 0
            self._truncate(offset)
        for message in self._messages:
            # A row of an older one after the message: the subtransaction began behind both.
            message.is_ambiguous = message.is_ambiguous or message.oldest >= subxid

    def frames(self) -> Iterator[list[bytes]]:
        """All frames, about a megabyte at a time; to be read once.

        Raises FatalError if the disk does not give them back.
        """
        if self.on_disk:
            yield from self._from_disk()
        yield self._frames

    def close(self) -> None:
        """Let go of memory and disk."""
        if self.on_disk:
            self._file.remove()
        self._spool.moved(-self.memory, -self.on_disk)
        self._spool.forget(self._number)
        self._frames = []

    def spill(self) -> None:
        """Move the frames from memory to the file. Raises SpoolFull if they do not fit."""
        out = BytesWriter()
        written: i64 = 0
        at: i64 = self.on_disk
        ends: list[int] = []
        cuts = self._cuts
        cut: i64 = 0
        for frame in self._frames:
            if cut < len(cuts) and at == i64(cuts[cut]):
                cut += 1
                ends.append(len(out))
            write_i32_le(out, i32(len(frame)))
            out.write(frame)
            at += _HEADER_BYTES + len(frame)
            if len(out) >= _PIECE_BYTES:
                written += self._write(out, ends, at)
                ends = []
        written += self._write(out, ends, at)
        self._spool.moved(-self.memory, written)
        self.on_disk += written
        self.memory = 0
        self._frames = []
        self._cuts = []

    def _write(self, out: BytesWriter, ends: list[int], end: i64) -> i64:
        """Append what is in `out` to the file, which ends at `end` then; `ends`: of its segments but the last."""
        data = out.getvalue()
        try:
            self._file.append(data)
        except OSError as error:
            raise self._spool.full(error.strerror or str(error)) from error
        size: i64 = len(data)
        view = memoryview(data)
        start: i64 = 0
        ends.append(size)
        for until in ends:
            stop: i64 = until
            if stop > start:
                self._segments.append((end - size + stop, crc32(view[start:stop], _SEED)))
                start = stop
        out.truncate(0)
        return size

    def _take(self, frame: bytes) -> None:
        self._frames.append(frame)
        size: i64 = len(frame)
        self._size += size + _HEADER_BYTES
        self.memory += size + _OBJECT_BYTES
        self._spool.grew(self, size + _OBJECT_BYTES)

    def _begin_subxact(self, subxid: i64) -> None:
        self._last_subxid = subxid
        if subxid not in self._subxacts:
            self._subxacts[subxid] = self._size
            self._cuts.append(self._size)
        for message in reversed(self._messages):
            if message.oldest <= subxid:
                break  # what came before it has seen as much
            message.oldest = subxid

    def _truncate(self, offset: i64) -> None:
        freed: i64 = 0
        while self._frames and self._size > offset:
            size: i64 = len(self._frames.pop())
            self._size -= size + _HEADER_BYTES
            freed += size + _OBJECT_BYTES
        self.memory -= freed
        self._spool.moved(-freed, 0)
        if self._size > offset:
            try:
                self._file.truncate(offset)
            except OSError as error:
                raise self._lost(error.strerror or str(error)) from error
            self._spool.moved(0, offset - self.on_disk)
            self.on_disk = offset
            self._size = offset
            while self._segments and self._segments[-1][0] > offset:
                self._segments.pop()
        while self._cuts and self._cuts[-1] >= offset:
            self._cuts.pop()
        while self._relations and self._relations[-1].offset >= offset:
            self._relations.pop()
        while self._messages and self._messages[-1].offset >= offset:
            self._messages.pop()

    def _from_disk(self) -> Iterator[list[bytes]]:
        data = b""
        base: i64 = 0  # where `data` lies in the file
        at: i64 = 0
        chunks = self._file.read()
        for end, checksum in self._segments:
            stop: i64 = end - base
            if stop > len(data):
                parts = [data[at:]]
                have: i64 = len(parts[0])
                base += at
                stop -= at
                at = 0
                while have < stop:
                    chunk = self._next(chunks)
                    if chunk is None:
                        raise self._torn(base)
                    parts.append(chunk)
                    have += len(chunk)
                data = b"".join(parts)
            if crc32(memoryview(data)[at:stop], _SEED) != checksum:
                raise self._torn(base + at)
            frames: list[bytes] = []
            while at < stop:
                size: i64 = -1
                if stop - at >= _HEADER_BYTES:
                    size = i64(read_i32_le(data, at))
                at += _HEADER_BYTES
                if size < 0 or size > stop - at:
                    raise self._torn(base + at)
                frames.append(data[at : at + size])
                at += size
            yield frames
        if at < len(data) or self._next(chunks) is not None:
            raise self._torn(base + at)

    def _next(self, chunks: Iterator[bytes]) -> bytes | None:
        try:
            return next(chunks, None)
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error

    def _torn(self, at: int) -> FatalError:
        return self._lost(f"it does not hold what was written to it, from byte {at:,} on")

    def _lost(self, why: str) -> FatalError:
        return FatalError(
            f"the spool file {self._file.path} failed: {why}",
            "Check the disk below spool.directory; nothing is lost: the server sends the transaction again",
        )


def _memory_of(spooled: SpooledTransaction) -> int:
    return spooled.memory
