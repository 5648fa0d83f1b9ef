from __future__ import annotations

import struct
from typing import Any

import pytest
from support.avro_values import UNREPRESENTABLE, both, transcode

from cdcd.avro.codecs.datetimes import Date
from cdcd.avro.codecs.integers import Int4
from cdcd.avro.codecs.ranges import Multirange, Range
from cdcd.avro.codecs.text import Text
from cdcd.errors import DecodeError

INTS = Range("int4range", Int4(), "int4range")
TEXTS = Range("textrange", Text(), "public.textrange")
EMPTY, LOWER_INC, UPPER_INC, LOWER_INF, UPPER_INF = 1, 2, 4, 8, 16


def part(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def ints(flags: int, *bounds: int) -> bytes:
    return bytes([flags]) + b"".join(part(struct.pack(">i", bound)) for bound in bounds)


def texts(flags: int, *bounds: str) -> bytes:
    return bytes([flags]) + b"".join(part(bound.encode()) for bound in bounds)


def multi(*ranges: bytes) -> bytes:
    return struct.pack(">i", len(ranges)) + b"".join(map(part, ranges))


def span(lower: Any, upper: Any, lower_inc: bool = False, upper_inc: bool = False, empty: bool = False) -> Any:
    return {"lower": lower, "upper": upper, "lower_inc": lower_inc, "upper_inc": upper_inc, "empty": empty}


@pytest.mark.parametrize(
    ("value", "text", "expected"),
    [
        (ints(LOWER_INC, 1, 10), "[1,10)", span(1, 10, lower_inc=True)),
        (ints(UPPER_INC, -5, 5), "(-5,5]", span(-5, 5, upper_inc=True)),
        (ints(LOWER_INF | UPPER_INF), "(,)", span(None, None)),
        (ints(LOWER_INF, 7), "(,7)", span(None, 7)),
        (ints(LOWER_INC | UPPER_INF, 7), "[7,)", span(7, None, lower_inc=True)),
        (ints(EMPTY), "empty", span(None, None, empty=True)),
    ],
)
def test_a_range_is_the_same_avro_in_both_modes(value: bytes, text: str, expected: Any) -> None:
    assert both(INTS, value, text) == expected


@pytest.mark.parametrize(
    ("value", "text", "bounds"),
    [
        (texts(LOWER_INC, "", "a b"), '["","a b")', ("", "a b")),
        (texts(LOWER_INC, "a,b", 'c"\\'), r'["a,b","c""\\")', ("a,b", 'c"\\')),
        (texts(LOWER_INC, "(", "]"), '["(","]")', ("(", "]")),
        (texts(LOWER_INC, "empty", "é"), "[empty,é)", ("empty", "é")),
    ],
)
def test_quoted_bounds_are_the_same_avro_in_both_modes(value: bytes, text: str, bounds: tuple[str, str]) -> None:
    assert both(TEXTS, value, text) == span(*bounds, lower_inc=True)


def test_a_range_with_an_unrepresentable_bound_is_unrepresentable() -> None:
    dates = Range("daterange", Date(), "daterange")
    assert both(dates, ints(LOWER_INC, 0, 2**31 - 1), "[2000-01-01,infinity)") is UNREPRESENTABLE


def test_a_multirange_is_an_array_of_ranges() -> None:
    codec = Multirange(INTS, "int4multirange")
    assert both(codec, multi(), "{}") == []
    value = multi(ints(LOWER_INC, 1, 3), ints(LOWER_INC | UPPER_INF, 5))
    assert both(codec, value, "{[1,3),[5,)}") == [span(1, 3, lower_inc=True), span(5, None, lower_inc=True)]


def test_brackets_in_quotes_do_not_end_a_range_of_a_multirange() -> None:
    codec = Multirange(TEXTS, "public.textmultirange")
    value = multi(texts(LOWER_INC, "a)", 'b"]'), texts(LOWER_INC, "c\\", ","))
    expected = [span("a)", 'b"]', lower_inc=True), span("c\\", ",", lower_inc=True)]
    assert both(codec, value, r'{["a)","b""]"),["c\\",",")}') == expected


@pytest.mark.parametrize(
    "value", [b"", ints(0), ints(0, 1), ints(0, 1, 2) + b"x", ints(LOWER_INF, 1, 2), b"\0\xff\xff\xff\xff"]
)
def test_a_malformed_binary_range_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="int4range"):
        transcode(INTS, "binary", value)


@pytest.mark.parametrize(
    "text", ["", "[", "[1", "[1,2", "1,2)", "[1,2)x", "[1,2,3)", "{1,2}", "[1;2)", "[x,2)", "EMPTY"]
)
def test_a_malformed_range_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(INTS, "text", text.encode())


@pytest.mark.parametrize("text", ["", "{", "[1,2)", "{[1,2)", "{[1,2),}x", "{x}", "{,}", "{[1,2),,[3,4)}"])
def test_a_malformed_multirange_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(Multirange(INTS, "int4multirange"), "text", text.encode())


@pytest.mark.parametrize("value", [b"", b"\xff" * 4, multi(ints(EMPTY)) + b"x", b"\0\0\0\1" + b"\xff" * 4])
def test_a_malformed_binary_multirange_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        transcode(Multirange(INTS, "int4multirange"), "binary", value)
