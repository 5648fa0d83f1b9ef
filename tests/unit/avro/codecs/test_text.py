from __future__ import annotations

import uuid

import pytest
from support.avro_values import UNREPRESENTABLE, both, read_back, transcode

from cdcd.avro.codecs.text import Bytea, Char, Ewkb, Text, TextFallback, Uuid, VersionedText
from cdcd.errors import BinaryFormatUnsupported, DecodeError


@pytest.mark.parametrize(
    "text", ["", "a", "12345678", "Grüße 🐘", "x" * 127, "x" * 128, "é" * 1000, "\0 is not PostgreSQL's"]
)
def test_text_is_itself(text: str) -> None:
    assert both(Text(), text.encode(), text) == text


def test_jsonb_has_a_version_before_its_text() -> None:
    assert both(VersionedText("jsonb"), b'\1{"a": 1}', '{"a": 1}') == '{"a": 1}'
    assert both(VersionedText("ltree"), b"\1", "") == ""


@pytest.mark.parametrize(("value", "got"), [(b"", "got nothing"), (b"\2{}", "got version 2")])
def test_another_version_of_jsonb_is_a_decode_error(value: bytes, got: str) -> None:
    with pytest.raises(DecodeError, match=got):
        transcode(VersionedText("jsonb"), "binary", value)
    with pytest.raises(DecodeError, match=got):
        VersionedText("jsonb").render(value, 0, len(value))


def test_a_type_without_known_binary_form_is_its_text_and_asks_for_text_mode() -> None:
    codec = TextFallback("public.shape")
    assert read_back(codec, transcode(codec, "text", b"(1,2)")) == "(1,2)"
    with pytest.raises(BinaryFormatUnsupported, match=r"public\.shape"):
        transcode(codec, "binary", b"1234")
    with pytest.raises(BinaryFormatUnsupported, match=r"public\.shape"):
        codec.render(b"1234", 0, 4)


@pytest.mark.parametrize(
    ("byte", "text"), [(b"a", "a"), (b"\0", ""), (b"\x7f", "\x7f"), (b"\x80", "\\200"), (b"\xff", "\\377")]
)
def test_char_is_a_character_or_its_octal_form(byte: bytes, text: str) -> None:
    assert both(Char(), byte, text) == text


def test_char_above_127_is_escaped_also_from_servers_that_send_the_byte() -> None:
    assert transcode(Char(), "text", b"\xff") == transcode(Char(), "text", b"\\377")


@pytest.mark.parametrize("text", ["ab", "abcde"])
def test_char_of_more_than_one_character_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(Char(), "text", text.encode())
    with pytest.raises(DecodeError):
        transcode(Char(), "binary", text.encode())


@pytest.mark.parametrize("byte", range(0, 256, 5))
def test_uuid_is_its_lower_case_text(byte: int) -> None:
    value = uuid.UUID(bytes=bytes((byte + 17 * i) & 255 for i in range(16)))
    assert both(Uuid(), value.bytes, str(value)) == value


def test_uuid_of_another_size_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="wanted 16 bytes, got 15"):
        transcode(Uuid(), "binary", bytes(15))
    with pytest.raises(DecodeError, match="36 characters"):
        transcode(Uuid(), "text", b"a" * 32)


@pytest.mark.parametrize("value", [b"", b"\0", bytes(range(256)), b"\xff" * 1000])
def test_bytea_and_ewkb_are_hexadecimal_in_text(value: bytes) -> None:
    assert both(Bytea(), value, "\\x" + value.hex()) == value
    assert both(Ewkb("geometry"), value, value.hex().upper()) == value


@pytest.mark.parametrize("text", ["", "\\", "\\y00", "\\x0", "\\x0g", "\\xg0", "\\x:0", "abc\\000"])
def test_bytea_text_that_is_not_hexadecimal_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError, match="bytea"):
        transcode(Bytea(), "text", text.encode())


def test_a_char_of_a_converted_database_is_a_character_before_version_16() -> None:
    codec = Char()
    assert read_back(codec, transcode(codec, "text", "é".encode())) == "é"
    assert transcode(codec, "binary", b"\xe9") is not UNREPRESENTABLE
