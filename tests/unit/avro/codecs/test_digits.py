from __future__ import annotations

import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.digits import (
    count_digits,
    power_of_ten,
    read_digits,
    read_int,
    write_4_digits,
    write_first_digits,
    write_last_digits,
)
from cdcd.errors import DecodeError

DIGITS = b"987654321098765432"


@pytest.mark.parametrize("before", [b"", b"9", b"\xff\xff\xff", b"12345678", b"\x80" * 20])
def test_digits_read_the_same_wherever_they_lie_and_whatever_stands_before_them(before: bytes) -> None:
    for size in range(1, 19):
        for digits in (DIGITS[:size], b"0" * size, b"9" * size):
            assert read_digits(before + digits + b"7", len(before), size) == int(digits)


@pytest.mark.parametrize("before", [b"", b"12345678" * 2])
@pytest.mark.parametrize("other", [b"/", b":", b" ", b"\0", b"\x7f", b"\x80", b"\xb0", b"\xff", b"-", b"?"])
def test_one_byte_that_is_no_digit_is_found_at_every_place(before: bytes, other: bytes) -> None:
    for size in range(1, 19):
        for place in range(size):
            text = DIGITS[:place] + other + DIGITS[place + 1 : size]
            assert read_digits(before + text, len(before), size) == -1, text


@pytest.mark.parametrize("n", [0, 7, -7, 10**18 - 1, 10**18, -(10**18), 2**63 - 1, -(2**63), 2**62])
def test_every_64_bit_integer_is_read(n: int) -> None:
    text = str(n).encode()
    assert read_int(b"frame" + text + b"1", 5, len(text), "int8") == n


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"-",
        b"1-",
        b"+1",
        b" 1",
        b"1.0",
        b"--1",
        b"a",
        str(2**63).encode(),
        str(-(2**63) - 1).encode(),
        b"1" * 20,
        b"9" * 19,
        b"-9223372036854775809",
        b"922337203685477580x",
        b"x223372036854775807",
    ],
)
def test_what_is_no_64_bit_integer_is_a_decode_error_that_hides_the_value(text: bytes) -> None:
    with pytest.raises(DecodeError, match="int8: wanted a decimal integer") as caught:
        read_int(b"12345678" + text, 8, len(text), "int8")
    assert len(text) < 3 or text.decode() not in str(caught.value)


@pytest.mark.parametrize("n", [0, 9, 10, 99, 100, 999, 1000, 1203, 9999])
def test_four_digits_are_written_whole_or_in_part(n: int) -> None:
    text = f"{n:04}".encode()
    whole = BytesWriter()
    write_4_digits(whole, n)
    assert whole.getvalue() == text
    assert count_digits(n) == len(str(n))
    for count in range(5):
        first, last = BytesWriter(), BytesWriter()
        write_first_digits(first, n, count)
        write_last_digits(last, n, count)
        assert (first.getvalue(), last.getvalue()) == (text[:count], text[4 - count :])


def test_powers_of_ten_are_exact() -> None:
    assert [power_of_ten(k) for k in range(19)] == [10**k for k in range(19)]
