"""JSON, byte for byte as Kafka Connect's JsonConverter writes it.

Before: bytes of a frame. After: `values` and `event_encoder` write with these.
Source: apache/kafka `connect/json` (JsonConverter), Jackson's UTF8JsonGenerator, Java's Double.toString (19 or later).

Hot path, compiled: no Python object is made for a string or an integer.
"""

from __future__ import annotations

import math
from binascii import b2a_base64
from typing import Final

from librt.strings import (
    BytesWriter,
    read_f32_be,
    read_i32_be,
    read_i64_be,
    write_f32_be,
    write_i16_be,
    write_i32_be,
    write_i64_be,
)
from mypy_extensions import i16, i32, i64, u8

from cdcd.avro.codecs.digits import write_4_digits, write_up_to_4_digits
from cdcd.avro.codecs.floats import float4_text

_QUOTE: Final = 34
_BACKSLASH: Final = 92
_MINUS: Final = 45
_POINT: Final = 46
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_HEX: Final = b"0123456789abcdef"
_UPPER_HEX: Final = b"0123456789ABCDEF"
_SHORT_ESCAPES: Final = b"\0\0\0\0\0\0\0\0btn\0fr"
"""The letter that follows the backslash, for the characters below 16; 0: none."""
_SLICE_BYTES: Final = 192
"""From this size on, Python's base64 is faster than ours."""
_PIECE_BYTES: Final = 786_432
"""A multiple of three, so that a piece has no padding."""
_LOWEST: Final = b"-9223372036854775808"


