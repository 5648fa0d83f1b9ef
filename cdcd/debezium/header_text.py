"""Keys in headers as text, as Kafka Connect's SimpleHeaderConverter writes them. It is Connect's default for headers.

Before: `key_encoder` has the values of a key as JSON.
After: the headers of a changed key have them, where the keys themselves are Avro.
Source: apache/kafka `connect/api`, `Values.convertToString`.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from typing import Final

from cdcd.debezium.connect_schema import Schema

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DATE: Final = "org.apache.kafka.connect.data.Date"
_TIMES: Final = ("org.apache.kafka.connect.data.Time", "org.apache.kafka.connect.data.Timestamp")
_DAY_MS: Final = 86_400_000


def struct_text(fields: Iterable[tuple[str, Schema, bytes]]) -> bytes:
    """A struct of these fields: name, schema, JSON of the value."""
    return ("{" + ",".join(f"{_quoted(name)}:{_text(schema, shown)}" for name, schema, shown in fields) + "}").encode()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _text(schema: Schema, shown: bytes) -> str:
    if schema.type == "string":
        return _quoted(str(json.loads(shown)))
    if schema.name == "org.apache.kafka.connect.data.Decimal":
        unscaled = int.from_bytes(b64decode(shown), "big", signed=True)
        scale = int(dict(schema.parameters)["scale"])
        return str(Decimal(unscaled).scaleb(-scale, Context(prec=max(len(str(unscaled)), 1))))
    if schema.name == _DATE or schema.name in _TIMES:
        return _of_java_date(int(shown) * (_DAY_MS if schema.name == _DATE else 1))
    if schema.type == "struct":
        values = json.loads(shown)
        parts = (f"{_quoted(name)}:{_text(each, json.dumps(values[name]).encode())}" for name, each in schema.fields)
        return "{" + ",".join(parts) + "}"
    return shown.decode()


def _of_java_date(ms: int) -> str:
    """A point in time as Values shows Java's Date: as a time of day, a date, or both."""
    try:
        at = _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:  # Python's years end at 9999
        return str(ms)
    clock = f"{at:%H:%M:%S}.{at.microsecond // 1000:03}Z"
    if ms < _DAY_MS:
        return clock
    return f"{at:%Y-%m-%d}" if ms % _DAY_MS == 0 else f"{at:%Y-%m-%d}T{clock}"
