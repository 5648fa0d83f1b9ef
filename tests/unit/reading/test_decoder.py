from __future__ import annotations

import datetime as dt
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.avro.single_object import fingerprint, header
from cdcd.errors import CdcdError, DecodeError, SettingsError
from cdcd.reading.decoder import PARSED_MAX, EventDecoder, SchemaId, plain, schema_id

SCHEMA = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
    ],
}
TEXT = json.dumps(SCHEMA)
ROW = {"id": 7, "total": Decimal("1.23"), "at": dt.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)}


def payload(row: Any = ROW) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return out.getvalue()


def single_object() -> bytes:
    return header(fingerprint(TEXT)) + payload()


def find(wanted: SchemaId) -> str:
    assert wanted in (fingerprint(TEXT).hex(), 42)
    return TEXT


def test_single_object_encoding_is_read_with_the_schema_of_its_fingerprint() -> None:
    assert EventDecoder(find).decode(single_object()) == ROW


def test_confluents_wire_format_is_read_with_the_schema_of_its_number() -> None:
    assert EventDecoder(find).decode(b"\x00\x00\x00\x00\x2a" + payload()) == ROW


@pytest.mark.parametrize("data", [b"\x00\x00\x00\x00\x2ax", b"\xc3\x01" + bytes(9), b"\xc3\x01", b"\x00", b"x", b""])
@pytest.mark.parametrize("error", [DecodeError, SettingsError])
def test_a_payload_of_others_is_text_if_nobody_has_its_schema(data: bytes, error: type[CdcdError]) -> None:
    def nobody(identifier: SchemaId) -> str:
        raise error(f"no {identifier}", code="schema-unknown")

    assert EventDecoder(nobody).decode_payload(data) == data.decode(errors="backslashreplace")
    assert EventDecoder(nobody).decode_payload(b'{"a": 1}') == {"a": 1}
    assert EventDecoder(find).decode_payload(b"\x00\x00\x00\x00\x2a" + payload()) == ROW


def test_a_schema_is_looked_up_once() -> None:
    asked: list[SchemaId] = []

    def counting(wanted: SchemaId) -> str:
        asked.append(wanted)
        return TEXT

    decoder = EventDecoder(counting)
    for _ in range(3):
        decoder.decode(single_object())
    assert len(asked) == 1


def test_progress_records_and_keys_are_read_as_json_and_text() -> None:
    decoder = EventDecoder(find)
    assert decoder.decode(b'{"lsn": "0/1"}') == {"lsn": "0/1"}
    assert decoder.decode(b"slot/topic") == "slot/topic"
    assert decoder.decode(b"{not json") == "{not json"
    assert decoder.decode(b"\xff\xfe") == "\\xff\\xfe"


@given(st.integers(0, len(single_object()) - 1))
def test_a_value_that_is_cut_off_is_a_decode_error_or_another_format(length: int) -> None:
    data = single_object()[:length]
    if schema_id(data) is None:
        assert isinstance(EventDecoder(find).decode(data), str)
    else:
        with pytest.raises(DecodeError, match="does not fit its schema"):
            EventDecoder(find).decode(data)


def test_bytes_behind_the_value_are_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="2 bytes follow the value"):
        EventDecoder(find).decode(single_object() + b"??")


@pytest.mark.parametrize(
    "text", ["{", '"int"', '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]}']
)
def test_a_schema_that_cdcd_did_not_write_is_a_decode_error(text: str) -> None:
    with pytest.raises(DecodeError):
        EventDecoder(lambda _: text).decode(single_object())


def test_an_array_that_says_it_is_endless_is_a_decode_error() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "array", "items": "long"}}]}
    endless = b"\xfe" + b"\xff" * 8 + b"\x01" + bytes(100)
    with pytest.raises(DecodeError, match="does not fit its schema"):
        EventDecoder(lambda _: json.dumps(schema)).decode(header(b"fingerpr") + endless)


def test_no_more_schemas_are_kept_than_are_allowed() -> None:
    asked: list[SchemaId] = []

    def counting(wanted: SchemaId) -> str:
        asked.append(wanted)
        return TEXT

    decoder = EventDecoder(counting)
    for number in range(PARSED_MAX + 1):
        decoder.decode(header(number.to_bytes(8, "big")) + payload())
    assert len(decoder._parsed) == PARSED_MAX


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 500 + "]" * 500, '{"a":' * 500 + "1" + "}" * 500])
def test_json_that_is_nested_too_deep_to_be_printed_is_text(text: str) -> None:
    assert EventDecoder(find).decode(text.encode()) == text


def test_json_that_is_nested_a_little_is_json() -> None:
    value = {"a": [{"b": [[1, 2], {"c": None}]}], "d": []}
    assert EventDecoder(find).decode(json.dumps(value).encode()) == value


@given(st.binary(max_size=40))
def test_any_payload_gives_a_value_or_a_decode_error(data: bytes) -> None:
    try:
        EventDecoder(find).decode(header(fingerprint(TEXT)) + data)
    except DecodeError:
        pass


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Decimal("12345678901234567890123456789012345678.90"), '"12345678901234567890123456789012345678.90"'),
        (Decimal("0.00"), '"0.00"'),
        (b"\x00\xff", '"\\\\x00ff"'),
        (dt.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=dt.UTC), '"2026-01-02T03:04:05.000006Z"'),
        (dt.datetime(2026, 1, 2, 3, 4, 5), '"2026-01-02T03:04:05"'),
        (dt.date(1, 1, 1), '"0001-01-01"'),
        (dt.time(23, 59, 59, 1), '"23:59:59.000001"'),
        (uuid.UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
        ({"a": [1, None, True, 1.5]}, '{"a": [1, null, true, 1.5]}'),
    ],
)
def test_every_value_has_a_json_form_that_loses_nothing(value: Any, text: str) -> None:
    assert json.dumps(plain(value), allow_nan=False) == text
