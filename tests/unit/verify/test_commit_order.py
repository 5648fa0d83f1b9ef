"""Events of several partitions come in commit order, none before all that may precede it have come."""

from __future__ import annotations

import random

import pytest

from cdcd.verify.commit_order import CommitOrder


def taken(order: CommitOrder[str]) -> list[str]:
    return [item for _, _, item in order.take()]


def test_nothing_comes_while_a_partition_may_still_have_something_earlier() -> None:
    order: CommitOrder[str] = CommitOrder([0, 1])
    order.put(0, (10, 0), "a")
    order.put(0, (30, 0), "c")
    assert taken(order) == []
    order.put(1, (20, 0), "b")
    assert taken(order) == ["a", "b"], "1 may still have what comes before c"
    order.end(1)
    assert taken(order) == ["c"]
    assert (order.waiting, order.unfinished) == (0, {0})


def test_what_was_sent_again_is_left_out() -> None:
    order: CommitOrder[str] = CommitOrder([0])
    for position, item in [((10, 0), "a"), ((10, 1), "b"), ((10, 0), "a"), ((10, 1), "b"), ((11, 0), "c")]:
        order.put(0, position, item)
    assert taken(order) == ["a", "b", "c"]
    order.end(0)
    order.put(0, (12, 0), "behind the end")
    assert (taken(order), order.waiting) == ([], 0)


def test_what_is_in_every_partition_comes_from_each() -> None:
    order: CommitOrder[str] = CommitOrder([0, 1])
    order.put(0, (10, 0), "t")
    order.put(1, (10, 0), "t")
    order.end(0)
    assert [partition for partition, _, _ in order.take()] == [0, 1]


@pytest.mark.parametrize("seed", range(20))
def test_any_mixture_of_partitions_comes_in_order(seed: int) -> None:
    rng = random.Random(seed)
    partitions = range(rng.randint(1, 6))
    events = [((rng.randint(1, 40), seq), rng.choice(partitions)) for seq in range(rng.randint(0, 200))]
    queues = {own: sorted(position for position, at in events if at == own) for own in partitions}
    order: CommitOrder[str] = CommitOrder(partitions)
    came: list[str] = []
    while order.unfinished:
        partition = rng.choice(sorted(order.unfinished))
        if queues[partition]:
            position = queues[partition].pop(0)
            order.put(partition, position, str(position))
        else:
            order.end(partition)
        if rng.random() < 0.3:
            came += taken(order)
    came += taken(order)
    assert came == [str(position) for position in sorted(position for position, _ in events)]


def test_a_partition_that_is_far_ahead_is_held_until_nothing_of_it_waits() -> None:
    order: CommitOrder[str] = CommitOrder([0, 1])
    for lsn in range(10, 50, 10):
        order.put(0, (lsn, 0), "a")
    assert order.to_pause(set(), 4) == set()
    order.put(0, (50, 0), "a")
    assert order.to_pause(set(), 4) == {0}
    order.put(1, (25, 0), "b")
    assert (len(taken(order)), order.to_pause({0}, 4)) == (3, {0}), "three still wait"
    order.put(1, (60, 0), "b")
    assert (len(taken(order)), order.to_pause({0}, 4)) == (3, set()), "now 1 is ahead, and needs what follows in 0"
