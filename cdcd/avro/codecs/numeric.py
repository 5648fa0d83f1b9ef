"""numeric -> decimal if the column has precision and scale, else string.

Before: `lookup` chooses `Decimal` or `NumericText` by the column's typmod.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `numeric.c`, `numeric_send`: int16 count of digits, int16 weight, uint16 sign, uint16 display scale,
then the digits in base 10,000, int16 each: digit i counts 10000**(weight - i), and zeros at either end are not sent.
Avro decimal: the unscaled integer as two's complement, big-endian, in as few bytes as hold it.

A value of up to 18 digits, as nearly all are, is computed as an i64, a longer one as a Python int.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i16_be
from mypy_extensions import i64, u8

from cdcd.avro.codecs.base import NOT_HELD, Codec
from cdcd.avro.codecs.digits import count_digits, power_of_ten, write_4_digits, write_first_digits, write_up_to_4_digits
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.registry import TypeRegistry, TypeRequest
from cdcd.avro.codecs.varint import write_bytes, write_long
from cdcd.errors import DecodeError

PRECISION_MAX: Final = 38
"""The widest decimal that Spark holds; a wider one becomes a string."""

_HEADER: Final = 8
_NEGATIVE: Final = 0x4000
_NAN: Final = 0xC000
_INFINITY: Final = 0xD000
_MINUS_INFINITY: Final = 0xF000
_SAFE_DIGITS: Final = 18  # any number of 18 digits fits an i64
WIDE: Final = -0x3FFF_FFFF_FFFF_FFFD
"""Instead of an unscaled value of up to 18 digits: it may have more, see `Decimal.wide`."""


def typmod_precision(typmod: int) -> int:
    """The precision p of a `numeric(p,s)` column's typmod."""
    return (typmod - 4) >> 16 & 0xFFFF


def typmod_scale(typmod: int) -> int:
    """The scale s of a `numeric(p,s)` column's typmod; negative ones exist since PostgreSQL 15."""
    return ((typmod - 4 & 0x7FF) ^ 1024) - 1024


