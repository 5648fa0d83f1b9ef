"""Runs a codec on one value, and reads the Avro bytes back with fastavro, the oracle.

So the bytes' JSON is checked for every value that is read back. And the JSON that is written straight from PostgreSQL's
form is checked to be the same.
"""

from __future__ import annotations

import io
from typing import Any

import fastavro
from librt.strings import BytesWriter

from cdcd.avro.codecs.base import Codec
from cdcd.json_events.values import writer_of
from support import json_form

UNREPRESENTABLE = object()
"""`transcode` returns this if the codec says that Avro cannot hold the value."""


def transcode(codec: Codec, mode: str, value: bytes) -> Any:
    """The Avro bytes of `value`, which is in `mode` "binary" or "text" and lies inside a frame; or UNREPRESENTABLE."""
    out = BytesWriter()
    out.write(b"row")
    frame = b"0123456789" + value + b"9"
    is_held = (codec.binary if mode == "binary" else codec.text)(frame, 10, len(value), out)
    writer, shown = writer_of(codec), BytesWriter()
    assert is_held == (writer.binary if mode == "binary" else writer.text)(frame, 10, len(value), shown)
    if not is_held:
        return UNREPRESENTABLE
    avro = out.getvalue()[3:]
    assert shown.getvalue() == json_form.translated(codec.schema, avro)
    return avro


def read_back(codec: Codec, avro: Any) -> Any:
    """The Python value of Avro bytes, which must all be used; UNREPRESENTABLE is returned unchanged."""
    if avro is UNREPRESENTABLE:
        return avro
    stream = io.BytesIO(avro)
    value = fastavro.schemaless_reader(stream, fastavro.parse_schema(codec.schema))
    assert not stream.read(), "bytes left over"
    json_form.check(codec.schema, avro, value)
    return value


def both(codec: Codec, binary: bytes, text: str) -> Any:
    """The value that both forms read back as. Checks that `render` makes the text from the binary form."""
    avro = transcode(codec, "binary", binary)
    assert avro == transcode(codec, "text", text.encode())
    assert codec.render(b"x" + binary + b"x", 1, len(binary)) == text
    return read_back(codec, avro)
