"""date, time, timetz, timestamp and timestamptz, by `time.precision.mode`.

Before: `lookup` chooses the value by the column's type, its precision and the mode.
After: `field_writer` calls it once a value.
Source: Debezium's `io.debezium.time`, `PostgresValueConverter`; java.time's ISO formats; PostgreSQL `datetime.c`.

A point in time is a count of seconds since 1970-01-01 and microseconds on top: years go up to 294,276, where a count of
microseconds since 1970 does not fit into 64 bits.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be, write_i16_be, write_i32_be
from mypy_extensions import i16, i32, i64

from cdcd.avro.codecs.base import Transcoder
from cdcd.avro.codecs.calendar import (
    DAYS_1970_TO_2000,
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    UNPARSED,
    days_from_civil,
    read_date,
    read_time,
)
from cdcd.avro.codecs.datetimes import TimeTz
from cdcd.avro.codecs.digits import ascii_of_2, read_digits, write_4_digits, write_last_digits
from cdcd.avro.codecs.errors import malformed, wrong_size, wrong_text
from cdcd.debezium.connect_schema import INT32, INT64, Schema
from cdcd.debezium.json_text import quoted, write_int
from cdcd.debezium.modes import TimeMode
from cdcd.debezium.values.base import Ascii, ByText, Count, Value, named

_INT4_MAX: Final = 0x7FFF_FFFF
_INT4_MIN: Final = -0x8000_0000
_SECONDS_PER_DAY: Final = 86_400
_SECONDS_1970_TO_2000: Final = 946_684_800
_INFINITY: Final = 0x3FFF_FFFF_FFFF_FFFE
"""Stands for infinity where a count of days or seconds is expected, and its negative for -infinity."""
_MAX: Final = b"9223372036854775807"
_MIN: Final = b"-9223372036854775808"

_INFINITE_DAYS: Final = b"2146033979", b"-2147472691"
_INFINITE_DAYS_OF_ARRAYS: Final = b"-622191234", b"-625821272"
_INFINITE_DATES: Final = b'"+5877611-06-21Z"', b'"-5877611-06-22Z"'
_INFINITE_DATES_OF_ARRAYS: Final = b'"+292278994-08-16Z"', b'"+292269055-12-02Z"'
"""Infinity and -infinity as dates."""
_INFINITE: Final = "infinity", "-infinity"
_LAST_MICROS: Final = "294247-01-10 04:00:54.775807"
"""The last point in time that is 64 bits of microseconds."""

_MILLIS: Final = 0
_MICROS: Final = 1
_NANOS: Final = 2
_ISO: Final = 3
_FINER: Final = 'time_precision_mode = "adaptive"'


def _ends_infinite(data: bytes, at: i64, size: i64) -> i64:
    """_INFINITY for the text infinity, its negative for -infinity, else 0."""
    text = data[at : at + size]
    if text == b"infinity":
        return _INFINITY
    return -_INFINITY if text == b"-infinity" else 0


def _read_far_date(data: bytes, at: i64, size: i64, is_bc: bool) -> i64:
    """As `read_date` for a year of more digits, or before the year 1."""
    parts = data[at : at + size].split(b"-")
    if len(parts) != 3 or not all(part.isdigit() and len(part) < 8 for part in parts):
        return UNPARSED
    year: i64 = int(parts[0])
    return days_from_civil(1 - year if is_bc else year, int(parts[1]), int(parts[2]))


def _read_days(data: bytes, at: i64, size: i64) -> i64:
    """Days since 1970 of PostgreSQL's text of a date; _INFINITY and its negative."""
    if size == 10 and data[at + 4] == 45:
        days: i64 = read_date(data, at)
        if days != UNPARSED:
            return days
    infinite: i64 = _ends_infinite(data, at, size)
    if infinite != 0:
        return infinite
    is_bc = data[at : at + size].endswith(b" BC")
    far: i64 = _read_far_date(data, at, size - 3 if is_bc else size, is_bc)
    if far == UNPARSED:
        raise wrong_text("date", "YYYY-MM-DD", size)
    return far


