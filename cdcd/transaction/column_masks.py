"""Masks values of columns, and leaves columns out, in PostgreSQL's own bytes: of a Relation, a row, a row of COPY.

Before: `column_rules` says which columns of a table, by name. A frame comes from the stream, a row from COPY.
After: `masked_changes` hands the new bytes on; the spool keeps nothing but them. So no other module sees the values.
Source: PostgreSQL, "Logical Replication Message Formats" (TupleData), "COPY" (Binary Format).

A mask is made from the value's text, as PostgreSQL's output function writes it. So text mode, binary mode and a
snapshot give the same bytes. In binary mode this module makes the text itself, for the types in `BINARY_OIDS`; another
type needs text mode. COPY gives the text of masked columns.

Hot path, compiled: a row costs one new frame, and a hash half a microsecond. Columns like city have few values, and
their hashes are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, final

from librt.strings import BytesWriter, read_i16_be, read_i32_be, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64, u8

from cdcd.errors import BUG_HINT, BinaryFormatUnsupported, DecodeError
from cdcd.pgoutput.messages import Column, Relation
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, column_size, tuple_end
from cdcd.source.pg_types import Attribute

HASH: Final = 1
LAST: Final = 2
CONSTANT: Final = 3
NOTHING: Final = 4

HASH_BYTES: Final = 16
"""Of the digest; the text is hexadecimal."""
HIDDEN: Final = b"****"
"""Stands for what LAST leaves out, however long it is."""

MASKED: Final = 0x6D
"""The first byte of a frame that was masked, where the server wrote the w of XLogData. No frame comes with it."""

TEXT_OID: Final = 25
_BOOL: Final = 16
_BYTEA: Final = 17
_INT8: Final = 20
_INT2: Final = 21
_INT4: Final = 23
_OID: Final = 26
_UUID: Final = 2950
_JSONB: Final = 3802
_LIKE_TEXT: Final = frozenset({TEXT_OID, 19, 114, 1042, 1043})
"""text, name, json, bpchar, varchar: the binary form is the text."""
BINARY_OIDS: Final = _LIKE_TEXT | frozenset({_BOOL, _BYTEA, _INT8, _INT2, _INT4, _OID, _UUID, _JSONB})
"""The types whose text can be made from their binary form here."""


class StoredText:
    """How text is read that comes as it is stored, because the server cannot convert it."""

    def __init__(self, to_text: Callable[[bytes], str], characters: Callable[[bytes], list[bytes]]) -> None:
        """`to_text` gives UTF-8, with surrogates for bytes without an equivalent; `characters` divides the bytes."""
        self.to_text = to_text
        self.characters = characters


@final
class Mask:
    """What becomes of the values of one column. A null stays a null."""

    def __init__(self, kind: int, kept: int = 0, constant: bytes = b"") -> None:
        """`kind`: HASH, LAST, CONSTANT or NOTHING. `kept`: the characters that LAST keeps."""
        self.kind: Final = kind
        self.kept: Final = kept
        self.constant: Final = constant

    @property
    def makes_text(self) -> bool:
        """The masked column is of type text, whatever it is in the table."""
        return self.kind != NOTHING

    @property
    def needs_value(self) -> bool:
        """The mask is made from the value."""
        return self.kind == HASH or self.kind == LAST


class Masking:
    """The secret, and how text is read. One object for all tables of a stream; `stored` may be set between streams."""

    def __init__(self, secret: bytes) -> None:
        self._hash: Any = blake2b(key=secret, digest_size=HASH_BYTES)
        """The state of a hash before its text: a copy costs less than another one with the key."""
        self._digests: dict[bytes, bytes] = {}
        """By text: those of the last short texts."""
        self.stored: StoredText | None = None

    def digest(self, text: bytes) -> bytes:
        """The keyed hash of a text in UTF-8, in hexadecimal digits."""
        found = self._digests.get(text)
        if found is None:
            state = self._hash.copy()
            state.update(text)
            hexadecimal: str = state.hexdigest()
            found = hexadecimal.encode()
            if len(text) <= _KEPT_TEXT_BYTES:
                if len(self._digests) >= _KEPT_DIGESTS:
                    self._digests.clear()
                self._digests[text] = found
        return found


@final
class MaskedColumn:
    """One column that is masked or left out."""

    def __init__(self, name: str, type_oid: i64, index: i64, copy_index: i64, mask: Mask | None) -> None:
        """`index`: in the server's tuples. `copy_index`: in the rows of COPY. `mask`: None if it is left out."""
        self.name = name
        self.type_oid: i64 = type_oid
        self.index: i64 = index
        self.copy_index: i64 = copy_index
        self.mask = mask