def write_string(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    """Append the UTF-8 text `data[at:at + size]` as a JSON string."""
    out.append(_QUOTE)
    end: i64 = at + size
    while at + 8 <= end:
        word: i64 = read_i64_be(data, at)
        if _is_plain(word):
            write_i64_be(out, word)
            at += 8
        else:
            at = _write_characters(out, data, at, at + 8, end)
    if at + 4 <= end:
        half: i32 = read_i32_be(data, at)
        if _is_plain(i64(half) & 0xFFFF_FFFF | 0x2020_2020 << 32):
            write_i32_be(out, half)
            at += 4
    _write_characters(out, data, at, end, end)
    out.append(_QUOTE)


def _is_plain(word: i64) -> bool:
    """Whether eight bytes stand for themselves in a JSON string of Jackson's.

    Others are the controls, the quote, the backslash, and what begins a character beyond the BMP.
    """
    ones: i64 = 0x0101_0101_0101_0101  # times 0x7F it would be a Python object, if it were a constant
    low: i64 = word & ones * 0x7F
    # Bit 7 of each byte: it is no control, no quote, no backslash; or it is not ASCII.
    good: i64 = (low + ones * 0x60 | word) & ((low ^ ones * 0x22) + ones * 0x7F | word)
    good &= (low ^ ones * 0x5C) + ones * 0x7F | word
    if good >> 7 & ones != ones:
        return False
    return word >> 7 & word >> 6 & word >> 5 & word >> 4 & ones == 0  # none is F0 or more


def _write_characters(out: BytesWriter, data: bytes, at: i64, stop: i64, end: i64) -> i64:
    """Append the characters that begin between `at` and `stop`; returns where the last one ends."""
    while at < stop:
        byte: i64 = i64(data[at])
        if byte == _QUOTE or byte == _BACKSLASH:
            write_i16_be(out, i16(_BACKSLASH << 8 | byte))
            at += 1
        elif byte < 32 or byte >= 0xF0:
            at = _escape(out, data, at, end)
        else:
            out.append(u8(byte))
            at += 1
    return at


def _escape(out: BytesWriter, data: bytes, at: i64, end: i64) -> i64:
    """Append the escape of the character at `at`; returns where it ends."""
    byte: i64 = i64(data[at])
    if byte >= 0xF0 and at + 4 <= end:
        point: i64 = (byte & 7) << 18 | (i64(data[at + 1]) & 63) << 12 | (i64(data[at + 2]) & 63) << 6
        point = (point | (i64(data[at + 3]) & 63)) - 0x1_0000
        _write_unit(out, 0xD800 + (point >> 10 & 0x3FF))
        _write_unit(out, 0xDC00 + (point & 0x3FF))
        return at + 4
    if byte < 14 and _SHORT_ESCAPES[byte] != 0:
        out.append(_BACKSLASH)
        out.append(_SHORT_ESCAPES[byte])
    else:
        _write_unit(out, byte)
    return at + 1


def _write_unit(out: BytesWriter, unit: i64) -> None:
    out.append(_BACKSLASH)
    out.append(117)
    out.append(_UPPER_HEX[unit >> 12 & 15])
    out.append(_UPPER_HEX[unit >> 8 & 15])
    out.append(_UPPER_HEX[unit >> 4 & 15])
    out.append(_UPPER_HEX[unit & 15])


def quoted(text: str) -> bytes:
    """`text` as a JSON string. Not a hot path."""
    out, data = BytesWriter(), text.encode()
    write_string(out, data, 0, len(data))
    return out.getvalue()


def write_int(out: BytesWriter, n: i64) -> None:
    """Append a signed 64-bit integer."""
    if n < 0:
        if n == -0x7FFF_FFFF_FFFF_FFFF - 1:
            out.write(_LOWEST)
            return
        out.append(_MINUS)
        n = -n
    _write_digits(out, n)


def _write_digits(out: BytesWriter, n: i64) -> None:
    if n < 10_000:
        write_up_to_4_digits(out, n)
        return
    if n < 100_000_000:
        high: i64 = n // 10_000
        write_up_to_4_digits(out, high)
        write_4_digits(out, n - high * 10_000)
        return
    top: i64 = n // 100_000_000
    _write_digits(out, top)
    rest: i64 = n - top * 100_000_000
    middle: i64 = rest // 10_000
    write_4_digits(out, middle)
    write_4_digits(out, rest - middle * 10_000)


def write_base64(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    """Append the bytes `data[at:at + size]` as a JSON string of base64, with padding."""
    out.append(_QUOTE)
    end: i64 = at + size
    while end - at >= _SLICE_BYTES:
        stop: i64 = at + _PIECE_BYTES  # a slice is a copy: one of a large value would take as much memory as the value
        if stop > end:  # noqa: PLR1730  # `min` makes objects
            stop = end
        out.write(b2a_base64(data[at:stop], newline=False))
        at = stop
    while at + 3 <= end:
        three: i64 = i64(data[at]) << 16 | i64(data[at + 1]) << 8 | i64(data[at + 2])
        four: i64 = i64(_BASE64[three >> 18]) << 24 | i64(_BASE64[three >> 12 & 63]) << 16
        write_i32_be(out, i32(four | i64(_BASE64[three >> 6 & 63]) << 8 | i64(_BASE64[three & 63])))
        at += 3
    if at < end:
        last: i64 = i64(data[at]) << 16
        if at + 2 == end:
            last |= i64(data[at + 1]) << 8
        out.append(_BASE64[last >> 18])
        out.append(_BASE64[last >> 12 & 63])
        out.append(_BASE64[last >> 6 & 63] if at + 2 == end else 61)
        out.append(61)
    out.append(_QUOTE)


def write_hex(out: BytesWriter, data: bytes, at: i64, size: i64) -> None:
    """Append the bytes `data[at:at + size]` as a JSON string of hexadecimal digits, lower case."""
    out.append(_QUOTE)
    end: i64 = at + size
    while at < end:
        byte: i64 = i64(data[at])
        out.append(_HEX[byte >> 4])
        out.append(_HEX[byte & 15])
        at += 1
    out.append(_QUOTE)


def write_double(out: BytesWriter, value: float) -> None:
    """Append a double as Java's Double.toString has it; NaN and the infinities as strings."""
    if value != value or value - value != 0.0:  # noqa: PLR0124  # NaN or infinite
        out.write(_special(value))
        return
    magnitude = -value if value < 0.0 else value
    if magnitude >= 1e-3 and magnitude < 1e7 and _write_short(out, value < 0.0, magnitude):
        return
    text = repr(value).encode()
    if (magnitude >= 1e-3 and magnitude < 1e7) or value == 0.0:
        out.write(text)
    else:
        out.write(_scientific(text, f"{value:.1e}".encode()))


def _write_short(out: BytesWriter, is_negative: bool, magnitude: float) -> bool:
    """Append a double that has six decimals at most; False if it has more.

    Two decimals of up to 15 digits are never the same double: so the one that reads back is the shortest.
    """
    n: i64 = int(magnitude * 1e6 + 0.5)
    if float(n) / 1e6 != magnitude:
        return False
    if is_negative:
        out.append(_MINUS)
    whole: i64 = n // 1_000_000
    rest: i64 = n - whole * 1_000_000
    _write_digits(out, whole)
    out.append(_POINT)
    place: i64 = 100_000
    while True:
        digit: i64 = rest // place
        out.append(u8(48 + digit))
        rest -= digit * place
        if rest == 0:
            return True
        place = place // 10


def write_float(out: BytesWriter, value: float) -> None:
    """Append a float4 as Java's Float.toString has it; `value` is rounded to one."""
    if value != value or value - value != 0.0:  # noqa: PLR0124  # NaN or infinite
        out.write(_special(value))
        return
    rounded = _rounded(value)
    magnitude = -rounded if rounded < 0.0 else rounded
    if rounded == 0.0:
        out.write(b"-0.0" if math.copysign(1.0, rounded) < 0 else b"0.0")
        return
    text = _shortest(rounded).encode()
    if magnitude >= 1e-3 and magnitude < 1e7:
        out.write(_plain(text))
    else:
        out.write(_scientific(text, f"{rounded:.1e}".encode()))


def _special(value: float) -> bytes:
    if value != value:  # noqa: PLR0124  # NaN
        return b'"NaN"'
    return b'"Infinity"' if value > 0 else b'"-Infinity"'


def _rounded(value: float) -> float:
    bits = BytesWriter()
    write_f32_be(bits, value)
    return read_f32_be(bits.getvalue(), 0)


def _shortest(value: float) -> str:
    """The shortest decimal that reads back as this float4."""
    if math.frexp(value)[0] in (0.5, -0.5):  # below a power of two the neighbour is nearer
        return float4_text(value)
    for digits in range(1, 9):
        text = f"{value:.{digits}g}"
        if _rounded(float(text)) == value:
            return text
    return f"{value:.9g}"


def _digits(text: bytes) -> tuple[bytes, bytes, int]:
    """The sign, the digits without zeros at their ends, and the exponent of the first one."""
    sign = b"-" if text[:1] == b"-" else b""
    number, _, exponent = text[len(sign) :].partition(b"e")
    whole, _, fraction = number.partition(b".")
    power = (int(exponent) if exponent else 0) + len(whole) - 1
    digits = whole + fraction
    stripped = digits.lstrip(b"0")
    power -= len(digits) - len(stripped)
    return sign, stripped.rstrip(b"0"), power


def _plain(text: bytes) -> bytes:
    sign, digits, power = _digits(text)
    if power < 0:
        return sign + b"0." + b"0" * (-power - 1) + digits
    digits += b"0" * (power + 1 - len(digits))
    return sign + digits[: power + 1] + b"." + (digits[power + 1 :] or b"0")


def _scientific(text: bytes, of_two_digits: bytes) -> bytes:
    """Java's form with an exponent. Where one digit is enough, Java takes the best two."""
    sign, digits, power = _digits(text)
    if len(digits) == 1:
        sign, digits, power = _digits(of_two_digits)
    return sign + digits[:1] + b"." + (digits[1:] or b"0") + b"E" + str(power).encode()
