from __future__ import annotations

import math
import struct
from fractions import Fraction

import pytest
from support.avro_values import both, read_back, transcode

from cdcd.avro.codecs.floats import Float4, Float8, float8_text, read_float
from cdcd.errors import DecodeError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (-0.0, "-0"), (1.0, "1"), (-1.5, "-1.5"), (0.1, "0.1"), (1e-4, "0.0001"), (1e-5, "1e-05")),
        *((1e14, "100000000000000"), (1e15, "1e+15"), (1.5e300, "1.5e+300"), (5e-324, "5e-324")),
        *((math.inf, "Infinity"), (-math.inf, "-Infinity"), (0.1 + 0.2, "0.30000000000000004")),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
    ],
)
def test_a_double_is_the_same_avro_in_both_modes(value: float, text: str) -> None:
    assert repr(both(Float8(), struct.pack(">d", value), text)) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (-0.0, "-0"), (0.25, "0.25"), (0.1, "0.1"), (100000.0, "100000"), (1e6, "1e+06")),
        *(
            (3.4028234663852886e38, "3.4028235e+38"),
            (1e-45, "1e-45"),
            (math.inf, "Infinity"),
            (1234567.0, "1.234567e+06"),
        ),
    ],
)
def test_a_real_is_the_same_avro_in_both_modes(value: float, text: str) -> None:
    binary = struct.pack(">f", value)
    assert struct.pack(">f", both(Float4(), binary, text)) == binary


def test_every_nan_is_one_nan() -> None:
    for binary in (b"\x7f\xf8" + bytes(6), b"\xff\xf8" + bytes(6), b"\x7f\xf0" + bytes(5) + b"\1"):
        assert math.isnan(both(Float8(), binary, "NaN"))
    for binary in (b"\x7f\xc0\0\0", b"\xff\xc0\0\0", b"\x7f\x80\0\1"):
        assert math.isnan(both(Float4(), binary, "NaN"))


def test_the_shortest_text_is_never_halfway_to_a_neighbour() -> None:
    # ...990 would be shorter, but lies in the middle between this double and the next one below.
    assert repr(18014398509481992.0) == "1.801439850948199e+16"
    assert float8_text(18014398509481992.0) == "1.8014398509481992e+16"


@pytest.mark.parametrize("power", range(-1074, 1024, 7))
def test_powers_of_two_whose_neighbours_are_not_equally_far_read_back(power: int) -> None:
    assert float(float8_text(2.0**power)) == 2.0**power


def test_a_real_near_the_middle_of_two_is_rounded_once() -> None:
    middle = Fraction(2 * 12345679 + 1, 2) * Fraction(2) ** -60
    for offset, mantissa in ((-1, 12345679), (1, 12345680)):
        text = f"{int((middle + Fraction(offset, 10**60)) * 10**70)}e-70"
        codec = Float4()
        assert read_back(codec, transcode(codec, "text", text.encode())) == mantissa * 2.0**-60


def test_a_short_decimal_is_the_nearest_double() -> None:
    for text in (
        "123456789012345",
        "0.000000000000001",
        "-999999999999.999",
        "1.10",
        "00.5",
        "0.1",
        "12345678.9012345",
    ):
        assert read_float(text.encode(), 0, len(text), "float8") == float(text)


@pytest.mark.parametrize("text", ["", "-", ".", "-.", "1.2.3", "x", "1e", "0x10", "1,5"])
@pytest.mark.parametrize("codec", [Float4(), Float8()])
def test_what_is_no_number_is_a_decode_error(codec: Float4 | Float8, text: str) -> None:
    with pytest.raises(DecodeError, match="floating-point number"):
        transcode(codec, "text", text.encode())


def test_a_real_out_of_range_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="float4"):
        transcode(Float4(), "text", b"1e39")


@pytest.mark.parametrize(("codec", "size"), [(Float4(), 8), (Float8(), 4)])
def test_a_float_of_another_size_is_a_decode_error(codec: Float4 | Float8, size: int) -> None:
    with pytest.raises(DecodeError, match=f"got {size}"):
        transcode(codec, "binary", bytes(size))
    with pytest.raises(DecodeError, match=f"got {size}"):
        codec.render(bytes(size), 0, size)
