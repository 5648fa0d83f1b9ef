"""Values of a composite type that was altered after they were written, or before the catalog was asked again."""

from __future__ import annotations

import struct

import pytest
from support.avro_values import UNREPRESENTABLE, both, read_back, transcode

from cdcd.avro.codecs.arrays import Array
from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.composite_changes import CompositeDefinition
from cdcd.avro.codecs.composites import Composite
from cdcd.avro.codecs.integers import Int4
from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.codecs.text import Text
from cdcd.errors import BinaryFormatUnsupported, TypeChanged
from cdcd.source.pg_types import PgType

ASKED = 100
NOW = {"position": 0}

TEXT, INT4, UUID = 25, 23, 2950


def pair(*, dropped: bool = False) -> Composite:
    """A type of a text `a` and an int4 `b`, as the catalog had it at ASKED."""
    fields = (("a", PgType(TEXT, "pg_catalog", "text"), -1), ("b", PgType(INT4, "pg_catalog", "int4"), -1))
    pgtype = PgType(5000, "public", "pair", "c", fields=fields, dropped=dropped, asked_lsn=ASKED)
    codec = codec_for(pgtype, -1, TypeOptions(position=lambda: NOW["position"]))
    assert isinstance(codec, Composite)
    return codec


def value(*fields: tuple[int, bytes | None]) -> bytes:
    return struct.pack(">i", len(fields)) + b"".join(
        struct.pack(">Ii", oid, -1 if data is None else len(data)) + (data or b"") for oid, data in fields
    )


def int4(n: int) -> bytes:
    return struct.pack(">i", n)


@pytest.fixture(params=[0, ASKED - 1], autouse=True)
def _before_the_question(request: pytest.FixtureRequest) -> None:
    NOW["position"] = request.param


def test_attributes_that_came_later_are_null_in_both_modes() -> None:
    assert both(pair(), value((TEXT, b"x y")), '("x y")') == {"a": "x y", "b": None}
    assert read_back(pair(), transcode(pair(), "binary", value())) == {"a": None, "b": None}
    assert read_back(pair(), transcode(pair(), "text", b"()")) == {"a": None, "b": None}


def test_an_attribute_that_is_gone_makes_its_values_unrepresentable_in_both_modes() -> None:
    wider = value((TEXT, b"x"), (INT4, int4(1)), (TEXT, b"a,b"))
    assert both(pair(dropped=True), wider, '(x,1,"a,b")') is UNREPRESENTABLE
    assert both(pair(), wider, '(x,1,"a,b")') is UNREPRESENTABLE


def test_a_shorter_value_of_a_type_that_lost_an_attribute_is_unrepresentable() -> None:
    assert both(pair(dropped=True), value((TEXT, b"x")), "(x)") is UNREPRESENTABLE


def test_fields_of_other_types_are_unrepresentable_in_both_modes() -> None:
    assert both(pair(dropped=True), value((INT4, int4(1)), (TEXT, b"x")), "(1,x)") is UNREPRESENTABLE


def test_a_field_of_a_built_in_type_is_rendered_though_the_type_has_no_such_attribute_any_more() -> None:
    gone = value((TEXT, None), (INT4, int4(1)), (UUID, bytes(16)))
    assert both(pair(dropped=True), gone, "(,1,00000000-0000-0000-0000-000000000000)") is UNREPRESENTABLE


def test_a_field_of_a_type_that_is_unknown_asks_for_text_mode() -> None:
    gone = value((TEXT, b"x"), (INT4, int4(1)), (70_000, b"?"))
    assert transcode(pair(), "binary", gone) is UNREPRESENTABLE
    with pytest.raises(BinaryFormatUnsupported, match="OID 70000"):
        pair().render(gone, 0, len(gone))


@pytest.mark.parametrize(
    ("binary", "text"),
    [
        (value((TEXT, b"x")), "(x)"),
        (value((TEXT, b"x"), (INT4, int4(1)), (TEXT, b"y")), "(x,1,y)"),
        (value((INT4, int4(1)), (TEXT, b"x")), "(1,x)"),
    ],
)
@pytest.mark.parametrize("dropped", [False, True])
def test_a_value_that_may_be_later_than_the_question_asks_again(binary: bytes, text: str, dropped: bool) -> None:
    NOW["position"] = ASKED
    codecs: list[tuple[Codec, bytes, bytes]] = [(pair(dropped=dropped), binary, text.encode())]
    array = struct.pack(">iiIii", 1, 0, 5000, 1, 1) + struct.pack(">i", len(binary)) + binary
    codecs.append((Array(codecs[0][0], "_pair", ","), array, b'{"' + text.encode() + b'"}'))
    for codec, in_binary, in_text in codecs:
        with pytest.raises(TypeChanged, match=r"public\.pair"):
            transcode(codec, "binary", in_binary)
        with pytest.raises(TypeChanged, match=r"public\.pair"):
            transcode(codec, "text", in_text)


def test_a_value_that_looks_like_its_type_is_never_doubted() -> None:
    NOW["position"] = ASKED + 1
    assert both(pair(dropped=True), value((TEXT, b"x"), (INT4, int4(1))), "(x,1)") == {"a": "x", "b": 1}


def test_a_field_whose_attribute_had_another_type_is_unrepresentable() -> None:
    """ALTER TYPE ... ALTER ATTRIBUTE leaves no trace in the catalog."""
    assert both(pair(), value((TEXT, b"x"), (TEXT, b"y")), "(x,y)") is UNREPRESENTABLE
    array = Array(pair(), "_pair", ",")
    assert transcode(array, "text", b'{"(x,y)"}') is UNREPRESENTABLE


def test_a_record_of_fields_that_nobody_knows_names_the_type() -> None:
    codec = Composite("t", ["a"], [Int4()], CompositeDefinition("public.t", [INT4]))
    with pytest.raises(BinaryFormatUnsupported, match=r"public\.t"):
        codec.render(value((TEXT, b"x")), 0, 13)
    assert isinstance(Composite("t", ["a"], [Text()], CompositeDefinition("public.t", [TEXT])).fields[0], Text)
