"""The frames of transactions that may yet be rolled back: in memory up to a bound, then in a file each.

Before: `spooled_transactions` appends what comes in stream blocks, or between Begin Prepare and Prepare.
After: `spooled_transactions` reads a transaction back, in the order of arrival, when its commit has come.
Source: `apply_spooled_messages`, `subxact_info_add` and `stream_abort_internal` in PostgreSQL's worker.c;
`DecodeAbort` in decode.c.

Subtransactions: they nest, and get their xids in the order in which they begin. So when one is rolled back, every frame
from the first on whose xid is not lower belongs to it, to a subtransaction inside it, or to a parent that is rolled
back with it. The rollback cuts the spool there. (A parent may write after its child was released. From then on the
child is rolled back only together with the parent, and the server names the child first.) So the spool need not know
where each subtransaction begins: it knows where the highest xid so far grew, of the frames in memory exactly, and of
those on disk by segment. Xids are counted from that of the top level, because they wrap around.

Bounds: everything that grows with a transaction is counted. Frames go to disk. Relation messages, the places of logical
messages and the list of segments stay in memory: this is the index. It is small, and if it is not, the spool is full.

The disk: nothing here outlives the process, because after a restart the server sends everything again. So nothing is
synced, and a new spool removes the files that it finds.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from secrets import token_bytes
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.errors import FatalError, SpoolFull
from cdcd.pgoutput.messages import Relation
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile
from cdcd.transaction.spool_segments import ENTRY_BYTES as SEGMENT_ENTRY_BYTES
from cdcd.transaction.spool_segments import SEGMENT_BYTES, SpoolSegments, write_length, write_mark
from cdcd.transaction.spooled_messages import ENTRY_BYTES as MESSAGE_ENTRY_BYTES
from cdcd.transaction.spooled_messages import SpooledMessages
from cdcd.transaction.spooled_relations import SpooledRelation, SpooledRelations

_KEY_BYTES: Final = 32
_OBJECT_BYTES: Final = 64
"""About how much memory a bytes object takes in addition to its content."""
_BEGIN_BYTES: Final = 96
"""The memory of the place at which a subtransaction begins, while its first frame is in memory."""
_TRANSACTION_BYTES: Final = 2_000
"""The memory of a transaction without frames."""
_KNOWN_BYTES: Final = 112
"""The memory of one entry in a dictionary of relations."""
_INDEX_BYTES_MIN: Final = 256 << 10
"""So much index is allowed however small the memory is."""
_NO_XID: Final = -1


@final
class Spool:
    """The memory and the disk that all spooled transactions of one stream share."""

    def __init__(self, directory: SpoolDirectory, memory_bytes: int, bytes_max: int) -> None:
        """Make `directory`, or empty it: no other process may use it. Raises FatalError if that fails.

        Frames and index take at most `memory_bytes` of memory, the index at most half of it. Files take at most
        `bytes_max` of the disk.
        """
        self._directory = directory
        self._key = token_bytes(_KEY_BYTES)
        self._memory_bytes_max: i64 = memory_bytes
        self._index_bytes_max: i64 = max(memory_bytes // 2, _INDEX_BYTES_MIN)
        self._bytes_max: i64 = bytes_max
        # A rollback brings one segment back into memory: it must fit, or it would go to disk again at once.
        self._segment_bytes: i64 = min(SEGMENT_BYTES, memory_bytes // 8)
        self._frame_bytes: i64 = 0
        self._index_bytes: i64 = 0
        self._disk_bytes: i64 = 0
        self._spooled: dict[int, SpooledTransaction] = {}
        self._number = 0
        self._known: dict[int, RelationChanges] = {}
        """The last `prior_relations` that were counted."""
        try:
            directory.make_empty()
        except OSError as error:
            raise FatalError(
                f"the spool directory {directory.path} cannot be used: {error.strerror}",
                "Set spool.directory to one that this user may write to, and no other user",
                code="spool-unusable",
            ) from error

    @property
    def transactions(self) -> int:
        """How many transactions are spooled now."""
        return len(self._spooled)

    @property
    def memory_bytes(self) -> int:
        """The memory that they take: frames and index."""
        return self._frame_bytes + self._index_bytes

    @property
    def index_bytes(self) -> int:
        """The memory that they take besides their frames: it cannot go to disk."""
        return self._index_bytes

    @property
    def disk_bytes(self) -> int:
        """The space on disk that they take."""
        return self._disk_bytes

    def open(self, streamed: bool, xid: i64 = 0) -> SpooledTransaction:
        """Begin the transaction `xid`. `streamed`: its frames come in stream blocks, and have an xid each.

        Raises SpoolFull if there is no room for its index.
        """
        self._number += 1
        spooled = SpooledTransaction(self, self._number, self._directory.file(self._number), streamed, xid)
        self._spooled[self._number] = spooled
        spooled.on_index(_TRANSACTION_BYTES)
        return spooled

    def segments(self, file: SpoolFile) -> SpoolSegments:
        """The part of a transaction that will be on disk."""
        return SpoolSegments(file, self._key)

    def close(self) -> None:
        """Remove all files, and the directory."""
        self._directory.remove()

    def on_growth(self, spooled: SpooledTransaction, size: i64) -> None:
        """A transaction's frames have taken `size` bytes of memory more.

        If all transactions take too much, the largest goes to disk. From then on it goes there piece by piece.
        """
        self._frame_bytes += size
        if spooled.memory_bytes > self._segment_bytes and spooled.disk_bytes:
            self._spill(spooled)
        else:
            self.keep_bound()

    def keep_bound(self) -> None:
        """If all transactions take too much memory, let the largest go to disk."""
        if self._frame_bytes + self._index_bytes > self._memory_bytes_max:
            self._spill(max(self._spooled.values(), key=_memory_of))

    def on_change(self, frame_bytes: i64, disk_bytes: i64) -> None:
        """A transaction's frames take so many bytes of memory, and so many bytes of the disk, more or less."""
        self._frame_bytes += frame_bytes
        self._disk_bytes += disk_bytes

    def on_index(self, size: i64) -> None:
        """A transaction's index takes so many bytes more or less. Raises SpoolFull if it is too much."""
        self._index_bytes += size
        if size > 0 and self._index_bytes > self._index_bytes_max:
            raise SpoolFull(
                f"relations, logical messages and the list of what is on disk take {self._index_bytes:,} bytes of the "
                f"spool's memory, which is half of spool.memory_bytes ({self._memory_bytes_max:,})",
                "Raise spool.memory_bytes",
            )

    def is_counted(self, known: dict[int, RelationChanges]) -> bool:
        """Whether this dictionary was counted already: transactions that are prepared one after the other share it."""
        is_counted = known is self._known
        self._known = known
        return is_counted

    def on_end(self, number: int) -> None:
        """A transaction has ended."""
        del self._spooled[number]

    def full_error(self, why: str, *, may_pass: bool = False) -> SpoolFull:
        """The error of a spool that cannot take more; `may_pass` as in SpoolFull."""
        return SpoolFull(
            f"the spool in {self._directory.path} is full ({why}; {self._disk_bytes:,} bytes are on disk)",
            "Give it more room: raise spool.bytes_max, or use a larger disk for spool.directory",
            may_pass=may_pass,
        )

    def _spill(self, spooled: SpooledTransaction) -> None:
        if self._disk_bytes + spooled.memory_bytes > self._bytes_max:
            raise self.full_error(f"spool.bytes_max is {self._bytes_max:,}")
        spooled.spill(self._segment_bytes)


