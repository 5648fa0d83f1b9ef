from __future__ import annotations

import threading
from collections.abc import Callable
from hashlib import sha256
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
        self.refusal: Exception | None = None
        self.forbids_reading = False
        self.newest_asked = 0

    def look_up(self, subject: str, text: str) -> int | None:
        self._answer(self.looked_up, subject)
        return self.known.get(subject)

    def register(self, subject: str, text: str) -> int:
        self._answer(self.registered, subject)
        if self.refusal is not None:
            raise self.refusal
        with self.lock:
            return self.known.setdefault(subject, len(self.known) + 1)

    def newest(self, subject: str) -> tuple[int, str] | None:
        self.newest_asked += 1
        if self.forbids_reading:
            raise RegistryError(Meaning.FORBIDDEN, "no")
        known = self.known.get(subject)
        return None if known is None else (known, "a")

    def _answer(self, asked: list[str], subject: str) -> None:
        with self.lock:
            asked.append(subject)
            self.at_once += 1
            self.at_once_max = max(self.at_once, self.at_once_max)
            if self.at_once == AT_ONCE:
                self.is_full.set()
        assert self.go.wait(10)
        with self.lock:
            self.at_once -= 1
        if self.failure is not None:
            raise self.failure


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
    assert (played.looked_up, played.registered) == ([], ["s"])
    asked.schema_id("s", "b").result(10)
    assert len(played.registered) == 2, "another text is another schema"


def test_new_schemas_cost_one_request_each_and_no_more_than_the_bound_run_at_once() -> None:
    played = Played()
    asked = ids(played)
    played.go.clear()
    waiting = [asked.schema_id(f"s{number}", "a") for number in range(50)]
    assert played.is_full.wait(10)
    played.go.set()
    assert sorted(each.result(10) or 0 for each in waiting) == list(range(1, 51))
    finish()
    assert played.at_once_max == AT_ONCE
    assert (len(played.registered), played.looked_up) == (50, [])


def digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def test_what_kafka_has_is_asked_for_once_in_all_however_many_schemas_there_are() -> None:
    played = Played()
    played.known = {f"s{number}": number + 1 for number in range(1000)}
    asked = ids(played)
    asked.take_over({(f"s{number}", digest("a")): number + 1 for number in range(1000)}, 0)
    assert asked.known("s7", "a") is None, "it may be another registry"
    for number in range(1000):
        assert asked.schema_id(f"s{number}", "a").result(10) == number + 1
    assert (played.looked_up, played.newest_asked, played.registered) == (["s0"], 1, [])
    assert asked.known("s7", "a") == 8
    assert asked.known("s7", "b") is None
    assert asked.unrecorded() == {}


def test_no_id_in_kafka_counts_once_another_registry_answers() -> None:
    played = Played()
    recorded = {(f"s{number}", digest("a")): 90 + number for number in range(3)}
    asked = ids(played)
    asked.take_over(recorded, 4)
    assert [asked.schema_id(f"s{number}", "a").result(10) for number in (1, 0)] == [1, 2]
    assert (played.looked_up, played.registered) == (["s1"], ["s1", "s0"])
    assert asked.generation == 5
    assert asked.unrecorded() == {("s1", digest("a")): 1, ("s0", digest("a")): 2}
    asked.take_over(recorded, 4)  # the ids of the new generation did not come to Kafka
    assert asked.generation == 5
    assert asked.unrecorded() == {("s1", digest("a")): 1, ("s0", digest("a")): 2}
    assert asked.schema_id("s2", "a").result(10) == 3
    assert played.looked_up == ["s1"]


@pytest.mark.parametrize("forbids_reading", [False, True])
def test_a_registry_that_was_restored_to_an_earlier_state_is_another_one(forbids_reading: bool) -> None:
    played = Played()
    played.forbids_reading = forbids_reading
    played.known = {"s0": 1, "s1": 2}
    asked = ids(played)
    asked.take_over({(f"s{number}", digest("a")): number + 1 for number in range(3)}, 0)
    assert asked.schema_id("s0", "a").result(10) == 1
    assert asked.generation == 1
    assert asked.known("s2", "a") is None, "the registry has given it to nobody, or will give it to another schema"
    assert asked.schema_id("s1", "a").result(10) == 2
    assert asked.schema_id("s2", "a").result(10) == 3
    assert (played.looked_up, played.registered) == (["s0"], ["s1", "s2"])
    assert set(asked.unrecorded()) == {(f"s{number}", digest("a")) for number in range(3)}


def test_each_new_id_is_recorded_once_and_again_if_kafka_has_not_got_it() -> None:
    played = Played()
    asked = ids(played)
    asked.schema_id("s", "a").result(10)
    assert asked.unrecorded() == {("s", digest("a")): 1}
    assert asked.unrecorded() == {}
    asked.take_over({}, 0)
    assert asked.unrecorded() == {("s", digest("a")): 1}
    asked.take_over({("s", digest("a")): 1}, 0)
    assert asked.unrecorded() == {}


def test_a_user_that_may_not_register_gets_what_the_registry_has() -> None:
    played = Played()
    played.known = {"s": 7, "t": 8}
    asked = ids(played)
    played.refusal = RegistryError(Meaning.FORBIDDEN, "no")
    assert asked.schema_id("s", "a").result(10) == 7
    assert asked.schema_id("t", "a").result(10) == 8
    assert (played.registered, played.looked_up) == (["s"], ["s", "t"]), "it is not tried again and again"
    with pytest.raises(RegistryError, match="no"):
        asked.schema_id("u", "a").result(10)


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
