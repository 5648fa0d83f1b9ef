"""Takes the rows of the table of requests out of the stream: an INSERT is a request to the daemon, never an event.

Before: `dormant_relation` opens the relation cdcd.requests with this class instead of the consumer's.
After: the consumer's `request`, with the values by column.
Source: PostgreSQL, "Logical Replication Message Formats" (TupleData).

The columns are text, whose binary form is its text form. A value that does not fit is left out: the request then lacks
it, and is refused as a whole.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.pgoutput import messages
from cdcd.pgoutput.tuples import BINARY, TEXT, column_at, tuple_end
from cdcd.source.requests_table import COLUMNS, KEYS_BYTES_MAX
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges

VALUE_BYTES_MAX: Final = 1_000
"""PostgreSQL's names have 63 bytes, unless it is built otherwise."""
_KEYS: Final = "keys"


@final
class RequestRows(RelationChanges):
    """The rows of one version of the table. Updates, deletes and truncates of it ask for nothing."""

    def __init__(self, consumer: ChangeConsumer, relation: messages.Relation, is_trusted: bool) -> None:
        """Without `is_trusted` the rows are a stranger's, and ask for nothing."""
        self._consumer = consumer
        self._columns = [column.name for column in relation.columns]
        self._is_trusted = is_trusted

    def is_event(self, kind: i64) -> bool:
        return False

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        if self._is_trusted:
            tuple_end(frame, at + 1, len(self._columns), "Insert", "new tuple")
            self._consumer.request(self._values(frame, at + 1))

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        pass

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        pass

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        pass

    def _values(self, frame: bytes, at: i64) -> dict[str, str]:
        values: dict[str, str] = {}
        for index, name in enumerate(self._columns):
            start = column_at(frame, at, index)
            if name in COLUMNS and frame[start] in (BINARY, TEXT):
                size = i64(read_i32_be(frame, start + 1))
                if size <= (KEYS_BYTES_MAX if name == _KEYS else VALUE_BYTES_MAX):
                    values[name] = frame[start + 5 : start + 5 + size].decode(errors="replace")
        return values
