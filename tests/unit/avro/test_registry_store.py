from __future__ import annotations

import socket
import time

import pytest
from support.json_server import JsonHandler, JsonServer

from cdcd.avro.registry_store import RegistryStore
from cdcd.errors import CdcdError, KafkaUnavailable, RequestRejected, SettingsError, Unpublishable


def header(url: str, extra: dict[str, object] | None = None) -> bytes:
    store = RegistryStore(url, lambda schema, name: f"{schema}.{name}", {"retries.wait.ms": 1, **(extra or {})})
    return store.header_for("public", "t", "value", '"long"')


def answering(post: tuple[int, object], get: tuple[int, object]) -> JsonServer:
    class Handler(JsonHandler):
        def post(self, body: bytes) -> tuple[int, object]:
            assert b"long" in body
            return post

        def get(self) -> tuple[int, object]:
            return get

    return JsonServer(Handler)


@pytest.mark.parametrize("extra", [{}, {"no.such.property": "1"}])
def test_a_registry_that_nobody_could_reach_is_a_wrong_setting(extra: dict[str, str]) -> None:
    url = "http://localhost:8081" if extra else "htp:/user:secret@localhost:8081"
    with pytest.raises(SettingsError) as raised:
        RegistryStore(url, lambda schema, name: f"{schema}.{name}", extra)
    assert "avro.registry_url" in raised.value.hint
    assert "secret" not in raised.value.message


INCOMPATIBLE = 409, {"error_code": 409, "message": "a field has no default"}
NOT_THERE = 404, {"error_code": 40401, "message": "no such subject"}


@pytest.mark.parametrize(
    ("post", "get", "kind", "said"),
    [
        ((200, {"id": 258}), NOT_THERE, None, ""),
        # The daemon waits for troubles that pass by themselves.
        ((500, {"error_code": 50003, "message": "leader not known"}), NOT_THERE, KafkaUnavailable, "leader not known"),
        ((503, "no backend"), NOT_THERE, KafkaUnavailable, "does not answer"),
        ((429, {"error_code": 429, "message": "slow down"}), NOT_THERE, KafkaUnavailable, "slow down"),
        ((200, {}), NOT_THERE, KafkaUnavailable, "does not answer"),
        ((200, "hello"), NOT_THERE, KafkaUnavailable, "does not answer"),
        # It stops for the others: for this table alone, or for all.
        (INCOMPATIBLE, (200, {"subject": "s", "id": 1, "version": 3, "schema": "{}"}), Unpublishable, "version 3 of"),
        (INCOMPATIBLE, (403, {"error_code": 40301, "message": "not you"}), Unpublishable, "with earlier versions of"),
        (INCOMPATIBLE, (503, "no backend"), Unpublishable, "with earlier versions of subject public.t-value"),
        ((422, {"error_code": 42201, "message": "what?"}), NOT_THERE, Unpublishable, "invalid for subject"),
        ((401, {"error_code": 401, "message": "who are you"}), NOT_THERE, RequestRejected, "who are you"),
    ],
)
def test_every_answer_is_what_it_says(
    post: tuple[int, object], get: tuple[int, object], kind: type[CdcdError] | None, said: str
) -> None:
    with answering(post, get) as registry:
        if kind is None:
            assert header(registry.url) == b"\x00\x00\x00\x01\x02"
            return
        with pytest.raises(kind) as raised:
            header(registry.url)
    assert type(raised.value) is kind
    assert said in raised.value.message


def test_a_registry_that_never_answers_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(KafkaUnavailable, match="does not answer"):
            header(f"http://127.0.0.1:{silent.getsockname()[1]}", {"timeout": 0.2})
        assert time.monotonic() - began < 5
        store = RegistryStore("http://127.0.0.1:1", lambda *table: ".".join(table))
        timeout = store._client._rest_client.timeout
        assert timeout is not None
        assert 0 < timeout <= 10, "by default, too"
