from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import CdcdError, KafkaUnavailable
from cdcd.monitoring.http_answers import HttpAnswers
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.reachability import KAFKA, LOST_AFTER_S, POSTGRESQL, REGISTRY, Reachability
from cdcd.monitoring.status import State, Status
from cdcd.monitoring.status_page import render
from cdcd.monitoring.status_report import report

GONE = KafkaUnavailable("Kafka (k:9092) did not answer in time", "Look at the brokers", code="kafka-unavailable")


class Played:
    """Services that a test plays, judged once a second as in the daemon."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.lost: list[str] = []
        self.it = Reachability((POSTGRESQL, KAFKA, REGISTRY), lambda _, error: self.lost.append(error.message))

    def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self.it.judge(self.now_s)

    def fail(self, service: str = KAFKA) -> None:
        self.it.failed(service, self.now_s, GONE)

    def losses(self) -> set[str]:
        return set(self.it.losses())


@pytest.fixture
def played() -> Played:
    return Played()


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.fixture(autouse=True)
def _logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("cdcd"), "propagate", True)
    caplog.set_level(logging.INFO, "cdcd.monitoring.reachability")


def test_a_service_that_fails_is_lost_and_back_by_name_once_each(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.fail()
    played.pass_s(2)
    played.fail()
    assert played.losses() == set()
    played.pass_s(20)
    assert played.losses() == {KAFKA}
    assert played.it.unreachable_s(played.now_s) == {POSTGRESQL: 0, KAFKA: 22, REGISTRY: 0}
    played.it.answered(KAFKA)
    played.pass_s(3)
    assert played.losses() == set()
    assert messages(caplog) == [
        "lost Kafka: Kafka (k:9092) did not answer in time. Look at the brokers [kafka-unavailable]",
        "Kafka is back",
    ]
    assert caplog.records[1].__dict__["seconds"] == 23
    assert played.lost == ["lost Kafka: Kafka (k:9092) did not answer in time"]


def test_a_question_without_an_answer_is_a_loss_as_an_error_is(played: Played) -> None:
    played.it.asked(POSTGRESQL, played.now_s)
    played.pass_s(int(LOST_AFTER_S) - 1)
    assert played.losses() == set()
    played.pass_s(1)
    assert played.losses() == {POSTGRESQL}
    assert played.lost == ["lost PostgreSQL: PostgreSQL does not answer"]


def test_a_broker_that_restarts_is_not_lost(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        played.fail()
        played.pass_s(int(LOST_AFTER_S) - 1)
        played.it.answered(KAFKA)
        played.pass_s(2)
    assert messages(caplog) == []


def test_work_that_has_waited_long_enough_is_a_loss_at_once(played: Played) -> None:
    played.it.failed(KAFKA, played.now_s - 6, GONE)
    played.pass_s(1)
    assert played.losses() == {KAFKA}


def test_a_process_that_was_suspended_has_not_lost_what_it_could_not_hear(played: Played) -> None:
    played.pass_s(1)
    played.it.asked(KAFKA, played.now_s)
    played.now_s += 600
    played.pass_s(2)
    assert played.losses() == set()
    played.it.answered(KAFKA)
    played.pass_s(10)
    assert played.lost == []


@given(st.lists(st.sampled_from(["ask", "answer", "fail", "wait", "wait"]), max_size=80))
def test_a_service_is_lost_exactly_while_its_oldest_question_is_too_old(steps: list[str]) -> None:
    played, unanswered_since_s = Played(), None
    for step in steps:
        if step == "ask":
            played.it.asked(KAFKA, played.now_s)
        elif step == "fail":
            played.fail()
        elif step == "answer":
            played.it.answered(KAFKA)
        if step in ("ask", "fail") and unanswered_since_s is None:
            unanswered_since_s = played.now_s
        elif step == "answer":
            unanswered_since_s = None
        played.pass_s(step == "wait")
        if step == "wait":
            is_old = unanswered_since_s is not None and played.now_s - unanswered_since_s >= LOST_AFTER_S
            assert played.losses() == ({KAFKA} if is_old else set())


def lost(*services: str) -> Status:
    status = Status(Identity("1.0", "slot", "pub"), 1000.0)
    status.reachability = Reachability((POSTGRESQL, KAFKA, REGISTRY), status.errors.add)
    status.begin_stream(1000.0)
    for service in services:
        status.reachability.failed(service, 1000.0, GONE)
    status.reachability.judge(1010.0)
    return status


@pytest.mark.parametrize(
    ("services", "is_ready"), [((), True), ((KAFKA,), False), ((POSTGRESQL,), False), ((REGISTRY,), True)]
)
def test_changes_flow_only_while_postgresql_and_kafka_answer(services: tuple[str, ...], is_ready: bool) -> None:
    status = lost(*services)
    assert status.is_ready() is is_ready
    assert status.is_available(), "another replica would not bring the service back"
    assert status.is_alive(1010.0), "nor would a restart"


def test_probes_name_what_is_lost() -> None:
    status = lost(KAFKA)
    ready = HttpAnswers(status, bytes)("/readyz")
    assert ready.status == 503
    assert ready.body.startswith(b"streaming; Kafka lost for ")


def test_the_page_names_what_is_lost_in_the_pill_and_says_what_to_do_with_the_time() -> None:
    shown = render(report(lost(KAFKA, REGISTRY), 1012.0, 0))
    assert '<span class="state failed">Kafka and the schema registry lost</span>' in shown
    assert (
        "Kafka lost for 12 s: Kafka (k:9092) did not answer in time. <strong>Look at the brokers [kafka-unavailable]<"
        in shown
    )
    assert (
        "2.0 s ago: lost Kafka: Kafka (k:9092) did not answer in time. <strong>Look at the brokers [kafka-unavailable]<"
        in shown
    )


def test_the_page_of_a_standby_says_both() -> None:
    status = lost(KAFKA)
    status.state = State.WAITING
    assert ">waiting for the slot, which another daemon uses; Kafka lost<" in render(report(status, 1012.0, 0))


def test_an_error_without_a_hint_is_a_loss_too() -> None:
    played = Played()
    played.it.failed(REGISTRY, played.now_s, CdcdError("no answer", code="internal-error"))
    played.pass_s(6)
    assert played.lost == ["lost the schema registry: no answer"]


def test_another_cause_of_a_loss_is_said_once_and_shown(played: Played, caplog: pytest.LogCaptureFixture) -> None:
    refused = CdcdError("Kafka refused: the certificate has expired", "Look at /tls.crt", code="internal-error")
    played.fail()
    played.pass_s(10)
    for _ in range(3):
        played.it.failed(KAFKA, played.now_s, refused)
        played.pass_s(1)
        played.fail()
        played.pass_s(1)
    assert [message for message in messages(caplog) if message.startswith("lost")] == [
        f"lost Kafka: {GONE}", f"lost Kafka: {refused}",
    ]  # fmt: skip
    assert played.it.losses()[KAFKA].since_s == 1000.0
    played.it.failed(KAFKA, played.now_s, refused)
    played.it.answered(KAFKA)
    played.pass_s(1)
    assert played.losses() == set()
