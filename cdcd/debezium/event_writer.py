"""What the encoders of all relations share: the open transaction, the encoding, the buffers, and the clock.

Before: `event_encoder` begins transactions.
After: `row_encoder` and `message_encoder` write events with it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.schema_store import SchemaStore
from cdcd.debezium.added_fields import AddedFields
from cdcd.debezium.avro_data import avro_schema
from cdcd.debezium.avro_form import AvroForm
from cdcd.debezium.connect_schema import Schema
from cdcd.debezium.event_form import EventForm
from cdcd.debezium.event_schema import before_payload
from cdcd.debezium.json_form import JsonForm
from cdcd.debezium.modes import Modes
from cdcd.transaction.record_consumer import RecordConsumer

_CLOCK_EVENTS: Final = 256
"""The clock is read once for so many events of a transaction."""


@final
class EventWriter:
    """The state of one stream, or of the snapshots next to it."""

    def __init__(
        self,
        records: RecordConsumer,
        names: tuple[str, str],
        modes: Modes,
        clock_ns: Callable[[], int],
        schemas: SchemaStore | None = None,
        parked: Container[tuple[str, str]] = (),
    ) -> None:
        """`names`: the prefix of the topics, and the database. `clock_ns`: nanoseconds since 1970-01-01 UTC.

        `schemas`: events are Avro, and this makes their schemas known; None: they are JSON. `parked`: that of
        AddedFields.
        """
        self.records = records
        self.prefix = names[0]
        self.modes = modes
        self.schemas = schemas
        self.form: EventForm = JsonForm(*names) if schemas is None else AvroForm(*names)
        self.end = b"}" if modes.with_schemas and schemas is None else b""
        """What ends a key or an event whose schema stands before it."""
        self.value = BytesWriter()
        self.key = BytesWriter()
        self.commit_lsn: i64 = 0
        self.rows = None if modes.rows is None else AddedFields(modes.rows, parked)
        self.takes_truncates = modes.truncates and modes.rows is None
        """A truncate is an event. A row cannot say it."""
        self.clock = b""
        self.clock_ns: i64 = 0
        self._clock_ns = clock_ns
        self._clock_left: i64 = 0

    @property
    def is_avro(self) -> bool:
        """Events are Avro, not JSON."""
        return self.schemas is not None

    def begin(self, commit_lsn: i64) -> None:
        """A transaction, or a snapshot, begins."""
        self.commit_lsn = commit_lsn
        self._clock_left = 0

    def expect(self, table: tuple[str, str], part: str, schema: Schema) -> None:
        """Say what `head_of` will soon be asked for."""
        if self.schemas is not None:
            self.schemas.expect(*table, part, avro_schema(schema))

    def head_of(self, table: tuple[str, str], part: str, schema: Schema) -> bytes:
        """What stands before each key or event ("key", "value") with this schema. `table`: its schema and name."""
        if self.schemas is not None:
            return self.schemas.header_for(*table, part, avro_schema(schema))
        return before_payload(schema if self.modes.with_schemas else None)

    def see_clock(self) -> None:
        """See to the clock, for one event."""
        if self._clock_left == 0:
            self._clock_left = _CLOCK_EVENTS
            self.clock_ns = self._clock_ns()
            self.clock = self.form.clock_piece(int(self.clock_ns))
            self.form.version += 1
        self._clock_left -= 1

    def write_source(self, table: bytes, lsn: i64) -> None:
        """Append the field `source` of an event, and see to the clock; `table`: as `table_piece` makes it."""
        self.see_clock()
        self.form.write_source(self.value, table, lsn)
