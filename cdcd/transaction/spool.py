"""The frames of transactions that may yet be rolled back: in memory up to a bound, then in a file each.

Before: `spooled_transactions` appends what comes in stream blocks, or between Begin Prepare and Prepare.
After: `spooled_transactions` reads a transaction back, in the order of arrival, when its commit has come.
Source: `apply_spooled_messages`, `subxact_info_add` and `stream_abort_internal` in PostgreSQL's worker.c.

Subtransactions: the spool notes the offset at which each begins. They nest: whatever was appended after the beginning
of one belongs to it or to a subtransaction inside it. A rollback therefore cuts the spool at that offset. (A parent may
write after its child was released. From then on the child is rolled back only together with the parent, so the cut
takes nothing that survives.)

The disk: nothing here outlives the process, because after a restart the server sends everything again. So nothing is
synced, and a new spool removes the files that it finds. Checksums, kept in memory, notice a disk that lost something.
There is one checksum for each megabyte. One for each frame would take longer than all other work for the frame.

Logical messages: in a stream block the server gives every message the xid of the top level, whichever subtransaction
wrote it (`ReorderBufferApplyMessage`). A message may therefore belong to a subtransaction that has not sent a row yet.
If such a subtransaction rolls back, the spool cannot know whether the message is rolled back too. Such a transaction
cannot be published as it was sent: `has_ambiguous_message` is true.

Relation messages are kept as they came, too. Their types and keys are looked up when the transaction is handed on:
while it is in progress, other sessions do not see the tables and types that it has made.
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
"""About how much memory a bytes object takes in addition to its content."""
_PIECE_BYTES: Final = 1 << 20
"""How much is written at once. More would cost memory, and delay the transactions that wait meanwhile."""


@final
class Spool:
    """The memory and the disk that all spooled transactions of one stream share."""

    def __init__(self, directory: SpoolDirectory, memory_bytes: int, bytes_max: int) -> None:
        """Make `directory`, or empty it: no other process may use it. Raises FatalError if that fails.

        Frames take at most `memory_bytes` of memory and `bytes_max` of the disk.
        """
        self._directory = directory
        self._memory_bytes_max: i64 = memory_bytes
        self._bytes_max: i64 = bytes_max
        self._memory_bytes: i64 = 0
        self._disk_bytes: i64 = 0
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
    def transactions(self) -> int:
        """How many transactions are spooled now."""
        return len(self._spooled)

    @property
    def memory_bytes(self) -> int:
        """The memory that they take."""
        return self._memory_bytes

    @property
    def disk_bytes(self) -> int:
        """The space on disk that they take."""
        return self._disk_bytes

    def open(self, streamed: bool) -> SpooledTransaction:
        """Begin a transaction. `streamed`: its frames come in stream blocks, and have an xid each."""
        self._number += 1
        spooled = SpooledTransaction(self, self._number, self._directory.file(self._number), streamed)
        self._spooled[self._number] = spooled
        return spooled

    def close(self) -> None:
        """Remove the directory with all files."""
        self._directory.remove()

    def on_growth(self, spooled: SpooledTransaction, size: i64) -> None:
        """A transaction has taken `size` bytes of memory more.

        If all transactions take too much, the largest goes to disk. From then on it goes there piece by piece.
        """
        self._memory_bytes += size
        if spooled.disk_bytes and spooled.memory_bytes > _PIECE_BYTES:
            self._make_room(spooled.memory_bytes)
            spooled.spill()
        elif self._memory_bytes > self._memory_bytes_max:
            largest = max(self._spooled.values(), key=_memory_of)
            self._make_room(largest.memory_bytes)
            largest.spill()

    def on_change(self, memory_bytes: i64, disk_bytes: i64) -> None:
        """A transaction's use of memory and of the disk has changed by so many bytes."""
        self._memory_bytes += memory_bytes
        self._disk_bytes += disk_bytes

    def on_end(self, number: int) -> None:
        """A transaction has ended."""
        del self._spooled[number]

    def full_error(self, why: str) -> SpoolFull:
        """The error of a spool that cannot take more."""
        return SpoolFull(
            f"the spool in {self._directory.path} is full ({why}; {self._disk_bytes:,} bytes are on disk)",
            "Give it more room: raise spool.bytes_max, or use a larger disk for spool.directory. Until the daemon is "
            "restarted, large transactions wait on the server's own disk instead",
        )

    def _make_room(self, size: i64) -> None:
        if self._disk_bytes + size > self._bytes_max:
            raise self.full_error(f"spool.bytes_max is {self._bytes_max:,}")


