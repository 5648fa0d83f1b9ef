from __future__ import annotations

from datetime import date, timedelta

import pytest

from cdcd.avro.codecs.calendar import (
    DAY_MAX,
    DAY_MIN,
    UNPARSED,
    date_text,
    days_from_civil,
    is_bc,
    read_date,
    read_fraction,
    time_text,
)

EPOCH = date(1970, 1, 1)


def test_every_23rd_day_of_the_years_1_to_9999_has_its_number_and_its_text() -> None:
    for days in range(DAY_MIN, DAY_MAX + 1, 23):
        day = EPOCH + timedelta(days)
        assert days_from_civil(day.year, day.month, day.day) == days
        assert date_text(days) == day.isoformat()
        assert not is_bc(days)


def test_the_limits_are_those_of_the_years_1_and_9999() -> None:
    assert EPOCH + timedelta(DAY_MIN) == date.min
    assert EPOCH + timedelta(DAY_MAX) == date.max


def test_the_day_before_year_1_is_in_1_bc_and_leap() -> None:
    assert is_bc(DAY_MIN - 1)
    assert date_text(DAY_MIN - 1) == "0001-12-31"
    assert date_text(DAY_MIN - 307) == "0001-02-29"
    assert date_text(DAY_MIN - 366 - 1) == "0002-12-31"


@pytest.mark.parametrize(
    ("text", "micros"), [("", 0), (".5", 500000), (".000001", 1), (".123456", 123456), (".12", 120000)]
)
def test_a_fraction_of_a_second_has_up_to_six_digits(text: str, micros: int) -> None:
    assert read_fraction(b"00:00:00" + text.encode(), 8, len(text)) == micros


@pytest.mark.parametrize("text", [".", ".1234567", "5", ".x", ". 1"])
def test_another_fraction_is_not_parsed(text: str) -> None:
    assert read_fraction(b"00:00:00" + text.encode(), 8, len(text)) == UNPARSED


def test_a_time_drops_the_zeros_that_end_its_fraction() -> None:
    assert [time_text(n) for n in (0, 100000, 86_400_000_000)] == ["00:00:00", "00:00:00.1", "24:00:00"]


@pytest.mark.parametrize("place", range(10))
def test_a_date_with_one_wrong_byte_is_not_parsed(place: int) -> None:
    for wrong in b"/: x\0\xb0\xff":
        text = bytearray(b"2024-08-22")
        text[place] = wrong
        assert read_date(bytes(text), 0) == UNPARSED
