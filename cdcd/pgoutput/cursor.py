"""Reads the fields of one pgoutput message in order. Every error is a DecodeError that says where it is.

Before: `decoder` opens a cursor after the message's type byte.
After: `tuples` takes a cursor past a whole tuple; `decoder` makes `messages` of what the cursor has read.

Offsets in errors count from the message's type byte, not from the start of the frame. No error holds bytes of the
message, except a single type, kind or flag byte that should not be there.

Source: PostgreSQL, "Message Data Types" (Int8 to Int64 big-endian, zero-terminated String).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import read_i16_be, read_i32_be, read_i64_be
from mypy_extensions import i64, mypyc_attr

from cdcd.errors import DecodeError
from cdcd.lsn import format_lsn

HINT: Final = (
    "Check that the slot's plugin is pgoutput, and that nothing between cdcd and PostgreSQL alters the stream. "
    "Otherwise this is a bug of cdcd: report this message with the server's version"
)
ENCODING_HINT: Final = (
    "Connect with client_encoding=UTF8. If `SHOW server_encoding` says SQL_ASCII, PostgreSQL converts nothing: "
    "rename what this field names. The WAL keeps the old name: go past it with pg_replication_slot_advance, and take a "
    "new snapshot. Or store the database in UTF8"
)


def short(message: str, field: str, offset: i64, wanted: i64, got: i64) -> DecodeError:
    """Make the error for a field at `offset` in the message that has `got` bytes of the `wanted` ones."""
    return DecodeError(f"{message}: field {field} at offset {offset} wants {wanted} bytes, got {max(got, 0)}", HINT)


def wrong(message: str, field: str, offset: i64, wanted: str, got: str) -> DecodeError:
    """Make the error for a field that holds something else than the protocol allows."""
    return DecodeError(f"{message}: field {field} at offset {offset} wants {wanted}, got {got}", HINT)


@final
@mypyc_attr(free_list_len=1)  # the next message's cursor uses its memory again
class Cursor:
    """A position inside one message. Every read checks the bounds, names its field on failure, and moves on.

    `frame` ends where the message ends. All methods raise DecodeError (the server's fault) and nothing else.
    """

    def __init__(self, frame: bytes, at: i64, message: str) -> None:
        """Start after the type byte at `at`. Errors begin with the name `message`."""
        self.frame: Final = frame
        self.message: Final = message
        self.start: Final[i64] = at
        self.position: i64 = at + 1
        self.to_text: Callable[[bytes], str] | None = None
        """Gives strings that come in the database's own encoding; None: they are UTF-8."""
        self.lsn_base: i64 = 0
        """Is added to the LSNs of the server: see `cdcd.lsn`."""

    def byte(self, field: str) -> i64:
        """Read an Int8 or Byte1 as 0 to 255."""
        at = self._take(field, 1)
        return self.frame[at]

    def int16(self, field: str) -> i64:
        """Read a signed Int16."""
        at = self._take(field, 2)
        return i64(read_i16_be(self.frame, at))

    def int32(self, field: str) -> i64:
        """Read a signed Int32."""
        at = self._take(field, 4)
        return i64(read_i32_be(self.frame, at))

    def count16(self, field: str) -> i64:
        """Read an Int16 that says how many items follow."""
        count = self.int16(field)
        if count < 0:
            raise wrong(self.message, field, self.position - 2 - self.start, "0 or more", str(count))
        return count

    def count32(self, field: str) -> i64:
        """Read an Int32 that says how many items or bytes follow."""
        count = self.int32(field)
        if count < 0:
            raise wrong(self.message, field, self.position - 4 - self.start, "0 or more", str(count))
        return count

    def oid(self, field: str) -> i64:
        """Read an OID, unsigned: 0 to 2**32 - 1."""
        at = self._take(field, 4)
        return i64(read_i32_be(self.frame, at)) & 0xFFFF_FFFF

    def xid(self, field: str) -> i64:
        """Read a transaction id: 1 to 2**32 - 1. Zero is `InvalidTransactionId`, which the server never sends."""
        xid = self.oid(field)
        if xid == 0:
            raise wrong(self.message, field, self.position - 4 - self.start, "a transaction id", "0")
        return xid

    def int64(self, field: str) -> i64:
        """Read a signed Int64: a time in microseconds since 2000-01-01 UTC, for example."""
        at = self._take(field, 8)
        return read_i64_be(self.frame, at)

    def lsn_or_zero(self, field: str) -> i64:
        """Read an LSN where the server may say that it has none (0).

        An LSN is unsigned on the wire and signed 64 bits in cdcd: one of 2**63 or more (8 EiB of WAL, which no server
        has written) is an error rather than a negative number.
        """
        lsn = self.int64(field)
        if lsn < 0:
            got = format_lsn(int(lsn) & 0xFFFF_FFFF_FFFF_FFFF)
            raise wrong(self.message, field, self.position - 8 - self.start, "an LSN below 80000000/0", got)
        return lsn

    def lsn(self, field: str) -> i64:
        """Read an LSN that must be set, as PostgreSQL's own subscriber demands; it comes with `lsn_base` added."""
        lsn = self.lsn_or_zero(field)
        if lsn == 0:
            raise wrong(self.message, field, self.position - 8 - self.start, "an LSN", "0/0")
        return lsn + self.lsn_base

    def flags(self, field: str, known: i64) -> i64:
        """Read a byte of flags. A flag outside the mask `known` is an error: it could change what the message means."""
        flags = self.byte(field)
        if flags & ~known:
            at = self.position - 1 - self.start
            raise wrong(self.message, field, at, f"flags within {known:#04x}", f"{flags:#04x}")
        return flags

    def string(self, field: str) -> str:
        """Read a zero-terminated UTF-8 string."""
        at = self.position
        raw = self._terminated(field)
        if self.to_text is not None:
            return self.to_text(raw)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            bad = at - self.start + error.start
        text = f"{self.message}: field {field} at offset {at - self.start} wants UTF-8"
        raise DecodeError(
            f"{text}, got another encoding's byte at offset {bad}", ENCODING_HINT, code="name-unconvertible"
        )

    def string_of_any_encoding(self, field: str) -> str:
        r"""Read a zero-terminated string that cdcd only passes on: bytes that are not UTF-8 become `\xHH`."""
        raw = self._terminated(field)
        return raw.decode("utf-8", "backslashreplace") if self.to_text is None else self.to_text(raw)

    def namespace(self, field: str) -> str:
        """Read a schema's name. To save space the server writes `pg_catalog` as an empty string."""
        return self.string(field) or "pg_catalog"

    def counted(self, field: str) -> bytes:
        """Read an Int32 length and that many bytes."""
        size = self.count32(field)
        at = self._take(field, size)
        return self.frame[at : at + size]

    def unexpected(self, field: str, wanted: str) -> DecodeError:
        """Make the error for the byte just read, which may not stand there."""
        at = self.position - 1
        return wrong(self.message, field, at - self.start, wanted, f"byte {self.frame[at]:#04x}")

    def finish(self) -> None:
        """Make sure that the message ends here."""
        left = len(self.frame) - self.position
        if left:
            at = self.position - self.start
            raise DecodeError(f"{self.message}: wants its end at offset {at}, got {left} bytes more", HINT)

    def _terminated(self, field: str) -> bytes:
        at = self.position
        stop: i64 = self.frame.find(b"\0", at)
        if stop < 0:
            left = len(self.frame) - at
            text = f"{self.message}: field {field} at offset {at - self.start} has no terminating zero byte"
            raise DecodeError(f"{text} within {left} bytes", HINT)
        self.position = stop + 1
        return self.frame[at:stop]

    def _take(self, field: str, size: i64) -> i64:
        at = self.position
        left = len(self.frame) - at
        if size > left:
            raise short(self.message, field, at - self.start, size, left)
        self.position = at + size
        return at
