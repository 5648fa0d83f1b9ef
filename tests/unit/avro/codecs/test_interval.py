from __future__ import annotations

import struct

import pytest
from support.avro_values import UNREPRESENTABLE, both, transcode

from cdcd.avro.codecs.interval import Interval
from cdcd.errors import DecodeError

INT4, INT8 = 2**31 - 1, 2**63 - 1


def binary(months: int, days: int, micros: int) -> bytes:
    return struct.pack(">qii", micros, days, months)


@pytest.mark.parametrize(
    ("months", "days", "micros", "text"),
    [
        (0, 0, 0, "00:00:00"),
        (12, 0, 0, "1 year"),
        (-12, 0, 0, "-1 years"),
        (1, 1, 0, "1 mon 1 day"),
        (14, 3, 14706789000, "1 year 2 mons 3 days 04:05:06.789"),
        (-14, 3, -14706789000, "-1 years -2 mons +3 days -04:05:06.789"),
        (0, -1, 1000000, "-1 days +00:00:01"),
        (13, -1, 0, "1 year 1 mon -1 days"),
        (0, 0, -1, "-00:00:00.000001"),
        (INT4, INT4, 0, "178956970 years 7 mons 2147483647 days"),
        (-INT4 - 1, -INT4 - 1, 0, "-178956970 years -8 mons -2147483648 days"),
        (0, 0, INT8, "2562047788:00:54.775807"),
        (0, 0, -INT8 - 1, "-2562047788:00:54.775808"),
    ],
)
def test_an_interval_keeps_its_three_parts(months: int, days: int, micros: int, text: str) -> None:
    assert both(Interval(), binary(months, days, micros), text) == {"months": months, "days": days, "micros": micros}


def test_infinite_intervals_are_unrepresentable() -> None:
    assert both(Interval(), binary(INT4, INT4, INT8), "infinity") is UNREPRESENTABLE
    assert both(Interval(), binary(-INT4 - 1, -INT4 - 1, -INT8 - 1), "-infinity") is UNREPRESENTABLE


@pytest.mark.parametrize(
    "text",
    [
        *("", "1", "1 ", "1 day ago", "P1D", "@ 1 day", "1 week", "x day", "- 1 day", "99999999999 days", "1 day 2"),
        *("2147483648 days", "178956970 years 8 mons", "00:60:00", "00:00:60", "00:00", "00:00:00.", "00-00-00"),
        *(
            "2562047788:00:54.775808",
            "-2562047788:00:54.775809",
            "2562047789:00:00",
            "00:00:00 1 day",
            "1 d",
            "infinitely",
        ),
    ],
)
def test_text_of_another_style_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError, match="interval"):
        transcode(Interval(), "text", text.encode())


def test_an_interval_of_another_size_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="wanted 16 bytes, got 12"):
        transcode(Interval(), "binary", bytes(12))
    with pytest.raises(DecodeError, match="wanted 16 bytes, got 12"):
        Interval().render(bytes(12), 0, 12)
