"""Parses the binary format of COPY: header, rows, trailer. The event format reads the columns of a row.

Before: `reader` has messages of COPY ... TO STDOUT (FORMAT binary), one row each. After: `transaction.change_consumer`.
Source: PostgreSQL, "COPY", Binary Format.

Hot path of the snapshot, compiled: a row is encoded from its message, without a copy.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i16_be
from mypy_extensions import i64

from cdcd.errors import DecodeError
from cdcd.transaction.change_consumer import RelationChanges

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\x00"
HEADER_BYTES: Final = 19
"""Signature, flags, and the length of an extension that no server sends."""

_HINT: Final = "Check that nothing between cdcd and PostgreSQL changes the stream, and report this"


@final
class CopyFormat:
    """How far one COPY is: header, rows, trailer."""

    def __init__(self, columns: int) -> None:
        """`columns`: how many each row has."""
        self._columns: i64 = columns
        self._has_begun = False
        self.has_ended = False
        """The trailer has come."""

    def row_at(self, message: bytes) -> i64:
        """Return where the first column of the message's row is; 0 for a message without a row (header, trailer).

        Raises DecodeError (the server's fault) if the message begins in another way, or has another number of columns.
        """
        at: i64 = 0
        if not self._has_begun:
            if not message.startswith(SIGNATURE):
                raise DecodeError("a COPY in binary format does not start with its signature", _HINT)
            self._has_begun = True
            at = HEADER_BYTES
            if len(message) == at:
                return 0
        if len(message) < at + 2:
            raise DecodeError(f"a row of COPY of {len(message)} bytes is cut off at {at}", _HINT)
        columns: i64 = i64(read_i16_be(message, at))
        if columns == -1:
            self.has_ended = True
            return 0
        if columns != self._columns:
            raise DecodeError(f"a row of COPY has {columns} columns, not {self._columns}", _HINT)
        return at + 2


@final
class TableRows:
    """Turns the rows of one table into events."""

    def __init__(self, encoder: RelationChanges, kinds: bytes) -> None:
        """`kinds`: for each column BINARY, or TEXT where COPY gives its text."""
        self._encoder = encoder
        self._kinds = kinds

    def begin_copy(self) -> CopyFormat:
        """A COPY of the table begins. Returns its state, for `encode`."""
        return CopyFormat(len(self._kinds))

    def encode(self, messages: list[bytes], copy: CopyFormat, lsn: i64) -> i64:
        """Encode the rows among the messages of one COPY, as of `lsn`; returns how many rows there were.

        Raises DecodeError (the server's fault) if one is no row of the table.
        """
        count: i64 = 0
        for message in messages:
            at = copy.row_at(message)
            if at:
                self._encoder.snapshot_row(message, at, self._kinds, lsn)
                count += 1
        return count

    def truncate(self, lsn: i64) -> None:
        """Encode a truncate event: readers drop what the topic has of the table."""
        self._encoder.truncate(lsn, cascade=False, restart_identity=False)
