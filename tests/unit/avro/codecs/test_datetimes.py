from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time

import pytest
from support.avro_values import UNREPRESENTABLE, both, transcode

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.datetimes import Date, Time, Timestamp, TimeTz
from cdcd.errors import DecodeError

DAY = 86_400_000_000
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def days(value: date) -> bytes:
    return struct.pack(">i", (value - date(2000, 1, 1)).days)


@pytest.mark.parametrize(
    "text",
    ["1970-01-01", "1969-12-31", "2000-02-29", "2024-02-29", "1900-03-01", "0001-01-01", "9999-12-31", "0400-02-29"],
)
def test_a_date_is_the_same_avro_in_both_modes(text: str) -> None:
    value = date.fromisoformat(text)
    assert both(Date(), days(value), text) == value


@pytest.mark.parametrize(
    ("n", "text"),
    [
        *((2**31 - 1, "infinity"), (-(2**31), "-infinity"), (-730120, "0001-12-31 BC"), (2921940, "10000-01-01")),
        *((-2451545, "4714-11-24 BC"), (2145031948, "5874897-12-31"), (-730426, "0001-02-29 BC")),
    ],
)
def test_infinity_and_years_that_readers_do_not_hold_are_unrepresentable_dates(n: int, text: str) -> None:
    assert both(Date(), struct.pack(">i", n), text) is UNREPRESENTABLE


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2024-02-29 12:34:56.789", "2024-02-29 12:34:56.789"),
        ("0001-01-01 00:00:00", "0001-01-01 00:00:00"),
        ("9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999999"),
        ("1999-12-31 23:59:59.000001", "1999-12-31 23:59:59.000001"),
        ("1970-01-01 00:00:00.1", "1970-01-01 00:00:00.100000"),
    ],
)
def test_a_timestamp_is_the_same_avro_in_both_modes(text: str, written: str) -> None:
    value = datetime.fromisoformat(written)
    micros = (value.replace(tzinfo=UTC) - EPOCH) // (EPOCH.resolution)
    binary = struct.pack(">q", micros)
    assert both(Timestamp(with_zone=False), binary, text) == value
    assert both(Timestamp(with_zone=True), binary, text + "+00") == value.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("n", "text", "zone"),
    [
        *((2**63 - 1, "infinity", ""), (-(2**63), "-infinity", "")),
        (-730119 * DAY - 1, "0001-12-31 23:59:59.999999", "+00 BC"),
        (2921940 * DAY, "10000-01-01 00:00:00", "+00"),
        (9223371331199999999, "294276-12-31 23:59:59.999999", "+00"),
        (-211813488000000000, "4714-11-24 00:00:00", "+00 BC"),
    ],
)
def test_infinity_and_years_that_readers_do_not_hold_are_unrepresentable_timestamps(
    n: int, text: str, zone: str
) -> None:
    binary = struct.pack(">q", n)
    assert both(Timestamp(with_zone=True), binary, text + zone) is UNREPRESENTABLE
    assert both(Timestamp(with_zone=False), binary, text + zone.replace("+00", "")) is UNREPRESENTABLE


@pytest.mark.parametrize("text", ["00:00:00", "23:59:59.999999", "12:00:00.5", "01:02:03.040506"])
def test_a_time_is_the_same_avro_in_both_modes(text: str) -> None:
    value = time.fromisoformat(text.ljust(15, "0") if "." in text else text)
    micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 10**6 + value.microsecond
    assert both(Time(), struct.pack(">q", micros), text) == value


def test_midnight_at_the_end_of_the_day_is_unrepresentable() -> None:
    assert both(Time(), struct.pack(">q", DAY), "24:00:00") is UNREPRESENTABLE


@pytest.mark.parametrize(
    ("micros", "west", "text"),
    [
        (14706789000, -7200, "04:05:06.789+02"),
        (0, 19800, "00:00:00-05:30"),
        (DAY, 0, "24:00:00+00"),
        (1, -57599, "00:00:00.000001+15:59:59"),
        (0, 3601, "00:00:00-01:00:01"),
    ],
)
def test_a_timetz_is_postgresqls_text(micros: int, west: int, text: str) -> None:
    assert both(TimeTz(), struct.pack(">qi", micros, west), text) == text


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        *(
            (Date(), text)
            for text in ("", "2024-1-01", "2024-13-01", "2024-00-10", "2024-01-32", "2024/01/01", "0000-01-01")
        ),
        *(
            (Date(), text)
            for text in ("01-01-2024", "infinite", "2024-01-01 AD", "20240-01", "x024-01-01", "2024-01-0x")
        ),
        *((Time(), text) for text in ("", "1:02:03", "12:34", "12:34:56.", "12:34:56.1234567", "12:60:00", "25:00:00")),
        *((Time(), text) for text in ("12:34:60", "24:00:00.000001", "12-34-56", "12:34:5x", "12:34:56,5", "-1:00:00")),
        (Timestamp(with_zone=False), "2024-01-01T00:00:00"),
        (Timestamp(with_zone=False), "2024-01-01 00:00:00+00"),
        (Timestamp(with_zone=False), "2024-01-01"),
        (Timestamp(with_zone=True), "2024-01-01 00:00:00"),
        (Timestamp(with_zone=True), "2024-01-01 00:00:00+02"),
        (Timestamp(with_zone=True), "2024-01-01 00:00:00.5+05:30"),
        (Timestamp(with_zone=True), "Mon Jan 01 00:00:00 2024 UTC"),
    ],
)
def test_text_of_another_form_is_a_decode_error(codec: Codec, text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(codec, "text", text.encode())


@pytest.mark.parametrize("codec", [Date(), Time(), TimeTz(), Timestamp(with_zone=True)])
def test_a_binary_value_of_another_size_is_a_decode_error(codec: Codec) -> None:
    for call in (lambda: transcode(codec, "binary", bytes(5)), lambda: codec.render(bytes(5), 0, 5)):
        with pytest.raises(DecodeError, match="got 5"):
            call()


@pytest.mark.parametrize("micros", [-1, DAY + 1])
def test_a_time_outside_its_day_is_a_decode_error(micros: int) -> None:
    with pytest.raises(DecodeError, match="time"):
        transcode(Time(), "binary", struct.pack(">q", micros))
