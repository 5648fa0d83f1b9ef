"""The page of the types says what the code does. If a test fails because of a cell, it prints the right page."""

from __future__ import annotations

import io
import json
import re
from datetime import UTC, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from support import json_form, type_rows
from support.type_rows import HEADER, LOSSES_HEADER, OWN, Row, rows, spans, type_named

from cdcd import manual
from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for, has_known_binary
from cdcd.avro.codecs.registry import ARRAY, COMPOSITE, ENUM, MULTIRANGE, RANGE
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema import envelope_schema
from cdcd.avro.schema_store import FingerprintStore
from cdcd.avro.type_forms import TYPE_FORMS
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.reading.decoder import plain
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import DOMAIN, PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

TYPES = list(rows(HEADER))
LOSSES = list(rows(LOSSES_HEADER))


def kind_of(pgtype: PgType) -> str:
    return ARRAY if pgtype.is_array else pgtype.kind


def test_each_row_has_the_avro_type_of_its_column_and_the_value_that_tail_shows() -> None:
    assert type_rows.corrected() == manual.page("types"), f"the right page:\n\n{type_rows.corrected()}"


def test_each_type_that_the_code_knows_has_its_row() -> None:
    named = {pgtype.name for row in TYPES for pgtype in [type_named(row.sql)[0]]}
    assert {*REGISTRY.built_in_names.values(), *REGISTRY.extension_names, *TYPE_FORMS} <= named


def test_the_table_of_json_has_what_the_code_writes() -> None:
    def logical(avro: str, name: str, **more: int) -> Any:
        return {"type": avro, "logicalType": name, **more}

    moment = datetime(2024, 2, 29, 12, 34, 56, 789000)
    address = [{"name": "street", "type": "string"}, {"name": "no", "type": "int"}]
    values: dict[str, tuple[Any, Any]] = {
        "int": ("long", 9007199254740993),
        "boolean": ("boolean", True),
        "float": ("float", 0.1),
        "bytes/decimal": (logical("bytes", "decimal", precision=12, scale=2), Decimal("12.50")),
        "string": ("string", '{"a": [1, null]}'),
        "bytes": ("bytes", b"\0\xff"),
        "int/date": (logical("int", "date"), moment.date()),
        "long/time-micros": (logical("long", "time-micros"), time(4, 5, 6, 789000)),
        "long/local-timestamp-micros": (logical("long", "local-timestamp-micros"), moment),
        "long/timestamp-micros": (logical("long", "timestamp-micros"), moment.replace(tzinfo=UTC)),
        "array": ({"type": "array", "items": ["null", "int"]}, [1, None, -3]),
        "map": ({"type": "map", "values": ["null", "string"]}, {"a": "1", "b": None}),
        "record": ({"type": "record", "name": "address", "fields": address}, {"street": "Main St", "no": 7}),
    }
    _, _, table = manual.page("types").partition("| Avro type | JSON | Example |\n")
    rows = [line.strip("|").split("|") for line in table.partition("\n\n")[0].splitlines()[1:]]
    assert [spans(avro)[0] for avro, _, _ in rows] == list(values)
    for avro, _, example in rows:
        schema, value = values[spans(avro)[0]]
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
        assert spans(example) == [json_form.translated(schema, out.getvalue()).decode()]


@pytest.mark.parametrize("kind", [ARRAY, COMPOSITE, DOMAIN, ENUM, MULTIRANGE, RANGE])
def test_each_kind_of_types_has_its_row(kind: str) -> None:
    assert kind in {kind_of(type_named(row.sql)[0]) for row in TYPES}


def test_no_type_has_two_rows() -> None:
    names = [row.sql for row in TYPES]
    assert len({*names}) == len(names)


def test_a_type_without_a_row_is_a_string_in_text_mode() -> None:
    unknown = PgType(70_000, "shop", "unheard_of")
    assert codec_for(unknown, -1, TypeOptions()).schema == "string"
    assert not has_known_binary(unknown)


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.sql)
def test_a_type_that_needs_text_mode_is_said_to_need_it(row: Row) -> None:
    assert row.cells[4].startswith("Text mode") == (not has_known_binary(type_named(row.sql)[0]))