class Date(Value):
    """date -> days since 1970-01-01, or ISO text."""

    def __init__(self, mode: TimeMode, *, is_element: bool = False) -> None:
        """`is_element`: of an array, where infinity looks different."""
        self.is_iso = mode == "isostring"
        self.infinity, self.minus_infinity = _INFINITE_DAYS_OF_ARRAYS if is_element else _INFINITE_DAYS
        schema = named("io.debezium.time.Date", INT32)
        if self.is_iso:
            schema = named("io.debezium.time.IsoDate")
            self.infinity, self.minus_infinity = _INFINITE_DATES_OF_ARRAYS if is_element else _INFINITE_DATES
        elif mode == "connect":
            schema = Schema("int32", "org.apache.kafka.connect.data.Date", 1)
        super().__init__(schema, b'"1970-01-01Z"' if self.is_iso else b"0")
        self.has_near = True

    def avro(self) -> Transcoder:
        return Ascii(self) if self.is_iso else Count(self)

    def is_near(self, text: str) -> bool:
        return text in _INFINITE

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        self._write(_read_days(data, at, size), out)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 4:
            raise wrong_size("date", 4, size)
        days: i64 = i64(read_i32_be(data, at))
        if days == _INT4_MAX:
            self._write(_INFINITY, out)
        elif days == _INT4_MIN:
            self._write(-_INFINITY, out)
        else:
            self._write(days + DAYS_1970_TO_2000, out)
        return True

    def _write(self, days: i64, out: BytesWriter) -> None:
        if days == _INFINITY:
            out.write(self.infinity)
        elif days == -_INFINITY:
            out.write(self.minus_infinity)
        elif self.is_iso:
            out.append(34)
            write_iso_date(out, days)
            out.append(90)
            out.append(34)
        else:
            write_int(out, days)


