"""Types on a real server: tests/acceptance/test_verify.py. Here: how the parts are put together."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from support.avro_values import transcode

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.schema import envelope_schema
from cdcd.reading.postgres_text import renderers, without_logical_types
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

ADDRESS = {
    "type": "record",
    "name": "address",
    "fields": [{"name": "street", "type": ["null", "string"]}, {"name": "no", "type": ["null", "int"]}],
}


def span(subtype: Any) -> dict[str, Any]:
    bounds = [{"name": name, "type": ["null", subtype]} for name in ("lower", "upper")]
    flags = [{"name": name, "type": "boolean"} for name in ("lower_inc", "upper_inc", "empty")]
    return {"type": "record", "name": "span", "fields": bounds + flags}


def ends(lower: Any, upper: Any, brackets: str = "[)") -> dict[str, Any]:
    flags = {"lower_inc": brackets[0] == "[", "upper_inc": brackets[1] == "]", "empty": False}
    return {"lower": lower, "upper": upper, **flags}


def text(avro_type: Any, pg_type: str, value: Any) -> str:
    row = {"fields": [{"name": "v", "pg_type": pg_type, "pg_typmod": -1, "type": ["null", avro_type]}]}
    [(_, _, render)] = renderers(row, {})
    return render(value)


CASES = [
    ("boolean", "bool", False, "f"),
    ("double", "float8", 1e15, "1e+15"),
    ("float", "float4", 0.10000000149011612, "0.1"),
    ("bytes", "bytea", b"\x00\xff", "\\x00ff"),
    ("bytes", "public.geometry", b"\x01\xab", "01AB"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "numeric", b"\xff", "-0.01"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9}, "numeric", b"\x64", "100"),
    ({"type": "int", "logicalType": "date"}, "date", -1, "1969-12-31"),
    ({"type": "long", "logicalType": "time-micros"}, "time", 1_500_000, "00:00:01.5"),
    ({"type": "long", "logicalType": "timestamp-micros"}, "timestamptz", -1, "1969-12-31 23:59:59.999999+00"),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, "timestamp", 0, "1970-01-01 00:00:00"),
    ({"type": "array", "items": ["null", "string"]}, "text[]", ["a", None, "b,c", ""], '{a,NULL,"b,c",""}'),
    ({"type": "array", "items": ["null", "string"], "pg_delimiter": ";"}, "_box", ["(1,1)", None], "{(1,1);NULL}"),
    ({"type": "array", "items": "float"}, "public.vector", [1.0, 2.5], "[1,2.5]"),
    ({"type": "map", "values": ["null", "string"]}, "public.hstore", {'a"': None, "b": ""}, '"a\\""=>NULL, "b"=>""'),
    (ADDRESS, "public.address", {"street": "a b", "no": None}, '("a b",)'),
    (span("string"), "public.textrange", ends("a b", None), '["a b",)'),
    ({"type": "array", "items": span("int")}, "int4multirange", [ends(1, 3), ends(5, 9)], "{[1,3),[5,9)}"),
    ({"type": "array", "items": ["null", span("int")]}, "int4range[]", [ends(1, 3)], '{"[1,3)"}'),
]


@pytest.mark.parametrize(("avro_type", "pg_type", "value", "wanted"), CASES, ids=[case[1] for case in CASES])
def test_a_value_is_written_as_the_output_function_writes_it(
    avro_type: Any, pg_type: str, value: Any, wanted: str
) -> None:
    assert text(avro_type, pg_type, value) == wanted


def test_a_named_type_is_known_where_it_stands_by_its_name() -> None:
    row = {
        "fields": [
            {"name": "a", "pg_type": "public.address", "type": ["null", ADDRESS]},
            {"name": "b", "pg_name": "B b", "pg_type": "public.address", "type": ["null", "address"]},
        ]
    }
    columns = renderers(row, {})
    assert [column[:2] for column in columns] == [("a", "a"), ("b", "B b")]
    assert [render({"street": None, "no": 7}) for _, _, render in columns] == ["(,7)", "(,7)"]


def test_without_logical_types_nothing_else_is_lost() -> None:
    schema = {"type": "record", "fields": [{"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]}]}
    assert without_logical_types(schema) == {
        "type": "record",
        "fields": [{"name": "d", "type": ["null", {"type": "int"}]}],
    }


def catalog(name: str, **more: Any) -> PgType:
    return PgType(more.pop("oid", 1), "pg_catalog", name, **more)


def array_of(element: PgType) -> PgType:
    return PgType(1, element.schema, f"_{element.name}", element=element, is_array=True)


def as_verified(pgtype: PgType, text: bytes) -> str:
    """The text that `cdcd verify` makes of a value, by the schema that the daemon writes."""
    codec = codec_for(pgtype, -1, TypeOptions())
    relation = ResolvedRelation(7, "public", "t", "d", [ResolvedColumn("v", pgtype, -1, False)])
    schema = json.loads(envelope_schema(relation, [codec]))
    [before] = [field for field in schema["fields"] if field["name"] == "before"]
    [(_, _, render)] = renderers(before["type"][1], {})
    value = fastavro.schemaless_reader(
        io.BytesIO(transcode(codec, "text", text)),
        fastavro.parse_schema(without_logical_types(codec.schema)),
        None,
    )
    return render(value)


INT4 = catalog("int4", oid=23)
BOX = catalog("box", delimiter=";")
GEOMETRY = PgType(5000, "public", "geometry", delimiter=":")
PLACE = PgType(5012, "public", "place", "d", base=GEOMETRY, delimiter=":")
PLAN = rb'(01AB,"\\x00ff")'
PERIOD = tuple((name, INT4, -1) for name in ("months", "days", "micros"))
BOXES = PgType(5013, "a", "boxes", "d", base=catalog("_box", element=BOX, is_array=True), delimiter=";")
FLAGS = tuple((name, catalog("bool", oid=16), -1) for name in ("lower_inc", "upper_inc", "empty"))


@pytest.mark.parametrize(
    ("pgtype", "text"),
    [
        (catalog("_box", element=BOX, is_array=True), b"{(3,4),(1,2);(1,1),(0,0)}"),
        (PgType(5001, "public", "_geometry", element=GEOMETRY, is_array=True), b"{0101:0102}"),
        (PgType(5002, "a", "p", kind="c", fields=PERIOD), b"(1,2,3)"),
        (PgType(5003, "a", "s", kind="c", fields=(("lower", INT4, -1), ("upper", INT4, -1), *FLAGS)), b"(1,2,t,f,f)"),
        (PLACE, b"01AB"),
        (PgType(5004, "a", "home", "d", base=PLACE, delimiter=":"), b"01AB"),
        (PgType(5005, "a", "house", "c", fields=(("at", GEOMETRY, -1), ("plan", catalog("bytea"), -1))), PLAN),
        (PgType(5006, "a", "spots", "r", element=GEOMETRY), b"[01AB,01AC)"),
        (array_of(PLACE), b"{01AB:01AC}"),
        (array_of(PgType(5007, "a", "geometry", "e")), b"{0a,0b}"),
        (BOXES, b"{(3,4),(1,2);(1,1),(0,0)}"),
        (PgType(5008, "a", "crate", "c", fields=(("boxes", BOXES, -1),)), b'("{(3,4),(1,2);(1,1),(0,0)}")'),
        (array_of(PgType(5009, "a", "d", "d", base=BOX, delimiter=";")), b"{(3,4),(1,2);(1,1),(0,0)}"),
        (array_of(BOXES), b'{"{(3,4),(1,2)}";NULL}'),
        (array_of(PgType(5010, "a", "box", "e")), b"{small,large}"),
        (array_of(PgType(5011, "a", "own", delimiter="|")), b"{a|b}"),
    ],
)
def test_verify_writes_values_as_the_server_does(pgtype: PgType, text: bytes) -> None:
    assert as_verified(pgtype, text) == text.decode()