@final
class RelationMasking:
    """The masks of one relation in one of its versions."""

    def __init__(self, masking: Masking, relation: Relation, columns: list[MaskedColumn]) -> None:
        """`relation`: as the server announced it. `columns`: not empty, in its order."""
        self._masking = masking
        self._columns = columns
        self._width: i64 = len(relation.columns)
        self._left_out: i64 = sum(column.mask is None for column in columns)
        self._by_name = {column.name: column for column in columns}
        self._out = BytesWriter()

    def relation(self, message: Relation) -> Relation:
        """The relation as its readers see it: without the columns that are left out, and masked ones as text."""
        kept = []
        for column in message.columns:
            masked = self._by_name.get(column.name)
            if masked is None or (masked.mask is not None and not masked.mask.makes_text):
                kept.append(column)
            elif masked.mask is not None:
                kept.append(Column(column.is_key, column.name, TEXT_OID, -1))
        return Relation(
            message.xid, message.relation_oid, message.nspname, message.relname, message.replica_identity, tuple(kept)
        )

    @property
    def leaves_out(self) -> bool:
        """Whether a column is left out."""
        return self._left_out > 0

    @property
    def text_only(self) -> list[str]:
        """The columns whose masks can be made of their text only, and not of their binary form."""
        return [
            column.name
            for column in self._columns
            if column.mask is not None and column.mask.needs_value and column.type_oid not in BINARY_OIDS
        ]

    def is_masked(self, name: str) -> bool:
        """Whether the column has a mask; COPY then has to give its text."""
        column = self._by_name.get(name)
        return column is not None and column.mask is not None

    def unfit_for_key(self, name: str) -> str:
        """Why the column cannot be part of a key: "is left out", "is masked"; empty if it can."""
        column = self._by_name.get(name)
        if column is None:
            return ""
        if column.mask is None:
            return "is left out"
        return "" if column.mask.kind == HASH else "is masked, and not by a hash"

    def attribute(self, name: str, attribute: Attribute, *, again: bool = False) -> Attribute:
        """A column as the catalog has it, with the type and the missing value that readers see.

        `again`: the value was published. It may be masked already.
        """
        column = self._by_name.get(name)
        if column is None or column.mask is None:
            return attribute
        oid = TEXT_OID if column.mask.makes_text else attribute.type_oid
        missing = attribute.missing_value
        if missing is not None and not (again and column.mask.kind == HASH and _is_digest(missing)):
            masked = self.text(name, missing.encode("utf-8", "surrogateescape"))
            missing = None if masked is None else masked.decode("utf-8", "surrogateescape")
        return Attribute(attribute.number, oid, missing)

    def text(self, name: str, value: bytes | None) -> bytes | None:
        """The value of a column that is not left out, as its readers see it: PostgreSQL's text; None is null."""
        column = self._by_name.get(name)
        if value is None or column is None or column.mask is None:
            return value
        return None if column.mask.kind == NOTHING else self._masked(column.mask, value, None)

    def frame(self, frame: bytes, at: i64) -> bytes:
        """A frame with masked rows. `at`: after the relation's OID. Raises DecodeError (the server's fault)."""
        out = self._out
        out.truncate(0)
        out.append(u8(MASKED))
        out.write(frame[1:at])
        end: i64 = len(frame)
        while at < end:
            out.append(frame[at])  # K, O or N
            at = self._tuple(frame, at + 1, out)
        masked = out.getvalue()
        if len(masked) > _KEPT_BYTES:
            self._out = BytesWriter()
        return masked

    def row(self, row: bytes, at: i64) -> bytes:
        """A row of COPY with its values masked, from the first column at `at` on. What is left out was not read."""
        out = BytesWriter()
        copied: i64 = 0
        index: i64 = 0
        for column in self._columns:
            mask = column.mask
            if mask is None:
                continue
            while index < column.copy_index:
                at = _after_copied(row, at)
                index += 1
            end = _after_copied(row, at)
            out.write(row[copied:at])
            if mask.kind == NOTHING or i64(read_i32_be(row, at)) < 0:
                write_i32_be(out, i32(-1))
            else:
                value = self._masked(mask, row[at + 4 : end], self._masking.stored)
                write_i32_be(out, i32(len(value)))
                out.write(value)
            at = copied = end
            index += 1
        out.write(row[copied:])
        return out.getvalue()

    def _tuple(self, frame: bytes, at: i64, out: BytesWriter) -> i64:
        """Write the tuple at `at` with its values masked; return where it ends."""
        end = tuple_end(frame, at, self._width, "a row of a masked table")
        write_i16_be(out, i16(i64(read_i16_be(frame, at)) - self._left_out))
        at += 2
        copied = at
        index: i64 = 0
        for column in self._columns:
            while index < column.index:
                at += column_size(frame, at)
                index += 1
            out.write(frame[copied:at])
            size = column_size(frame, at)
            mask = column.mask
            if mask is not None:
                self._write(column, mask, frame, at, size, out)
            at += size
            copied = at
            index += 1
        out.write(frame[copied:end])
        return end

    def _write(self, column: MaskedColumn, mask: Mask, frame: bytes, at: i64, size: i64, out: BytesWriter) -> None:
        kind: i64 = frame[at]
        if kind == NULL or mask.kind == NOTHING:
            out.append(u8(NULL))
            return
        if kind == TOAST_UNCHANGED:
            out.append(u8(TOAST_UNCHANGED))
            return
        if mask.kind == CONSTANT:
            value = mask.constant
        elif kind == BINARY:
            value = self._masked(mask, text_of(column.name, column.type_oid, frame[at + 5 : at + size]), None)
        else:
            value = self._masked(mask, frame[at + 5 : at + size], self._masking.stored)
        out.append(u8(TEXT))
        write_i32_be(out, i32(len(value)))
        out.write(value)

    def _masked(self, mask: Mask, text: bytes, stored: StoredText | None) -> bytes:
        """The mask of a value that is not null."""
        if mask.kind == HASH:
            if stored is not None and not text.isascii():
                text = stored.to_text(text).encode("utf-8", "surrogateescape")
            return self._masking.digest(text)
        if mask.kind == CONSTANT:
            return mask.constant
        if text.isascii():
            return HIDDEN + text[-mask.kept :] if len(text) > mask.kept else HIDDEN
        if stored is not None:
            characters = stored.characters(text)
            return HIDDEN + b"".join(characters[-mask.kept :]) if len(characters) > mask.kept else HIDDEN
        decoded = text.decode("utf-8", "surrogateescape")
        kept = decoded[-mask.kept :].encode("utf-8", "surrogateescape")
        return HIDDEN + kept if len(decoded) > mask.kept else HIDDEN


