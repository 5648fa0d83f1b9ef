"""Avro -> JSON: a form for each Avro type, which reads a value's Avro bytes and appends its JSON.

Before: `form_lookup` builds the form of a schema. After: `values` calls it once a value.
Source: Apache Avro specification, "Binary Encoding"; RFC 8259; RFC 4648, section 4 (base64); ISO 8601.

The Avro bytes are cdcd's own, so they fit the schema. Hot path, compiled: no Python object is made for a value.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_f32_le, read_f64_le, write_i16_be, write_i64_be
from mypy_extensions import i16, i64, u8

from cdcd.avro.codecs.calendar import DAY_MIN, MICROS_PER_DAY, MICROS_PER_SECOND
from cdcd.avro.codecs.digits import ascii_of_2, power_of_ten, write_4_digits, write_last_digits
from cdcd.debezium.json_text import quoted, write_base64, write_double, write_float, write_int, write_string
from cdcd.debezium.values.temporal import write_iso_date

_QUOTE: Final = 34
_MINUS: Final = 45
_POINT: Final = 46
_COMMA: Final = 44
_COLON: Final = 58
_OPEN: Final = 123
_CLOSE: Final = 125
_NULL: Final = b"null"
_UNSCALED_BYTES: Final = 7
"""An unscaled decimal of so many bytes has 17 digits at most, and so has a power of ten that is not above it."""
_SHORT_SCALE_MAX: Final = 18


@final
class AvroReader:
    """Where the reading of one record's Avro bytes stands."""

    def __init__(self) -> None:
        self.data = b""
        self.at: i64 = 0

    def begin(self, data: bytes, at: i64) -> None:
        """Begin with the record at `at`."""
        self.data = data
        self.at = at

    def long(self) -> i64:
        """Read an int or long."""
        data = self.data
        at: i64 = self.at
        byte: i64 = i64(data[at])
        at += 1
        found: i64 = byte & 0x7F
        shift: i64 = 7
        while byte >= 0x80:
            byte = i64(data[at])
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
        self.at = at
        return ((found >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(found & 1)  # compiled, `found` may have wrapped

    def skip(self, size: i64) -> i64:
        """Move past `size` bytes, and return where they begin."""
        at: i64 = self.at
        self.at = at + size
        return at


class Form:
    """One Avro type. What a subclass remembers of a value only saves work."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        """Read a value, and append its JSON."""
        raise NotImplementedError


class Int(Form):
    """int, long -> number."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        write_int(out, avro.long())


class Boolean(Form):
    """boolean -> true or false."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        out.write(b"true" if avro.data[avro.skip(1)] else b"false")


class Float(Form):
    """float -> the shortest number that reads back as these 32 bits; NaN and the infinities as strings."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        write_float(out, read_f32_le(avro.data, avro.skip(4)))


class Double(Form):
    """double -> the shortest number that reads back as these 64 bits; NaN and the infinities as strings."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        write_double(out, read_f64_le(avro.data, avro.skip(8)))


class Text(Form):
    """string -> string."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        size: i64 = avro.long()
        write_string(out, avro.data, avro.skip(size), size)


class Bytes(Form):
    """bytes -> string of base64."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        size: i64 = avro.long()
        write_base64(out, avro.data, avro.skip(size), size)


class Decimal(Form):
    """decimal -> string of the number with all digits of its scale."""

    def __init__(self, scale: int) -> None:
        self.scale: i64 = scale
        self.power: i64 = power_of_ten(min(scale, _SHORT_SCALE_MAX))

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        size: i64 = avro.long()
        at: i64 = avro.skip(size)
        data = avro.data
        if size > _UNSCALED_BYTES:
            self.write_wide(int.from_bytes(data[at : at + size], "big", signed=True), out)
            return
        n: i64 = i64(data[at])
        if n >= 0x80:
            n -= 0x100
        end: i64 = at + size
        at += 1
        while at < end:
            n = n << 8 | i64(data[at])
            at += 1
        self.write_short(n, out)

    def write_short(self, n: i64, out: BytesWriter) -> None:
        """Append the number whose unscaled value is `n`, of 18 digits at most."""
        if self.scale > _SHORT_SCALE_MAX:
            self.write_wide(int(n), out)
            return
        out.append(_QUOTE)
        if n < 0:
            out.append(_MINUS)
            n = -n
        whole: i64 = n // self.power
        write_int(out, whole)
        if self.scale > 0:
            out.append(_POINT)
            _write_digits(out, n - whole * self.power, self.scale)
        out.append(_QUOTE)

    def write_wide(self, unscaled: int, out: BytesWriter) -> None:
        """The same for any number."""
        digits = str(abs(unscaled)).rjust(int(self.scale) + 1, "0")
        at = len(digits) - int(self.scale)
        fraction = "." + digits[at:] if self.scale > 0 else ""
        out.write(f'"{"-" if unscaled < 0 else ""}{digits[:at]}{fraction}"'.encode())


class Date(Form):
    """date -> string, YYYY-MM-DD."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        write_date(avro.long(), out)


class Time(Form):
    """time-micros -> string, HH:MM:SS.ffffff."""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        write_time(avro.long(), out)


class Timestamp(Form):
    """timestamp-micros and local-timestamp-micros -> string, YYYY-MM-DDTHH:MM:SS.ffffff, with a Z for UTC.

    The day is often that of the value before.
    """

    def __init__(self, *, with_zone: bool) -> None:
        self._end = b'Z"' if with_zone else b'"'
        self._day: i64 = DAY_MIN - 1
        self._head = b""

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        self.write_micros(avro.long(), out)

    def write_micros(self, micros: i64, out: BytesWriter) -> None:
        """Append the point in time, given as Avro counts it."""
        day: i64 = micros // MICROS_PER_DAY
        if day != self._day:
            head = BytesWriter()
            head.append(_QUOTE)
            write_iso_date(head, day)
            head.append(84)
            self._head = head.getvalue()
            self._day = day
        out.write(self._head)
        _write_time(out, micros - day * MICROS_PER_DAY)
        out.write(self._end)


class Nullable(Form):
    """A union of null and one type -> null, or the value."""

    def __init__(self, inner: Form) -> None:
        self.inner = inner

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        if avro.data[avro.skip(1)] == 0:
            out.write(_NULL)
        else:
            self.inner.write(avro, out)


class Array(Form):
    """array -> array."""

    def __init__(self, items: Form) -> None:
        self.items = items

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        out.append(91)
        count: i64 = avro.long()
        is_first = True
        while count != 0:  # a block of so many items; the last one is empty
            while count > 0:
                if not is_first:
                    out.append(_COMMA)
                is_first = False
                self.items.write(avro, out)
                count -= 1
            count = avro.long()
        out.append(93)


class Map(Form):
    """map -> object, in the order of the value."""

    def __init__(self, values: Form) -> None:
        self.values = values

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        out.append(_OPEN)
        count: i64 = avro.long()
        is_first = True
        while count != 0:
            while count > 0:
                if not is_first:
                    out.append(_COMMA)
                is_first = False
                size: i64 = avro.long()
                write_string(out, avro.data, avro.skip(size), size)
                out.append(_COLON)
                self.values.write(avro, out)
                count -= 1
            count = avro.long()
        out.append(_CLOSE)


@final
class Field:
    """One field of a record, in a linked list: elements of a Python list would cost a type check each."""

    def __init__(self, piece: bytes, form: Form) -> None:
        """`piece`: what stands before the value, a brace or a comma and the name."""
        self.piece = piece
        self.is_nullable = isinstance(form, Nullable)
        self.form = form.inner if isinstance(form, Nullable) else form
        self.next_field: Field | None = None

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        """Append the field."""
        out.write(self.piece)
        if self.is_nullable and avro.data[avro.skip(1)] == 0:
            out.write(_NULL)
        else:
            self.form.write(avro, out)


class Record(Form):
    """record -> object."""

    def __init__(self) -> None:
        self._first: Field | None = None
        self._last: Field | None = None

    def add(self, name: str, form: Form) -> None:
        """Add the next field, by its name in JSON."""
        field = Field((b"{" if self._first is None else b",") + quoted(name) + b":", form)
        if self._last is None:
            self._first = field
        else:
            self._last.next_field = field
        self._last = field

    def write(self, avro: AvroReader, out: BytesWriter) -> None:
        field = self._first
        if field is None:
            out.append(_OPEN)
        while field is not None:
            field.write(avro, out)
            field = field.next_field
        out.append(_CLOSE)


def write_date(days: i64, out: BytesWriter) -> None:
    """Append the JSON of a date, given in days since 1970-01-01."""
    out.append(_QUOTE)
    write_iso_date(out, days)
    out.append(_QUOTE)


def write_time(micros: i64, out: BytesWriter) -> None:
    """Append the JSON of a time of day, given in microseconds."""
    out.append(_QUOTE)
    _write_time(out, micros)
    out.append(_QUOTE)


def _write_time(out: BytesWriter, micros: i64) -> None:
    """Append `HH:MM:SS.ffffff` of microseconds since midnight."""
    seconds: i64 = micros // MICROS_PER_SECOND
    minutes: i64 = seconds // 60
    hours: i64 = minutes // 60
    word: i64 = ascii_of_2(hours) << 48 | _COLON << 40 | ascii_of_2(minutes - hours * 60) << 24 | _COLON << 16
    write_i64_be(out, word | ascii_of_2(seconds - minutes * 60))
    fraction: i64 = micros - seconds * MICROS_PER_SECOND
    first: i64 = fraction // 10_000
    write_i16_be(out, i16(_POINT << 8 | 48 + first // 10))
    out.append(u8(48 + first % 10))
    write_4_digits(out, fraction - first * 10_000)


def _write_digits(out: BytesWriter, n: i64, count: i64) -> None:
    """Append the last `count` digits of `n`, which is not negative."""
    while count > 4:
        power: i64 = power_of_ten(count - 4)
        four: i64 = n // power
        write_4_digits(out, four)
        n -= four * power
        count -= 4
    write_last_digits(out, n, count)
