"""The calendar: days and microseconds since an epoch, from and to PostgreSQL's ISO text.

Before: bytes of a frame. After: `datetimes` and `interval` read and render with these functions.
Source: PostgreSQL `datetime.c` (`EncodeDateOnly`, `EncodeDateTime`, `AppendSeconds`; DateStyle ISO), which is Gregorian
even before 1582; Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms".

Avro counts from 1970-01-01, PostgreSQL from 2000-01-01. Both count UTC days of 86,400 s.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i64_be
from mypy_extensions import i64

from cdcd.avro.codecs.digits import holds_digits, read_digits

DAYS_1970_TO_2000: Final = 10957
MICROS_PER_SECOND: Final = 1_000_000
MICROS_PER_DAY: Final = 86_400_000_000
MICROS_1970_TO_2000: Final = 946_684_800_000_000

DAY_MIN: Final = -719162
"""0001-01-01, in days since 1970: the first date that Avro's readers can hold."""
DAY_MAX: Final = 2932896
"""9999-12-31, in days since 1970: the last date."""

UNPARSED: Final = -0x3FFF_FFFF_FFFF_FFFF
"""The `read_*` functions return this for bytes of another form. It is below every valid result."""

# Text is read as one 64-bit word. XOR with these leaves the digits' values, and zeros for the separators.
_NO_DATE: Final = 0x3030_3030_2D30_302D  # "0000-00-"
_NO_DATE_SEPARATORS: Final = 0x0000_0000_FF00_00FF
_NO_TIME: Final = 0x3030_3A30_303A_3030  # "00:00:00"
_NO_TIME_SEPARATORS: Final = 0x0000_FF00_00FF_0000


def days_from_civil(year: i64, month: i64, day: i64) -> i64:
    """Days since 1970-01-01 of a date in the year 1 or later."""
    if month <= 2:
        year -= 1
    era: i64 = year // 400
    year_of_era: i64 = year - era * 400
    month_from_march: i64 = month - 3 if month > 2 else month + 9
    day_of_year: i64 = (153 * month_from_march + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


def date_text(days: i64) -> str:
    """PostgreSQL's text of a date without its ` BC`, from days since 1970-01-01; see `is_bc`."""
    year, month, day = _civil_from_days(days)
    return f"{year if year > 0 else 1 - year:04}-{month:02}-{day:02}"


def is_bc(days: i64) -> bool:
    """The date, in days since 1970-01-01, lies before the year 1."""
    return days < DAY_MIN


def time_text(micros: i64) -> str:
    """PostgreSQL's text of a time of day, in microseconds since midnight: with a fraction only if it is not zero."""
    seconds, fraction = divmod(int(micros), MICROS_PER_SECOND)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def read_date(data: bytes, at: i64) -> i64:
    """Days since 1970-01-01 of the 10 bytes `YYYY-MM-DD` at `at`, or UNPARSED."""
    word: i64 = read_i64_be(data, at) ^ _NO_DATE
    day: i64 = read_digits(data, at + 8, 2)
    if day < 1 or day > 31 or not holds_digits(word):
        return UNPARSED
    year: i64 = (word >> 56) * 1000 + (word >> 48 & 15) * 100 + (word >> 40 & 15) * 10 + (word >> 32 & 15)
    month: i64 = (word >> 16 & 15) * 10 + (word >> 8 & 15)
    if year < 1 or month < 1 or month > 12 or word & _NO_DATE_SEPARATORS != 0:
        return UNPARSED
    return days_from_civil(year, month, day)


def read_time(data: bytes, at: i64, size: i64) -> i64:
    """Microseconds since midnight of `HH:MM:SS[.f{1,6}]`, which must fill `size` bytes; else UNPARSED."""
    if size < 8:
        return UNPARSED
    word: i64 = read_i64_be(data, at) ^ _NO_TIME
    micros: i64 = read_fraction(data, at + 8, size - 8)
    if micros < 0 or not holds_digits(word) or word & _NO_TIME_SEPARATORS != 0:
        return UNPARSED
    hour: i64 = (word >> 56) * 10 + (word >> 48 & 15)
    minute: i64 = (word >> 32 & 15) * 10 + (word >> 24 & 15)
    second: i64 = (word >> 8 & 15) * 10 + (word & 15)
    if hour > 24 or minute > 59 or second > 59:
        return UNPARSED
    return ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros


def read_fraction(data: bytes, at: i64, size: i64) -> i64:
    """Microseconds of a fraction of a second: no bytes, or `.` and 1 to 6 digits; UNPARSED for anything else."""
    if size == 0:
        return 0
    if size < 2 or size > 7 or data[at] != 46:
        return UNPARSED
    micros: i64 = read_digits(data, at + 1, size - 1)
    if micros < 0:
        return UNPARSED
    while size < 7:
        micros *= 10
        size += 1
    return micros


def _civil_from_days(days: i64) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month and day, from days since 1970-01-01; for every date of PostgreSQL."""
    shifted = int(days) + 719468
    era = shifted // 146097
    day_of_era = shifted - era * 146097
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month_from_march = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * month_from_march + 2) // 5 + 1
    month = month_from_march + 3 if month_from_march < 10 else month_from_march - 9
    return year_of_era + era * 400 + (month <= 2), month, day
