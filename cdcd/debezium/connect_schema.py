"""Connect's schemas, and their JSON as the JsonConverter writes it.

Before: `values` says the schema of each type.
After: `event_schema` joins them to those of keys and events.
Source: apache/kafka `connect/json`, `JsonConverter.asJsonSchema`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from cdcd.debezium.json_text import quoted


@dataclass(frozen=True)
class Schema:
    """One schema of Connect."""

    type: str
    """As in JSON: boolean, int16, int32, int64, float, double, string, bytes, array, map or struct."""
    name: str = ""
    version: int = 0
    """0: none."""
    doc: str = ""
    parameters: tuple[tuple[str, str], ...] = ()
    is_optional: bool = False
    default: bytes = b""
    """JSON of the default; empty: none."""
    items: Schema | None = None
    """The schema of an array's items, or of a map's values. A map's keys are strings."""
    fields: tuple[tuple[str, Schema], ...] = ()
    """The names and schemas of a struct's fields."""

    @property
    def optional(self) -> Schema:
        """The same schema, optional."""
        return replace(self, is_optional=True)

    def json(self, field: str | None = None) -> bytes:
        """The JSON; `field`: the name of the field of a struct that has this schema."""
        parts = [b'"type":' + quoted(self.type)]
        if self.type == "array" and self.items is not None:
            parts.append(b'"items":' + self.items.json())
        elif self.type == "map" and self.items is not None:
            parts.append(b'"keys":' + STRING.json())
            parts.append(b'"values":' + self.items.json())
        elif self.type == "struct":
            parts.append(b'"fields":[' + b",".join(schema.json(name) for name, schema in self.fields) + b"]")
        parts.append(b'"optional":' + (b"true" if self.is_optional else b"false"))
        if self.name:
            parts.append(b'"name":' + quoted(self.name))
        if self.version:
            parts.append(b'"version":' + str(self.version).encode())
        if self.doc:
            parts.append(b'"doc":' + quoted(self.doc))
        if self.parameters:
            pairs = (quoted(name) + b":" + quoted(value) for name, value in self.parameters)
            parts.append(b'"parameters":{' + b",".join(pairs) + b"}")
        if self.default:
            parts.append(b'"default":' + self.default)
        if field is not None:
            parts.append(b'"field":' + quoted(field))
        return b"{" + b",".join(parts) + b"}"


BOOLEAN = Schema("boolean")
INT16 = Schema("int16")
INT32 = Schema("int32")
INT64 = Schema("int64")
FLOAT = Schema("float")
DOUBLE = Schema("double")
STRING = Schema("string")
BYTES = Schema("bytes")
