"""TupleData: where the columns of one row lie in the frame, without reading their values.

Before: `decoder` asks for a tuple as part of an Insert, Update or Delete; its `cursor` is at the tuple.
After: `avro.event_encoder` walks the columns in the frame itself. It checks nothing, because `tuple_end` has checked
every column.

On the wire: Int16 column count, then for each column one kind byte and, for `t` and `b` only, an Int32 length and the
bytes.

Source: PostgreSQL, "Logical Replication Message Formats" (TupleData); `logicalrep_write_tuple` in proto.c.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, TypeAlias, final

from librt.strings import read_i16_be, read_i32_be
from mypy_extensions import i64, mypyc_attr

from cdcd.errors import DecodeError
from cdcd.pgoutput.cursor import Cursor, short, wrong

NULL: Final = 0x6E  # 'n'
TOAST_UNCHANGED: Final = 0x75  # 'u': a TOASTed value that the update did not change; the server did not send it
TEXT: Final = 0x74  # 't': the type's output function
BINARY: Final = 0x62  # 'b': the type's send function

ANY_COUNT: Final = -1
"""For `tuple_end`: the caller does not know the relation's number of columns."""


class Unchanged(Enum):
    """Stands for a value that PostgreSQL did not send."""

    UNCHANGED = "u"


UNCHANGED: Final = Unchanged.UNCHANGED


@final
class Binary:
    """A column's value in its type's binary form; plain `bytes` are a value in text form."""

    def __init__(self, data: bytes) -> None:
        self.data: Final = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Binary) and self.data == other.data

    def __hash__(self) -> int:
        return hash((Binary, self.data))

    def __repr__(self) -> str:
        return f"Binary(<{len(self.data)} bytes>)"


ColumnValue: TypeAlias = "bytes | Binary | Literal[Unchanged.UNCHANGED] | None"


def tuple_end(
    frame: bytes, at: i64, columns_expected: i64, message: str = "TupleData", field: str = "tuple", start: i64 = 0
) -> i64:
    """Check the whole tuple at `at` (0 or more) and return the offset of the first byte after it.

    Then every kind byte, length and value of the tuple is known to lie inside the frame.
    `columns_expected` is the relation's number of columns, or ANY_COUNT. Errors name `message` and `field`, and count
    offsets from `start`. Raises DecodeError (the server's fault). No Python object is made on the way.
    """
    end: i64 = len(frame)
    if end - at < 2:
        raise short(message, field, at - start, 2, end - at)
    columns: i64 = i64(read_i16_be(frame, at))
    if columns < 0:
        raise wrong(message, field, at - start, "0 columns or more", str(columns))
    if columns_expected not in (columns, ANY_COUNT):
        raise wrong(message, field, at - start, f"{columns_expected} columns", str(columns))
    at += 2
    column: i64 = 0
    while column < columns:
        if at >= end:
            raise short(message, f"{field} (column {column + 1} of {columns})", at - start, 1, 0)
        kind: i64 = frame[at]
        at += 1
        if kind in (BINARY, TEXT):
            if end - at < 4:
                raise short(message, f"{field} (length of column {column + 1} of {columns})", at - start, 4, end - at)
            size: i64 = i64(read_i32_be(frame, at))
            at += 4
            if size < 0 or size > end - at:
                raise _bad_size(message, f"{field} (column {column + 1} of {columns})", at - start, size, end - at)
        elif kind in (NULL, TOAST_UNCHANGED):
            size = 0
        else:
            named = f"{field} (column {column + 1} of {columns})"
            raise wrong(message, named, at - 1 - start, "kind n, u, t or b", f"byte {kind:#04x}")
        at += size
        column += 1
    return at


def column_size(frame: bytes, at: i64) -> i64:
    """Return how many bytes a column of a checked tuple takes, from its kind byte at `at` on."""
    kind: i64 = frame[at]
    if kind in (BINARY, TEXT):
        return i64(read_i32_be(frame, at + 1)) + 5
    return 1


def column_at(frame: bytes, at: i64, column: i64) -> i64:
    """Return the offset of a column's kind byte in the checked tuple at `at`."""
    at += 2
    while column > 0:
        at += column_size(frame, at)
        column -= 1
    return at


def _bad_size(message: str, field: str, offset: i64, size: i64, left: i64) -> DecodeError:
    if size < 0:
        return wrong(message, field, offset - 4, "a length of 0 or more", str(size))
    return short(message, field, offset, size, left)


@final
@mypyc_attr(free_list_len=1)
class TupleData:
    """One row's columns, `frame[at:end]`, checked by `tuple_end`. The first two bytes are the column count.

    Two tuples are equal if their bytes are equal, wherever they lie.
    """

    def __init__(self, frame: bytes, at: i64, end: i64, column_count: i64) -> None:
        self.frame: Final = frame
        self.at: Final[i64] = at
        self.end: Final[i64] = end
        self.column_count: Final[i64] = column_count

    def columns(self) -> list[tuple[int, int, int]]:
        """Return the kind byte, value offset in the frame and value size of each column. Not for the hot path."""
        found: list[tuple[int, int, int]] = []
        at: i64 = self.at + 2
        for _ in range(self.column_count):
            kind: i64 = self.frame[at]
            at += 1
            size: i64 = 0
            if kind in (BINARY, TEXT):
                size = i64(read_i32_be(self.frame, at))
                at += 4
            found.append((kind, at, size))
            at += size
        return found

    def values(self) -> list[ColumnValue]:
        """Return copies of the values: None, UNCHANGED, `bytes` in text form, or Binary. For tests."""
        found: list[ColumnValue] = []
        for kind, at, size in self.columns():
            if kind == NULL:
                found.append(None)
            elif kind == TOAST_UNCHANGED:
                found.append(UNCHANGED)
            elif kind == TEXT:
                found.append(self.frame[at : at + size])
            else:
                found.append(Binary(self.frame[at : at + size]))
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TupleData):
            return False
        return self.frame[self.at : self.end] == other.frame[other.at : other.end]

    def __hash__(self) -> int:
        return hash(self.frame[self.at : self.end])

    def __repr__(self) -> str:
        return f"TupleData(<{self.column_count} columns at {self.at} to {self.end}>)"


def read_tuple(cursor: Cursor, field: str) -> TupleData:
    """Take the cursor past one tuple, and return where it lies. Raises DecodeError as `tuple_end` does."""
    at = cursor.position
    end = tuple_end(cursor.frame, at, ANY_COUNT, cursor.message, field, cursor.start)
    cursor.position = end
    return TupleData(cursor.frame, at, end, i64(read_i16_be(cursor.frame, at)))
