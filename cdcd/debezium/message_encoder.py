"""Encodes logical decoding messages as Debezium's events.

Before: `event_encoder` hands in messages in commit order.
After: a RecordConsumer (`sink.batches`) takes the records.
Source: Debezium's `LogicalDecodingMessageMonitor`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.debezium.event_schema import MESSAGE_KEY, message_schema
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.transaction_metadata import TransactionMetadata
from cdcd.debezium.values.scalars import Bytes
from cdcd.transaction.relations import MESSAGES

_MESSAGE: Final = 0x6D


@final
class MessageEncoder:
    """Encodes logical decoding messages."""

    def __init__(self, writer: EventWriter, metadata: TransactionMetadata | None) -> None:
        """`metadata`: numbers the messages of transactions; None: nobody wants it."""
        self._writer = writer
        self._metadata = metadata
        self._collection = None if metadata is None else metadata.collection(MESSAGES.name)
        content = Bytes(writer.modes.binary, "")
        self._content = content.avro() if writer.is_avro else content
        table = (MESSAGES.schema, MESSAGES.name)
        self._head = writer.head_of(table, "value", message_schema(content.schema))
        self._key_head = writer.head_of(table, "key", MESSAGE_KEY)
        self._source = writer.form.table_piece("", "")
        self._table: i64 = writer.records.open_table(*table)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        """Encode one message. `transactional`: it belongs to a transaction."""
        writer = self._writer
        out = writer.value
        out.truncate(0)
        writer.write_source(self._source, lsn)  # this reads the clock
        source = out.getvalue()
        out.truncate(0)
        transaction = writer.form.no_transaction
        if transactional and self._metadata is not None and self._collection is not None:
            self._metadata.write(out, self._collection, lsn)
            transaction = out.getvalue()
            out.truncate(0)
        out.write(self._head)
        out.write(writer.form.message_head(int(writer.clock_ns), source + transaction, prefix))
        self._content.binary(content, 0, len(content), out)
        out.write(writer.form.row_end * 2 + writer.end)
        key = self._key_head + writer.form.message_key(prefix) + writer.end
        writer.records.add(self._table, _MESSAGE, key, out.getvalue())
