"""Which steps have a line while they are under way, without a session."""

from __future__ import annotations

from queue import Queue

import pytest

pytest.importorskip("pyspark")

from cdcd.spark.steps import Steps


def test_a_step_that_takes_long_is_said_more_and_more_seldom_and_a_quick_one_never() -> None:
    now, lines = 0.0, list[str]()
    steps = Steps(lines.append, lambda: now)

    def wait(seconds: int) -> list[str]:
        nonlocal now
        lines.clear()
        for _ in range(seconds):
            now += 1
            steps.tick()
        return lines[:]

    assert wait(100) == [], "nothing is under way"
    steps.begin("look for new events")
    assert wait(9) == []
    steps("plan 2")
    assert wait(9) == []
    steps("merge a")
    assert wait(4) == []
    steps("merge b")
    assert wait(32) == ["merge a: 14 s so far; merge b: 10 s so far", "merge a: 34 s so far; merge b: 30 s so far"]
    steps("merged a")
    assert wait(10) == ["merge b: 42 s so far"]
    steps("public.x is parked, or its snapshot runs: until that ends the table stays as it is")
    assert wait(200) == [f"merge b: {seconds} s so far" for seconds in (52, 72, 112, 172, 232)]
    steps("merged b")
    steps("publish 2")
    assert wait(10) == ["publish 2: 10 s so far"]
    steps("published 2")
    assert wait(100) == []


def test_a_command_that_is_silent_says_what_it_does_until_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cdcd.spark.steps.SILENCE_S", 0.0)
    said: Queue[str] = Queue()
    steps = Steps(said.put)
    with steps.watched("start Spark"):
        assert said.get(timeout=10).startswith("start Spark: ")
    while not said.empty():
        said.get()
    steps.tick()
    assert said.empty()
