"""Translates the records of the Avro encoders to JSON, on their way to the sink.

Before: `avro.event_encoder` sends each schema before its first record, and begins a record with its fingerprint.
After: `sink.batches` takes the translated records. No schema goes to Kafka.

Hot path, compiled: a record costs one Python object more than in Avro, for the Avro bytes between the two.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i64_be
from mypy_extensions import i64

from cdcd.avro.single_object import HEADER_SIZE
from cdcd.debezium.event_schema import before_payload
from cdcd.json_events.connect_schemas import connect_schema
from cdcd.json_events.form_lookup import form_of
from cdcd.json_events.forms import AvroReader, Form, WithSchema
from cdcd.transaction.record_consumer import LargeValue, RecordConsumer, RecordForwarder

_FINGERPRINT_AT: Final = 2
_KEPT_BYTES: Final = 1_048_576
"""The largest buffer that is kept for the next record: a BytesWriter never gives memory back."""


@final
class Translator:
    """Translates keys, or events. It remembers which schema came last: most often the next one is the same."""

    def __init__(self, forms: dict[int, Form]) -> None:
        """`forms`: by fingerprint."""
        self._forms = forms
        self._avro = AvroReader()
        self._out = BytesWriter()
        self._last: i64 = 0
        self._form: Form | None = None

    def write(self, data: bytes) -> BytesWriter:
        """Translate a record; the returned buffer is overwritten by the next call."""
        fingerprint: i64 = read_i64_be(data, _FINGERPRINT_AT)
        form = self._form
        if form is None or fingerprint != self._last:
            form = self._forms[fingerprint]
            self._form = form
            self._last = fingerprint
        out = self._out
        if len(out) > _KEPT_BYTES:
            out = BytesWriter()
            self._out = out
        out.truncate(0)
        self._avro.begin(data, HEADER_SIZE)
        form.write(self._avro, out)
        return out

    def write_large(self, value: LargeValue) -> bytes:
        """Translate a large record; neither its Avro bytes nor the buffer are kept."""
        self.write(value.take())
        self._avro.begin(b"", 0)
        out = self._out
        self._out = BytesWriter()
        return out.getvalue()


@final
class LargeJson(LargeValue):
    """A large value, which is translated when it is taken: so frame, Avro and JSON are never in memory together."""

    def __init__(self, avro: LargeValue, translator: Translator) -> None:
        super().__init__(BytesWriter())
        self._avro = avro
        self._translator = translator
        self.size = avro.size

    def take(self) -> bytes:
        return self._translator.write_large(self._avro)


@final
class JsonRecords(RecordForwarder):
    """Stands before another consumer, which gets JSON."""

    def __init__(self, records: RecordConsumer, with_schemas: bool = False) -> None:
        """`with_schemas`: Connect's schema stands before each key and value."""
        super().__init__(records)
        self._with_schemas = with_schemas
        self._forms: dict[int, Form] = {}
        self._keys = Translator(self._forms)
        self._values = Translator(self._forms)

    def add_schema(self, fingerprint: str, text: str) -> None:
        form = form_of(text)
        if self._with_schemas:
            form = WithSchema(before_payload(connect_schema(text)), form)
        self._forms[int.from_bytes(bytes.fromhex(fingerprint), "big", signed=True)] = form

    def add(self, table: i64, op: i64, key: bytes | None, value: bytes) -> None:
        super().add(table, op, self._key(key), self._values.write(value).getvalue())

    def add_large(self, table: i64, op: i64, key: bytes | None, value: LargeValue) -> None:
        super().add_large(table, op, self._key(key), LargeJson(value, self._values))

    def add_without_value(self, table: i64, op: i64, key: bytes) -> None:
        super().add_without_value(table, op, self._keys.write(key).getvalue())

    def add_to_every_partition(self, table: i64, op: i64, value: bytes) -> None:
        super().add_to_every_partition(table, op, self._values.write(value).getvalue())

    def _key(self, key: bytes | None) -> bytes | None:
        return None if key is None else self._keys.write(key).getvalue()
