"""Writes what Debezium's events of one table have behind their rows.

Before: `row_encoder` has written the rows of an event.
After: the event is whole, but for the end that the encoding wants.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.transaction_metadata import TransactionMetadata

_OPS: Final = b"cudtr"


@final
class EventTail:
    """The fields `source`, `transaction` and `op`, and the clock."""

    def __init__(self, writer: EventWriter, table: tuple[str, str], metadata: TransactionMetadata | None) -> None:
        """`table`: its schema and name. `metadata`: numbers the events; None: nobody wants it."""
        form = writer.form
        self._writer = writer
        self._source = form.table_piece(*table)
        self._metadata = metadata
        self._collection = None if metadata is None else metadata.collection(".".join(table))
        before = form.no_transaction if metadata is None else b""
        self._ops = {op: before + form.op_piece(op) for op in _OPS}

    def write(self, op: i64, lsn: i64) -> None:
        """Append them to the event. `op`: its ASCII code. `lsn`: that of the change."""
        writer = self._writer
        writer.write_source(self._source, lsn)
        out = writer.value
        if self._metadata is not None and self._collection is not None:
            self._metadata.write(out, self._collection, lsn)
        out.write(self._ops[op])
        out.write(writer.clock)
