"""Rows of COPY become events: the frame of the format here, the columns in the encoder that reads the stream's, too.

Before: `reader` has messages of COPY ... TO STDOUT (FORMAT binary), each one row. After: `avro.envelope`.
Source: PostgreSQL, "COPY", Binary Format.

Hot path of the snapshot, compiled: no copy of a row is made before it is encoded.
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

_CURE: Final = "Check that nothing between cdcd and PostgreSQL changes the stream, and report this"


@final
class CopyFormat:
    """How far one COPY is: its header, rows of so many columns, its trailer."""

    def __init__(self, columns: int) -> None:
        self._columns: i64 = columns
        self._begun = False
        self.ended = False
        """The trailer has come."""

    def row_at(self, message: bytes) -> i64:
        """Where the first column of the message's row is; 0 for a message that is no row (header, trailer).

        Raises DecodeError if it does not begin as one of so many columns.
        """
        at: i64 = 0
        if not self._begun:
            if not message.startswith(SIGNATURE):
                raise DecodeError("a COPY in binary format starts with other bytes than its signature", _CURE)
            self._begun = True
            at = HEADER_BYTES
            if len(message) == at:
                return 0
        if len(message) < at + 2:
            raise DecodeError(f"a row of COPY of {len(message)} bytes is cut off at {at}", _CURE)
        columns: i64 = i64(read_i16_be(message, at))
        if columns == -1:
            self.ended = True
            return 0
        if columns != self._columns:
            raise DecodeError(f"a row of COPY has {columns} columns, not {self._columns}", _CURE)
        return at + 2


@final
class TableRows:
    """The rows of one table become events. `kinds`: for each column BINARY, or TEXT where its text was asked for."""

    def __init__(self, encoder: RelationChanges, kinds: bytes) -> None:
        self._encoder = encoder
        self._kinds = kinds

    def copy(self) -> CopyFormat:
        """A COPY of the table begins."""
        return CopyFormat(len(self._kinds))

    def encode(self, messages: list[bytes], copy: CopyFormat, lsn: i64) -> i64:
        """Encode the rows among the messages of one COPY; returns how many there were.

        Raises DecodeError if one is no row of the table.
        """
        count: i64 = 0
        for message in messages:
            at = copy.row_at(message)
            if at:
                self._encoder.snapshot_row(message, at, self._kinds, lsn)
                count += 1
        return count

    def truncate(self, lsn: i64) -> None:
        """What the topic has of the table counts no more."""
        self._encoder.truncate(lsn, cascade=False, restart_identity=False)
