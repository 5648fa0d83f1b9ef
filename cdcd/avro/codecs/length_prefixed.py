"""Reads a binary value that consists of parts: each part follows its length.

Before: bytes of a frame. After: `arrays`, `composites`, `ranges` and `extensions` read their values with it.
Source: PostgreSQL `array_send`, `record_send`, `range_send`, `hstore_send`: big-endian int32; a length of -1 is null.
"""

from __future__ import annotations

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.errors import malformed


class LengthPrefixedReader:
    """Walks over the length-prefixed parts of a binary value, and checks that each lies inside it."""

    def __init__(self, at: i64, size: i64, type_name: str) -> None:
        self._end: i64 = at + size
        self._type_name = type_name
        self.at: i64 = at
        """Where the next integer or part begins."""

    def int4(self, data: bytes) -> i64:
        """Read an int32."""
        at: i64 = self.at
        if at + 4 > self._end:
            raise malformed(self._type_name, "4 more bytes", f"{self._end - at}")
        self.at = at + 4
        return i64(read_i32_be(data, at))

    def size(self, data: bytes) -> i64:
        """Read the length of a part; -1: null. The part starts at `at`; the caller moves past it with `skip`."""
        size: i64 = self.int4(data)
        if size < -1 or size > self._end - self.at:
            raise malformed(self._type_name, f"a part of at most {self._end - self.at} bytes", f"{size}")
        return size

    def skip(self, size: i64) -> None:
        """Move past a part of `size` bytes; below 0, a null part, there is nothing to skip."""
        if size > 0:
            self.at += size

    def finish(self) -> None:
        """Raise DecodeError if bytes follow the last part."""
        if self.at != self._end:
            raise malformed(self._type_name, "nothing after the last part", f"{self._end - self.at} bytes")
