"""What every column codec can do: one PostgreSQL type, its Avro schema, and the way from one to the other.

Before: `lookup` picks the codec of a column once, when its relation becomes known.
After: the codec families (`integers`, `text`, `datetimes`, `nested`, ...) implement it, `event_encoder` calls it.

This is the hot path: a codec reads PostgreSQL's value where it lies in the frame and appends Avro to the writer. It
makes no Python object a value where it can avoid it.
"""

from __future__ import annotations

from typing import TypeAlias

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.errors import DecodeError

AvroType: TypeAlias = "str | dict[str, object] | list[object]"


class Codec:
    """One PostgreSQL type as Avro; subclasses are stateless after construction."""

    schema: AvroType
    """The Avro type of a non-null value, as JSON-able Python (never a union with null: the row adds that)."""

    def __init__(self, schema: AvroType) -> None:
        self.schema = schema

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the Avro form of the binary (`typsend`) value `data[at:at + size]` to `out`.

        The caller guarantees that the range lies inside `data`. Returns False if Avro cannot hold the value; what was
        appended until then is rubbish that the caller truncates. Raises DecodeError if the bytes are not of this type.
        """
        raise DecodeError(f"{type(self).__name__} does not read binary values")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the Avro form of the text (`typoutput`) value `data[at:at + size]`: what `binary` would append."""
        raise DecodeError(f"{type(self).__name__} does not read text values")

    def render(self, data: bytes, at: i64, size: i64) -> str:
        """PostgreSQL's text form of the binary value, as the pinned session settings make it. Not a hot path."""
        raise DecodeError(f"{type(self).__name__} does not render binary values")
