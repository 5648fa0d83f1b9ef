r"""Text of a database without an encoding (SQL_ASCII): any bytes, while Avro's strings must be UTF-8.

Before: `registry` and `lookup` wrap codecs in these, for such databases only. Other databases send UTF-8.
After: `event_encoder` calls them like any codec.
Source: PostgreSQL, "Character Set Support"; "Binary Data Types", the escape format of bytea.

A value that is not UTF-8 is unrepresentable. In its text, a byte that belongs to no UTF-8 character is written as
`\xHH`, and a backslash is doubled. For example, `café` in LATIN1 becomes `caf\xe9`.
"""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec


def shown(raw: bytes) -> str:
    r"""`raw` as a string: unchanged if it is UTF-8, else with `\xHH` for bytes that are not, and `\\` for `\`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def is_utf8(raw: bytes) -> bool:
    """Whether Avro can hold these bytes as a string."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


class TextCodec(Codec):
    """A type whose values hold text in the database's encoding."""

    @property
    def has_text(self) -> bool:
        return True

    def raw(self, data: bytes, at: i64, size: i64) -> bytes:
        """PostgreSQL's text form of the binary value, in the encoding in which it came."""
        raise NotImplementedError

    def render(self, data: bytes, at: i64, size: i64) -> str:
        # Bytes that are not UTF-8 become surrogates. EscapingColumn turns them back into bytes, at any depth of
        # nesting.
        return self.raw(data, at, size).decode("utf-8", "surrogateescape")


class Utf8Checked(Codec):
    """Wraps a codec of text: a value that is not UTF-8 is unrepresentable."""

    def __init__(self, inner: TextCodec) -> None:
        super().__init__(inner.schema, is_fallible=True)
        self.inner = inner

    def children(self) -> list[Codec]:
        return [self.inner]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return is_utf8(self.inner.raw(data, at, size)) and self.inner.binary(data, at, size, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return is_utf8(data[at : at + size]) and self.inner.text(data, at, size, out)

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return self.inner.render(data, at, size)


class EscapingColumn(Codec):
    """Wraps the codec of a whole column with text in it: `render` escapes bytes that are not UTF-8."""

    def __init__(self, inner: Codec) -> None:
        super().__init__(inner.schema, is_fallible=True)
        self.inner = inner

    def children(self) -> list[Codec]:
        return [self.inner]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.inner.binary(data, at, size, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.inner.text(data, at, size, out)

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return shown(self.inner.render(data, at, size).encode("utf-8", "surrogateescape"))


def utf8_checked(codec: Codec) -> Codec:
    """`codec`, with a check for UTF-8 if it is a codec of text. For databases without an encoding."""
    return Utf8Checked(codec) if isinstance(codec, TextCodec) else codec
