from __future__ import annotations

import pytest

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.stuck_client import CallWatch, StuckClient


class PlayedJudge(StuckClient):
    """Says what a second client would find, and counts how often it is made."""

    could_write = True

    def __init__(self) -> None:
        super().__init__(KafkaConnection("k:9092", "c"), suspicious_s=10.0, stuck_s=30.0)
        self.now_s = 1000.0
        self.clients = 0

    def another_could_write(self) -> bool:
        self.clients += 1
        return self.could_write

    def watched(self) -> CallWatch:
        return CallWatch(self, lambda: self.now_s)


def turn(judge: PlayedJudge, watch: CallWatch, seconds: float) -> None:
    """Wait in slices, as a call does."""
    until_s = judge.now_s + seconds
    while judge.now_s < until_s:
        judge.now_s += 0.2
        watch.raise_if_stuck("committing")


def test_a_call_that_makes_no_progress_while_another_client_could_write_is_stuck() -> None:
    judge = PlayedJudge()
    watch = judge.watched()
    turn(judge, watch, 39.0)
    with pytest.raises(KafkaUnavailable, match="answers, but this client makes no progress, committing"):
        turn(judge, watch, 10.0)


def test_a_call_for_topics_that_take_no_records_waits_as_a_new_client_would() -> None:
    judge = PlayedJudge()
    judge.could_write = False
    turn(judge, judge.watched(), 600.0)


def test_few_clients_are_made_to_ask() -> None:
    judge = PlayedJudge()
    judge.could_write = False
    turn(judge, judge.watched(), 60.0)
    assert judge.clients <= 12


def test_nobody_is_asked_about_a_call_that_has_only_begun() -> None:
    judge = PlayedJudge()
    turn(judge, judge.watched(), 9.0)
    assert judge.clients == 0
