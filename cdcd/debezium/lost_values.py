"""The values of an event that Connect's types cannot hold, or hold as others, or whose column Debezium's events lack.

Before: `row_encoder` meets them. After: a header has PostgreSQL's text of them.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.avro.codecs.lookup import TypeOptions, codec_for
from cdcd.avro.codecs.text_encoding import text_of_value
from cdcd.debezium.field_writer import Field
from cdcd.debezium.json_text import quoted
from cdcd.pgoutput.tuples import BINARY, TEXT, column_at
from cdcd.transaction.record_consumer import RecordConsumer
from cdcd.transaction.relations import ResolvedRelation

LOST: Final = "__cdcd.unrepresentable"
"""The header: a JSON array of objects with `image`, `column` and `text`."""


@final
class LostValues:
    """Those of one event of a relation. They are rare."""

    def __init__(self, relation: ResolvedRelation, options: TypeOptions, placeholder: str) -> None:
        """`placeholder`: the text of an unchanged value that PostgreSQL did not send."""
        self._names = [column.name for column in relation.columns]
        self._codecs = [codec_for(column.pgtype, column.typmod, options) for column in relation.columns]
        self._placeholder = placeholder
        self._found: list[bytes] = []

    def clear(self) -> None:
        """Another event begins, or the same one once more."""
        if self._found:
            self._found = []

    def add(self, index: i64, is_new: bool, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Note a value of a column: BINARY or TEXT, of `size` bytes at `at`. `is_new`: of the new row."""
        self._add(index, is_new, text_of_value(self._codecs[index], kind == BINARY, frame, at, size))

    def add_near(self, field: Field, is_new: bool, kind: i64, frame: bytes, at: i64, size: i64) -> None:
        """Note a value, as `add` gets it, if the event has another one that is near."""
        text = text_of_value(self._codecs[field.index], kind == BINARY, frame, at, size)
        if field.value.is_near(text):
            self._add(field.index, is_new, text)

    def add_unchanged(self, index: i64, frame: bytes, old: i64) -> None:
        """Note a value that PostgreSQL left out of the new row. The tuple at `old` may have it; 0: there is none."""
        at = column_at(frame, old, index) if old != 0 else 0
        if at != 0 and (frame[at] == BINARY or frame[at] == TEXT):
            self.add(index, True, i64(frame[at]), frame, at + 5, i64(read_i32_be(frame, at + 1)))
        else:
            self._add(index, True, self._placeholder)

    def give_to(self, records: RecordConsumer, table: i64) -> None:
        """Give the last event of the table the header, if it has lost a value."""
        if self._found:
            text = b"[" + b",".join(self._found) + b"]"
            self._found = []
            records.add_headers(table, [(LOST, text)], len(LOST) + len(text))

    def _add(self, index: i64, is_new: bool, text: str) -> None:
        image = b"after" if is_new else b"before"
        shown = b'{"image":"%b","column":%b,"text":%b}' % (image, quoted(self._names[index]), quoted(text))
        self._found.append(shown)
