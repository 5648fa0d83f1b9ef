from __future__ import annotations

import struct
from datetime import date

import pytest
from support.avro_values import UNREPRESENTABLE, both, transcode

from cdcd.avro.codecs.arrays import Array
from cdcd.avro.codecs.composite_changes import CompositeDefinition
from cdcd.avro.codecs.composites import Composite
from cdcd.avro.codecs.datetimes import Date
from cdcd.avro.codecs.integers import Int4
from cdcd.avro.codecs.text import Text
from cdcd.errors import DecodeError

INTS = Array(Int4(), "_int4", ",")
ADDRESS = Composite("address", ["street", "no"], [Text(), Int4()], CompositeDefinition("public.address", [25, 23]))


def part(value: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if value is None else struct.pack(">i", len(value)) + value


def array(*elements: bytes | None, dimensions: tuple[tuple[int, int], ...] | None = None) -> bytes:
    if dimensions is None:
        dimensions = ((len(elements), 1),) if elements else ()
    header = struct.pack(">iiI", len(dimensions), None in elements, 25)
    return header + b"".join(struct.pack(">ii", *pair) for pair in dimensions) + b"".join(map(part, elements))


def composite(*fields: bytes | None, oids: tuple[int, ...] = (25, 23)) -> bytes:
    typed = zip(oids, fields, strict=False)
    return struct.pack(">i", len(fields)) + b"".join(struct.pack(">I", oid) + part(field) for oid, field in typed)


def int4(n: int) -> bytes:
    return struct.pack(">i", n)


def test_a_composite_is_the_same_avro_in_both_modes() -> None:
    assert both(ADDRESS, composite(b"a", int4(1)), "(a,1)") == {"street": "a", "no": 1}
    assert both(ADDRESS, composite(None, None), "(,)") == {"street": None, "no": None}
    assert both(ADDRESS, composite(b"", None), '("",)') == {"street": "", "no": None}
    assert both(ADDRESS, composite(b'a "b", \\(c)', int4(1)), r'("a ""b"", \\(c)",1)') == {
        "street": 'a "b", \\(c)',
        "no": 1,
    }
    assert both(Composite("nothing", [], [], CompositeDefinition("nothing", [])), composite(), "()") == {}


def test_composites_nest_in_arrays_and_arrays_in_composites() -> None:
    addresses = Array(ADDRESS, "_address", ",")
    value = array(composite(b"x y", int4(1)), None)
    assert both(addresses, value, r'{"(\"x y\",1)",NULL}') == [{"street": "x y", "no": 1}, None]
    outer = Composite("outer", ["at", "ns"], [ADDRESS, INTS], CompositeDefinition("outer", [5000, 1007]))
    value = composite(composite(b'"', None), array(int4(1), int4(2)), oids=(5000, 1007))
    assert both(outer, value, r'("("""""""",)","{1,2}")') == {"at": {"street": '"', "no": None}, "ns": [1, 2]}


def test_a_composite_with_an_unrepresentable_field_is_unrepresentable() -> None:
    span = Composite("span", ["since", "until"], [Date(), Date()], CompositeDefinition("span", [1082, 1082]))
    dates = (1082, 1082)
    value = composite(int4(0), int4(2**31 - 1), oids=dates)
    assert both(span, value, "(2000-01-01,infinity)") is UNREPRESENTABLE
    assert both(span, composite(int4(0), None, oids=dates), "(2000-01-01,)") == {
        "since": date(2000, 1, 1),
        "until": None,
    }


@pytest.mark.parametrize(
    "value", [b"", composite(b"a", int4(1))[:-1], composite(b"a", int4(1)) + b"x", b"\xff\xff\xff\xff", b"\0\0\xff\xff"]
)
def test_a_malformed_binary_composite_is_a_decode_error(value: bytes) -> None:
    with pytest.raises(DecodeError):
        transcode(ADDRESS, "binary", value)
    with pytest.raises(DecodeError):
        ADDRESS.render(value, 0, len(value))


@pytest.mark.parametrize("text", ["", "(", "(a,1", "a,1", "(a,1)x", '("a,1)', "(a,1))"])
def test_a_malformed_composite_text_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        transcode(ADDRESS, "text", text.encode())
