from __future__ import annotations

import json

import pytest

from cdcd.clock import monotonic_s, wall_us
from cdcd.monitoring.http_answers import HttpAnswers
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.stall_detection import STALLED_AFTER_S
from cdcd.monitoring.status import State, Status


@pytest.fixture
def status() -> Status:
    return Status(Identity("1.0", "slot", "pub"), monotonic_s())


@pytest.fixture
def answers(status: Status) -> HttpAnswers:
    return HttpAnswers(status, lambda: Metrics("pure").exposition(status, monotonic_s(), wall_us()))


def ask(answers: HttpAnswers, target: str) -> tuple[int, str]:
    answer = answers(target)
    return answer.status.value, answer.body.decode()


def test_healthz_says_whether_what_waits_moves(answers: HttpAnswers, status: Status) -> None:
    status.begin_stream(monotonic_s())
    assert ask(answers, "/healthz") == (200, "alive: streaming\n")
    status.stages.last_loop_s -= STALLED_AFTER_S + 1
    assert ask(answers, "/healthz") == (503, "stalled: nothing moves at the loop for 121 s\n")


def test_readyz_says_whether_changes_flow(answers: HttpAnswers, status: Status) -> None:
    assert ask(answers, "/readyz") == (503, "starting\n")
    status.begin_stream(monotonic_s())
    assert ask(answers, "/readyz") == (200, "streaming\n")


def test_a_hot_standby_says_so_is_alive_and_available_but_not_ready(answers: HttpAnswers, status: Status) -> None:
    status.stand_by(monotonic_s())
    said = "waiting for the slot, which another daemon uses\n"
    assert ask(answers, "/healthz") == (200, f"alive: {said}")
    assert ask(answers, "/readyz") == (503, said)
    assert ask(answers, "/availablez") == (200, said)
    status.state = State.RESTARTING
    assert ask(answers, "/availablez") == (503, "restarting\n")


def test_metrics_and_the_page_come_in_their_types(answers: HttpAnswers) -> None:
    metrics = answers("/metrics")
    assert (metrics.status, metrics.kind) == (200, "text/plain; version=0.0.4")
    assert b'cdcd_info{build="pure",publication="pub",slot="slot",version="1.0"} 1.0' in metrics.body
    page = answers("/?anything")
    assert (page.status, page.kind) == (200, "text/html")
    assert page.body.startswith(b"<!doctype html>")


def test_the_page_and_the_terminal_have_one_source(answers: HttpAnswers, status: Status) -> None:
    status.published.add(monotonic_s(), 1, {"public.t": 4_711})
    found = answers("/status.json")
    assert (found.status, found.kind) == (200, "application/json")
    assert json.loads(found.body)["tables"][0]["rows"] == 4_711
    assert "<td>4,711</td>" in ask(answers, "/")[1]


@pytest.mark.parametrize(("path", "kind"), [("/page.css", "text/css"), ("/page.js", "text/javascript")])
def test_what_the_page_loads_comes_in_its_type(answers: HttpAnswers, path: str, kind: str) -> None:
    found = answers(path)
    assert (found.status, found.kind) == (200, kind)
    assert found.body


def test_another_path_is_not_found(answers: HttpAnswers) -> None:
    assert ask(answers, "/../etc/passwd")[0] == 404
