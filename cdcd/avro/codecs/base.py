"""The base of every column codec: one PostgreSQL type, its Avro schema, its traits, and the way from one to the other.

Before: `lookup` picks the codec of a column once, when its relation becomes known.
After: the families (`integers`, `text`, `datetimes`, `arrays`, ...) implement it, `event_encoder` calls it.

This is the hot path. A codec reads PostgreSQL's value where it lies in the frame and appends Avro to the writer. It
avoids making Python objects.
"""

from __future__ import annotations

from typing import TypeAlias

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.errors import DecodeError

AvroType: TypeAlias = "str | dict[str, object] | list[object]"


class Codec:
    """One PostgreSQL type as Avro. Subclasses are stateless after construction."""

    schema: AvroType
    """The Avro type of a value that is not null, as JSON-able Python. The row adds the union with null."""

    is_fallible: bool
    """Avro cannot hold every value: a key has this type nullable, and names the values that it lacks.

    Readers know only the schema. So this must agree with `type_forms`: every array, map and record is fallible.
    """

    def __init__(self, schema: AvroType, *, is_fallible: bool = False) -> None:
        self.schema = schema
        self.is_fallible = is_fallible

    def children(self) -> list[Codec]:
        """The codecs of the parts that a value is made of: elements, fields, bounds. Most types have none."""
        return []

    @property
    def has_binary(self) -> bool:
        """The binary form is known. A single type without one makes the whole stream run in text mode."""
        return all(child.has_binary for child in self.children())

    @property
    def has_text(self) -> bool:
        """Values hold text in the database's encoding, as opposed to digits and other ASCII."""
        return any(child.has_text for child in self.children())

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the Avro form of the binary (`typsend`) value `data[at:at + size]` to `out`.

        The caller guarantees that the range lies inside `data`. Returns False if Avro cannot hold the value: the caller
        truncates what was appended. Raises DecodeError if the bytes are not of this type.
        """
        raise DecodeError(f"{type(self).__name__} does not read binary values")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the Avro form of the text (`typoutput`) value `data[at:at + size]`: the bytes that `binary` appends.

        The contract is that of `binary`.
        """
        raise DecodeError(f"{type(self).__name__} does not read text values")

    def render(self, data: bytes, at: i64, size: i64) -> str:
        """PostgreSQL's text form of the binary value, as the pinned session settings make it. Not a hot path."""
        raise DecodeError(f"{type(self).__name__} does not render binary values")
