"""What the encoders of all relations share: the open transaction, the buffers, and the clock.

Before: `event_encoder` begins transactions.
After: `row_encoder` and `message_encoder` write events with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.debezium.added_fields import AddedFields
from cdcd.debezium.json_text import write_int
from cdcd.debezium.modes import Modes
from cdcd.debezium.source_block import SourceBlock, clock_piece
from cdcd.transaction.record_consumer import RecordConsumer

_CLOCK_EVENTS: Final = 256
"""The clock is read once for so many events of a transaction."""


@final
class EventWriter:
    """The state of one stream, or of the snapshots next to it."""

    def __init__(
        self, records: RecordConsumer, names: tuple[str, str], modes: Modes, clock_ns: Callable[[], int]
    ) -> None:
        """`names`: the prefix of the topics, and the database. `clock_ns`: nanoseconds since 1970-01-01 UTC."""
        self.records = records
        self.prefix, database = names
        self.modes = modes
        self.source = SourceBlock(self.prefix, database)
        self.value = BytesWriter()
        self.key = BytesWriter()
        self.commit_lsn: i64 = 0
        self.rows = None if modes.rows is None else AddedFields(modes.rows)
        self.takes_truncates = modes.truncates and modes.rows is None
        """A truncate is an event. A row cannot say it."""
        self.clock = b""
        self.clock_ns: i64 = 0
        self._clock_ns = clock_ns
        self._clock_left: i64 = 0

    def begin(self, commit_lsn: i64) -> None:
        """A transaction, or a snapshot, begins."""
        self.commit_lsn = commit_lsn
        self._clock_left = 0

    def see_clock(self) -> None:
        """See to the clock, for one event."""
        if self._clock_left == 0:
            self._clock_left = _CLOCK_EVENTS
            self.clock_ns = self._clock_ns()
            self.clock = clock_piece(int(self.clock_ns))
            self.source.version += 1
        self._clock_left -= 1

    def write_source(self, table: bytes, lsn: i64) -> None:
        """Append the field `source` of an event, and see to the clock; `table`: as `table_piece` makes it."""
        self.see_clock()
        out, source = self.value, self.source
        out.write(source.head)
        write_int(out, lsn)
        out.write(source.middle)
        out.write(table)
        out.write(source.xid)
        write_int(out, lsn)
        out.write(source.tail)
