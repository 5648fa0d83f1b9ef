"""The text of arrays, composites and ranges, in which PostgreSQL quotes the values.

Before: bytes of a frame. After: `arrays`, `composites`, `ranges` and `extensions` read such text, and write it in
`render`.
Source: PostgreSQL `arrayfuncs.c` (`array_out`), `rowtypes.c` (`record_out`), `rangetypes.c` (`range_deparse`).

A LiteralScanner walks over the items of one text. It makes a bytes object only for an item with escapes. All other
items stay in the frame.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.codecs.errors import wrong_text

_QUOTE: Final = 34
_BACKSLASH: Final = 92

_SPACES = " \t\n\r\v\f"


class LiteralScanner:
    """The items of one text, from `at` on: `next` finds one, then `data`, `start` and `size` say where it lies.

    `quoted` tells `""` from an empty item, and `"NULL"` from NULL. The caller reads the delimiters between the items.
    """

    def __init__(self, data: bytes, at: i64, end: i64, type_name: str) -> None:
        self._source = data
        self._end: i64 = end
        self._size: i64 = end - at
        self._type_name = type_name
        self.at: i64 = at
        self.data = data
        self.start: i64 = at
        self.size: i64 = 0
        self.quoted = False

    def next(self, stop: i64, other_stop: i64) -> None:
        """Read the item at `at`, up to a byte `stop` or `other_stop` outside quotes, and set `at` to that byte.

        Raises DecodeError if the text ends before such a byte.
        """
        data = self._source
        end: i64 = self._end
        i: i64 = self.at
        self.quoted = i < end and data[i] == _QUOTE
        escaped = False
        if self.quoted:
            i += 1
            self.start = i
            while i < end:
                byte: i64 = i64(data[i])
                if byte == _BACKSLASH:
                    escaped = True
                    i += 1
                elif byte == _QUOTE:
                    # A quote inside quotes: doubled in composites and ranges, after a backslash in arrays.
                    if i + 1 < end and data[i + 1] == _QUOTE:
                        escaped = True
                        i += 1
                    else:
                        break
                i += 1
            self.size = i - self.start
            i += 1
        else:
            self.start = i
            while i < end and data[i] != stop and data[i] != other_stop:
                i += 1
            self.size = i - self.start
        if i >= end or (data[i] != stop and data[i] != other_stop):
            raise wrong_text(self._type_name, "items and their delimiters", self._size)
        self.at = i
        self.data = data
        if escaped:
            self.data = _unescape(data, self.start, self.size)
            self.start = 0
            self.size = len(self.data)

    def is_bare(self, word: bytes) -> bool:
        """Whether the item is `word`, without quotes."""
        return not self.quoted and self.size == len(word) and self.data[self.start : self.start + self.size] == word


def _unescape(data: bytes, at: i64, size: i64) -> bytes:
    """The item without its escapes. A backslash, or the first of two quotes, makes the next byte literal."""
    out = BytesWriter()
    end: i64 = at + size
    while at < end:
        byte: i64 = i64(data[at])
        if (byte == _BACKSLASH or byte == _QUOTE) and at + 1 < end:
            at += 1
            byte = i64(data[at])
        out.append(u8(byte))
        at += 1
    return out.getvalue()


def quote_element(text: str, delimiter: str) -> str:
    """An array's element as `array_out` writes it."""
    if text and text.upper() != "NULL" and not any(char in text for char in '"\\{}' + delimiter + _SPACES):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def quote_field(text: str) -> str:
    """A composite's field as `record_out` writes it."""
    return _double(text) if not text or any(char in text for char in '"\\(),' + _SPACES) else text


def quote_bound(text: str) -> str:
    """A range's bound as `range_deparse` writes it."""
    return _double(text) if not text or any(char in text for char in '"\\()[],' + _SPACES) else text


def _double(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '""') + '"'
