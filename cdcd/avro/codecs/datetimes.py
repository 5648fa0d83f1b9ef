"""date, time, timetz, timestamp, timestamptz. (`interval` is a module of its own.)

Before: `lookup` chooses the codec by the column's type.
After: `event_encoder` calls it once a value. `calendar` counts days and microseconds.
Source: PostgreSQL `date.c`, `timestamp.c`, `datetime.c`; text under DateStyle ISO and TimeZone UTC.

Three kinds of values are unrepresentable: infinity; years outside 0001 to 9999, which readers of Avro's logical types
cannot hold; and the time of day 24:00:00.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import NOT_HELD, Codec
from cdcd.avro.codecs.calendar import (
    DAY_MAX,
    DAY_MIN,
    DAYS_1970_TO_2000,
    MICROS_1970_TO_2000,
    MICROS_PER_DAY,
    UNPARSED,
    date_text,
    is_bc,
    read_date,
    read_time,
    time_text,
)
from cdcd.avro.codecs.errors import malformed, wrong_size, wrong_text
from cdcd.avro.codecs.registry import TypeRegistry
from cdcd.avro.codecs.varint import write_bytes, write_long, write_text

_INT4_MAX: Final = 0x7FFF_FFFF
_INT4_MIN: Final = -0x8000_0000
_INT8_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_INT8_MIN: Final = -0x8000_0000_0000_0000
_MICROS_MIN: Final = DAY_MIN * MICROS_PER_DAY
_MICROS_MAX: Final = (DAY_MAX + 1) * MICROS_PER_DAY - 1


class Date(Codec):
    """date -> int, logicalType date: days since 1970-01-01."""

    def __init__(self) -> None:
        super().__init__({"type": "int", "logicalType": "date"}, is_fallible=True)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.days(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.days(data, at, size, False), out)

    def days(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        """The value as Avro counts it; NOT_HELD if it cannot."""
        if is_binary:
            if size != 4:
                raise wrong_size("date", 4, size)
            count: i64 = i64(read_i32_be(data, at)) + DAYS_1970_TO_2000
            if count < DAY_MIN or count > DAY_MAX:
                return NOT_HELD
            return count
        if size != 10:
            _check_out_of_range(data, at, size, "date")
            return NOT_HELD
        days: i64 = read_date(data, at)
        if days == UNPARSED:
            raise wrong_text("date", "YYYY-MM-DD", size)
        return days

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 4:
            raise wrong_size("date", 4, size)
        days: i64 = i64(read_i32_be(data, at))
        if days == _INT4_MAX:
            return "infinity"
        if days == _INT4_MIN:
            return "-infinity"
        days += DAYS_1970_TO_2000
        return date_text(days) + (" BC" if is_bc(days) else "")


class Timestamp(Codec):
    """timestamp -> long, local-timestamp-micros; timestamptz -> long, timestamp-micros: since 1970-01-01 (UTC)."""

    def __init__(self, with_zone: bool) -> None:
        logical = "timestamp-micros" if with_zone else "local-timestamp-micros"
        super().__init__({"type": "long", "logicalType": logical}, is_fallible=True)
        self.type_name = "timestamptz" if with_zone else "timestamp"
        self.with_zone = with_zone

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.micros(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.micros(data, at, size, False), out)

    def micros(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        """The value as Avro counts it; NOT_HELD if it cannot."""
        if is_binary:
            if size != 8:
                raise wrong_size(self.type_name, 8, size)
            count: i64 = read_i64_be(data, at)
            if count < _MICROS_MIN - MICROS_1970_TO_2000 or count > _MICROS_MAX - MICROS_1970_TO_2000:
                return NOT_HELD
            return count + MICROS_1970_TO_2000
        # In a year of five digits or more, another byte stands here.
        if size < 19 or data[at + 10] != 32 or data[at + size - 1] == 67:
            _check_out_of_range(data, at, size, self.type_name)
            return NOT_HELD
        time_size: i64 = size - 11
        if self.with_zone:
            time_size -= 3
            zone: i64 = at + size - 3
            if data[zone] != 43 or data[zone + 1] != 48 or data[zone + 2] != 48:
                raise wrong_text("timestamptz", "the time zone +00, which the session's TimeZone UTC gives", size)
        days: i64 = read_date(data, at)
        micros: i64 = read_time(data, at + 11, time_size)
        if days == UNPARSED or micros == UNPARSED:
            raise wrong_text(self.type_name, "YYYY-MM-DD HH:MM:SS", size)
        return days * MICROS_PER_DAY + micros

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size(self.type_name, 8, size)
        micros: i64 = read_i64_be(data, at)
        if micros == _INT8_MAX:
            return "infinity"
        if micros == _INT8_MIN:
            return "-infinity"
        days: i64 = micros // MICROS_PER_DAY
        time = time_text(micros - days * MICROS_PER_DAY)
        days += DAYS_1970_TO_2000
        return f"{date_text(days)} {time}{'+00' if self.with_zone else ''}{' BC' if is_bc(days) else ''}"


class Time(Codec):
    """time -> long, time-micros: since midnight."""

    def __init__(self) -> None:
        super().__init__({"type": "long", "logicalType": "time-micros"}, is_fallible=True)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.micros(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return _write(self.micros(data, at, size, False), out)

    def micros(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        """The value as Avro counts it; NOT_HELD if it cannot."""
        count: i64 = 0
        if is_binary:
            if size != 8:
                raise wrong_size("time", 8, size)
            count = read_i64_be(data, at)
        else:
            count = read_time(data, at, size)
            if count == UNPARSED:
                raise wrong_text("time", "HH:MM:SS", size)
        if count < 0 or count > MICROS_PER_DAY:
            raise malformed("time", f"0 to {MICROS_PER_DAY} microseconds", "more or fewer")
        if count == MICROS_PER_DAY:
            return NOT_HELD
        return count

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 8:
            raise wrong_size("time", 8, size)
        return time_text(read_i64_be(data, at))


class TimeTz(Codec):
    """timetz -> string: PostgreSQL's text, such as `04:05:06.789+02`; Avro has no type for it."""

    def __init__(self) -> None:
        super().__init__("string")

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_text(out, self.render(data, at, size))
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_bytes(out, data, at, size)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 12:
            raise wrong_size("timetz", 12, size)
        west = int(read_i32_be(data, at + 8))
        minutes, seconds = divmod(abs(west), 60)
        zone = f"{'-' if west > 0 else '+'}{minutes // 60:02}"
        if minutes % 60 or seconds:
            zone += f":{minutes % 60:02}"
        if seconds:
            zone += f":{seconds:02}"
        return time_text(read_i64_be(data, at)) + zone


def _write(count: i64, out: BytesWriter) -> bool:
    if count == NOT_HELD:
        return False
    write_long(out, count)
    return True


def _check_out_of_range(data: bytes, at: i64, size: i64, type_name: str) -> None:
    """Raise DecodeError unless this is infinity, a year BC, or one of five or more digits."""
    text = data[at : at + size]
    if text in (b"infinity", b"-infinity"):
        return
    year = text.partition(b"-")[0]
    if size >= 11 and year.isdigit() and (len(year) > 4 or text.endswith(b" BC")):
        return
    raise wrong_text(type_name, "a date or infinity", size)


def register(types: TypeRegistry) -> None:
    """Make dates and times known."""
    types.add_built_in("date", 1082, lambda _: Date())
    types.add_built_in("time", 1083, lambda _: Time())
    types.add_built_in("timestamp", 1114, lambda _: Timestamp(with_zone=False))
    types.add_built_in("timestamptz", 1184, lambda _: Timestamp(with_zone=True))
    types.add_built_in("timetz", 1266, lambda _: TimeTz())
