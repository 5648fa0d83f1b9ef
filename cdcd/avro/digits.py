"""Decimal digits from and to bytes, as 64-bit integers and without Python objects.

After: `numbers`, `numeric`, `floats` and `temporal` read PostgreSQL's text with these; that is what makes text mode fast.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from cdcd.avro.malformed import wrong_text

# The last n for which n * 10 + d cannot pass below -2**63 whatever d is.
_MIN_TENTH: Final = -922337203685477580


def read_digits(data: bytes, at: i64, size: i64) -> i64:
    """The number that the `size` (1 to 18) digits at `at` spell, or -1 if one of them is no digit."""
    n: i64 = 0
    end: i64 = at + size
    while at < end:
        d: i64 = i64(data[at]) - 48
        if d < 0 or d > 9:
            return -1
        n = n * 10 + d
        at += 1
    return n


def read_int(data: bytes, at: i64, size: i64, low: i64, high: i64, type_name: str) -> i64:
    """The decimal integer, with or without a sign `-`, that is `data[at:at + size]`.

    Raises DecodeError, naming `type_name`, if it is not one or not between `low` and `high`.
    """
    end: i64 = at + size
    negative = size > 0 and data[at] == 45
    if negative:
        at += 1
    if at >= end or end - at > 19:
        raise wrong_text(type_name, "a decimal integer", size)
    # Counted downwards: -2**63 has no positive counterpart.
    n: i64 = 0
    while at < end:
        d: i64 = i64(data[at]) - 48
        if d < 0 or d > 9 or n < _MIN_TENTH or (n == _MIN_TENTH and d > 8):
            raise wrong_text(type_name, "a decimal integer", size)
        n = n * 10 - d
        at += 1
    if not negative:
        if n < -0x7FFF_FFFF_FFFF_FFFF:
            raise wrong_text(type_name, "a decimal integer in its range", size)
        n = -n
    if n < low or n > high:
        raise wrong_text(type_name, "a decimal integer in its range", size)
    return n


def count_digits(n: i64) -> i64:
    """How many decimal digits `n` >= 0 has; 0 has one."""
    count: i64 = 1
    while n >= 10:
        n = n // 10
        count += 1
    return count


def write_digits(out: BytesWriter, n: i64, width: i64) -> None:
    """Append the last `width` (0 to 18) decimal digits of `n` >= 0, zeros before them where it is shorter."""
    divisor: i64 = 1
    while width > 1:
        divisor *= 10
        width -= 1
    if width == 0:
        return
    while divisor > 0:
        out.append(u8(48 + n // divisor % 10))
        divisor = divisor // 10


def power_of_ten(exponent: i64) -> i64:
    """10 to the `exponent`, 0 to 18."""
    power: i64 = 1
    while exponent > 0:
        power *= 10
        exponent -= 1
    return power
