"""Encodes logical decoding messages as Debezium's events.

Before: `event_encoder` hands in messages in commit order.
After: a RecordConsumer (`sink.batches`) takes the records.
Source: Debezium's `LogicalDecodingMessageMonitor`.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.debezium.event_schema import MESSAGE_KEY, before_payload, message_schema
from cdcd.debezium.event_writer import EventWriter
from cdcd.debezium.json_text import quoted
from cdcd.debezium.source_block import table_piece
from cdcd.debezium.values.scalars import Bytes
from cdcd.transaction.relations import MESSAGES

_MESSAGE: Final = 0x6D


@final
class MessageEncoder:
    """Encodes logical decoding messages."""

    def __init__(self, writer: EventWriter) -> None:
        self._writer = writer
        self._content = Bytes(writer.modes.binary, "")
        self._with_schemas = writer.modes.with_schemas
        schema, key = None, None
        if self._with_schemas:
            schema, key = message_schema(self._content.schema), MESSAGE_KEY
        self._head = before_payload(schema)
        self._key_head = before_payload(key)
        self._end = b"}" if self._with_schemas else b""
        self._source = table_piece("", "")
        self._table: i64 = writer.records.open_table(MESSAGES.schema, MESSAGES.name)

    def message(self, prefix: str, content: bytes, lsn: i64) -> None:
        """Encode one message."""
        writer = self._writer
        out = writer.value
        out.truncate(0)
        out.write(self._head)
        mark = len(out)
        writer.write_source(self._source, lsn)  # this reads the clock
        source = out.getvalue()[mark:]
        out.truncate(mark)
        milliseconds = writer.clock[2 : writer.clock.index(b',"ts_us"')]
        out.write(b'{"op":"m",' + milliseconds + b"," + source + b',"transaction":null,"message":{"prefix":')
        out.write(quoted(prefix))
        out.write(b',"content":')
        self._content.write(content, 0, len(content), out)
        out.write(b"}}" + self._end)
        key = self._key_head + b'{"prefix":' + quoted(prefix) + b"}" + self._end
        writer.records.add(self._table, _MESSAGE, key, out.getvalue())