@pytest.mark.parametrize("row", LOSSES, ids=lambda row: spans(row.cells[0])[0])
def test_a_value_that_is_said_to_have_no_avro_form_has_none(row: Row) -> None:
    [sql] = spans(row.cells[0])
    codec = codec_for(*type_named(sql), TypeOptions())
    values = spans(row.cells[1])
    assert values
    for value in values:
        assert type_rows.avro_of(codec, value.encode()) is None, value


def test_each_type_that_can_have_such_a_value_is_said_to() -> None:
    said = [type_named(spans(row.cells[0])[0])[0] for row in LOSSES]
    names = {pgtype.name for pgtype in said}
    # Nothing in a map or in a vector can be lost.
    fallible = {name for name, form in TYPE_FORMS.items() if form.is_fallible} - {"hstore", "vector"}
    assert fallible <= names
    assert {ARRAY, COMPOSITE, DOMAIN, MULTIRANGE, RANGE} <= {kind_of(pgtype) for pgtype in said}


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.sql)
def test_a_key_column_is_nullable_if_the_page_says_so_and_only_then(row: Row) -> None:
    pgtype, typmod = type_named(row.sql)
    codec = codec_for(pgtype, typmod, TypeOptions())
    with_losses = {spans(loss.cells[0])[0] for loss in LOSSES}
    is_decimal = row.cells[1].startswith("`bytes/decimal")
    has_parts = kind_of(pgtype) in (ARRAY, COMPOSITE, MULTIRANGE, RANGE) or row.sql in ("hstore", "vector")
    has_losses = is_decimal or row.sql.partition("(")[0] in with_losses
    assert codec.is_fallible == (has_parts or has_losses)


def test_a_decimal_that_becomes_a_string_loses_nothing() -> None:
    codec = codec_for(*type_named("numeric(12,2)"), TypeOptions(numeric="string"))
    assert codec.schema == "string"
    assert type_rows.avro_of(codec, b"NaN") == b"\x06NaN"


def test_every_own_type_is_created_by_the_sql_of_the_page() -> None:
    [sql] = blocks("sql")
    created = {*re.findall(r"CREATE (?:TYPE|DOMAIN) (\w+)", sql)}
    assert created == {*OWN} - {"floatmultirange"}  # PostgreSQL makes it with its range


def test_the_field_of_a_decimal_is_that_of_a_schema() -> None:
    field = json.loads(blocks("json")[0])
    assert type_rows.field_of("numeric(12,2)") | {"name": "amount"} == field


def test_the_event_of_a_lost_value_is_the_one_shown() -> None:
    builder = BatchBuilder(tombstones=False)
    encoder = EventEncoder(builder, FingerprintStore(builder), TypeOptions())
    pgtype, typmod = type_named("date")
    relation = ResolvedRelation(7, "public", "bills", "d", [ResolvedColumn("due", pgtype, typmod, in_key=False)])
    encoder.begin(1, 0, 1)
    encoder.open_relation(relation).insert(b"N" + encode_tuple([b"infinity"]), 0, 1)
    [made] = builder.build().tables
    schema = envelope_schema(relation, [codec_for(pgtype, typmod, TypeOptions())])
    value = made.messages[0]["value"]
    assert value is not None
    event: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), fastavro.parse_schema(json.loads(schema)), None)
    shown = json.loads(blocks("json")[1])
    assert {name: plain(event[name]) for name in shown} == shown


def test_no_sentence_is_wider_than_the_page() -> None:
    wide = [line for line in manual.page("types").splitlines() if len(line) > 130 and not line.startswith("|")]
    assert wide == []


def blocks(language: str) -> list[str]:
    """The code of this language on the page."""
    return re.findall(rf"```{language}\n(.*?)```", manual.page("types"), re.DOTALL)
