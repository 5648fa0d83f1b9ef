from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from cdcd.daemon.registry_wait import RegistryWait
from cdcd.errors import KafkaUnavailable, PostgresUnavailable


class Played:
    """A loop whose turns take a second each."""

    def __init__(self) -> None:
        self.now = 0.0
        self.wakes = 0
        self.turns: list[float] = []
        self.stopping = False
        self.error: Exception | None = None
        self.wait = RegistryWait(self.wake, lambda: self.stopping, lambda: self.now)
        self.wait.turn = self.turn
        self.future: Future[Any] = Future()
        self.answers_after = 1_000

    def wake(self) -> None:
        self.wakes += 1

    def turn(self, wait_s: float) -> None:
        self.turns.append(wait_s)
        self.now += min(1.0, wait_s)
        if len(self.turns) == self.answers_after:
            self.future.set_result(1)
        if self.error is not None:
            raise self.error


def test_the_loop_turns_until_the_answer_comes_and_is_woken_by_it() -> None:
    played = Played()
    played.answers_after = 3
    played.wait(played.future, 10.0)
    assert played.turns == [10.0, 9.0, 8.0]
    assert played.wakes == 2, "by the answer, and once more for what the loop waited for besides"


def test_an_answer_that_is_there_costs_no_turn() -> None:
    played = Played()
    played.future.set_result(1)
    played.wait(played.future, 10.0)
    assert played.turns == []


def test_the_waiting_ends_with_the_time_that_it_may_take() -> None:
    played = Played()
    played.wait(played.future, 2.5)
    played.wait(None, 1.0)
    assert played.turns == [2.5, 1.5, 0.5, 1.0]


def test_a_stop_or_an_error_of_the_loop_ends_the_waiting_for_good() -> None:
    played = Played()
    played.error = PostgresUnavailable("gone", code="postgres-interrupted")
    with pytest.raises(PostgresUnavailable):
        played.wait(played.future, 10.0)
    played.error, played.stopping = None, True
    with pytest.raises(KafkaUnavailable, match="had not answered yet"):
        played.wait(played.future, 10.0)
    assert len(played.turns) == 1