@final
class SpooledTransaction:
    """One transaction's frames, in the order of arrival."""

    def __init__(self, spool: Spool, number: int, file: SpoolFile, streamed: bool, xid: i64) -> None:
        self._spool = spool
        self._number = number
        self.streamed = streamed
        self.memory_bytes: i64 = 0
        """The memory that `_frames` takes, in bytes, and the places in it where subtransactions begin."""
        self._index_bytes: i64 = 0
        self._segments = spool.segments(file)
        """The frames before those in memory."""
        self.prior_relations: dict[int, RelationChanges] = {}
        """The relations that the stream had announced before this transaction, by OID. Only a prepared transaction may
        rely on them."""
        self._frames: list[bytes] = []
        self.top_xid: i64 = xid
        self._last_subxid: i64 = _NO_XID
        self._highest: i64 = 0
        """The highest xid of all frames."""
        self._begin_xids: list[int] = []
        """Where the highest xid grew, of the frames in memory: the xids, ascending."""
        self._begin_frames: list[int] = []
        """For each of them, the index in `_frames`."""
        self._relations = SpooledRelations()
        self._messages = SpooledMessages()

    @property
    def disk_bytes(self) -> i64:
        """The file's length in bytes."""
        return self._segments.size_bytes

    def append(self, subxid: i64, frame: bytes) -> None:
        """Keep the next frame, which the subtransaction `subxid` wrote. The top level counts as a subtransaction."""
        if subxid != self._last_subxid:
            self._change_subxact(subxid)
        self._frames.append(frame)
        size: i64 = len(frame) + _OBJECT_BYTES
        self.memory_bytes += size
        self._spool.on_growth(self, size)

    def append_message(self, frame: bytes) -> None:
        """Keep the next frame, a logical message: nothing tells which subtransaction wrote it."""
        entries = len(self._messages)
        self._messages.add(self._position())
        self.on_index(MESSAGE_ENTRY_BYTES * (len(self._messages) - entries))
        self._last_subxid = _NO_XID
        self.append(_NO_XID, frame)

    @property
    def has_ambiguous_message(self) -> bool:
        """For one of the logical messages the spool cannot know whether it was rolled back."""
        return self._messages.has_ambiguous

    def announce(self, arrival: int, relation: Relation, body: bytes) -> bool:
        """Note a Relation message, the stream's number `arrival`; `body` is the message without type byte and xid.

        Returns whether the caller has to append its frame next: not if it says nothing new. Raises SpoolFull if there
        is no room for it.
        """
        taken = self._relations.announce(self._position(), arrival, relation, body)
        self.on_index(taken)
        return taken > 0

    def relation(self, oid: int) -> Relation | None:
        """What the last Relation message about this table said; None if there is none that was not rolled back."""
        return self._relations.latest(oid)

    def relations(self) -> list[SpooledRelation]:
        """The Relation messages among the frames, in order."""
        return self._relations.announced

    def rely_on(self, known: dict[int, RelationChanges]) -> None:
        """Note the relations that the stream has announced before. Raises SpoolFull if there is no room for them."""
        self.prior_relations = known
        if not self._spool.is_counted(known):
            self.on_index(_KNOWN_BYTES * len(known))

    def roll_back(self, subxid: i64) -> None:
        """Drop the frames of a subtransaction, if it has any, and of those inside it.

        Raises SpoolFull if the file cannot be cut, FatalError if it does not hold what was written to it.
        """
        xid = self._relative(subxid)
        entries = len(self._messages)
        if self._highest >= xid:
            if self._segments.highest_xid >= xid:
                self._cut_disk(xid)
            else:
                self._cut_memory(bisect_left(self._begin_xids, xid))
            self._highest = self._begin_xids[-1] if self._begin_xids else self._segments.highest_xid
            self._last_subxid = _NO_XID
            self.on_index(-self._relations.cut(self._position()))
        self._messages.roll_back(xid, self._position())
        self.on_index(MESSAGE_ENTRY_BYTES * (len(self._messages) - entries))
        self._spool.keep_bound()

    def frames(self) -> Iterator[list[bytes]]:
        """Yield all frames, a segment at a time. Can be read once.

        Raises FatalError if the file does not hold what was written to it.
        """
        if len(self._segments):
            self._segments.check_size()
            for number in range(len(self._segments)):
                yield self._segments.read(number).frames
        yield self._frames

    def close(self) -> None:
        """Free the memory and the disk."""
        self._segments.remove()
        self._spool.on_change(-self.memory_bytes, -self.disk_bytes)
        self._spool.on_index(-self._index_bytes)
        self._spool.on_end(self._number)
        self._frames = []

    def spill(self, segment_bytes: i64 = SEGMENT_BYTES) -> None:
        """Move the frames from memory to the file, in segments of this size. Raises SpoolFull if they do not fit."""
        out = BytesWriter()
        frames: i64 = 0
        begun: i64 = 0
        begins: i64 = len(self._begin_xids)
        highest: i64 = self._segments.highest_xid
        next_begin: i64 = self._begin_frames[0] if begins else -1
        at: i64 = 0
        for frame in self._frames:
            if at == next_begin:
                highest = self._begin_xids[begun]
                write_mark(out, highest)
                begun += 1
                next_begin = self._begin_frames[begun] if begun < begins else -1
            at += 1
            frames += 1
            write_length(out, len(frame))
            if len(frame) >= segment_bytes:
                self._write([out.getvalue(), frame], frames, highest)
            else:
                out.write(frame)
                if len(out) < segment_bytes:
                    continue
                self._write([out.getvalue()], frames, highest)
            out = BytesWriter()
            frames = 0
        if frames:
            self._write([out.getvalue()], frames, highest)
        self._spool.on_change(-self.memory_bytes, 0)
        self.memory_bytes = 0
        self._frames = []
        self._begin_xids = []
        self._begin_frames = []

    def on_index(self, size: i64) -> None:
        """The index takes so many bytes more or less. Raises SpoolFull if it is too much."""
        self._index_bytes += size
        self._spool.on_index(size)

    def _position(self) -> i64:
        """The number of the next frame."""
        return self._segments.frames + len(self._frames)

    def _relative(self, subxid: i64) -> i64:
        """The xid, counted from that of the top level."""
        return (subxid - self.top_xid) & 0xFFFFFFFF

    def _change_subxact(self, subxid: i64) -> None:
        """The next frame's xid is not that of the last one."""
        self._last_subxid = subxid
        xid = self._relative(subxid)
        entries = len(self._messages)
        if entries:
            self._messages.note_xid(xid)
            self.on_index(MESSAGE_ENTRY_BYTES * (len(self._messages) - entries))
        if xid > self._highest:
            self._highest = xid
            self._begin_xids.append(xid)
            self._begin_frames.append(len(self._frames))
            self.memory_bytes += _BEGIN_BYTES
            self._spool.on_change(_BEGIN_BYTES, 0)

    def _write(self, parts: list[bytes], frames: int, highest: int) -> None:
        try:
            written = self._segments.append(parts, frames, highest)
        except OSError as error:
            raise self._spool.full_error(error.strerror or str(error), may_pass=True) from error
        self._spool.on_change(0, written)
        self.on_index(SEGMENT_ENTRY_BYTES)

    def _cut_memory(self, begun: int) -> None:
        """Drop the frames from that on with which the subtransaction number `begun` begins."""
        first = self._begin_frames[begun]
        freed: i64 = _BEGIN_BYTES * (len(self._begin_frames) - begun)
        for at in range(first, len(self._frames)):
            freed += len(self._frames[at]) + _OBJECT_BYTES
        del self._frames[first:]
        del self._begin_xids[begun:], self._begin_frames[begun:]
        self.memory_bytes -= freed
        self._spool.on_change(-freed, 0)

    def _cut_disk(self, xid: i64) -> None:
        """Cut in the file. The rest of the last segment lies in memory again."""
        segments = self._segments
        number = segments.first_with(xid)
        segment = segments.read(number)
        before, count = segments.size_bytes, len(segments)
        try:
            segments.cut(number)
        except OSError as error:
            raise self._spool.full_error(error.strerror or str(error), may_pass=True) from error
        self._spool.on_change(-self.memory_bytes, segments.size_bytes - before)
        self.on_index(SEGMENT_ENTRY_BYTES * (number - count))
        self._frames, self._begin_xids, self._begin_frames = segment.frames, segment.begin_xids, segment.begin_frames
        taken: i64 = _BEGIN_BYTES * len(self._begin_xids)
        for frame in self._frames:
            taken += len(frame) + _OBJECT_BYTES
        self.memory_bytes = taken
        self._spool.on_change(taken, 0)
        self._cut_memory(bisect_left(self._begin_xids, xid))


def _memory_of(spooled: SpooledTransaction) -> int:
    return spooled.memory_bytes
