from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

import pytest
from support.json_server import JsonHandler, JsonServer
from support.registry import Registry

from cdcd.avro.registry_ids import RegistryIds
from cdcd.avro.registry_patience import PATIENCE_S
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.avro.registry_store import RegistryStore
from cdcd.avro.registry_subjects import SubjectNames
from cdcd.errors import CdcdError, KafkaUnavailable, RequestRejected, SettingsError, Unpublishable

TEXT = '"long"'


class Clock:
    """Runs only in pauses, so that no test waits for them."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, future: Future[Any] | None, seconds: float) -> None:
        if future is None:
            self.pauses.append(seconds)
            self.now += seconds
        else:
            future.exception(10.0)


def thread(run: Any, name: str) -> threading.Thread:
    return threading.Thread(target=run, name=name, daemon=True)


def requests(url: str, clock: Clock, **properties: object) -> RegistryRequests:
    return RegistryRequests(url, properties, clock)


def store(url: str, clock: Clock, *, may_register: bool = True, **properties: object) -> RegistryStore:
    ids = RegistryIds(requests(url, clock, **properties), thread, may_register=may_register)
    return RegistryStore(ids, SubjectNames("topic", lambda schema, name: f"{schema}.{name}"), clock.wait, clock)


def header(store: RegistryStore, name: str = "t") -> bytes:
    return store.header_for("public", name, "value", TEXT)


def answering(post: tuple[int, object], get: tuple[int, object], looked_up: tuple[int, object]) -> JsonServer:
    class Handler(JsonHandler):
        def post(self, body: bytes) -> tuple[int, object]:
            assert b"long" in body
            return post if "/versions" in self.path else looked_up

        def get(self) -> tuple[int, object]:
            return get

    return JsonServer(Handler)


@pytest.mark.parametrize("extra", [{}, {"no.such.property": "1"}])
def test_a_registry_that_nobody_could_reach_is_a_wrong_setting(extra: dict[str, str]) -> None:
    url = "http://localhost:8081" if extra else "htp:/user:secret@localhost:8081"
    with pytest.raises(SettingsError) as raised:
        RegistryRequests(url, extra)
    assert "avro.registry_url" in raised.value.hint
    assert "secret" not in raised.value.message


INCOMPATIBLE = 409, {"error_code": 409, "message": "a field has no default"}
NOT_THERE = 404, {"error_code": 40401, "message": "no such subject"}
FORBIDDEN = 403, {"error_code": 40301, "message": "not you"}
VERSION = 200, {"subject": "s", "id": 1, "version": 3, "schema": "{}"}


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
        # It has answered the look-up, so this is a failure of whoever checks the users.
        ((401, {"error_code": 401, "message": "who are you"}), NOT_THERE, KafkaUnavailable, "who are you"),
        # It parks the table, or stops, for the others.
        (INCOMPATIBLE, VERSION, Unpublishable, "incompatible with version 3 of subject public.t-value"),
        (INCOMPATIBLE, FORBIDDEN, Unpublishable, "with earlier versions of"),
        (INCOMPATIBLE, (503, "no backend"), Unpublishable, "with earlier versions of subject public.t-value"),
        ((422, {"error_code": 42201, "message": "what?"}), NOT_THERE, Unpublishable, "invalid for subject"),
        ((422, {"error_code": 42205, "message": "read-only mode"}), NOT_THERE, Unpublishable, "read-only mode"),
        (FORBIDDEN, NOT_THERE, Unpublishable, "lacks a schema of public.t in subject public.t-value, and the registry"),
    ],
)
def test_every_answer_to_a_registration_is_what_it_says(
    post: tuple[int, object], get: tuple[int, object], kind: type[CdcdError] | None, said: str
) -> None:
    with answering(post, get, NOT_THERE) as registry:
        if kind is None:
            assert header(store(registry.url, Clock())) == b"\x00\x00\x00\x01\x02"
            return
        with pytest.raises(kind) as raised:
            header(store(registry.url, Clock()))
    assert type(raised.value) is kind
    assert said in raised.value.message


@pytest.mark.parametrize(
    ("looked_up", "kind", "said"),
    [
        ((503, "no backend"), KafkaUnavailable, "does not answer"),
        ((401, {"error_code": 401, "message": "who are you"}), RequestRejected, "does not accept the credentials"),
        ((404, "not found"), RequestRejected, "no schema registry answers at http"),
        ((302, "elsewhere"), RequestRejected, "no schema registry answers at http"),
        # Whoever makes tables chooses their names: a right that is missing for one stops no other.
        (FORBIDDEN, Unpublishable, "does not let this user look up schemas of public.t in subject public.t-value"),
        ((400, "a name with a slash"), Unpublishable, "invalid for subject"),
    ],
)
def test_every_answer_to_a_look_up_is_what_it_says(
    looked_up: tuple[int, object], kind: type[CdcdError], said: str
) -> None:
    with answering((500, "never asked"), NOT_THERE, looked_up) as registry, pytest.raises(kind) as raised:
        header(store(registry.url, Clock(), may_register=False))
    assert type(raised.value) is kind
    assert said in raised.value.message
    assert raised.value.hint


def test_a_schema_that_is_there_is_taken_from_a_registry_that_lets_nobody_write() -> None:
    with Registry() as registry:
        for table in "tu":
            registry.register(f"public.{table}-value", TEXT)
        registry.requests.clear()
        registry.takes_schemas = False
        asked = store(registry.url, Clock())
        assert header(asked) == header(asked, "u") == b"\x00\x00\x00\x00\x01"
        wanted = [("register", "public.t-value"), ("look up", "public.t-value"), ("look up", "public.u-value")]
        assert registry.requests == wanted, "once refused, it looks first"


def test_a_missing_schema_is_registered_only_if_the_settings_allow_it() -> None:
    with Registry() as registry:
        with pytest.raises(Unpublishable) as raised:
            header(store(registry.url, Clock(), may_register=False))
        assert raised.value.message.endswith("and avro.register is false")
        assert raised.value.table == ("public", "t")
        assert raised.value.hint == "Register it, as a user that may: cdcd schema --register public.t"
        assert header(store(registry.url, Clock())) == b"\x00\x00\x00\x00\x01"
        assert [verb for verb, _ in registry.requests] == ["look up", "register"]


def test_a_failure_that_passes_is_waited_for_and_the_registry_gets_the_time_that_it_asks_for() -> None:
    with Registry() as registry:
        registry.failure = 429, {"error_code": 42901, "message": "too many requests"}
        registry.headers = {"Retry-After": "7"}

        class HealingClock(Clock):
            def wait(self, future: Future[Any] | None, seconds: float) -> None:
                super().wait(future, seconds)
                if self.now > 1006.9:
                    registry.failure = None

        clock = HealingClock()
        patient = store(registry.url, clock)
        assert header(patient) == b"\x00\x00\x00\x00\x01"
        assert sum(clock.pauses) == pytest.approx(7.0), "not a request before that"
        assert registry.failures == 1


def test_a_registry_that_wants_time_keeps_nobody_from_a_schema_that_is_known() -> None:
    with Registry() as registry:
        clock = Clock()
        patient = store(registry.url, clock)
        header(patient)
        registry.failure = 429, {"error_code": 42901, "message": "too many requests"}
        registry.headers = {"Retry-After": "60"}
        with pytest.raises(KafkaUnavailable):
            header(patient, "u")
        clock.pauses.clear()
        assert header(patient) == b"\x00\x00\x00\x00\x01"
        assert clock.pauses == []


def test_a_registry_that_asks_for_a_year_is_asked_again_all_the_same() -> None:
    with Registry() as registry:
        registry.failure = 503, {"error_code": 50301, "message": "closed for the winter"}
        registry.headers = {"Retry-After": "31536000"}
        clock = Clock()
        patient = store(registry.url, clock)
        with pytest.raises(KafkaUnavailable, match="closed for the winter"):
            header(patient)
        assert clock.now == 1000.0 + PATIENCE_S
        clock.now += 300.0
        registry.failure = None
        assert header(patient) == b"\x00\x00\x00\x00\x01"


@pytest.mark.parametrize("wanted", ["soon", "", "-1", "Thu, 01 Jan 1970 00:00:00 GMT"])
def test_a_time_that_makes_no_sense_is_no_time(wanted: str) -> None:
    with Registry() as registry:
        registry.failure = 503, {"error_code": 50301, "message": "wait"}
        registry.headers = {"Retry-After": wanted}
        asking = requests(registry.url, Clock())
        with pytest.raises(KafkaUnavailable):
            asking.ask()
        assert asking.silent_s() == 0.0


def test_credentials_that_worked_once_are_not_given_up_for_one_refusal() -> None:
    with Registry() as registry:
        clock = Clock()
        patient = store(registry.url, clock)
        header(patient)
        registry.failure = 401, {"error_code": 40101, "message": "the directory is away"}
        with pytest.raises(KafkaUnavailable, match="the directory is away"):
            header(patient, "u")


def test_the_command_that_lets_a_change_pass_names_the_subject_and_no_password() -> None:
    with answering(INCOMPATIBLE, VERSION, NOT_THERE) as registry:
        asked = store(registry.url.replace("//", "//me:secret@") + "/", Clock())
        with pytest.raises(Unpublishable) as raised:
            header(asked)
    hint = raised.value.hint
    assert re.search(
        r"curl -X PUT -H '.*' -d '\{\"compatibility\": \"NONE\"\}' http://[^ ]+/config/public\.t-value", hint
    )
    assert "secret" not in str(raised.value)


def test_a_registry_that_never_answers_is_given_up_soon() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        asking = RegistryRequests(f"http://127.0.0.1:{silent.getsockname()[1]}", {"timeout": 0.2})
        with pytest.raises(KafkaUnavailable, match="does not answer"):
            asking.ask()
        assert time.monotonic() - began < 5
    timeout = RegistryRequests("http://127.0.0.1:1", {})._client._rest_client.timeout
    assert timeout is not None
    assert 0 < timeout <= 10, "by default, too"
