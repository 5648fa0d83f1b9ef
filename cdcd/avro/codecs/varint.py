"""Avro's two building blocks: the zigzag variable-length long, and bytes after their length.

Before: values of PostgreSQL. After: every codec, and `event_encoder`, write with these.
Source: Apache Avro 1.12, "Binary encoding". Every int, long, branch of a union, block count and length is such a long.

Both run about ten times a row, so both avoid Python objects. A slice costs an allocation (25-40 ns); copying eight
bytes as one integer costs 1 ns. `tests/bench/codecs.py` measures both.
"""

from __future__ import annotations

from typing import Final

from librt.strings import (
    BytesWriter,
    read_i16_be,
    read_i32_be,
    read_i64_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i64, u8

# Above about this size, one allocation and memcpy beat copying by words.
_WORDS_MAX_BYTES: Final = 128
_PIECE_BYTES: Final = 65_536
"""A slice of this size takes memory that the allocator has at hand. For a slice of a megabyte the kernel clears 256 new
pages each time."""


def write_long(out: BytesWriter, n: i64) -> None:
    """Append `n`, any signed 64-bit integer, as an Avro int or long: 1 to 10 bytes."""
    z: i64 = (n << 1) ^ (n >> 63)
    # Compiled, z is a signed word that may have wrapped. Uncompiled, z is a positive int with the same bits. The masks
    # make the shift logical in both.
    while z & -128:
        out.append(u8((z & 0x7F) | 0x80))
        z = (z >> 7) & 0x01FF_FFFF_FFFF_FFFF
    out.append(u8(z & 0x7F))


def copy(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    """Append `data[at:at + size]`, which must lie inside `data`."""
    if size > _WORDS_MAX_BYTES:
        _copy_pieces(out, data, at, size)
        return
    while size >= 8:
        write_i64_be(out, read_i64_be(data, at))
        at += 8
        size -= 8
    if size & 4:
        write_i32_be(out, read_i32_be(data, at))
        at += 4
    if size & 2:
        write_i16_be(out, read_i16_be(data, at))
        at += 2
    if size & 1:
        out.append(u8(data[at]))


def _copy_pieces(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    while size > _PIECE_BYTES:
        out.write(data[at : at + _PIECE_BYTES])
        at += _PIECE_BYTES
        size -= _PIECE_BYTES
    out.write(data[at : at + size])


def write_bytes(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    """Append `data[at:at + size]`, which must lie inside `data`, as Avro bytes or string, after its length."""
    write_long(out, size)
    copy(out, data, at, size)


def write_text(out: BytesWriter, text: str) -> None:
    """Append `text` as an Avro string. It makes Python objects: use it for rendered values, not for hot ones."""
    data = text.encode()
    write_long(out, len(data))
    out.write(data)
