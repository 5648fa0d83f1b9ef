from __future__ import annotations

import decimal
import struct
from typing import Any

import pytest
from support.avro_values import UNREPRESENTABLE, both, read_back, transcode

from cdcd.avro.codecs.numeric import Decimal, NumericText, typmod_precision, typmod_scale
from cdcd.errors import DecodeError


def binary(sign: int, weight: int, scale: int, *digits: int) -> bytes:
    return struct.pack(f">hhHH{len(digits)}h", len(digits), weight, sign, scale, *digits)


NAN, INFINITY, MINUS_INFINITY = (binary(sign, 0, 0) for sign in (0xC000, 0xD000, 0xF000))


@pytest.mark.parametrize(
    ("typmod", "precision", "scale"),
    [((12 << 16 | 2) + 4, 12, 2), ((38 << 16) + 4, 38, 0), ((5 << 16 | 0x7FE) + 4, 5, -2), ((3 << 16 | 5) + 4, 3, 5)],
)
def test_a_typmod_holds_precision_and_a_scale_that_may_be_negative(typmod: int, precision: int, scale: int) -> None:
    assert (typmod_precision(typmod), typmod_scale(typmod)) == (precision, scale)


@pytest.mark.parametrize(
    ("declared", "precision", "scale"), [((12, 2), 12, 2), ((5, -2), 7, 0), ((3, 5), 5, 5), ((38, 38), 38, 38)]
)
def test_avros_scale_lies_between_zero_and_the_precision(declared: tuple[int, int], precision: int, scale: int) -> None:
    assert Decimal(*declared).schema == {
        "type": "bytes",
        "logicalType": "decimal",
        "precision": precision,
        "scale": scale,
    }


@pytest.mark.parametrize(
    ("codec", "value", "text"),
    [
        (Decimal(12, 2), binary(0, 0, 2), "0.00"),
        (Decimal(12, 2), binary(0, -1, 2, 100), "0.01"),
        (Decimal(12, 2), binary(0x4000, -1, 2, 100), "-0.01"),
        (Decimal(12, 2), binary(0, 0, 2, 1, 2700), "1.27"),
        (Decimal(12, 2), binary(0, 0, 2, 1, 2800), "1.28"),
        (Decimal(12, 2), binary(0x4000, 0, 2, 1, 2800), "-1.28"),
        (Decimal(12, 2), binary(0x4000, 0, 2, 1, 2900), "-1.29"),
        (Decimal(12, 2), binary(0, 1, 2, 1), "10000.00"),
        (Decimal(12, 2), binary(0, 2, 2, 99, 9999, 9999, 9900), "9999999999.99"),
        (Decimal(5, -2), binary(0, 1, 0, 1, 2300), "12300"),
        (Decimal(3, 5), binary(0, -1, 5, 99, 9000), "0.00999"),
        (Decimal(18, 0), binary(0, 4, 0, 99, 9999, 9999, 9999, 9999), "999999999999999999"),
        (Decimal(19, 0), binary(0x4000, 4, 0, 999, 9999, 9999, 9999, 9999), "-9999999999999999999"),
        (Decimal(38, 10), binary(0, 6, 10, *[9999] * 9, 9900), "9999999999999999999999999999.9999999999"),
        (Decimal(38, 10), binary(0, 5, 10, 1), "100000000000000000000.0000000000"),
        (Decimal(38, 37), binary(0, 0, 37, 1), "1." + "0" * 37),
    ],
)
def test_a_decimal_is_the_same_avro_in_both_modes(codec: Decimal, value: bytes, text: str) -> None:
    assert both(codec, value, text) == decimal.Decimal(text)


