from __future__ import annotations

import struct

import pytest
from support.avro_values import both, read_back, transcode

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.integers import Bool, Int2, Int4, Int8, Unsigned4, Xid8
from cdcd.errors import DecodeError


@pytest.mark.parametrize(
    ("codec", "form", "values"),
    [
        (Int2(), ">h", [0, 1, -1, 2**15 - 1, -(2**15)]),
        (Int4(), ">i", [0, 1, -1, 2**31 - 1, -(2**31)]),
        (Int8(), ">q", [0, 1, -1, 2**63 - 1, -(2**63)]),
        (Unsigned4("oid"), ">I", [0, 2**31, 2**32 - 1]),
    ],
)
def test_integers_are_the_same_avro_in_both_modes(codec: Codec, form: str, values: list[int]) -> None:
    for value in values:
        assert both(codec, struct.pack(form, value), str(value)) == value


def test_booleans_are_t_and_f_in_text() -> None:
    assert both(Bool(), b"\1", "t") is True
    assert both(Bool(), b"\0", "f") is False


@pytest.mark.parametrize("value", [0, 7, 2**63 - 1, 2**63, 2**64 - 1])
def test_each_xid8_is_the_string_of_its_digits(value: int) -> None:
    assert both(Xid8(), struct.pack(">Q", value), str(value)) == str(value)


@pytest.mark.parametrize("codec", [Int2(), Int4(), Int8(), Unsigned4("xid"), Xid8(), Bool()])
@pytest.mark.parametrize("size", [0, 3, 5, 9])
def test_a_binary_value_of_another_size_is_a_decode_error_with_both_sizes(codec: Codec, size: int) -> None:
    with pytest.raises(DecodeError, match=rf"wanted \d bytes, got {size}"):
        transcode(codec, "binary", bytes(size))
    with pytest.raises(DecodeError, match=rf"wanted \d bytes, got {size}"):
        codec.render(bytes(size), 0, size)


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        (Int2(), "32768"),
        (Int2(), "-32769"),
        (Int4(), "2147483648"),
        (Int4(), "-2147483649"),
        (Int8(), "9223372036854775808"),
        (Unsigned4("oid"), "-1"),
        (Unsigned4("oid"), "4294967296"),
        (Xid8(), "18446744073709551616"),
        (Xid8(), "-1"),
        (Bool(), "true"),
        (Bool(), "x"),
        (Bool(), ""),
    ],
)
def test_a_text_out_of_range_is_a_decode_error(codec: Codec, text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(codec, "text", text.encode())


def test_a_byte_above_one_is_no_boolean() -> None:
    with pytest.raises(DecodeError, match="bool"):
        transcode(Bool(), "binary", b"\2")


def test_the_avro_types_are_the_designs() -> None:
    assert [codec.schema for codec in (Int2(), Int4(), Int8(), Unsigned4("oid"), Xid8(), Bool())] == [
        *("int", "int", "long", "long", "string", "boolean")
    ]
    assert read_back(Int4(), b"\x02") == 1