_KEPT_DIGESTS: Final = 4_096
_KEPT_TEXT_BYTES: Final = 64
"""The longest text whose hash is kept."""
_KEPT_BYTES: Final = 1_048_576
"""The largest buffer that is kept for the next row."""


def text_of(name: str, type_oid: i64, value: bytes) -> bytes:
    """PostgreSQL's text of a binary value. `name`: the column's.

    Raises BinaryFormatUnsupported for a type that is not in BINARY_OIDS, DecodeError (the server's fault).
    """
    if type_oid in _LIKE_TEXT:
        return value
    size: i64 = len(value)
    if type_oid == _INT4:
        _expect(size, 4)
        return str(read_i32_be(value, 0)).encode()
    if type_oid == _INT8:
        _expect(size, 8)
        return str(read_i64_be(value, 0)).encode()
    if type_oid == _INT2:
        _expect(size, 2)
        return str(read_i16_be(value, 0)).encode()
    if type_oid == _OID:
        _expect(size, 4)
        return str(i64(read_i32_be(value, 0)) & 0xFFFFFFFF).encode()
    if type_oid == _UUID:
        _expect(size, 16)
        digits = value.hex()
        return "-".join([digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]]).encode()
    if type_oid == _BYTEA:
        return b"\\x" + value.hex().encode()
    if type_oid == _BOOL:
        _expect(size, 1)
        return b"t" if value[0] else b"f"
    if type_oid == _JSONB:
        if size == 0 or value[0] != 1:
            raise DecodeError("a masked column of type jsonb has no version 1", BUG_HINT)
        return value[1:]
    raise BinaryFormatUnsupported(
        f"the column {name} is masked, and its type has no binary form that cdcd can mask: the stream goes on in text "
        "mode",
        code="stream-restarted",
    )


def _expect(size: i64, wanted: i64) -> None:
    if size != wanted:
        raise DecodeError(f"a masked column has {size} bytes instead of {wanted}", BUG_HINT)


def _after_copied(row: bytes, at: i64) -> i64:
    """Where the next column of a row of COPY begins."""
    if len(row) < at + 4:
        raise DecodeError(f"a row of COPY of {len(row)} bytes is cut off at {at}", BUG_HINT)
    size = i64(read_i32_be(row, at))
    at += 4
    if size > 0:
        at += size
    if at > len(row):
        raise DecodeError(f"a row of COPY of {len(row)} bytes is cut off in a value", BUG_HINT)
    return at


def _is_digest(text: str) -> bool:
    return len(text) == 2 * HASH_BYTES and all(each in "0123456789abcdef" for each in text)
