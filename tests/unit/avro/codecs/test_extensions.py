from __future__ import annotations

import math
import struct

import pytest
from support.avro_values import both, read_back, transcode

from cdcd.avro.codecs.extensions import Hstore, Vector
from cdcd.avro.codecs.lookup import TypeOptions, codec_for, has_known_binary
from cdcd.errors import BinaryFormatUnsupported, DecodeError
from cdcd.source.pg_types import PgType


def hstore(**pairs: str | None) -> bytes:
    value = struct.pack(">i", len(pairs))
    for key, item in pairs.items():
        value += struct.pack(">i", len(key.encode())) + key.encode()
        value += b"\xff\xff\xff\xff" if item is None else struct.pack(">i", len(item.encode())) + item.encode()
    return value


def vector(*values: float) -> bytes:
    return struct.pack(f">hh{len(values)}f", len(values), 0, *values)


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        ({}, ""),
        ({"a": "1", "b": None}, '"a"=>"1", "b"=>NULL'),
        ({"a b": "", "c": "NULL"}, '"a b"=>"", "c"=>"NULL"'),
        ({'"\\': "x, y=>é", "": "="}, r'"\"\\"=>"x, y=>é", ""=>"="'),
    ],
)
def test_hstore_is_a_map(pairs: dict[str, str | None], text: str) -> None:
    assert both(Hstore(), hstore(**pairs), text) == pairs


@pytest.mark.parametrize(
    "value", [b"", b"\xff" * 4, hstore(a="1")[:-1], hstore(a="1") + b"x", b"\0\0\0\1" + b"\xff" * 8]
)
def test_a_malformed_binary_hstore_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="hstore"):
        transcode(Hstore(), "binary", value)


@pytest.mark.parametrize("text", ["a", '"a"', '"a"=', '"a"=>', '"a"=>"1', 'a=>"1"', '"a"=>"1" "b"=>"2"', '"a">"1"'])
def test_a_malformed_hstore_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError, match="hstore"):
        transcode(Hstore(), "text", text.encode())


def test_a_vector_is_an_array_of_floats() -> None:
    assert both(Vector(), vector(1.0, -2.5, 0.0), "[1,-2.5,0]") == [1.0, -2.5, 0.0]
    assert both(Vector(), vector(), "[]") == []
    assert math.isclose(both(Vector(), vector(0.1), "[0.1]")[0], 0.1, rel_tol=1e-7)


@pytest.mark.parametrize("value", [b"", b"\0\1\0", vector(1.0)[:-1], vector(1.0) + b"x", b"\xff\xff\0\0"])
def test_a_malformed_binary_vector_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError, match="vector"):
        transcode(Vector(), "binary", value)


@pytest.mark.parametrize("text", ["", "[", "1,2", "[1,2", "[1,,2]", "[x]", "[,1]"])
def test_a_malformed_vector_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(Vector(), "text", text.encode())


def test_hstore_of_a_converted_database_is_read_as_text() -> None:
    """`hstore_send` gives the length before the conversion, 1, and the text after it, 2 bytes."""
    hstore = PgType(5003, "public", "hstore")
    assert has_known_binary(hstore)
    assert not has_known_binary(hstore, "LATIN1")
    assert not has_known_binary(PgType(5004, "public", "_hstore", element=hstore, is_array=True), "EUC_JP")
    codec = codec_for(hstore, -1, TypeOptions(converted=True))
    with pytest.raises(BinaryFormatUnsupported):
        transcode(codec, "binary", struct.pack(">ii", 1, 1) + b"k" + struct.pack(">i", 1) + "é".encode())
    assert read_back(codec, transcode(codec, "text", '"k"=>"é"'.encode())) == {"k": "é"}
