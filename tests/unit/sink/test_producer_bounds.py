"""The bounds follow the cluster: slow commits make the pause before a repetition longer, one slow commit does not."""

from __future__ import annotations

import pytest

from cdcd.sink.kafka.client_config import KafkaConnection, transactional_producer_config
from cdcd.sink.producer_bounds import RETRY_BACKOFF_MS, ProducerBounds


def after(*commits_s: float) -> int:
    bounds = ProducerBounds()
    for seconds in commits_s:
        bounds.note_commit(seconds)
    return bounds.retry_backoff_ms


@pytest.mark.parametrize("commits_s", [(), (0.01,), (0.01, 0.01, 40.0), (0.01, 0.01, 0.01, 3.0, 3.0)])
def test_a_healthy_cluster_has_a_short_pause_whatever_a_single_commit_takes(commits_s: tuple[float, ...]) -> None:
    assert after(*commits_s) == RETRY_BACKOFF_MS


@pytest.mark.parametrize(
    ("commits_s", "expected_ms"),
    [((0.9,), 3_600), ((0.01, 0.01, 0.9, 0.9, 0.9), 3_600), ((3.0, 3.0, 3.0), 12_000), ((50.0,), 60_000)],
)
def test_commits_that_stay_slow_make_the_pause_longer_than_they_are(
    commits_s: tuple[float, ...], expected_ms: int
) -> None:
    assert after(*commits_s) == expected_ms


def test_a_cluster_that_is_fast_again_has_the_short_pause_again() -> None:
    assert after(0.9, 0.9, 0.9, *[0.01] * 5) == RETRY_BACKOFF_MS


def test_the_next_producer_has_the_pause() -> None:
    bounds = ProducerBounds()
    bounds.note_commit(0.9)
    config = transactional_producer_config(KafkaConnection("b", "c", bounds=bounds), "id", 60_000)
    assert config["retry.backoff.ms"] == config["retry.backoff.max.ms"] == 3_600
