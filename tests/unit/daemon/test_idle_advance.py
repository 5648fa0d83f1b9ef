from __future__ import annotations

from math import inf

from cdcd.daemon.idle_advance import SYNCHRONOUS_INTERVAL_S, IdleAdvance


def test_a_position_is_handed_on_once_and_the_next_one_after_the_interval() -> None:
    idle = IdleAdvance(10.0)
    assert idle.is_due(1000.0, synchronous=False)
    assert idle.advance(1000.0, 200)
    assert not idle.advance(1000.0, 200)
    assert not idle.is_due(1009.9, synchronous=False)
    assert idle.is_due(1010.0, synchronous=False)
    assert idle.advance(1010.0, 300)
    assert idle.lsn == 300


def test_no_position_is_handed_on_where_there_is_none() -> None:
    idle = IdleAdvance(10.0)
    assert not idle.advance(1000.0, 0)
    assert idle.is_due(1000.0, synchronous=False), "what was not handed on has no interval"


def test_a_commit_that_waits_for_the_daemon_shortens_the_interval() -> None:
    idle = IdleAdvance(10.0)
    assert idle.advance(1000.0, 200)
    assert idle.is_due(1000.0 + SYNCHRONOUS_INTERVAL_S, synchronous=True)
    assert not idle.is_due(1000.0 + SYNCHRONOUS_INTERVAL_S, synchronous=False)


def test_the_loop_waits_until_a_position_is_due_and_for_ever_without_one() -> None:
    idle = IdleAdvance(10.0)
    assert idle.advance(1000.0, 200)
    assert idle.wait_s(1004.0, 200, synchronous=False) == inf
    assert idle.wait_s(1004.0, 300, synchronous=False) == 6.0
    assert idle.wait_s(1004.0, 300, synchronous=True) == 0.0
