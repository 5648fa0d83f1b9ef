r"""Text that does not come as UTF-8, while Avro's strings must be UTF-8.

Before: `registry` and `lookup` wrap codecs in these for two kinds of databases. Other databases send UTF-8.
After: `event_encoder` calls them like any codec.
Source: PostgreSQL, "Character Set Support"; "Binary Data Types", the escape format of bytea.

- A database without an encoding (SQL_ASCII) holds any bytes.
- Of a database with another encoding the server cannot convert every character. Once it has failed to, text comes as
  it is stored, in text mode, and cdcd converts it.

A value that is not UTF-8 is unrepresentable. In its text, a byte that belongs to no UTF-8 character is written as
`\xHH`, and a backslash is doubled. For example, a `café` that a client wrote in LATIN1 into a SQL_ASCII database
becomes `caf\xe9`. In a database in LATIN1 it is converted, and nothing is lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec

_SURROGATE: Final = re.compile(r"[\udc80-\udcff]")

ToText: TypeAlias = "Callable[[bytes], str]"
"""Gives text in the database's encoding as UTF-8, with surrogates for bytes that have no equivalent."""


def without_encoding(raw: bytes) -> str:
    """ToText of a database without an encoding."""
    return raw.decode("utf-8", "surrogateescape")


def escaped(text: str) -> str:
    r"""The text with `\xHH` for each surrogate, and then `\\` for a backslash; unchanged if it has none."""
    if is_whole(text):
        return text
    return _SURROGATE.sub(_hex, text.replace("\\", "\\\\"))


def _hex(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]) - 0xDC00:02x}"


def is_whole(text: str) -> bool:
    """Whether every character of the text is one of UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(raw: bytes) -> str:
    r"""`raw` as a string: unchanged if it is UTF-8, else with `\xHH` for bytes that are not, and `\\` for `\`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.replace(b"\\", b"\\\\").decode("utf-8", "backslashreplace")


def text_of_value(codec: Codec, is_binary: bool, data: bytes, at: i64, size: i64) -> str:
    """PostgreSQL's text of the value of `size` bytes at `at`, which came in binary or in text."""
    if is_binary:
        return codec.render(data, at, size)
    raw = data[at : at + size]
    return codec.shown(raw) if isinstance(codec, EscapingColumn) else shown(raw)


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


class Converted(Codec):
    """Wraps a codec of text that comes as it is stored: what is not UTF-8 after `to_text` is unrepresentable."""

    def __init__(self, inner: TextCodec, to_text: ToText) -> None:
        super().__init__(inner.schema, is_fallible=True)
        self.inner = inner
        self._to_text = to_text

    def children(self) -> list[Codec]:
        return [self.inner]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.inner.raw(data, at, size), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(data[at : at + size], out)

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return self._to_text(self.inner.raw(data, at, size))

    def _write(self, raw: bytes, out: BytesWriter) -> bool:
        text = self._to_text(raw)
        if not is_whole(text):
            return False
        converted = text.encode()
        return self.inner.text(converted, 0, len(converted), out)


class EscapingColumn(Codec):
    """Wraps the codec of a whole column with text in it: what is shown escapes bytes that are not UTF-8."""

    def __init__(self, inner: Codec, to_text: ToText) -> None:
        super().__init__(inner.schema, is_fallible=True)
        self.inner = inner
        self._to_text = to_text

    def children(self) -> list[Codec]:
        return [self.inner]

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.inner.binary(data, at, size, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self.inner.text(data, at, size, out)

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return escaped(self.inner.render(data, at, size))

    def shown(self, raw: bytes) -> str:
        """The text of an unrepresentable value that came in text mode."""
        return escaped(self._to_text(raw))


def utf8_checked(codec: Codec) -> Codec:
    """`codec`, with a check for UTF-8 if it is a codec of text. For databases without an encoding."""
    return Utf8Checked(codec) if isinstance(codec, TextCodec) else codec


def converted(codec: Codec, to_text: ToText) -> Codec:
    """`codec`, with a conversion to UTF-8 if it is a codec of text. For text that comes as it is stored."""
    return Converted(codec, to_text) if isinstance(codec, TextCodec) else codec