class Time(Value):
    """time -> a count since midnight, or ISO text."""

    def __init__(self, mode: TimeMode, precision: int, placeholder: str, *, is_element: bool = False) -> None:
        """`is_element`: of an array, where Debezium keeps milliseconds only."""
        self.is_element = is_element
        self.precision = precision
        self.unit: i64 = _MICROS
        schema = named("io.debezium.time.MicroTime", INT64)
        if mode == "isostring":
            self.unit = _ISO
            schema = named("io.debezium.time.IsoTime")
        elif mode == "connect":
            self.unit = _MILLIS
            schema = Schema("int32", "org.apache.kafka.connect.data.Time", 1)
        elif mode == "adaptive" and precision <= 3:
            self.unit = _MILLIS
            schema = named("io.debezium.time.Time", INT32)
        elif mode == "nanoseconds":
            self.unit = _NANOS
            schema = named("io.debezium.time.NanoTime", INT64)
        is_iso = mode == "isostring"
        super().__init__(schema, b'"00:00:00Z"' if is_iso else b"0", quoted(placeholder) if is_iso else b"")
        self.has_near = is_iso or self.lost()[0] != ""

    def avro(self) -> Transcoder:
        return Ascii(self) if self.unit == _ISO else Count(self)

    def lost(self) -> tuple[str, str]:
        if self.precision <= 3 or (self.unit != _MILLIS and not self.is_element):
            return "", ""
        return "microseconds", "" if self.is_element else _FINER

    def is_near(self, text: str) -> bool:
        is_cut = (self.unit == _MILLIS or self.is_element) and _has_micros(text)
        return is_cut or (self.unit == _ISO and text.startswith("24:"))

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        micros: i64 = read_time(data, at, size)
        if micros == UNPARSED:
            raise wrong_text("time", "HH:MM:SS", size)
        self._write(micros, out)
        return True

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size("time", 8, size)
        micros: i64 = read_i64_be(data, at)
        if micros < 0 or micros > MICROS_PER_DAY:
            raise malformed("time", f"0 to {MICROS_PER_DAY} microseconds", "more or fewer")
        self._write(micros, out)
        return True

    def _write(self, micros: i64, out: BytesWriter) -> None:
        if self.is_element:
            micros = micros // 1000 * 1000
        if self.unit == _MILLIS:
            write_int(out, micros // 1000)
        elif self.unit == _MICROS:
            write_int(out, micros)
        elif self.unit == _NANOS:
            write_int(out, micros * 1000)
        else:
            out.append(34)
            write_clock(out, micros // MICROS_PER_SECOND % _SECONDS_PER_DAY)
            write_short_fraction(out, micros % MICROS_PER_SECOND)
            out.append(90)
            out.append(34)


class PointInTime(Value):
    """timestamp and timestamptz: reads both forms, and gives seconds since 1970 and microseconds to `write`."""

    def __init__(self, schema: Schema, fallback: bytes, placeholder: bytes, with_zone: bool) -> None:
        super().__init__(schema, fallback, placeholder)
        self.with_zone = with_zone
        self.type_name = "timestamptz" if with_zone else "timestamp"

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        is_bc = size > 3 and data[end - 1] == 67
        if is_bc:
            end -= 3
        if self.with_zone and size > 14 and end > at + 3 and data[end - 3] == 43:
            if data[end - 2] != 48 or data[end - 1] != 48:
                raise wrong_text("timestamptz", "the time zone +00, which the session's TimeZone UTC gives", size)
            end -= 3
        blank: i64 = at + 10
        if size < 19 or data[blank] != 32 or is_bc:
            infinite: i64 = _ends_infinite(data, at, size)
            if infinite != 0:
                return self.write(infinite, 0, out)
            blank = at
            while blank < end and data[blank] != 32:
                blank += 1
            if blank == end:
                raise wrong_text(self.type_name, "a date and a time, or infinity", size)
            days: i64 = _read_far_date(data, at, blank - at, is_bc)
        else:
            days = read_date(data, at)
        micros: i64 = read_time(data, blank + 1, end - blank - 1)
        if days == UNPARSED or micros == UNPARSED:
            raise wrong_text(self.type_name, "YYYY-MM-DD HH:MM:SS", size)
        seconds: i64 = micros // MICROS_PER_SECOND
        return self.write(days * _SECONDS_PER_DAY + seconds, micros - seconds * MICROS_PER_SECOND, out)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 8:
            raise wrong_size(self.type_name, 8, size)
        micros: i64 = read_i64_be(data, at)
        if micros == 0x7FFF_FFFF_FFFF_FFFF:
            return self.write(_INFINITY, 0, out)
        if micros == -0x7FFF_FFFF_FFFF_FFFF - 1:
            return self.write(-_INFINITY, 0, out)
        seconds: i64 = micros // MICROS_PER_SECOND
        return self.write(seconds + _SECONDS_1970_TO_2000, micros - seconds * MICROS_PER_SECOND, out)

    def write(self, seconds: i64, micros: i64, out: BytesWriter) -> bool:
        """Append the point in time; False if the type cannot hold it."""
        raise NotImplementedError


class Timestamp(PointInTime):
    """timestamp -> a count since 1970, or ISO text."""

    def __init__(self, mode: TimeMode, precision: int, placeholder: str) -> None:
        self.precision = precision
        self.unit: i64 = _MICROS
        schema = named("io.debezium.time.MicroTimestamp", INT64)
        if mode == "isostring":
            self.unit = _ISO
            schema = named("io.debezium.time.IsoTimestamp")
        elif mode == "connect":
            self.unit = _MILLIS
            schema = Schema("int64", "org.apache.kafka.connect.data.Timestamp", 1)
        elif mode in ("adaptive", "adaptive_time_microseconds") and precision <= 3:
            self.unit = _MILLIS
            schema = named("io.debezium.time.Timestamp", INT64)
        elif mode == "nanoseconds":
            self.unit = _NANOS
            schema = named("io.debezium.time.NanoTimestamp", INT64)
        is_iso = mode == "isostring"
        placed = quoted(placeholder) if is_iso else b""
        super().__init__(schema, b'"1970-01-01T00:00:00Z"' if is_iso else b"0", placed, False)
        self.has_near = True

    def avro(self) -> Transcoder:
        return Ascii(self) if self.unit == _ISO else Count(self)

    def lost(self) -> tuple[str, str]:
        if self.unit == _NANOS:
            return "times before 1677 and after 2262", 'time_precision_mode = "microseconds"'
        return ("microseconds", _FINER) if self.unit == _MILLIS and self.precision > 3 else ("", "")

    def is_near(self, text: str) -> bool:
        if text in _INFINITE or (self.unit == _MILLIS and _has_micros(text)):
            return True
        return self.unit == _MICROS and text[6:7] == "-" and text > _LAST_MICROS

    def write(self, seconds: i64, micros: i64, out: BytesWriter) -> bool:
        if seconds == _INFINITY or seconds == -_INFINITY:
            out.write(self._infinity(seconds > 0))
        elif self.unit == _MILLIS:
            write_int(out, seconds * 1000 + micros // 1000)
        elif self.unit == _MICROS:
            if seconds < 9_223_372_036_854 and seconds > -9_223_372_036_854:
                write_int(out, seconds * MICROS_PER_SECOND + micros)
            else:
                out.write(_saturated(int(seconds), int(micros)))
        elif self.unit == _NANOS:
            if seconds >= 9_223_372_036 or seconds < -9_223_372_036:
                return self._write_far_nanos(int(seconds), int(micros), out)
            write_int(out, (seconds * MICROS_PER_SECOND + micros) * 1000)
        else:
            out.append(34)
            write_iso_second(out, seconds)
            write_short_fraction(out, micros)
            out.append(90)
            out.append(34)
        return True

    def _infinity(self, is_positive: bool) -> bytes:
        if self.unit == _MILLIS:
            return b"9223372036825200000" if is_positive else b"-9223372036832400000"
        if self.unit == _ISO:
            return b'"+292278994-08-16T23:00:00Z"' if is_positive else b'"-292275055-05-16T23:00:00Z"'
        return _MAX if is_positive else _MIN

    def _write_far_nanos(self, seconds: int, micros: int, out: BytesWriter) -> bool:
        nanos = (seconds * 1_000_000 + micros) * 1000
        if not -(2**63) <= nanos < 2**63:
            return False
        out.write(str(nanos).encode())
        return True


def _has_micros(text: str) -> bool:
    """Whether a fraction of a second has more than three digits."""
    return len(text.partition(".")[2].removesuffix(" BC").rstrip("0")) > 3


def _saturated(seconds: int, micros: int) -> bytes:
    """Microseconds as Debezium has them beyond 64 bits: the seconds saturate, and the fraction then wraps around."""
    whole = min(max(seconds * 1_000_000, -(2**63)), 2**63 - 1) + micros
    return str((whole + 2**63) % 2**64 - 2**63).encode()


class ZonedTimestamp(PointInTime):
    """timestamptz -> ISO text at UTC, with as many digits as the column's precision."""

    def __init__(self, precision: int, placeholder: str, *, is_element: bool = False) -> None:
        """`is_element`: of an array, where -infinity looks different."""
        schema = named("io.debezium.time.ZonedTimestamp")
        super().__init__(schema, b'"1970-01-01T00:00:00Z"', quoted(placeholder), True)
        self.precision: i64 = precision
        self.minus_infinity = b'"+292269055-12-02T23:00:00.000000Z"' if is_element else b'"-infinity"'
        self.has_near = is_element

    def is_near(self, text: str) -> bool:
        return self.has_near and text == "-infinity"

    def avro(self) -> Transcoder:
        return Ascii(self)

    def write(self, seconds: i64, micros: i64, out: BytesWriter) -> bool:
        if seconds == _INFINITY:
            out.write(b'"infinity"')
            return True
        if seconds == -_INFINITY:
            out.write(self.minus_infinity)
            return True
        out.append(34)
        write_iso_second(out, seconds)
        digits: i64 = self.precision
        if digits > 0:
            out.append(46)
            _write_first_of_six(out, micros, digits)
        else:
            write_short_fraction(out, micros)
        out.append(90)
        out.append(34)
        return True


class ZonedTime(Value):
    """timetz -> ISO text at UTC."""

    def __init__(self, placeholder: str) -> None:
        super().__init__(named("io.debezium.time.ZonedTime"), b'"00:00:00Z"', quoted(placeholder))
        self.has_near = True

    def is_near(self, text: str) -> bool:
        return not text.endswith("+00")  # it is written at UTC, without its offset

    def avro(self) -> Transcoder:
        return Ascii(self)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        sign: i64 = at + 8
        while sign < end and data[sign] != 43 and data[sign] != 45:
            sign += 1
        micros: i64 = read_time(data, at, sign - at)
        zone: i64 = 0
        i: i64 = sign + 1
        weight: i64 = 3600
        while i < end:
            part: i64 = -1
            if i + 2 <= end and (i + 2 == end or data[i + 2] == 58):
                part = read_digits(data, i, 2)
            if part < 0 or weight == 0:
                raise wrong_text("timetz", "HH:MM:SS and an offset", size)
            zone += part * weight
            weight = weight // 60
            i += 3
        if micros == UNPARSED or sign >= end:
            raise wrong_text("timetz", "HH:MM:SS and an offset", size)
        if data[sign] == 43:
            zone = -zone
        at_utc: i64 = micros + zone * MICROS_PER_SECOND
        out.append(34)
        if micros == MICROS_PER_DAY and zone == 0:
            out.write(b"24:00:00")
        else:
            if at_utc < 0:
                at_utc += MICROS_PER_DAY
            elif at_utc >= MICROS_PER_DAY:
                at_utc -= MICROS_PER_DAY
            write_clock(out, at_utc // MICROS_PER_SECOND)
            write_short_fraction(out, at_utc % MICROS_PER_SECOND)
        out.append(90)
        out.append(34)
        return True


def zoned_time(placeholder: str) -> Value:
    """The value of timetz."""
    return ByText(ZonedTime(placeholder), TimeTz())


# ISO text


def write_iso_second(out: BytesWriter, seconds: i64) -> None:
    """Append `YYYY-MM-DDTHH:MM:SS` of seconds since 1970-01-01."""
    days: i64 = seconds // _SECONDS_PER_DAY
    write_iso_date(out, days)
    out.append(84)
    write_clock(out, seconds - days * _SECONDS_PER_DAY)


def write_iso_date(out: BytesWriter, days: i64) -> None:
    """Append `YYYY-MM-DD` of days since 1970-01-01; years of more digits have a `+`, the year before 1 is 0000."""
    shifted: i64 = days + 719468
    era: i64 = shifted // 146097
    day_of_era: i64 = shifted - era * 146097
    year: i64 = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year: i64 = day_of_era - (365 * year + year // 4 - year // 100)
    month: i64 = (5 * day_of_year + 2) // 153
    day: i64 = day_of_year - (153 * month + 2) // 5 + 1
    year += era * 400
    if month < 10:
        month += 3
    else:
        month -= 9
        year += 1
    if year >= 0 and year <= 9999:
        write_4_digits(out, year)
    else:
        sign, magnitude = (b"-", -int(year)) if year < 0 else (b"+", int(year))
        out.write(sign + b"%04d" % magnitude)
    write_i32_be(out, i32(45 << 24 | ascii_of_2(month) << 8 | 45))
    write_i16_be(out, i16(ascii_of_2(day)))


def write_clock(out: BytesWriter, seconds: i64) -> None:
    """Append `HH:MM:SS` of seconds since midnight."""
    minutes: i64 = seconds // 60
    hours: i64 = minutes // 60
    write_last_digits(out, hours, 2)
    out.append(58)
    write_last_digits(out, minutes - hours * 60, 2)
    out.append(58)
    write_last_digits(out, seconds - minutes * 60, 2)


def write_short_fraction(out: BytesWriter, micros: i64) -> None:
    """Append a fraction of a second as java.time does: nothing for 0, else without zeros at its end."""
    if micros == 0:
        return
    digits: i64 = 6
    while micros % 10 == 0:
        micros = micros // 10
        digits -= 1
    out.append(46)
    text = BytesWriter()
    write_last_digits(text, micros // 10_000 % 10_000, 2)
    write_4_digits(text, micros % 10_000)
    whole = text.getvalue()
    out.write(whole[6 - digits :])


def _write_first_of_six(out: BytesWriter, micros: i64, digits: i64) -> None:
    """Append the first digits, 1 to 6, of a fraction in microseconds."""
    if digits == 6:
        write_last_digits(out, micros // 10_000, 2)
        write_4_digits(out, micros % 10_000)
        return
    out.write((b"%06d" % int(micros))[:digits])
