from __future__ import annotations

import threading
from collections.abc import Callable
from typing import cast

import pytest

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_ids import AT_ONCE, RegistryIds
from cdcd.avro.registry_requests import RegistryRequests


class Played:
    """Requests that wait until the test lets them go."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.go = threading.Event()
        self.go.set()
        self.at_once = self.at_once_max = 0
        self.is_full = threading.Event()
        self.looked_up: list[str] = []
        self.registered: list[str] = []
        self.known: dict[str, int] = {}
        self.failure: Exception | None = None
        self.wants_silence_s = 0.0

    def silent_s(self) -> float:
        return self.wants_silence_s

    def look_up(self, subject: str, text: str) -> int | None:
        with self.lock:
            self.looked_up.append(subject)
            self.at_once += 1
            self.at_once_max = max(self.at_once, self.at_once_max)
            if self.at_once == AT_ONCE:
                self.is_full.set()
        assert self.go.wait(10)
        with self.lock:
            self.at_once -= 1
        if self.failure is not None:
            raise self.failure
        return self.known.get(subject)

    def register(self, subject: str, text: str) -> int:
        with self.lock:
            self.registered.append(subject)
            return self.known.setdefault(subject, len(self.known) + 1)


threads: list[threading.Thread] = []


def thread(run: Callable[[], None], name: str) -> threading.Thread:
    threads.append(threading.Thread(target=run, name=name, daemon=True))
    return threads[-1]


def ids(played: Played, *, may_register: bool = True) -> RegistryIds:
    threads.clear()
    return RegistryIds(cast("RegistryRequests", played), thread, may_register=may_register)


def finish() -> None:
    for each in threads:
        each.join(10)
        assert not each.is_alive()


def test_each_schema_is_asked_for_once_however_many_wait_for_it() -> None:
    played = Played()
    asked = ids(played)
    played.go.clear()
    first, second = asked.schema_id("s", "a"), asked.schema_id("s", "a")
    played.go.set()
    assert first.result(10) == second.result(10) == asked.schema_id("s", "a").result(0) == 1
    assert (played.looked_up, played.registered) == (["s"], ["s"])
    asked.schema_id("s", "b").result(10)
    assert len(played.looked_up) == 2, "another text is another schema"


def test_some_requests_run_at_once_but_no_more_than_the_bound() -> None:
    played = Played()
    asked = ids(played)
    played.go.clear()
    asked.look_up((f"s{number}", "a") for number in range(50))
    assert played.is_full.wait(10)
    waiting = asked.schema_id("urgent", "a")
    played.go.set()
    waiting.result(10)
    finish()
    assert played.at_once_max == AT_ONCE
    assert len(played.looked_up) == 51
    assert played.looked_up.index("urgent") < 2 * AT_ONCE, "whoever waits goes before what may be needed later"


def test_what_was_looked_up_in_advance_is_not_asked_for_again() -> None:
    played = Played()
    played.known = {"s": 7}
    asked = ids(played)
    asked.look_up([("s", "a"), ("new", "a")])
    finish()
    assert played.registered == [], "a look-up registers nothing"
    assert asked.schema_id("s", "a").result(0) == 7
    asked.look_up([("s", "a")])
    finish()
    assert sorted(played.looked_up) == ["new", "s"]


def test_a_failed_look_up_in_advance_is_none_and_a_registry_that_wants_time_is_left_alone() -> None:
    played = Played()
    asked = ids(played)
    played.failure = RegistryError(Meaning.PASSING, "away")
    asked.look_up((f"s{number}", "a") for number in range(AT_ONCE * 3))
    finish()
    assert len(played.looked_up) <= AT_ONCE * 2, "the first failure ends it"
    played.looked_up = ["s"]
    played.wants_silence_s = 1.0
    asked.look_up([("t", "a")])
    finish()
    played.failure = None
    assert played.looked_up == ["s"]
    assert asked.schema_id("s", "a").result(10) == 1


def test_a_failure_is_told_to_whoever_waits_and_the_next_one_asks_again() -> None:
    played = Played()
    asked = ids(played)
    played.failure = RegistryError(Meaning.PASSING, "away")
    with pytest.raises(RegistryError, match="away"):
        asked.schema_id("s", "a").result(10)
    played.failure = None
    assert asked.schema_id("s", "a").result(10) == 1


def test_a_schema_that_is_missing_and_may_not_be_registered_has_no_id_until_somebody_has_registered_it() -> None:
    played = Played()
    asked = ids(played, may_register=False)
    assert asked.schema_id("s", "a").result(10) is None
    played.known["s"] = 9
    assert asked.schema_id("s", "a").result(10) == 9
    assert played.registered == []


def test_the_ids_that_are_kept_have_a_bound() -> None:
    asked = RegistryIds(cast("RegistryRequests", Played()), thread, known_max=3)
    for number in range(10):
        asked.schema_id(f"s{number}", "a").result(10)
    assert len(asked._known) == 3
    assert asked.schema_id("s9", "a").result(0) == 10
