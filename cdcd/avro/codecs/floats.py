"""real and double precision.

Before: `lookup` chooses the codec by the column's type; `extensions` uses the functions for elements of vectors.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `float.c` (text and binary forms), `d2s.c` and `f2s.c` (the shortest text that reads back as the
value, which `extra_float_digits = 1` gives).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_f64_be,
    write_f32_le,
    write_f64_be,
    write_f64_le,
    write_i32_le,
    write_i64_le,
)
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.errors import wrong_size, wrong_text
from cdcd.avro.codecs.registry import TypeRegistry

# NaN has many bit patterns, and the text does not show which. So both modes write this pattern.
_NAN8: Final = 0x7FF8_0000_0000_0000
_NAN4: Final = 0x7FC0_0000

# A double holds every integer of so many digits exactly, and every power of ten up to 10**22. So one division of the
# two gives the correctly rounded result.
_EXACT_INT_DIGITS: Final = 15

_FLOAT4_MAX: Final = 3.4028235677973366e38  # from here on, rounding to float4 gives infinity
_FLOAT4_MIN_NORMAL: Final = 1.1754943508222875e-38


class Float8(Codec):
    """double precision -> double."""

    def __init__(self) -> None:
        super().__init__("double")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("float8", 8, size)
        write_float8(out, read_f64_be(data, at))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_float8(out, read_float(data, at, size, "float8"))
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size("float8", 8, size)
        return float8_text(read_f64_be(data, at))


class Float4(Codec):
    """real -> float."""

    def __init__(self) -> None:
        super().__init__("float")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("float4", 4, size)
        write_float4(out, read_f32_be(data, at))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_float4(out, read_float4(data, at, size))
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 4:
            raise wrong_size("float4", 4, size)
        return float4_text(read_f32_be(data, at))


def write_float8(out: BytesWriter, value: float) -> None:
    """Append an Avro double."""
    if math.isnan(value):
        write_i64_le(out, _NAN8)
    else:
        write_f64_le(out, value)


def write_float4(out: BytesWriter, value: float) -> None:
    """Append an Avro float; `value` is rounded to one."""
    if math.isnan(value):
        write_i32_le(out, _NAN4)
    else:
        write_f32_le(out, value)


def read_float(data: bytes, at: i64, size: i64, type_name: str) -> float:
    """The double nearest to the number in the text `data[at:at + size]`. Raises DecodeError if it is no number."""
    end: i64 = at + size
    i: i64 = at
    negative = size > 0 and data[i] == 45
    if negative:
        i += 1
    n: i64 = 0
    count: i64 = 0
    exponent: i64 = 0
    seen_point = False
    while i < end:
        d: i64 = i64(data[i]) - 48
        if d >= 0 and d <= 9:
            n = n * 10 + d
            count += 1
            if count > _EXACT_INT_DIGITS:
                break
            if seen_point:
                exponent -= 1
        elif d == -2 and not seen_point:
            seen_point = True
        else:
            break
        i += 1
    if i < end or count == 0:
        return _parse_float(data[at:end], type_name)
    # At most 15 digits, some of them after the point: both the integer and the power of ten are exact.
    value: float = float(n)
    if exponent < 0:
        power: float = 1.0
        while exponent < 0:
            power *= 10.0
            exponent += 1
        value /= power
    return -value if negative else value


def read_float4(data: bytes, at: i64, size: i64) -> float:
    """As `read_float`, but such that rounding the result to float4 gives the float4 nearest to the text."""
    value = read_float(data, at, size, "float4")
    if math.isnan(value) or value == 0.0:
        return value
    magnitude = -value if value < 0.0 else value
    if magnitude >= _FLOAT4_MAX and magnitude != math.inf:
        raise wrong_text("float4", "a number in its range", size)
    bits = BytesWriter()
    write_f64_be(bits, value)
    tail: i64 = (i64(bits[4]) & 0x1F) << 24 | i64(bits[5]) << 16 | i64(bits[6]) << 8 | i64(bits[7])
    if magnitude >= _FLOAT4_MIN_NORMAL and tail != 0x1000_0000:
        return value
    # The double lies halfway between two float4s, or is subnormal, where its bits do not show that. It may itself be
    # rounded, and a second rounding could then give the wrong float4.
    return _round_to_odd(data[at : at + size], value)


def _parse_float(text: bytes, type_name: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise wrong_text(type_name, "a floating-point number", len(text)) from None


def _round_to_odd(text: bytes, value: float) -> float:
    """The double next to the number in `text` whose last bit is odd: another rounding of it gives the right result."""
    if math.isinf(value):
        return value
    exact = Fraction(text.decode())
    if exact == Fraction(value):
        return value
    mantissa = int(math.ldexp(math.frexp(value)[0], 53))
    if mantissa & 1:
        return value
    return math.nextafter(value, math.inf if exact > Fraction(value) else -math.inf)


def float8_text(value: float) -> str:
    """PostgreSQL's text of a double."""
    return _float_text(value, 53, -1074, 15)


def float4_text(value: float) -> str:
    """PostgreSQL's text of a float4, given as the double of the same value."""
    return _float_text(value, 24, -149, 6)


def _float_text(value: float, precision: int, exponent_min: int, fixed_below: int) -> str:
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if math.isinf(value):
        return sign + "Infinity"
    if value == 0:
        return sign + "0"
    digits, power = _shortest_digits(abs(value), precision, exponent_min)
    exponent = power + len(digits) - 1
    if exponent < -4 or exponent >= fixed_below:
        fraction = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if power >= 0:
        return sign + digits + "0" * power
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    return f"{sign}{digits[: exponent + 1]}.{digits[exponent + 1 :]}"


def _shortest_digits(value: float, precision: int, exponent_min: int) -> tuple[str, int]:
    """The fewest decimal digits that read back as `value` > 0, and the power of ten of the last digit.

    The nearest such number wins. As in PostgreSQL and unlike Python's repr, a number exactly halfway to a neighbour
    never counts.
    """
    fraction, exponent = math.frexp(value)
    ulp = max(exponent - precision, exponent_min)
    exact = Fraction(value)
    gap = Fraction(2) ** ulp / 2
    # Below a power of two the neighbour is only half as far away.
    low = exact - (gap / 2 if fraction == 0.5 and ulp > exponent_min else gap)
    high = exact + gap
    power = math.floor(math.log10(value)) + 1
    while True:
        unit = Fraction(10) ** power
        nearest = [n for n in (exact // unit, exact // unit + 1) if low < n * unit < high]
        if nearest:
            best = min(nearest, key=lambda n: (abs(n * unit - exact), n % 2))
            digits = str(best)
            return digits.rstrip("0"), power + len(digits) - len(digits.rstrip("0"))
        power -= 1


def register(types: TypeRegistry) -> None:
    """Make real and double precision known."""
    types.add_built_in("float4", 700, lambda _: Float4())
    types.add_built_in("float8", 701, lambda _: Float8())
