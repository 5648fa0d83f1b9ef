"""A schema from outside is taken if cdcd could have written it, and refused in one sentence if not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.avro.codecs.lookup import TypeOptions, codec_for, codecs_for
from cdcd.avro.codecs.registry import DEPTH_MAX
from cdcd.avro.codecs.registry import PARTS_MAX as CODEC_PARTS_MAX
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.avro.schema_bounds import PARTS_MAX, TEXT_BYTES_MAX, checked_schema, published_schema
from cdcd.avro.single_object import fingerprint
from cdcd.errors import DecodeError
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation


def record(*types: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    fields = [{"name": f"f{number}", "type": avro} for number, avro in enumerate(types)]
    return {"type": "record", "name": name, "fields": fields, **more}


def nested(depth: int) -> Any:
    avro: Any = "int"
    for _ in range(depth):
        avro = {"type": "array", "items": avro}
    return avro


def doubling(levels: int) -> dict[str, Any]:
    """Each type has the one before ten times: a few lines that are 10**levels types."""
    types: list[Any] = [record("int", name="R0")]
    types += [record(*[f"R{level - 1}"] * 10, name=f"R{level}") for level in range(1, levels)]
    return record(*types, name="Top")


HOSTILE: dict[str, Any] = {
    "no record": "int",
    "a list": ["null", record("int")],
    "a type that contains itself": record(["null", "R"]),
    "a type that contains itself without end": record("R"),
    "two types that contain each other": record(record(["null", "R"], name="S")),
    "types that double": doubling(12),
    "a thousand arrays in each other": record(nested(900)),
    "an array of nulls": record({"type": "array", "items": "null"}),
    "an array of records without fields": record({"type": "array", "items": record(name="S")}),
    "an array of records of nulls": record({"type": "array", "items": record("null", name="S")}),
    "a map of nulls": record({"type": "map", "values": "null"}),
    "a null that is no branch": record("int", *["null"] * 1_000),
    "a decimal of a billion digits": record({"type": "bytes", "logicalType": "decimal", "precision": 10**9}),
    "a decimal of a huge scale": record({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 10**9}),
    "a decimal whose precision is a text": record({"type": "bytes", "logicalType": "decimal", "precision": "9"}),
    "a fixed type of a gigabyte": record({"type": "fixed", "name": "F", "size": 1 << 30}),
    "a fixed type without bytes": record({"type": "fixed", "name": "F", "size": 0}),
    "an unknown type": record("money"),
    "a type that is a number": record(7),
    "an array without items": record({"type": "array"}),
    "a name with a quote": record(name='R"; DROP'),
    "a field with a quote": {"type": "record", "name": "R", "fields": [{"name": "a`b", "type": "int"}]},
    "a field without a type": {"type": "record", "name": "R", "fields": [{"name": "a"}]},
    "fields that are a text": {"type": "record", "name": "R", "fields": "int"},
    "a type that is defined twice": record(record("int", name="S"), record("long", name="S")),
    "a namespace that is a list": record("int", namespace=["a"]),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_schema_is_refused_in_one_sentence(what: str) -> None:
    with pytest.raises(DecodeError, match=r"^a schema ") as caught:
        checked_schema(json.dumps(HOSTILE[what]))
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "1" * 5_000, " " * (TEXT_BYTES_MAX + 1), '{"type": "record"}']
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        checked_schema(text)


WORDS = st.sampled_from(["type", "name", "fields", "items", "values", "size", "namespace", "logicalType", "precision"])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(WORDS, inside),
)


@given(ANY_JSON)
def test_any_json_is_a_schema_or_a_decode_error(value: Any) -> None:
    for schema in (value, record(value)):
        try:
            checked_schema(json.dumps(schema))
        except DecodeError:
            pass


def test_the_schemas_that_cdcd_writes_are_taken() -> None:
    names = ["bool", "bytea", "int8", "text", "json", "float8", "date", "interval", "numeric", "uuid", "int4range"]
    types = [PgType(oid, "pg_catalog", name) for oid, name in enumerate(names, 100)]
    for width in (0, 1, 1_600):
        columns = [
            ResolvedColumn(f"Spalte Nr. {at}", types[at % len(types)], 12 << 16 | 6 if at % 2 else -1, at % 3 == 0)
            for at in range(width)
        ]
        relation = ResolvedRelation(7, "my schema", "über", "d", columns)
        codecs = [codec_for(column.pgtype, column.typmod, TypeOptions("decimal")) for column in columns]
        texts = [envelope_schema(relation, codecs), envelope_schema(relation, codecs, of_truncate=True)]
        for text in [*texts, *([key_schema(relation, codecs)] if width else [])]:
            assert checked_schema(text) == json.loads(text)


def largest(kind: str, leaf: str) -> PgType:
    """A type with as many parts as a codec may have, as deep as it may be."""
    pgtype = PgType(1, "pg_catalog", leaf)
    for level in range(DEPTH_MAX - 2):
        part = {"fields": (("a", pgtype, -1),)} if kind == "c" else {"element": pgtype}
        pgtype = PgType(level, "x" * 60, f"{'é' * 50}{level}", kind, **part)
    wide = tuple(
        (f"{'é' * 55}{at}", PgType(1, "pg_catalog", leaf), -1) for at in range(CODEC_PARTS_MAX - pgtype.parts - 1)
    )
    return PgType(99, "public", "largest", "c", fields=(("inner", pgtype, -1), *wide))


@pytest.mark.parametrize("leaf", ["int4", "interval"])
@pytest.mark.parametrize("kind", ["c", "m"])
def test_the_schema_of_the_largest_type_is_taken(kind: str, leaf: str) -> None:
    pgtype = largest(kind, leaf)
    relation = ResolvedRelation(7, "s", "t", "f", [ResolvedColumn("v", pgtype, -1, True)])
    codecs = codecs_for(relation.types, TypeOptions())
    assert isinstance(codecs[0].schema, dict)
    for text in (envelope_schema(relation, codecs), key_schema(relation, codecs)):
        assert checked_schema(text)["type"] == "record"


def test_a_schema_may_have_as_many_types_as_are_allowed_and_no_more() -> None:
    checked_schema(json.dumps(record(*["int"] * (PARTS_MAX - 1))))
    with pytest.raises(DecodeError, match="more than"):
        checked_schema(json.dumps(record(*["int"] * PARTS_MAX)))


def test_a_published_schema_is_the_one_whose_fingerprint_is_its_key() -> None:
    text = json.dumps(record("int"))
    key = fingerprint(text).hex().encode()
    assert published_schema(key, text.encode()) == text
    for wrong in (b"", b"\xff", key.upper() + b" ", fingerprint(text), b"0" * 16):
        assert published_schema(wrong, text.encode()) is None
    for value in (b"", b"\xff\xfe", b"{}", b" " * (TEXT_BYTES_MAX + 1)):
        assert published_schema(key, value) is None
