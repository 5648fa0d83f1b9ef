"""Payloads of the outbox in Avro, by schemas of a registry, and what no schema fits."""

from __future__ import annotations

import io
import json
import threading
from concurrent.futures import Future
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.registry import Registry

from cdcd.avro.registry_ids import RegistryIds
from cdcd.avro.registry_newest import AGAIN_S, NewestSchemas
from cdcd.avro.registry_patience import RegistryPatience
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.errors import RequestRejected
from cdcd.outbox.avro_payloads import AvroPayloads

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "type": "string"},
        {"name": "items", "type": {"type": "array", "items": "long"}, "default": []},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "weight", "type": ["null", "double"], "default": None},
    ],
}
MORE = {**ORDER, "fields": [*ORDER["fields"], {"name": "rush", "type": "boolean", "default": False}]}
SUBJECT = "p.outbox.Order-value"


class Payloads:
    """An encoder in front of a registry, with a clock of its own."""

    def __init__(self, registry: Registry) -> None:
        self.now = 1000.0
        requests = RegistryRequests(registry.url, {})
        ids = RegistryIds(requests, lambda run, name: threading.Thread(target=run, name=name, daemon=True))

        def wait(future: Future[Any] | None, seconds: float) -> None:
            self.now += seconds if future is None else 0
            if future is not None:
                future.exception(10.0)

        schemas = NewestSchemas(ids, RegistryPatience(requests, wait, lambda: self.now))
        self.payloads = AvroPayloads("{topic}-value", "p.{}".format, schemas)

    def encode(self, payload: object, topic: str = "outbox.Order") -> bytes | None:
        return self.payloads.encode(topic, payload if isinstance(payload, bytes) else json.dumps(payload).encode())


def read(schema: Any, value: bytes | None) -> tuple[int, Any]:
    assert value is not None
    assert value[0] == 0
    stream = io.BytesIO(value[5:])
    found = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert not stream.read()
    return int.from_bytes(value[1:5], "big"), found


def test_a_payload_is_avro_by_the_newest_schema_of_its_subject() -> None:
    with Registry() as registry:
        registry.register(SUBJECT, json.dumps(ORDER))
        payloads = Payloads(registry)
        full = {"total": "99.90", "items": [1, 2], "note": "gift", "weight": 2.5}
        assert read(ORDER, payloads.encode(full)) == (1, full)
        lacking: dict[str, Any] = {"total": "1", "items": [], "note": None, "weight": None}
        assert read(ORDER, payloads.encode({"total": "1"})) == (1, lacking)


@pytest.mark.parametrize(
    "payload",
    [
        {"total": "1", "rush": True},  # it would be lost
        {"items": [1]},
        {"total": 1},
        {"total": "1", "items": [1.5]},
        {"total": "1", "items": [True]},
        {"total": "1", "items": [2**63]},
        {"total": "1", "weight": "2"},
        ["total"],
        "1",
        None,
        b'{"total": "1", "weight": NaN}',
        b'{"total": "1", "total": "2"}',
        b"total",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_payload_that_does_not_fit_is_no_event(payload: object) -> None:
    with Registry() as registry:
        registry.register(SUBJECT, json.dumps(ORDER))
        assert Payloads(registry).encode(payload) is None


def test_a_schema_that_comes_later_is_found_and_the_registry_is_not_asked_for_each_payload() -> None:
    with Registry() as registry:
        payloads = Payloads(registry)
        assert payloads.encode({"total": "1"}) is None
        registry.register(SUBJECT, json.dumps(ORDER))
        assert payloads.encode({"total": "1"}) is None, "the last answer is new"
        payloads.now += AGAIN_S
        assert payloads.encode({"total": "1"}) is not None
        registry.register(SUBJECT, json.dumps(MORE))
        assert payloads.encode({"total": "1", "rush": True}) is None
        payloads.now += AGAIN_S
        number, found = read(MORE, payloads.encode({"total": "1", "rush": True}))
        assert (number, found["rush"]) == (2, True)


@pytest.mark.parametrize("text", ['{"type": "nothing"}', '"Elsewhere"', "syntax = proto3;", "[]", "null"])
def test_a_schema_that_is_none_or_needs_another_one_fits_nothing(text: str) -> None:
    with Registry() as registry:
        registry.register(SUBJECT, text)
        assert Payloads(registry).encode({"total": "1"}) is None


def test_a_subject_that_is_forbidden_fits_nothing_and_a_wrong_user_ends_the_daemon() -> None:
    with Registry() as registry:
        registry.failure = (403, {"error_code": 40301, "message": "not yours"})
        assert Payloads(registry).encode({"total": "1"}) is None
        registry.failure = (401, {"error_code": 401, "message": "who?"})
        with pytest.raises(RequestRejected):
            Payloads(registry).encode({"total": "1"})


VALUES = st.fixed_dictionaries(
    {"total": st.text()},
    optional={
        "items": st.lists(st.integers(-(2**63), 2**63 - 1)),
        "note": st.none() | st.text(),
        "weight": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    },
)


@pytest.fixture(scope="module")
def encoder() -> Any:
    with Registry() as registry:
        registry.register(SUBJECT, json.dumps(ORDER))
        yield Payloads(registry)


@given(value=VALUES)
def test_all_that_fits_comes_back_as_it_was(encoder: Payloads, value: dict[str, Any]) -> None:
    _, found = read(ORDER, encoder.encode(value))
    assert found == {"items": [], "note": None, "weight": None} | value
