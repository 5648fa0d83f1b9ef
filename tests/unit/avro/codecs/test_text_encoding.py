r"""Text of SQL_ASCII databases: what is no UTF-8 is unrepresentable, its bytes are written as \xHH."""

from __future__ import annotations

import struct

import pytest
from support.avro_values import UNREPRESENTABLE, both, read_back, transcode

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.codecs.text_encoding import EscapingColumn, shown
from cdcd.source.pg_types import PgType

TEXT = PgType(25, "pg_catalog", "text")
LATIN1 = "café".encode("latin1")


def codec_of(pgtype: PgType) -> Codec:
    return codec_for(pgtype, -1, TypeOptions(any_encoding=True))


def part(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def lost(pgtype: PgType, binary: bytes, text: bytes) -> str:
    """The text of a value that is unrepresentable in both modes, once both had the same."""
    codec = codec_of(pgtype)
    assert transcode(codec, "binary", binary) is UNREPRESENTABLE
    assert transcode(codec, "text", text) is UNREPRESENTABLE
    rendered = codec.render(b"x" + binary + b"x", 1, len(binary))
    assert rendered == shown(text)
    return rendered


def test_bytes_that_are_no_utf8_are_escaped_and_then_backslashes_are_doubled() -> None:
    assert shown(LATIN1) == "caf\\xe9"
    assert shown(b"a\\xe9") == "a\\xe9"
    assert shown(b"\\\xe9\xc3\xa9") == "\\\\\\xe9é"


def test_text_that_is_utf8_passes_as_it_is() -> None:
    assert both(codec_of(TEXT), "é🐘\\".encode(), "é🐘\\") == "é🐘\\"


@pytest.mark.parametrize("name", ["text", "varchar", "bpchar", "name", "xml", "json"])
def test_text_that_is_no_utf8_is_unrepresentable(name: str) -> None:
    assert lost(PgType(1, "pg_catalog", name), LATIN1, LATIN1) == "caf\\xe9"


def test_types_around_text_are_unrepresentable_with_the_same_text_in_both_modes() -> None:
    enum = PgType(5001, "public", "mood", "e")
    array = PgType(1009, "pg_catalog", "_text", element=TEXT, is_array=True)
    one = struct.pack(">iiIii", 1, 0, 25, 1, 1) + part(LATIN1)
    record = PgType(5002, "public", "r", "c", fields=(("a", TEXT, -1), ("b", array, -1)), asked_lsn=1)
    both_fields = struct.pack(">iI", 2, 25) + part(b"\\") + struct.pack(">I", 1009) + part(one)
    hstore = PgType(5003, "public", "hstore")
    ranges = PgType(5004, "public", "textrange", "r", element=TEXT)
    assert lost(enum, LATIN1, LATIN1) == "caf\\xe9"
    assert lost(array, one, b"{" + LATIN1 + b"}") == "{caf\\xe9}"
    assert lost(record, both_fields, b'("\\\\",{' + LATIN1 + b"})") == '("\\\\\\\\",{caf\\xe9})'
    assert (
        lost(hstore, struct.pack(">i", 1) + part(b"k") + part(LATIN1), b'"k"=>"' + LATIN1 + b'"') == '"k"=>"caf\\xe9"'
    )
    assert lost(PgType(3614, "pg_catalog", "tsvector"), struct.pack(">i", 1) + LATIN1 + b"\0\0\0", b"'" + LATIN1 + b"'")
    assert lost(PgType(3802, "pg_catalog", "jsonb"), b"\1" + b'"' + LATIN1 + b'"', b'"' + LATIN1 + b'"')
    assert lost(ranges, b"\2" + part(b"a") + part(LATIN1), b"[a," + LATIN1 + b")") == "[a,caf\\xe9)"


def test_only_columns_with_text_in_them_are_looked_at_and_only_in_such_databases() -> None:
    assert isinstance(codec_of(TEXT), EscapingColumn)
    assert not isinstance(codec_of(PgType(23, "pg_catalog", "int4")), EscapingColumn)
    assert not isinstance(codec_for(TEXT, -1, TypeOptions()), EscapingColumn)


def test_text_that_comes_as_it_is_stored_is_converted_at_any_depth() -> None:
    def to_text(raw: bytes) -> str:
        return raw.replace(b"\x81", b"").decode("latin1") + "\udc81" * raw.count(b"\x81")

    options = TypeOptions(converted=True, to_text=to_text)
    array = PgType(1009, "pg_catalog", "_text", element=TEXT, is_array=True)
    text, column = codec_for(TEXT, -1, options), codec_for(array, -1, options)
    assert read_back(text, transcode(text, "text", LATIN1)) == "café"
    assert read_back(column, transcode(column, "text", b"{" + LATIN1 + b",a}")) == ["café", "a"]
    assert transcode(text, "text", b"\x81") is UNREPRESENTABLE
    assert transcode(column, "text", b'{"\x81"}') is UNREPRESENTABLE
    assert isinstance(column, EscapingColumn)
    assert column.shown(b"{" + LATIN1 + b"\\\x81}") == "{café\\\\}\\x81"
    int4 = codec_for(PgType(23, "pg_catalog", "int4"), -1, options)
    assert not isinstance(int4, EscapingColumn)