class Decimal(Codec):
    """numeric(p,s) -> decimal. NaN, the infinities, and values that need more digits are unrepresentable.

    Avro wants 0 <= scale <= precision. So a negative scale becomes 0, and the precision grows by as much. A scale above
    the precision raises the precision. The caller ensures that the result does not exceed PRECISION_MAX.
    """

    def __init__(self, precision: int, scale: int) -> None:
        precision, scale = max(precision, scale) - min(scale, 0), max(scale, 0)
        super().__init__(
            {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}, is_fallible=True
        )
        self.precision: i64 = precision
        self.scale: i64 = scale
        self.limit: i64 = 10 ** min(precision, _SAFE_DIGITS)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.unscaled_binary(data, at, size), data, at, size, True, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self.unscaled_text(data, at, size), data, at, size, False, out)

    def _write(self, n: i64, data: bytes, at: i64, size: i64, is_binary: bool, out: BytesWriter) -> bool:
        """Append the unscaled value `n`, or what it stands for."""
        if n == NOT_HELD:
            return False
        if n == WIDE:
            wide = self.wide(data, at, size, is_binary)
            if wide is None:
                return False
            _write_wide(out, wide)
        else:
            _write_unscaled(out, n)
        return True

    def unscaled_binary(self, data: bytes, at: i64, size: i64) -> i64:
        """The unscaled value; NOT_HELD, or WIDE: it may have more than 18 digits."""
        count: i64 = _count(data, at, size)
        if count < 0:
            return NOT_HELD
        if count == 0:
            return 0
        weight: i64 = i64(read_i16_be(data, at + 2))
        digits: i64 = 4 * weight + count_digits(_digit(data, at, 0)) + self.scale  # of the unscaled value
        if digits > self.precision:
            return NOT_HELD
        if digits > _SAFE_DIGITS:
            return WIDE
        exponent: i64 = 4 * (weight - count + 1) + self.scale  # of ten, for the last digit, in the unscaled integer
        if exponent < -3:
            return NOT_HELD
        n: i64 = 0
        last: i64 = 0
        checks: i64 = 0  # negative as soon as a digit is below 0 or above 9999
        i: i64 = 0
        while i < count:
            n = n * 10000 + last
            last = _digit(data, at, i)
            checks |= last | 9999 - last
            i += 1
        if checks < 0:
            raise _wrong_digit()
        if exponent >= 0:
            n = (n * 10000 + last) * power_of_ten(exponent)
        else:
            surplus: i64 = power_of_ten(-exponent)
            if last % surplus != 0:
                return NOT_HELD
            n = n * power_of_ten(4 + exponent) + last // surplus
        return -n if (i64(read_i16_be(data, at + 4)) & 0xFFFF) == _NEGATIVE else n

    def unscaled_text(self, data: bytes, at: i64, size: i64) -> i64:
        """The same of the text form."""
        first: i64 = at
        end: i64 = at + size
        negative = size > 0 and data[at] == 45
        if negative:
            at += 1
        if at >= end or data[at] == 73 or data[at] == 78:  # I, N
            _check_special(data, first, size)
            return NOT_HELD
        n: i64 = 0
        count: i64 = 0
        fraction: i64 = -1  # digits after the point; -1: no point yet
        while at < end:
            d: i64 = i64(data[at]) - 48
            if d >= 0 and d <= 9:
                n = n * 10 + d
                count += 1
                if count > _SAFE_DIGITS:
                    return WIDE
                if fraction >= 0:
                    fraction += 1
            elif d == -2 and fraction < 0:
                fraction = 0
            else:
                raise wrong_text("numeric", "a decimal number", size)
            at += 1
        if count == 0:
            raise wrong_text("numeric", "a decimal number", size)
        if fraction == -1:
            fraction = 0
        if count + self.scale - fraction > _SAFE_DIGITS:
            return WIDE
        while fraction > self.scale:
            if n % 10 != 0:
                return NOT_HELD
            n = n // 10
            fraction -= 1
        n *= power_of_ten(self.scale - fraction)
        if self.precision <= _SAFE_DIGITS and n >= self.limit:
            return NOT_HELD
        return -n if negative else n

    def wide(self, data: bytes, at: i64, size: i64, is_binary: bool) -> int | None:
        """The unscaled value of any size; None: Avro cannot hold it."""
        return self._wide_binary(data, at) if is_binary else self._wide_text(data, at, size)

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return numeric_text(data, at, size)

    def _wide_binary(self, data: bytes, at: i64) -> int | None:
        count: i64 = i64(read_i16_be(data, at))
        _check_digits(data, at, count)
        n: int = 0
        i: i64 = 0
        while i < count:
            n = n * 10000 + int(_digit(data, at, i))
            i += 1
        exponent = 4 * (int(read_i16_be(data, at + 2)) - int(count) + 1) + int(self.scale)
        if exponent >= 0:
            n *= 10**exponent
        else:
            n, surplus = divmod(n, 10**-exponent)
            if surplus:
                return None
        return -n if (i64(read_i16_be(data, at + 4)) & 0xFFFF) == _NEGATIVE else n

    def _wide_text(self, data: bytes, at: i64, size: i64) -> int | None:
        text = data[at : at + size]
        negative = text.startswith(b"-")
        whole, _, fraction = text[1 if negative else 0 :].partition(b".")
        if not (whole + fraction).isdigit():
            raise wrong_text("numeric", "a decimal number", size)
        scale = int(self.scale)
        digits = (whole + fraction[:scale] + b"0" * (scale - len(fraction))).lstrip(b"0")
        if fraction[scale:].strip(b"0") or len(digits) > self.precision:
            return None
        n = int(digits or b"0")
        return -n if negative else n


class NumericText(Codec):
    """numeric -> string: PostgreSQL's text, which keeps the display scale, NaN and the infinities."""

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_numeric(data, at, size, out, True)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        return numeric_text(data, at, size)


def numeric_text(data: bytes, at: i64, size: i64) -> str:
    """PostgreSQL's text of the binary numeric at `data[at:at + size]`."""
    out = BytesWriter()
    write_numeric(data, at, size, out, False)
    return out.getvalue().decode()


