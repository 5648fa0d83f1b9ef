"""The part of a spooled transaction that is on disk: segments of about a megabyte, each authenticated.

Before: `spool` appends what does not fit into memory.
After: `spool` reads the segments back, all of them at the commit, or the one in which a rollback cuts.
Source: RFC 2104, HMAC. SHA-256 takes half the time of BLAKE2 where the processor has instructions for it.

In the file a frame follows its length. Where frames begin that have a higher xid than any before, a mark stands first:
a negative length, and the xid. So the xids of three million subtransactions need no memory: for each segment the spool
knows the highest xid up to its end, and a rollback looks for its place in one segment.

The tags are in memory, and so is their key, which is another one for each spool: what was changed on the disk, by a
failing disk or by somebody, is noticed.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from hmac import compare_digest, new
from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from cdcd.errors import FatalError
from cdcd.transaction.spool_file import SpoolFile

LENGTH_BYTES: Final = 4
"""A frame's length, little-endian."""
MARK_BYTES: Final = 8
"""The size of the mark before the first frame of a subtransaction: _MARK and the xid."""
SEGMENT_BYTES: Final = 1_048_576  # not written as a shift, which mypyc would look up for every row
"""How much is written at once, at most. More would cost memory, and delay the transactions that wait meanwhile."""
ENTRY_BYTES: Final = 48
"""The memory that one segment takes."""

_MARK: Final = -1
_SIGN: Final = 0x80000000
_TAG_BYTES: Final = 16


@final
class Segment:
    """The frames of one segment, and where among them subtransactions begin."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.begin_xids: list[int] = []
        """The xids that are higher than all before them in the transaction, ascending."""
        self.begin_frames: list[int] = []
        """For each of them, the index of its first frame."""


@final
class SpoolSegments:
    """The file of one transaction."""

    def __init__(self, file: SpoolFile, key: bytes) -> None:
        """`key`: that of the tags."""
        self._file = file
        self._key = key
        self._ends = array("q")
        """Where each segment ends, in bytes."""
        self._counts = array("q")
        """The number of frames up to each segment's end."""
        self._highest = array("q")
        """The highest xid up to each segment's end."""
        self._tags = bytearray()

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def size_bytes(self) -> int:
        """The file's length."""
        return self._ends[-1] if self._ends else 0

    @property
    def frames(self) -> int:
        """The number of frames in all segments."""
        return self._counts[-1] if self._counts else 0

    @property
    def highest_xid(self) -> int:
        """The highest xid in all segments; 0 if there is none but the top level's."""
        return self._highest[-1] if self._highest else 0

    def append(self, parts: list[bytes], frames: int, highest_xid: int) -> int:
        """Write a segment: `parts` one after the other hold so many frames. Returns its bytes. OSErrors pass through.

        `highest_xid`: of all frames up to its end.
        """
        self._file.append(parts)
        size = 0
        for part in parts:
            size += len(part)
        end = self.size_bytes + size
        self._counts.append(self.frames + frames)
        self._ends.append(end)
        self._highest.append(highest_xid)
        self._tags += self._tag(parts)
        return size

    def first_with(self, xid: int) -> int:
        """The first segment with an xid that is not lower; the number of segments if there is none."""
        return bisect_left(self._highest, xid)

    def check_size(self) -> None:
        """Raise FatalError if the file has not the length that was written."""
        try:
            size = self._file.size()
        except OSError as error:
            raise self.failed(error) from error
        if size != self.size_bytes:
            raise self._damaged(min(size, self.size_bytes))

    def read(self, number: int) -> Segment:
        """Read a segment. Raises FatalError if the file does not hold what was written to it."""
        start = self._ends[number - 1] if number else 0
        try:
            data = self._file.read(start, self._ends[number] - start)
        except OSError as error:
            raise self.failed(error) from error
        tag = bytes(self._tags[number * _TAG_BYTES : (number + 1) * _TAG_BYTES])
        if not compare_digest(self._tag([data]), tag):
            raise self._damaged(start)
        return _parsed(data)

    def cut(self, number: int) -> None:
        """Keep the first `number` segments only. OSErrors pass through."""
        end = self._ends[number - 1] if number else 0
        self._file.truncate(end)
        del self._ends[number:], self._counts[number:], self._highest[number:]
        del self._tags[number * _TAG_BYTES :]

    def remove(self) -> None:
        """Remove the file. OSErrors pass through."""
        if self._ends:
            self._file.remove()

    def failed(self, error: OSError) -> FatalError:
        """The error of a file that the operating system does not give back."""
        return self._failed(error.strerror or str(error))

    def _tag(self, parts: list[bytes]) -> bytes:
        tag = new(self._key, digestmod="sha256")
        for part in parts:
            tag.update(part)
        return tag.digest()[:_TAG_BYTES]

    def _damaged(self, at: int) -> FatalError:
        return self._failed(f"it does not hold what was written to it, from byte {at:,} on")

    def _failed(self, why: str) -> FatalError:
        return FatalError(
            f"the spool file {self._file.path} failed: {why}",
            "Check the disk of spool.directory; nothing is lost: the server sends the transaction again",
            code="spool-unusable",
        )


def write_mark(out: BytesWriter, xid: i64) -> None:
    """Append the mark of a subtransaction's first frame."""
    write_i32_le(out, _MARK)
    write_i32_le(out, i32(xid if xid < _SIGN else xid - 2 * _SIGN))


def write_length(out: BytesWriter, length: i64) -> None:
    """Append what stands before a frame of this length."""
    write_i32_le(out, i32(length))


def _parsed(data: bytes) -> Segment:
    """The content of a segment whose tag was right: what was written."""
    segment = Segment()
    frames = segment.frames
    at: i64 = 0
    end: i64 = len(data)
    while at < end:
        size: i64 = i64(read_i32_le(data, at))
        at += LENGTH_BYTES
        if size == _MARK:
            segment.begin_xids.append(i64(read_i32_le(data, at)) & 0xFFFFFFFF)
            segment.begin_frames.append(len(frames))
            at += MARK_BYTES - LENGTH_BYTES
        else:
            frames.append(data[at : at + size])
            at += size
    return segment