@pytest.mark.parametrize(
    ("n", "unscaled"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "0080"),
        (-128, "80"),
        (-129, "ff7f"),
        (32768, "008000"),
        (-32768, "8000"),
        (10**17, "016345785d8a0000"),
        (-(10**18) + 1, "f21f494c589c0001"),
        (10**19, "008ac7230489e80000"),
    ],
)
def test_the_unscaled_value_has_as_few_bytes_as_hold_it(n: int, unscaled: str) -> None:
    avro = transcode(Decimal(38, 0), "text", str(n).encode())
    assert avro == bytes([len(unscaled)]) + bytes.fromhex(unscaled)


@pytest.mark.parametrize("codec", [Decimal(12, 2), Decimal(38, 10)])
@pytest.mark.parametrize(("value", "text"), [(NAN, "NaN"), (INFINITY, "Infinity"), (MINUS_INFINITY, "-Infinity")])
def test_nan_and_infinity_are_unrepresentable_as_decimals_and_named_as_text(
    codec: Decimal, value: bytes, text: str
) -> None:
    assert both(codec, value, text) is UNREPRESENTABLE
    assert both(NumericText(), value, text) == text


@pytest.mark.parametrize(
    ("codec", "value", "text"),
    [
        (Decimal(4, 2), binary(0, 0, 2, 100), "100.00"),
        (Decimal(4, 2), binary(0, 0, 3, 1, 2340), "1.234"),
        (Decimal(4, 2), binary(0, -2, 8, 1), "0.00000001"),
        (Decimal(20, 2), binary(0, 4, 2, 9999, 0, 0, 0, 1), "99990000000000000001.00"),
        (Decimal(20, 2), binary(0, 3, 3, 9999, 0, 0, 0, 1230), "9999000000000000.123"),
    ],
)
def test_what_needs_more_digits_than_declared_is_unrepresentable_and_never_rounded(
    codec: Decimal, value: bytes, text: str
) -> None:
    assert both(codec, value, text) is UNREPRESENTABLE


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (binary(0, 0, 0), "0"),
        (binary(0, 0, 3), "0.000"),
        (binary(0, 0, 2, 1, 5000), "1.50"),
        (binary(0, 2, 0, 1), "100000000"),
        (binary(0x4000, 1, 5, 12, 345, 6000), "-120345.60000"),
        (binary(0, -3, 10, 12), "0.0000000000"),
        (binary(0, -3, 12, 12), "0.000000000012"),
        (binary(0, 0, 16383, 7), "7." + "0" * 16383),
    ],
)
def test_a_numeric_without_typmod_keeps_its_display_scale(value: bytes, text: str) -> None:
    assert both(NumericText(), value, text) == text


@pytest.mark.parametrize(
    "value",
    [
        *(b"", bytes(7), bytes(9), struct.pack(">hhHH", -1, 0, 0, 0), struct.pack(">hhHH", 2, 0, 0, 0) + bytes(2)),
        *(binary(0x1234, 0, 0), binary(0, 0, 0, 10000), binary(0, 0, 0, -1), binary(0, 1, 0, 1, -1)),
    ],
)
@pytest.mark.parametrize("codec", [Decimal(12, 2), Decimal(38, 2), NumericText()])
def test_a_malformed_binary_numeric_is_a_decode_error(codec: Any, value: bytes) -> None:
    with pytest.raises(DecodeError, match="numeric"):
        transcode(codec, "binary", value)
    with pytest.raises(DecodeError, match="numeric"):
        codec.render(value, 0, len(value))


@pytest.mark.parametrize(
    "text", ["", "-", ".", "1.2.3", "1e5", "nan", "Inf", "--1", "1 ", "9" * 20 + "x", "1" * 19 + "..1"]
)
def test_a_malformed_decimal_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError, match="numeric"):
        transcode(Decimal(12, 2), "text", text.encode())


def test_decimals_of_every_width_read_back() -> None:
    for digits in range(1, 39):
        for n in (10**digits - 1, -(10**digits) + 1, 10 ** (digits - 1)):
            codec = Decimal(38, 0)
            assert read_back(codec, transcode(codec, "text", str(n).encode())) == n
