"""Composite types -> record of nullable fields.

Before: `lookup` builds the codec around those of the fields.
After: `event_encoder` calls it once a value. `literals` has the rules for quoted text. `composite_changes` decides
about values that do not match the catalog's type.
Source: PostgreSQL `rowtypes.c` (`record_send`, `record_out`): all counts and lengths are big-endian int32; a length of
-1 is null.

A value with an unrepresentable field is unrepresentable: the event then has the text of the whole value.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.avro_names import avro_name, field_names
from cdcd.avro.codecs.base import AvroType, Codec
from cdcd.avro.codecs.composite_changes import CompositeDefinition
from cdcd.avro.codecs.errors import malformed, wrong_text
from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.avro.codecs.literals import LiteralScanner, quote_field
from cdcd.avro.codecs.registry import COMPOSITE, TypeRegistry, TypeRequest
from cdcd.errors import DecodeError

_NULL_BRANCH: Final = 0
_VALUE_BRANCH: Final = 2  # index 1, zigzag
_FIELDS_MAX: Final = 1664  # MaxTupleAttributeNumber
_OPEN_PARENTHESIS: Final = 40
_CLOSE_PARENTHESIS: Final = 41
_COMMA: Final = 44


class Composite(Codec):
    """A composite type -> record of nullable fields, in the type's order.

    A value may have other fields than the type has in the catalog: see `composite_changes`. Fields that were added
    later are null. A value whose fields cannot be known is unrepresentable.
    """

    def __init__(
        self, record_name: str, names: list[str], fields: list[Codec], definition: CompositeDefinition
    ) -> None:
        avro_fields: list[AvroType] = [
            {"name": name, "type": ["null", field.schema], "default": None}
            for name, field in zip(names, fields, strict=True)
        ]
        super().__init__({"type": "record", "name": record_name, "fields": avro_fields}, is_fallible=True)
        self.fields = fields
        self.oids = definition.oids
        self.definition = definition
        self.type_name = definition.type_name

    def children(self) -> list[Codec]:
        return self.fields

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        parts = LengthPrefixedReader(at, size, self.type_name)
        count: i64 = self._read_count(parts, data)
        known: i64 = len(self.fields)
        if count != known and not self.definition.is_prefix(count):
            return False
        i: i64 = 0
        while i < count:
            oid: i64 = parts.int4(data) & 0xFFFF_FFFF
            if oid != self.oids[i]:
                self.definition.raise_if_stale()
                return False
            length: i64 = parts.size(data)
            if length < 0:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self.fields[i].binary(data, parts.at, length, out):
                    return False
                parts.skip(length)
            i += 1
        parts.finish()
        while i < known:
            out.append(_NULL_BRANCH)
            i += 1
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        end: i64 = at + size
        if size < 2 or data[at] != _OPEN_PARENTHESIS or data[end - 1] != _CLOSE_PARENTHESIS:
            raise wrong_text(self.type_name, "fields in parentheses", size)
        known: i64 = len(self.fields)
        if known == 0 and size == 2:
            return True
        items = LiteralScanner(data, at + 1, end, self.type_name)
        count: i64 = 0
        while items.at < end:
            if count > 0 and data[items.at - 1] != _COMMA:
                raise wrong_text(self.type_name, "nothing after the last field", size)
            items.next(_COMMA, _CLOSE_PARENTHESIS)
            if count >= known:
                pass  # only counted
            elif items.size == 0 and not items.quoted:
                out.append(_NULL_BRANCH)
            else:
                out.append(_VALUE_BRANCH)
                if not self._write_field(count, items, out):
                    return False
            items.at += 1
            count += 1
        if data[items.at - 1] != _CLOSE_PARENTHESIS:
            raise wrong_text(self.type_name, "a parenthesis after the last field", size)
        if count != known and not self.definition.is_prefix(count):
            return False
        while count < known:
            out.append(_NULL_BRANCH)
            count += 1
        return True

    def render(self, data: bytes, at: i64, size: i64) -> str:
        parts = LengthPrefixedReader(at, size, self.type_name)
        texts = []
        for i in range(int(self._read_count(parts, data))):
            oid: i64 = parts.int4(data) & 0xFFFF_FFFF
            length: i64 = parts.size(data)
            if length < 0:
                texts.append("")
            else:
                field = self.definition.codec_of(i, oid, self.fields)
                texts.append(quote_field(field.render(data, parts.at, length)))
                parts.skip(length)
        parts.finish()
        return "(" + ",".join(texts) + ")"

    def _write_field(self, i: i64, items: LiteralScanner, out: BytesWriter) -> bool:
        try:
            return self.fields[i].text(items.data, items.start, items.size, out)
        except DecodeError:
            # The bytes may belong to an attribute of another type: one that was dropped, or had its type altered.
            self.definition.raise_if_stale()
            return False

    def _read_count(self, parts: LengthPrefixedReader, data: bytes) -> i64:
        count: i64 = parts.int4(data)
        if count < 0 or count > _FIELDS_MAX:
            raise malformed(self.type_name, f"0 to {_FIELDS_MAX} fields", f"{count}")
        return count


def register(types: TypeRegistry) -> None:
    """Make composite types known."""
    types.add_kind(COMPOSITE, _composite)


def _composite(request: TypeRequest) -> Codec | None:
    pgtype = request.pgtype
    definition = CompositeDefinition(
        pgtype.qualified,
        [field.oid for _, field, _ in pgtype.fields],
        pgtype.dropped,
        pgtype.asked_lsn,
        request.options.position,
        request.built_in,
    )
    names = field_names([name for name, _, _ in pgtype.fields])
    fields = [request.part(field, typmod) for _, field, typmod in pgtype.fields]
    return Composite(avro_name(pgtype.qualified), names, fields, definition)
