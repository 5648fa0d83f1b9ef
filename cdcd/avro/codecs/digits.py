"""Decimal digits from and to bytes, as 64-bit integers and without Python objects.

Before: bytes of a frame. After: `integers`, `numeric`, `floats`, `calendar` and `interval` read PostgreSQL's text.

Up to eight digits are read as one big-endian word, and checked and added up together. This takes 2 ns; a loop takes 2
ns a digit. The word ends with the last digit; a mask removes bytes before the first digit.

The hot modules avoid three traps of mypyc. An integer constant of 2**62 or more is a Python object, which is converted
at every use. The value of `i64 if ... else literal` is such an object, too. `1 << i64` shifts a 32-bit C int.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64, u8

from cdcd.avro.codecs.errors import wrong_text

_ZEROS: Final = 0x3030_3030_3030_3030  # "00000000"
_SIXES: Final = 0x0606_0606_0606_0606  # added to a byte of 10 to 15, each six carries into the upper half
_UPPER_HALVES: Final = 0x0F0F_0F0F_0F0F_0F0F  # of a word shifted right by 4
_SEVEN_BYTES: Final = 0x00FF_FFFF_FFFF_FFFF

_TENTH_MIN: Final = 922337203685477580  # 2**63 // 10


def holds_digits(word: i64) -> bool:
    """Whether every byte of `word` is 0 to 9. Text becomes such a word by XOR with ASCII zeros."""
    return ((word | (word + _SIXES)) >> 4) & _UPPER_HALVES == 0


def read_digits(data: bytes, at: i64, size: i64) -> i64:
    """The value of the `size` (1 to 18) digits at `at`; -1 if one of the bytes is not a digit."""
    end: i64 = at + size
    if size <= 8 and end >= 8:
        return _sum_digits(read_i64_be(data, end - 8), size)
    if size <= 16 and end >= 16:
        high: i64 = _sum_digits(read_i64_be(data, end - 16), size - 8)
        low: i64 = _sum_digits(read_i64_be(data, end - 8), 8)
        if high < 0 or low < 0:
            return -1
        return high * 100_000_000 + low
    n: i64 = 0
    while at < end:
        d: i64 = i64(data[at]) - 48
        if d < 0 or d > 9:
            return -1
        n = n * 10 + d
        at += 1
    return n


def _sum_digits(word: i64, size: i64) -> i64:
    """The value of the last `size` (1 to 8) bytes of `word` as ASCII digits; -1 if one is not a digit."""
    word ^= _ZEROS
    if size < 8:
        word &= _SEVEN_BYTES >> (7 - size << 3)
    if not holds_digits(word):
        return -1
    pairs: i64 = ((word >> 8) & 0x000F_000F_000F_000F) * 10 + (word & 0x000F_000F_000F_000F)
    fours: i64 = ((pairs >> 16) & 0x0000_00FF_0000_00FF) * 100 + (pairs & 0x0000_00FF_0000_00FF)
    return (fours >> 32) * 10000 + (fours & 0xFFFF_FFFF)


def read_int(data: bytes, at: i64, size: i64, type_name: str) -> i64:
    """The signed 64-bit decimal integer `data[at:at + size]`, with or without a sign `-`.

    Raises DecodeError, naming `type_name`, if it is anything else.
    """
    negative = size > 0 and data[at] == 45
    if negative:
        at += 1
        size -= 1
    if size < 1 or size > 18:
        return _read_long_int(data, at, size, negative, type_name)
    n: i64 = read_digits(data, at, size)
    if n < 0:
        raise wrong_text(type_name, "a decimal integer", size)
    return -n if negative else n


def _read_long_int(data: bytes, at: i64, size: i64, negative: bool, type_name: str) -> i64:
    """As `read_int`, for 19 digits. Longer numbers do not fit."""
    if size != 19:
        raise wrong_text(type_name, "a decimal integer", size)
    n: i64 = read_digits(data, at, 18)
    last: i64 = i64(data[at + 18]) - 48
    if n < 0 or last < 0 or last > 9 or n > _TENTH_MIN or (n == _TENTH_MIN and last > (8 if negative else 7)):
        raise wrong_text(type_name, "a decimal integer of its range", size)
    # -2**63 has no positive counterpart.
    return -n * 10 - last if negative else n * 10 + last


def count_digits(n: i64) -> i64:
    """How many decimal digits `n`, 0 to 9999, has; 0 has one."""
    if n < 10:
        return 1
    if n < 100:
        return 2
    return 3 if n < 1000 else 4


def write_4_digits(out: BytesWriter, n: i64) -> None:
    """Append `n`, 0 to 9999, as four digits."""
    write_i32_be(out, i32(_ascii_of_4(n)))


def write_up_to_4_digits(out: BytesWriter, n: i64) -> None:
    """Append `n`, 0 to 9999, without zeros before it."""
    if n < 10:
        out.append(u8(48 + n))
        return
    word: i64 = _ascii_of_4(n)
    if n >= 1000:
        write_i32_be(out, i32(word))
        return
    if n >= 100:
        out.append(u8(word >> 16 & 0xFF))
    write_i16_be(out, i16(word & 0xFFFF))


def write_first_digits(out: BytesWriter, n: i64, count: i64) -> None:
    """Append the first `count` of the four digits of `n`, 0 to 9999."""
    word: i64 = _ascii_of_4(n)
    shift: i64 = 24
    while count > 0:
        out.append(u8((word >> shift) & 0xFF))
        shift -= 8
        count -= 1


def write_last_digits(out: BytesWriter, n: i64, count: i64) -> None:
    """Append the last `count` of the four digits of `n`, 0 to 9999."""
    word: i64 = _ascii_of_4(n)
    while count > 0:
        count -= 1
        out.append(u8((word >> (count << 3)) & 0xFF))


def ascii_of_2(n: i64) -> i64:
    """The two digits of `n`, 0 to 99, as ASCII characters of one big-endian word."""
    tens: i64 = n // 10
    return 0x3030 + (tens << 8) + n - tens * 10


def _ascii_of_4(n: i64) -> i64:
    hundreds: i64 = n // 100
    rest: i64 = n - hundreds * 100
    thousands: i64 = hundreds // 10
    tens: i64 = rest // 10
    return 0x3030_3030 + (thousands << 24 | hundreds - thousands * 10 << 16 | tens << 8 | rest - tens * 10)


def power_of_ten(exponent: i64) -> i64:
    """10 to the `exponent`, 0 to 18."""
    power: i64 = 1
    while exponent > 0:
        power *= 10
        exponent -= 1
    return power
