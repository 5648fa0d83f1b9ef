"""The base class of every codec: one PostgreSQL type, its Avro schema, and the way from one to the other.

Before: `lookup` chooses the codec of a column once, when its relation becomes known.
After: the families (`integers`, `text`, `datetimes`, `arrays`, ...) implement it; `event_encoder` calls it.

This is the hot path. A codec reads PostgreSQL's value in place in the frame, and appends Avro to the writer. It avoids
Python objects.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.errors import DecodeError

AvroType: TypeAlias = "str | dict[str, object] | list[object]"

NOT_HELD: Final = -0x3FFF_FFFF_FFFF_FFFE
"""Instead of a number that a codec has read: Avro cannot hold the value. It is below all that Avro can hold."""


class Transcoder:
    """Writes the values of one PostgreSQL type in another form. Subclasses are stateless between two values."""

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the other form of the binary (`typsend`) value `data[at:at + size]` to `out`.

        The caller guarantees that the range lies inside `data`. Returns False if that form cannot hold the value: the
        caller then removes the appended bytes. Raises DecodeError if the bytes are not of this type.
        """
        raise DecodeError(f"{type(self).__name__} does not read binary values")

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        """Append the other form of the text (`typoutput`) value `data[at:at + size]`: the same bytes as `binary`.

        `text.Char` names the one exception. The contract is that of `binary`.
        """
        raise DecodeError(f"{type(self).__name__} does not read text values")

    def copied_from(self, data: bytes, at: i64, size: i64, is_binary: bool) -> i64:
        """Where the bytes begin that the other form has as they are, up to `at + size`, after their length.

        -1: its bytes are others, or only `binary` or `text` can tell. The arguments are theirs. Asked of large values.
        """
        return -1


class Codec(Transcoder):
    """One PostgreSQL type as Avro. Subclasses are stateless after construction."""

    schema: AvroType
    """The Avro type of a non-null value, as Python values for JSON. `schema` adds the union with null."""

    is_fallible: bool
    """Avro cannot hold every value of the type. A key column of it is nullable, and `unrepresentable` has lost values.

    Readers know only the schema. So the schema's kind must be one of `type_forms.FALLIBLE_KINDS`, which has every
    array, map and record, and strings: wrappers of `text_encoding` make them fallible.
    """

    def __init__(self, schema: AvroType, *, is_fallible: bool = False) -> None:
        self.schema = schema
        self.is_fallible = is_fallible

    def children(self) -> list[Codec]:
        """The codecs of the parts that a value is made of: elements, fields, bounds. Most types have none."""
        return []

    @property
    def has_binary(self) -> bool:
        """Whether the codec reads the binary form. One column without it makes the whole stream run in text mode."""
        return all(child.has_binary for child in self.children())

    @property
    def has_text(self) -> bool:
        """Whether values hold text in the database's encoding, not only digits and other ASCII."""
        return any(child.has_text for child in self.children())

    def render(self, data: bytes, at: i64, size: i64) -> str:
        """PostgreSQL's text form of the binary value, under the pinned session settings. Not a hot path."""
        raise DecodeError(f"{type(self).__name__} does not render binary values")
