from __future__ import annotations

import struct

import pytest
from support.avro_values import UNREPRESENTABLE, both, transcode

from cdcd.avro.codecs.arrays import Array
from cdcd.avro.codecs.datetimes import Date
from cdcd.avro.codecs.integers import Int4
from cdcd.avro.codecs.text import Bytea, Text, TextFallback
from cdcd.errors import BinaryFormatUnsupported, DecodeError

INTS = Array(Int4(), "_int4", ",")
TEXTS = Array(Text(), "_text", ",")
DATES = Array(Date(), "_date", ",")


def part(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def array(*elements: bytes | None, dimensions: tuple[tuple[int, int], ...] | None = None) -> bytes:
    if dimensions is None:
        dimensions = ((len(elements), 1),) if elements else ()
    header = struct.pack(">iiI", len(dimensions), None in elements, 25)
    return header + b"".join(struct.pack(">ii", *pair) for pair in dimensions) + b"".join(map(part, elements))


def int4(n: int) -> bytes:
    return struct.pack(">i", n)


def test_an_array_is_the_same_avro_in_both_modes() -> None:
    assert both(INTS, array(), "{}") == []
    assert both(INTS, array(int4(1), None, int4(-3)), "{1,NULL,-3}") == [1, None, -3]
    assert both(INTS, array(*map(int4, range(300))), "{" + ",".join(map(str, range(300))) + "}") == list(range(300))


def test_quoted_elements_are_the_same_avro_in_both_modes() -> None:
    values = ["", "a", "a b", "a,b", "{}", "NULL", "null", '"', "\\", 'say "\\n"', "é🐘", "\t"]
    text = r'{"",a,"a b","a,b","{}","NULL","null","\"","\\","say \"\\n\"",é🐘,"' + '\t"}'
    assert both(TEXTS, array(*(value.encode() for value in values)), text) == values
    bytea = Array(Bytea(), "_bytea", ",")
    assert both(bytea, array(b"\0\xff", b""), r'{"\\x00ff","\\x"}') == [b"\0\xff", b""]


def test_another_delimiter_parts_the_elements() -> None:
    boxes = Array(Text(), "_box", ";")
    assert both(boxes, array(b"(1,2)", b"a;b"), '{(1,2);"a;b"}') == ["(1,2)", "a;b"]


@pytest.mark.parametrize(
    ("dimensions", "text"),
    [
        (((2, 1), (1, 1)), "{{1},{2}}"),
        (((1, 1), (2, 1)), "{{1,2}}"),
        (((2, 0),), "[0:1]={1,2}"),
        (((1, 1), (2, -1)), "[1:1][-1:0]={{1,2}}"),
        (((1, 1), (1, 1), (2, 1)), "{{{1,2}}}"),
    ],
)
def test_other_dimensions_and_lower_bounds_are_unrepresentable(
    dimensions: tuple[tuple[int, int], ...], text: str
) -> None:
    assert both(INTS, array(int4(1), int4(2), dimensions=dimensions), text) is UNREPRESENTABLE


def test_an_array_with_an_unrepresentable_element_is_unrepresentable() -> None:
    values = array(int4(0), int4(2**31 - 1))
    assert both(DATES, values, "{2000-01-01,infinity}") is UNREPRESENTABLE


@pytest.mark.parametrize(
    "value",
    [
        *(b"", bytes(11), struct.pack(">iii", 7, 0, 23), struct.pack(">iii", -1, 0, 23), array(int4(1))[:-1]),
        *(array(int4(1)) + b"x", array(b"123"), array() + b"x", array(int4(1), dimensions=((2, 1),))),
        *(array(dimensions=((-1, 1),)), array(int4(1), dimensions=((2**31 - 1, 1),))),
    ],
)
def test_a_malformed_binary_array_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="int4"):
        transcode(INTS, "binary", value)
    with pytest.raises(DecodeError, match="int4"):
        INTS.render(value, 0, len(value))


@pytest.mark.parametrize(
    "text", ["", "{", "}", "1,2", "{1,2", "{1,}", "{,1}", "{1}}", "{1}2}", '{"1}', "{x}", "[0:1]", "{1},{2}"]
)
def test_a_malformed_array_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError, match="int4"):
        transcode(INTS, "text", text.encode())


def test_an_array_of_an_unknown_type_asks_for_text_mode() -> None:
    shapes = Array(TextFallback("shape"), "_shape", ",")
    with pytest.raises(BinaryFormatUnsupported, match="shape"):
        transcode(shapes, "binary", array(b"1"))
