"""Decodes the keys and values of records into Python values. It shares no code with the encoder, and does no I/O.

Before: `consumer` gives the bytes of a record; `schema_finder` finds the schema by the id in them.
After: `tail` and `peek` print the values; `verify` compares them.
Source: Avro, "Single-object encoding"; Confluent, "Wire format".

The first byte tells the two forms apart. C3 starts Avro's single-object encoding: the schema's fingerprint follows. 00
starts Confluent's wire format: the schema's id in the registry follows, 4 bytes, big-endian.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final, TypeAlias

from cdcd.avro import single_object
from cdcd.avro.schema_bounds import checked_schema
from cdcd.errors import DecodeError, SettingsError

SchemaId: TypeAlias = "str | int"
"""A fingerprint (16 hex digits), or an id of a registry."""

PARSED_MAX: Final = 1_000
"""The schemas that are kept parsed."""
JSON_DEPTH_MAX: Final = 100

_CONFLUENT_HEADER: Final = 5
_KEY_STARTS: Final = (single_object.MARKER[:1], b"\x00", b"{")


def schema_id(data: bytes) -> tuple[SchemaId, int] | None:
    """The id of the schema of `data`, and the offset of the Avro payload; None if `data` has neither form."""
    if data[:2] == single_object.MARKER and len(data) >= single_object.HEADER_SIZE:
        return single_object.split(data)
    if data[:1] == b"\x00" and len(data) >= _CONFLUENT_HEADER:
        return int.from_bytes(data[1:_CONFLUENT_HEADER], "big"), _CONFLUENT_HEADER
    return None


def is_key_of_row(key: bytes) -> bool:
    """Whether a key of cdcd's, in Avro or JSON, is that of a row. That of a truncate is empty, or names its table."""
    return key[:1] in _KEY_STARTS


def not_an_event(data: bytes) -> DecodeError:
    """The error of a record that no daemon has written."""
    return DecodeError(
        f"A record of {len(data)} bytes is not an event of cdcd",
        "Did another program write to the topic?",
        code="event-foreign",
    )


class EventDecoder:
    """Decodes keys and values. It keeps the schemas that it has parsed.

    It imports fastavro: the daemon has a decoder only while it repairs a table.
    """

    def __init__(self, find: Callable[[SchemaId], str], prepare: Callable[[Any], Any] | None = None) -> None:
        """`find` gives a schema's JSON text; it raises DecodeError if there is none.

        `prepare` changes a schema before it is used. For example, it may remove logical types: values then stay as
        Avro has them.
        """
        from fastavro import parse_schema, schemaless_reader

        self._parse_schema = parse_schema
        self._read = schemaless_reader
        self._find = find
        self._prepare = prepare
        self._parsed: dict[SchemaId, Any] = {}

    def decode(self, data: bytes) -> Any:
        """The value in `data`, as fastavro gives it: decimals, dates and times as Python's own types.

        Bytes that are not Avro are read as JSON (progress records, schemas), or else as text.

        Raises DecodeError (the writer's fault) if the payload does not fit its schema.
        """
        decoded = self.decode_avro(data)
        return _json_or_text(data) if decoded is None else decoded[1]

    def decode_payload(self, data: bytes) -> Any:
        """As `decode`, for what others chose, and cdcd passed on as it was: it is Avro only if a registry says so.

        It may begin with the bytes of either form, and be neither.
        """
        header = schema_id(data)
        if header is not None and isinstance(header[0], int):
            try:
                decoded = self.decode_avro(data)
            except (DecodeError, SettingsError):
                return _json_or_text(data)
            return None if decoded is None else decoded[1]
        return _json_or_text(data)

    def decode_avro(self, data: bytes) -> tuple[SchemaId, Any] | None:
        """The id of the schema, and the value, as `decode`; None if `data` is not Avro."""
        header = schema_id(data)
        if header is None:
            return None
        identifier, start = header
        if identifier not in self._parsed:
            self._parse(identifier)
        payload = io.BytesIO(data[start:])
        try:
            value = self._read(payload, self._parsed[identifier], None)
        except Exception as error:  # a payload that others made may raise anything
            raise DecodeError(
                f"A value of {len(data)} bytes does not fit its schema {identifier}: {error}", code="event-foreign"
            ) from error
        if payload.tell() != len(data) - start:
            left = len(data) - start - payload.tell()
            raise DecodeError(
                f"{left} bytes follow the value of {len(data)} bytes by its schema {identifier}", code="event-foreign"
            )
        return identifier, value

    def _parse(self, identifier: SchemaId) -> None:
        schema = checked_schema(self._find(identifier))
        try:
            parsed = self._parse_schema(self._prepare(schema) if self._prepare else schema)
        except Exception as error:  # a schema that others made may raise anything
            raise DecodeError(f"The schema {identifier} is no Avro schema: {error}", code="event-foreign") from error
        if len(self._parsed) >= PARSED_MAX:
            del self._parsed[next(iter(self._parsed))]
        self._parsed[identifier] = parsed


def plain(value: Any) -> Any:
    """`value` in types of JSON, without loss: decimals, bytes and times become PostgreSQL's text."""
    match value:
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case Decimal():
            return f"{value:f}"
        case bytes():
            return f"\\x{value.hex()}"
        case datetime():
            aware = value.tzinfo is not None
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if aware else value.isoformat()
        case date() | time():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
        case None | bool() | int() | float() | str():
            return value
        case _:  # uuid
            return str(value)


def _json_or_text(data: bytes) -> Any:
    text = data.decode(errors="backslashreplace")
    if text[:1] in ("{", "["):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return text
        return value if _is_shallow(value) else text
    return text


def _is_shallow(value: Any) -> bool:
    """Whether the value of a JSON text is nested so little that it can be printed."""
    level = [value]
    for _ in range(JSON_DEPTH_MAX):
        inside = [list(each.values()) if isinstance(each, dict) else each for each in level]
        level = [part for each in inside if isinstance(each, list) for part in each]
        if not level:
            return True
    return False
