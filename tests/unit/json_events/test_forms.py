"""The JSON of each Avro type, byte for byte. `support.avro_values` compares it with what fastavro reads."""

from __future__ import annotations

import io
import math
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import json_form

from cdcd.avro.avro_names import field_names, postgres_name


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def logical(avro: str, name: str) -> dict[str, Any]:
    return {"type": avro, "logicalType": name}


PAIR = {"type": "record", "name": "pair", "fields": [
    {"name": "a", "type": ["null", "int"]}, {"name": "_x42_", "type": ["null", "string"]},
]}  # fmt: skip

FORMS: list[tuple[Any, Any, str]] = [
    ("int", -2147483648, "-2147483648"),
    ("long", 9007199254740993, "9007199254740993"),
    ("long", -9223372036854775808, "-9223372036854775808"),
    ("long", 9223372036854775807, "9223372036854775807"),
    ("boolean", True, "true"),
    ("boolean", False, "false"),
    ("float", 0.10000000149011612, "0.1"),
    ("float", math.nan, '"NaN"'),
    ("double", 0.1, "0.1"),
    ("double", 1e300, "1.0E300"),
    ("double", -0.0, "-0.0"),
    ("double", math.inf, '"Infinity"'),
    ("double", -math.inf, '"-Infinity"'),
    ("string", 'é"\\\n\x01\x7f😀', '"é\\"\\\\\\n\\u0001\x7f\\uD83D\\uDE00"'),
    ("string", "", '""'),
    ("bytes", b"", '""'),
    ("bytes", b"\x00\xff", '"AP8="'),
    (decimal(12, 2), Decimal("12.50"), '"12.50"'),
    (decimal(12, 2), Decimal("-0.05"), '"-0.05"'),
    (decimal(5, 5), Decimal("0.00999"), '"0.00999"'),
    (decimal(7, 0), Decimal(12300), '"12300"'),
    (decimal(38, 10), Decimal("-123456789012345678.0000000001"), '"-123456789012345678.0000000001"'),
    (decimal(38, 38), Decimal("0.00000000000000000000000000000000000001"), '"0.' + "0" * 37 + '1"'),
    (decimal(18, 18), Decimal("0.000000000000000001"), '"0.000000000000000001"'),
    (logical("int", "date"), date(1, 1, 1), '"0001-01-01"'),
    (logical("int", "date"), date(9999, 12, 31), '"9999-12-31"'),
    (logical("long", "time-micros"), time(4, 5, 6), '"04:05:06.000000"'),
    (logical("long", "local-timestamp-micros"), datetime(1969, 12, 31, 23, 59, 59, 9), '"1969-12-31T23:59:59.000009"'),
    (logical("long", "timestamp-micros"), datetime(2024, 2, 29, tzinfo=UTC), '"2024-02-29T00:00:00.000000Z"'),
    (logical("string", "uuid"), "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", '"a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"'),
    ({"type": "array", "items": ["null", "int"]}, [1, None, 3], "[1,null,3]"),
    ({"type": "array", "items": "string"}, [], "[]"),
    ({"type": "map", "values": ["null", "string"]}, {"a b": "1", 'q"': None}, '{"a b":"1","q\\"":null}'),
    ({"type": "map", "values": "int"}, {}, "{}"),
    (PAIR, {"a": 7, "_x42_": None}, '{"a":7,"B":null}'),
    ({"type": "record", "name": "none", "fields": []}, {}, "{}"),
    ({"type": "array", "items": [PAIR, "null"][::-1]}, [{"a": 1, "_x42_": "x"}, None], '[{"a":1,"B":"x"},null]'),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "shown"), FORMS, ids=[shown[:30] for _, _, shown in FORMS])
def test_each_avro_type_has_one_form(schema: Any, value: Any, shown: str) -> None:
    avro = io.BytesIO()
    fastavro.schemaless_writer(avro, fastavro.parse_schema(schema), value)
    assert json_form.translated(schema, avro.getvalue()).decode() == shown


@given(st.lists(st.text("ABx_X19aé \\-", min_size=1, max_size=12) | st.text(min_size=1), unique=True, max_size=4))
def test_a_name_comes_back_from_its_avro_name(columns: list[str]) -> None:
    assert [postgres_name(name) for name in field_names(columns)] == columns
