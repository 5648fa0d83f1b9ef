"""Checks an Avro schema that came from outside, before anything is built from it or read by it.

Before: readers have found its JSON text on the schemas topic or in a registry, where others may write, too.
After: `reading.decoder` and `spark.reading.writer_schemas` use it.
Source: Avro specification, "Schema Declaration".

cdcd's own schemas are trees in which every value takes at least one byte, and every null is a branch of a union. Within
these bounds no schema makes a reader take much more memory or time than the bytes that it reads: not one that contains
itself, that doubles with each name, whose arrays have items without bytes, or whose decimals have a million digits.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, final

from cdcd.avro.single_object import fingerprint
from cdcd.errors import DecodeError

TEXT_BYTES_MAX: Final = 4_194_304
"""A table of 1,600 columns has a schema of some 300 KB."""
DEPTH_MAX: Final = 100
PARTS_MAX: Final = 100_000
"""Types in a schema, each named type as often as it is used."""
DIGITS_MAX: Final = 2_000
"""PostgreSQL's numeric has at most 1,000 digits, and a scale of at most 1,000."""
FIXED_BYTES_MAX: Final = 1_024

_PRIMITIVES: Final = frozenset({"boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def checked_schema(text: str) -> dict[str, Any]:
    """The schema of this JSON text, which is a record.

    Raises DecodeError (the writer's fault) if it is no schema, or not within the bounds.
    """
    if len(text) > TEXT_BYTES_MAX:
        raise _refused(f"has {len(text):,} characters; {TEXT_BYTES_MAX:,} are allowed")
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(f"is no JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise _refused("is no record")
    _Walk().check(schema, "", 0)
    return schema


def published_schema(key: bytes, value: bytes) -> str | None:
    """The text of a schema on the schemas topic; None for a record that no daemon has written."""
    if len(value) > TEXT_BYTES_MAX:
        return None
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if fingerprint(text).hex().encode() == key else None


@final
class _Walk:
    """One way through a schema."""

    def __init__(self) -> None:
        self._parts: dict[str, int] = {}
        """By the full name of each type that is complete: how many types it is made of."""
        self._open: set[str] = set()
        """The full names of the records whose fields are being checked."""

    def check(self, avro: Any, namespace: str, depth: int) -> int:
        """Check a type whose values take at least a byte. Returns how many types it is made of."""
        parts, is_empty = self._type(avro, namespace, depth)
        if is_empty:
            raise _refused("has values without bytes outside of a union")
        return parts

    def _type(self, avro: Any, namespace: str, depth: int) -> tuple[int, bool]:
        """How many types it is made of, and whether its values may have no bytes."""
        if depth > DEPTH_MAX:
            raise _refused(f"is nested more than {DEPTH_MAX} deep")
        if isinstance(avro, list):
            parts = 1 + sum(self._type(branch, namespace, depth + 1)[0] for branch in avro)
            return _counted(parts), False
        if isinstance(avro, str):
            return self._named(avro, namespace)
        if not isinstance(avro, dict) or "type" not in avro:
            raise _refused("has a type that is none")
        kind = avro["type"]
        if isinstance(kind, (dict, list)):
            return self._type(kind, namespace, depth + 1)
        if kind == "record":
            return self._record(avro, namespace, depth)
        if kind in ("array", "map"):
            inside = avro.get("items" if kind == "array" else "values")
            return _counted(1 + self.check(inside, namespace, depth + 1)), False
        if kind in ("enum", "fixed"):
            size = avro.get("size", 1)
            if not isinstance(size, int) or not 1 <= size <= FIXED_BYTES_MAX:
                raise _refused(f"has a fixed type that has not 1 to {FIXED_BYTES_MAX:,} bytes")
            self._parts[_full_name(avro, namespace)[0]] = 1
            return 1, False
        if avro.get("logicalType") == "decimal":
            for digits in (avro.get("precision"), avro.get("scale", 0)):
                if not isinstance(digits, int) or abs(digits) > DIGITS_MAX:
                    raise _refused(f"has a decimal with more than {DIGITS_MAX:,} digits")
        return self._named(kind, namespace)

    def _named(self, name: Any, namespace: str) -> tuple[int, bool]:
        if name == "null":
            return 1, True
        if name in _PRIMITIVES:
            return 1, False
        full = name if not isinstance(name, str) or "." in name else f"{namespace}.{name}"
        if full in self._open:
            raise _refused(f"has a type that contains itself: {name}")
        if full not in self._parts:
            raise _refused("names a type that it does not define")
        return self._parts[full], False

    def _record(self, avro: dict[str, Any], namespace: str, depth: int) -> tuple[int, bool]:
        full, inner = _full_name(avro, namespace)
        fields = avro.get("fields")
        if full in self._open or full in self._parts:
            raise _refused(f"defines {full} twice")
        if not isinstance(fields, list):
            raise _refused("has a record without fields")
        self._open.add(full)
        parts = 1
        for field in fields:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
                raise _refused("has a field without a name or a type")
            if not _NAME.fullmatch(field["name"]):
                raise _refused("has a field whose name Avro does not allow")
            parts = _counted(parts + self.check(field["type"], inner, depth + 1))
        self._open.discard(full)
        self._parts[full] = parts
        return parts, not fields


def _full_name(avro: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a named type, and the namespace of the names inside it."""
    name, own = avro.get("name"), avro.get("namespace", namespace)
    if not isinstance(name, str) or not isinstance(own, str) or not _NAME.fullmatch(name):
        raise _refused("has a type whose name Avro does not allow")
    if "." in name:
        return name, name.rpartition(".")[0]
    return f"{own}.{name}", own


def _counted(parts: int) -> int:
    if parts > PARTS_MAX:
        raise _refused(f"has more than {PARTS_MAX:,} types")
    return parts


def _refused(why: str) -> DecodeError:
    return DecodeError(
        f"a schema {why}",
        "cdcd writes no such schema: let no other program write where its schemas are kept",
        code="event-foreign",
    )