@final
class SpooledRelation:
    """One Relation message of a spooled transaction."""

    def __init__(self, offset: i64, arrival: int, relation: Relation, body: bytes) -> None:
        self.offset: i64 = offset
        """Where its frame lies among the transaction's frames."""
        self.arrival = arrival
        """Its number among the stream's Relation messages; where the server repeated it, that of the last time."""
        self.relation = relation
        self.body = body
        """The message without type byte and xid."""


@final
class SpooledMessage:
    """One logical message of a streamed transaction."""

    def __init__(self, offset: i64) -> None:
        self.offset: i64 = offset
        """Where its frame lies among the transaction's frames."""
        self.lowest_later_xid: i64 = 1 << 32
        """The lowest xid of the frames after it. Subtransactions get their xids in the order in which they begin."""
        self.is_ambiguous = False
        """A subtransaction was rolled back that may have written the message."""


@final
class SpooledTransaction:
    """One transaction's frames, in the order of arrival."""

    def __init__(self, spool: Spool, number: int, file: SpoolFile, streamed: bool) -> None:
        self._spool = spool
        self._number = number
        self._file = file
        self.streamed = streamed
        self.memory_bytes: i64 = 0
        """The memory that `_frames` takes, in bytes."""
        self.disk_bytes: i64 = 0
        """The file's length in bytes. It holds the frames before those in memory."""
        self._segments: list[tuple[int, int]] = []
        """Where each segment of the file ends, and its checksum. Every subtransaction begins with a new segment, so
        that a rollback cuts the file between two segments."""
        self._cuts: list[int] = []
        """The offsets at which subtransactions begin, of those whose first frame is still in memory."""
        self.prior_relations: dict[int, RelationChanges] = {}
        """The relations that the stream had announced before this transaction, by OID. Only a prepared transaction may
        rely on them."""
        self._frames: list[bytes] = []
        self._size: i64 = 0
        """The size of all frames as they would lie in the file, in bytes."""
        self._last_subxid: i64 = 0
        self._subxacts: dict[int, int] = {}
        """The offset of each subtransaction's first frame, by xid and in the order of the offsets."""
        self._relations: list[SpooledRelation] = []
        self._messages: list[SpooledMessage] = []

    def append(self, subxid: i64, frame: bytes) -> None:
        """Keep the next frame, which the subtransaction `subxid` wrote. The top level counts as a subtransaction."""
        if subxid != self._last_subxid:
            self._begin_subxact(subxid)
        self._frames.append(frame)
        size: i64 = len(frame)
        self._size += size + _HEADER_BYTES
        self.memory_bytes += size + _OBJECT_BYTES
        self._spool.on_growth(self, size + _OBJECT_BYTES)

    def append_message(self, frame: bytes) -> None:
        """Keep the next frame, a logical message: nothing tells which subtransaction wrote it."""
        self._messages.append(SpooledMessage(self._size))
        self._last_subxid = 0  # no subtransaction has this xid
        self.append(0, frame)

    @property
    def has_ambiguous_message(self) -> bool:
        """For one of the logical messages the spool cannot know whether it was rolled back."""
        return any(message.is_ambiguous for message in self._messages)

    def announce(self, arrival: int, relation: Relation, body: bytes) -> bool:
        """Note a Relation message, the stream's number `arrival`; `body` is the message without type byte and xid.

        Returns whether the caller has to append its frame next. After every Stream Abort the server sends all Relation
        messages again: one that says nothing new needs no frame.
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
        """Drop the frames of a subtransaction, if it has any, and of those inside it.

        Raises FatalError if the file cannot be cut.
        """
        offset = self._subxacts.get(subxid)
        if offset is not None:
            while self._subxacts.popitem()[0] != subxid:
                pass
            self._last_subxid = 0
            self._truncate(offset)
        for message in self._messages:
            # If a frame of a lower xid came after the message, the subtransaction began after the message.
            message.is_ambiguous = message.is_ambiguous or message.lowest_later_xid >= subxid

    def frames(self) -> Iterator[list[bytes]]:
        """Yield all frames, about a megabyte at a time. Can be read once.

        Raises FatalError if the file does not hold what was written to it.
        """
        if self.disk_bytes:
            yield from self._from_disk()
        yield self._frames

    def close(self) -> None:
        """Free the memory and the disk."""
        if self.disk_bytes:
            self._file.remove()
        self._spool.on_change(-self.memory_bytes, -self.disk_bytes)
        self._spool.on_end(self._number)
        self._frames = []

    def spill(self) -> None:
        """Move the frames from memory to the file. Raises SpoolFull if they do not fit."""
        out = BytesWriter()
        written: i64 = 0
        at: i64 = self.disk_bytes
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
        self._spool.on_change(-self.memory_bytes, written)
        self.disk_bytes += written
        self.memory_bytes = 0
        self._frames = []
        self._cuts = []

    def _write(self, out: BytesWriter, ends: list[int], end: i64) -> i64:
        """Append the content of `out` to the file, whose length is `end` afterwards. Returns how many bytes that were.

        `ends`: where in `out` each segment but the last ends.
        """
        data = out.getvalue()
        try:
            self._file.append(data)
        except OSError as error:
            raise self._spool.full_error(error.strerror or str(error)) from error
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

    def _begin_subxact(self, subxid: i64) -> None:
        self._last_subxid = subxid
        if subxid not in self._subxacts:
            self._subxacts[subxid] = self._size
            self._cuts.append(self._size)
        for message in reversed(self._messages):
            if message.lowest_later_xid <= subxid:
                break  # earlier messages already recorded an xid at least this low
            message.lowest_later_xid = subxid

    def _truncate(self, offset: i64) -> None:
        freed: i64 = 0
        while self._frames and self._size > offset:
            size: i64 = len(self._frames.pop())
            self._size -= size + _HEADER_BYTES
            freed += size + _OBJECT_BYTES
        self.memory_bytes -= freed
        self._spool.on_change(-freed, 0)
        if self._size > offset:
            try:
                self._file.truncate(offset)
            except OSError as error:
                raise self._failed(error.strerror or str(error)) from error
            self._spool.on_change(0, offset - self.disk_bytes)
            self.disk_bytes = offset
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
        base: i64 = 0  # the offset of `data` in the file
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
                        raise self._damaged(base)
                    parts.append(chunk)
                    have += len(chunk)
                data = b"".join(parts)
            if crc32(memoryview(data)[at:stop], _SEED) != checksum:
                raise self._damaged(base + at)
            frames: list[bytes] = []
            while at < stop:
                size: i64 = -1
                if stop - at >= _HEADER_BYTES:
                    size = i64(read_i32_le(data, at))
                at += _HEADER_BYTES
                if size < 0 or size > stop - at:
                    raise self._damaged(base + at)
                frames.append(data[at : at + size])
                at += size
            yield frames
        if at < len(data) or self._next(chunks) is not None:
            raise self._damaged(base + at)

    def _next(self, chunks: Iterator[bytes]) -> bytes | None:
        try:
            return next(chunks, None)
        except OSError as error:
            raise self._failed(error.strerror or str(error)) from error

    def _damaged(self, at: int) -> FatalError:
        return self._failed(f"it does not hold what was written to it, from byte {at:,} on")

    def _failed(self, why: str) -> FatalError:
        return FatalError(
            f"the spool file {self._file.path} failed: {why}",
            "Check the disk of spool.directory; nothing is lost: the server sends the transaction again",
        )


def _memory_of(spooled: SpooledTransaction) -> int:
    return spooled.memory_bytes
