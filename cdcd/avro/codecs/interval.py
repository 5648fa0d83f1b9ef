"""interval -> record { months, days, micros }: PostgreSQL's own three parts, which do not convert into each other.

Before: `lookup` chooses the codec by the column's type.
After: `event_encoder` calls it once a value.
Source: PostgreSQL `timestamp.c` (`interval_send`: int64 microseconds, int32 days, int32 months) and `datetime.c`
(`EncodeInterval`; IntervalStyle postgres). PostgreSQL 17 added infinity: all three parts at their limit.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, read_i64_be
from mypy_extensions import i64

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.calendar import MICROS_PER_SECOND, read_fraction
from cdcd.avro.codecs.digits import read_digits
from cdcd.avro.codecs.errors import wrong_size, wrong_text
from cdcd.avro.codecs.registry import TypeRegistry
from cdcd.avro.codecs.varint import write_long
from cdcd.avro.type_forms import INTERVAL_FIELDS

_INT4_MAX: Final = 0x7FFF_FFFF
_INT4_MIN: Final = -0x8000_0000
_INT8_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_INT8_MIN: Final = -0x8000_0000_0000_0000
_MICROS_PER_HOUR: Final = 3_600_000_000
_HOURS_MAX: Final = 2562047788  # of 2**63 microseconds


class Interval(Codec):
    """interval -> record. `-infinity` and `infinity` are unrepresentable."""

    def __init__(self) -> None:
        fields = [
            {"name": name, "type": kind} for name, kind in zip(INTERVAL_FIELDS, ("int", "int", "long"), strict=True)
        ]
        super().__init__({"type": "record", "name": "Interval", "fields": fields}, is_fallible=True)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        if size != 16:
            raise wrong_size("interval", 16, size)
        micros: i64 = read_i64_be(data, at)
        days: i64 = i64(read_i32_be(data, at + 8))
        months: i64 = i64(read_i32_be(data, at + 12))
        if _infinity(months, days, micros) != 0:
            return False
        write_long(out, months)
        write_long(out, days)
        write_long(out, micros)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        if size >= 8 and data[end - 1] == 121 and data[at : at + size] in (b"infinity", b"-infinity"):
            return False
        months: i64 = 0
        days: i64 = 0
        micros: i64 = 0
        i: i64 = at
        if size == 0:
            raise wrong_text("interval", "years, months, days or a time", size)
        while i < end:
            start: i64 = i
            if data[i] == 45 or data[i] == 43:
                i += 1
            digits: i64 = i
            while i < end and data[i] >= 48 and data[i] <= 57:
                i += 1
            if i == digits or i - digits > 10 or i == end:
                raise wrong_text("interval", "a number and its unit", size)
            n: i64 = read_digits(data, digits, i - digits)
            negative = data[start] == 45
            if data[i] == 58:
                down: i64 = _read_minus_time(data, n, i, end)
                if down > 0 or (n == _HOURS_MAX and down == _INT8_MIN and not negative):
                    raise wrong_text("interval", "a time HH:MM:SS", size)
                micros = down if negative else -down
                break
            if data[i] != 32 or i + 3 >= end:
                raise wrong_text("interval", "a number and its unit", size)
            unit: i64 = i64(data[i + 1])
            signed: i64 = -n if negative else n
            if unit == 121:  # year
                months += signed * 12
            elif unit == 109:  # mon
                months += signed
            elif unit == 100:  # day
                days = signed
            else:
                raise wrong_text("interval", "years, mons, days or a time", size)
            i += 1
            while i < end and data[i] != 32:
                i += 1
            i += 1
        if months < _INT4_MIN or months > _INT4_MAX or days < _INT4_MIN or days > _INT4_MAX:
            raise wrong_text("interval", "months and days of 32 bits", size)
        write_long(out, months)
        write_long(out, days)
        write_long(out, micros)
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        if size != 16:
            raise wrong_size("interval", 16, size)
        return interval_text(
            int(read_i32_be(data, at + 12)), int(read_i32_be(data, at + 8)), int(read_i64_be(data, at))
        )


def interval_text(months: int, days: int, micros: int) -> str:
    """PostgreSQL's text of an interval under IntervalStyle postgres, as `EncodeInterval` makes it."""
    infinite = _infinity(months, days, micros)
    if infinite != 0:
        return "infinity" if infinite > 0 else "-infinity"
    # As in C, division rounds towards zero: years and months get the same sign.
    years = -(-months // 12) if months < 0 else months // 12
    words = []
    after_negative = False
    for count, unit in ((years, "year"), (months - 12 * years, "mon"), (days, "day")):
        if count:
            plus = "+" if after_negative and count > 0 else ""
            words.append(f"{plus}{count} {unit}{'' if count == 1 else 's'}")
            after_negative = count < 0
    if micros or not words:
        seconds, fraction = divmod(abs(micros), MICROS_PER_SECOND)
        sign = "-" if micros < 0 else "+" if after_negative else ""
        time = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        words.append(f"{time}.{fraction:06}".rstrip("0") if fraction else time)
    return " ".join(words)


def _infinity(months: i64, days: i64, micros: i64) -> i64:
    """1 for infinity, -1 for -infinity, 0 for any other interval."""
    if months == _INT4_MAX and days == _INT4_MAX and micros == _INT8_MAX:
        return 1
    if months == _INT4_MIN and days == _INT4_MIN and micros == _INT8_MIN:
        return -1
    return 0


def _read_minus_time(data: bytes, hours: i64, at: i64, end: i64) -> i64:
    """The negated microseconds of `hours` and of the `:MM:SS[.f{1,6}]` from `at` to `end`; 1 if malformed.

    The result is negative because -2**63 has no positive counterpart.
    """
    if end - at < 6 or data[at + 3] != 58:
        return 1
    minutes: i64 = read_digits(data, at + 1, 2)
    seconds: i64 = read_digits(data, at + 4, 2)
    fraction: i64 = read_fraction(data, at + 6, end - at - 6)
    if minutes < 0 or minutes > 59 or seconds < 0 or seconds > 59 or fraction < 0 or hours > _HOURS_MAX:
        return 1
    rest: i64 = (minutes * 60 + seconds) * MICROS_PER_SECOND + fraction
    down: i64 = -hours * _MICROS_PER_HOUR
    if hours == _HOURS_MAX and down < _INT8_MIN + rest:
        return 1
    return down - rest


def register(types: TypeRegistry) -> None:
    """Make interval known."""
    types.add_built_in("interval", 1186, lambda _: Interval())