def _count(data: bytes, at: i64, size: i64) -> i64:
    """The number of base-10,000 digits in the value; -1 if it is NaN or infinite."""
    if size < _HEADER:
        raise malformed("numeric", f"at least {_HEADER} bytes", f"{size}")
    count: i64 = i64(read_i16_be(data, at))
    if count < 0 or size != _HEADER + 2 * count:
        raise malformed("numeric", f"{_HEADER} bytes and 2 for each of its {count} digits", f"{size} bytes")
    sign: i64 = i64(read_i16_be(data, at + 4)) & 0xFFFF
    if sign != 0 and sign != _NEGATIVE:
        if sign != _NAN and sign != _INFINITY and sign != _MINUS_INFINITY:
            raise malformed("numeric", "a sign word of 0, 4000, C000, D000 or F000", f"{sign:X}")
        return -1
    return count


def _check_digits(data: bytes, at: i64, count: i64) -> None:
    i: i64 = 0
    while i < count:
        digit: i64 = _digit(data, at, i)
        if digit < 0 or digit > 9999:
            raise _wrong_digit()
        i += 1


def _wrong_digit() -> DecodeError:
    return malformed("numeric", "digits of 0 to 9999", "another one")


def _digit(data: bytes, at: i64, i: i64) -> i64:
    return i64(read_i16_be(data, at + _HEADER + 2 * i))


def _digit_or_zero(data: bytes, at: i64, i: i64, count: i64) -> i64:
    """Digit `i`; zero before the first and after the last digit that was sent."""
    if i < 0 or i >= count:
        return 0
    return _digit(data, at, i)


def _check_special(data: bytes, at: i64, size: i64) -> None:
    if data[at : at + size] not in (b"NaN", b"Infinity", b"-Infinity"):
        raise wrong_text("numeric", "a decimal number", size)


def write_numeric(data: bytes, at: i64, size: i64, out: BytesWriter, prefixed: bool) -> None:
    """Append PostgreSQL's text, as `get_str_from_var` writes it. `prefixed`: write its length as an Avro long first."""
    count: i64 = _count(data, at, size)
    weight: i64 = i64(read_i16_be(data, at + 2))
    sign: i64 = i64(read_i16_be(data, at + 4)) & 0xFFFF
    scale: i64 = i64(read_i16_be(data, at + 6)) & 0x3FFF
    if count < 0:
        special = b"NaN" if sign == _NAN else b"Infinity" if sign == _INFINITY else b"-Infinity"
        if prefixed:
            write_long(out, len(special))
        out.write(special)
        return
    _check_digits(data, at, count)
    first: i64 = 0
    if weight >= 0:
        first = _digit_or_zero(data, at, 0, count)
    if prefixed:
        length: i64 = count_digits(first)
        if weight > 0:
            length += 4 * weight
        if sign == _NEGATIVE:
            length += 1
        if scale > 0:
            length += 1 + scale
        write_long(out, length)
    if sign == _NEGATIVE:
        out.append(45)
    write_up_to_4_digits(out, first)
    i: i64 = 1
    while i <= weight:
        write_4_digits(out, _digit_or_zero(data, at, i, count))
        i += 1
    if scale == 0:
        return
    out.append(46)
    i = weight + 1
    while scale > 0:
        digit: i64 = _digit_or_zero(data, at, i, count)
        if scale >= 4:
            write_4_digits(out, digit)
        else:
            write_first_digits(out, digit, scale)
        scale -= 4
        i += 1


def _write_unscaled(out: BytesWriter, n: i64) -> None:
    """Append `n` as an Avro bytes: two's complement, big-endian, in as few bytes as hold it."""
    magnitude: i64 = n ^ (n >> 63)
    bits: i64 = 0
    while magnitude >> bits > 0x7F:
        bits += 8
    out.append(u8((bits >> 3) + 1 << 1))
    while bits >= 0:
        out.append(u8(n >> bits & 0xFF))
        bits -= 8


def _write_wide(out: BytesWriter, n: int) -> None:
    """As `_write_unscaled`, for an integer of any size."""
    unscaled = n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True)
    write_long(out, len(unscaled))
    out.write(unscaled)


def register(types: TypeRegistry) -> None:
    """Make numeric known."""
    types.add_built_in("numeric", 1700, _numeric)


def _numeric(request: TypeRequest) -> Codec:
    if request.typmod >= 0 and request.options.numeric == "decimal":
        codec = Decimal(typmod_precision(request.typmod), typmod_scale(request.typmod))
        if codec.precision <= PRECISION_MAX:
            return codec
    return NumericText()
