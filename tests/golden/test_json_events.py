"""Streams that real servers sent give the same events in JSON as in Avro, value by value, and so they read back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from golden import recording
from golden.recording import Recording, Stream
from golden.test_golden import STREAMS
from support import json_form

from cdcd.avro.avro_format import AvroFormat
from cdcd.json_events.json_format import JsonFormat
from cdcd.reading.json_translator import JsonTranslator
from cdcd.sink.batches import Message


@pytest.mark.parametrize(("made", "stream"), STREAMS)
def test_the_events_in_json_are_those_in_avro(made: Recording, stream: Stream) -> None:
    avro = recording.replay(stream, made.answers)
    events = JsonFormat(AvroFormat("decimal", "UTF8"), with_schemas=False)
    messages = [
        message
        for batch in recording.batches_of(stream, made.answers, events.stream_encoder)
        for table in batch.tables
        for message in table.messages
    ]
    messages.sort(key=_position)
    assert len(messages) == len(made.events)
    translators: dict[tuple[str | None, str], JsonTranslator] = {}
    for number, message in enumerate(messages):
        key, value = avro.records[number]
        assert _loaded(message["value"]) == _wanted(avro.values[number], avro.schemas, value), f"event {number}"
        assert _loaded(message.get("key")) == _wanted(avro.keys[number], avro.schemas, key), f"key {number}"
        if avro.values[number]["op"] in "crud":
            schemas = None if key is None else key[2:10].hex(), value[2:10].hex()
            if schemas not in translators:
                translators[schemas] = _translator(avro.schemas, *schemas)
            translator = translators[schemas]
            assert translator.event(message["value"] or b"") == value, f"event {number}"
            assert key is None or translator.key(message.get("key") or b"") == key, f"key {number}"


def _translator(schemas: dict[str, Any], key: str | None, value: str) -> JsonTranslator:
    texts: dict[str, str] = {}
    of_key = None if key is None else schemas[key]
    made = JsonTranslator(of_key, schemas[value], texts.__setitem__, with_schemas=False)
    assert {each: json.loads(text) for each, text in texts.items()}.items() <= schemas.items()
    return made


def _position(message: Message) -> tuple[int, int]:
    source = json.loads(message["value"] or b"")["source"]
    return source["commit_lsn"], source["seq"]


def _wanted(value: Any, schemas: dict[str, Any], record: bytes | None) -> str:
    return json.dumps(None if record is None else json_form.expected(value, schemas[record[2:10].hex()]))


def _loaded(data: bytes | None) -> str:
    return json.dumps(None if data is None else json.loads(data))
