"""JSON -> Avro: a form for each Avro type, which takes a value that Python has read from JSON, and appends its bytes.

Before: `json_form_lookup` builds the form of a schema. After: `json_translator` calls it once a key and once a column.
Source: Apache Avro specification, "Binary Encoding"; `json_events.forms` is the way there.

A value that cdcd does not write raises Misfit: of another type, or in another form. Hot path, compiled.
"""

from __future__ import annotations

from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs.calendar import MICROS_PER_DAY, UNPARSED, date_text, read_date, read_time
from cdcd.avro.codecs.floats import write_float4, write_float8
from cdcd.avro.codecs.varint import write_bytes, write_long

_DATE_BYTES: Final = 10
_TIME_BYTES: Final = 15
_SHORTEST_MONTH: Final = b"28"
_FLOAT4_END: Final = 3.4028235677973366e38
"""From here on, rounding to float4 gives infinity."""
_SPECIAL: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class Misfit(ValueError):
    """The value is none of this type in cdcd's JSON."""


class Form:
    """One Avro type."""

    def write(self, value: object, out: BytesWriter) -> None:
        """Append the value. Raises Misfit; `out` then has a part of it."""
        raise NotImplementedError


class Int(Form):
    """number -> int, long."""

    def __init__(self, bits: int) -> None:
        self._end = 1 << (bits - 1)

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not -self._end <= value < self._end:
            raise Misfit
        write_long(out, value)


class Boolean(Form):
    """true, false -> boolean."""

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, bool):
            raise Misfit
        out.append(1 if value else 0)


class Double(Form):
    """number, or the text of NaN or an infinity -> double."""

    def write(self, value: object, out: BytesWriter) -> None:
        write_float8(out, _number(value))


class Float(Form):
    """number, or the text of NaN or an infinity -> float.

    The number is read as a double before it is rounded: `json_text.write_float` writes one for which that is right.
    """

    def write(self, value: object, out: BytesWriter) -> None:
        number = _number(value)
        if isinstance(value, float) and abs(number) >= _FLOAT4_END:
            raise Misfit
        write_float4(out, number)


def _number(value: object) -> float:
    if isinstance(value, float) and value - value == 0.0:  # `json` reads a number that is too large as infinity
        return value
    if isinstance(value, str) and value in _SPECIAL:
        return _SPECIAL[value]
    raise Misfit


class Text(Form):
    """string -> string."""

    def write(self, value: object, out: BytesWriter) -> None:
        data = _utf8(value)
        write_bytes(out, data, 0, len(data))


class Name(Form):
    """string, a column's name in PostgreSQL -> string, its name in Avro."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, str) or value not in self._names:
            raise Misfit
        data = self._names[value].encode()
        write_bytes(out, data, 0, len(data))


class Bytes(Form):
    """string of base64 -> bytes."""

    def write(self, value: object, out: BytesWriter) -> None:
        text = _utf8(value)
        try:
            data = a2b_base64(text)
        except ValueError:
            raise Misfit from None
        if b2a_base64(data, newline=False) != text:
            raise Misfit
        write_bytes(out, data, 0, len(data))


class Decimal(Form):
    """string of a number with all digits of its scale -> decimal."""

    def __init__(self, precision: int, scale: int) -> None:
        self._precision = precision
        self._scale = scale

    def write(self, value: object, out: BytesWriter) -> None:
        text = _utf8(value)
        unsigned = text[1:] if text[:1] == b"-" else text
        whole, point, fraction = unsigned.partition(b".")
        digits = whole + fraction
        if not digits.isdigit() or len(fraction) != self._scale or bool(point) != (self._scale > 0) or not whole:
            raise Misfit
        if (whole[0] == 48 and len(whole) > 1) or len(digits.lstrip(b"0")) > self._precision:
            raise Misfit
        unscaled = int(digits)
        if len(unsigned) < len(text):
            if unscaled == 0:
                raise Misfit
            unscaled = -unscaled
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        data = unscaled.to_bytes(bits // 8 + 1, "big", signed=True)
        write_bytes(out, data, 0, len(data))


class Date(Form):
    """string -> date."""

    def write(self, value: object, out: BytesWriter) -> None:
        text = _utf8(value)
        if len(text) != _DATE_BYTES:
            raise Misfit
        write_long(out, _days(text))


class Time(Form):
    """string -> time-micros."""

    def write(self, value: object, out: BytesWriter) -> None:
        text = _utf8(value)
        if len(text) != _TIME_BYTES:
            raise Misfit
        write_long(out, _micros(text, 0))


class Timestamp(Form):
    """string -> timestamp-micros and local-timestamp-micros."""

    def __init__(self, *, with_zone: bool) -> None:
        self._end = b"Z" if with_zone else b""

    def write(self, value: object, out: BytesWriter) -> None:
        text = _utf8(value)
        end = _DATE_BYTES + 1 + _TIME_BYTES
        if len(text) != end + len(self._end) or text[_DATE_BYTES] != 84 or text[end:] != self._end:
            raise Misfit
        days: i64 = _days(text)
        micros: i64 = _micros(text, _DATE_BYTES + 1)
        if micros >= MICROS_PER_DAY:
            raise Misfit
        write_long(out, days * MICROS_PER_DAY + micros)


def _days(text: bytes) -> i64:
    days: i64 = read_date(text, 0)
    if days == UNPARSED:
        raise Misfit
    if text[8:10] > _SHORTEST_MONTH and date_text(days).encode() != text[:_DATE_BYTES]:
        raise Misfit
    return days


def _micros(text: bytes, at: i64) -> i64:
    micros: i64 = read_time(text, at, _TIME_BYTES)
    if micros == UNPARSED or micros > MICROS_PER_DAY:
        raise Misfit
    return micros


def _utf8(value: object) -> bytes:
    if not isinstance(value, str):
        raise Misfit
    try:
        return value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        raise Misfit from None


class Nullable(Form):
    """null, or the value -> a union of null and one type."""

    def __init__(self, inner: Form) -> None:
        self.inner = inner

    def write(self, value: object, out: BytesWriter) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            self.inner.write(value, out)


class Array(Form):
    """array -> array."""

    def __init__(self, items: Form) -> None:
        self.items = items

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, list):
            raise Misfit
        if value:
            write_long(out, len(value))
            for each in value:
                self.items.write(each, out)
        out.append(0)


class Map(Form):
    """object -> map, in the order of the value."""

    def __init__(self, values: Form) -> None:
        self._values = values

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, dict):
            raise Misfit
        if value:
            write_long(out, len(value))
            for name, each in value.items():
                key = _utf8(name)
                write_bytes(out, key, 0, len(key))
                self._values.write(each, out)
        out.append(0)


@final
class Field:
    """One field of a record: its name in JSON."""

    def __init__(self, name: str, form: Form) -> None:
        self.name = name
        self.form = form


class Record(Form):
    """object, of these fields in this order -> record."""

    def __init__(self) -> None:
        self.fields: list[Field] = []
        self._names: tuple[str, ...] = ()

    def add(self, name: str, form: Form) -> None:
        """Add the next field."""
        self.fields.append(Field(name, form))
        self._names = tuple([each.name for each in self.fields])

    def write(self, value: object, out: BytesWriter) -> None:
        if not isinstance(value, dict) or tuple(value) != self._names:
            raise Misfit
        for field in self.fields:
            field.form.write(value[field.name], out)
