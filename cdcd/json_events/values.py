"""PostgreSQL -> JSON: writes the values of columns as `forms` writes what their codecs make of them.

Before: `avro.codecs.lookup` has chosen the codec of a column.
After: `avro.event_encoder` and `avro.key_encoder` call the writer once a value.

A value has one JSON form, which its Avro type decides. Frequent types are written straight from PostgreSQL's form: by
Debezium's writers, where its JSON is the same. All others become Avro first.

Hot path, compiled.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter
from mypy_extensions import i64

from cdcd.avro.codecs import datetimes, floats, integers, numeric, text
from cdcd.avro.codecs.base import NOT_HELD, Codec, Transcoder
from cdcd.avro.codecs.numeric import WIDE, write_numeric
from cdcd.avro.codecs.text_encoding import EscapingColumn
from cdcd.debezium.connect_schema import STRING
from cdcd.debezium.json_text import write_string
from cdcd.debezium.values import scalars
from cdcd.debezium.values.base import Value
from cdcd.json_events import forms
from cdcd.json_events.form_lookup import form_of
from cdcd.json_events.forms import AvroReader, write_date, write_time

_QUOTE: Final = 34

_SCALARS: Final[dict[type[Codec], type[Value]]] = {
    integers.Bool: scalars.Bool, integers.Int2: scalars.Int2, integers.Int4: scalars.Int4, integers.Int8: scalars.Int8,
    floats.Float4: scalars.Float4, floats.Float8: scalars.Float8,
}  # fmt: skip
"""By the very class of the codec, as all below: a subclass may write something else."""


def writer_of(codec: Codec) -> Transcoder:
    """What writes the values of a column that has this codec."""
    if isinstance(codec, EscapingColumn):
        return writer_of(codec.inner)
    kind = type(codec)
    if kind in _SCALARS:
        return _SCALARS[kind]()  # type: ignore[call-arg]
    if kind is text.Text:
        return scalars.Text(STRING, "")
    if isinstance(codec, text.VersionedText):
        return scalars.VersionedText(STRING, "", codec.type_name)
    if kind is text.Uuid:
        return scalars.Uuid(STRING, "")
    if kind is text.Bytea:
        return scalars.Bytea("base64", "")
    if isinstance(codec, numeric.Decimal):
        return Decimal(codec)
    if kind is numeric.NumericText:
        return Numeric()
    if isinstance(codec, datetimes.Date):
        return Date(codec)
    if isinstance(codec, datetimes.Time):
        return Time(codec)
    if isinstance(codec, datetimes.Timestamp):
        return Timestamp(codec)
    return Translated(codec)


class Translated(Transcoder):
    """JSON of the Avro that a codec makes."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._form = form_of(codec.schema)
        self._avro = AvroReader()

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        avro = BytesWriter()
        return self._codec.binary(data, at, size, avro) and self._write(avro, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        avro = BytesWriter()
        return self._codec.text(data, at, size, avro) and self._write(avro, out)

    def _write(self, avro: BytesWriter, out: BytesWriter) -> bool:
        self._avro.begin(avro.getvalue(), 0)
        self._form.write(self._avro, out)
        self._avro.begin(b"", 0)  # a large value is not kept
        return True


class Decimal(Transcoder):
    """numeric(p,s)."""

    def __init__(self, codec: numeric.Decimal) -> None:
        self._codec = codec
        self._form = forms.Decimal(int(codec.scale))

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.unscaled_binary(data, at, size), data, at, size, True, out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.unscaled_text(data, at, size), data, at, size, False, out)

    def _write(self, n: i64, data: bytes, at: i64, size: i64, is_binary: bool, out: BytesWriter) -> bool:
        if n == NOT_HELD:
            return False
        if n == WIDE:
            wide = self._codec.wide(data, at, size, is_binary)
            if wide is None:
                return False
            self._form.write_wide(wide, out)
        else:
            self._form.write_short(n, out)
        return True


class Numeric(Transcoder):
    """numeric."""

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        out.append(_QUOTE)
        write_numeric(data, at, size, out, False)
        out.append(_QUOTE)
        return True

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        write_string(out, data, at, size)
        return True


class Date(Transcoder):
    """date."""

    def __init__(self, codec: datetimes.Date) -> None:
        self._codec = codec

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.days(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.days(data, at, size, False), out)

    def _write(self, days: i64, out: BytesWriter) -> bool:
        if days == NOT_HELD:
            return False
        write_date(days, out)
        return True


class Time(Transcoder):
    """time."""

    def __init__(self, codec: datetimes.Time) -> None:
        self._codec = codec

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.micros(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.micros(data, at, size, False), out)

    def _write(self, micros: i64, out: BytesWriter) -> bool:
        if micros == NOT_HELD:
            return False
        write_time(micros, out)
        return True


class Timestamp(Transcoder):
    """timestamp and timestamptz."""

    def __init__(self, codec: datetimes.Timestamp) -> None:
        self._codec = codec
        self._form = forms.Timestamp(with_zone=codec.with_zone)

    def binary(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.micros(data, at, size, True), out)

    def text(self, data: bytes, at: i64, size: i64, out: BytesWriter) -> bool:
        return self._write(self._codec.micros(data, at, size, False), out)

    def _write(self, micros: i64, out: BytesWriter) -> bool:
        if micros == NOT_HELD:
            return False
        self._form.write_micros(micros, out)
        return True
