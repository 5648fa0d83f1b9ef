"""Ends and ids tell whether a topic lost records; retention, compaction and growth are no loss."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import GapError
from cdcd.progress.records import SlotRecord, TopicState
from cdcd.progress.topic_evidence import UNKNOWN_END, check_cluster, check_topics, lost_topics

WAS = TopicState("a", (7, 0, 12))

ends = st.lists(st.integers(0, 1000), min_size=1, max_size=4).map(tuple)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (None, "does not exist any more"),
        (TopicState("b", (7, 0, 12)), "was deleted and made again"),
        (TopicState("b", (700, 0, 1200)), "was deleted and made again"),
        (TopicState("a", (7, 0, 11)), "ends at offset 11 of partition 2, but the daemon has written up to offset 12"),
        (TopicState("", (6, 0, 12)), "ends at offset 6 of partition 0, but the daemon has written up to offset 7"),
        (TopicState("a", (7,)), "ends at offset 0 of partition 2, but the daemon has written up to offset 12"),
    ],
)
def test_a_topic_that_lost_records_is_named_with_what_shows_it(now: TopicState | None, said: str) -> None:
    assert lost_topics({"t": WAS}, {} if now is None else {"t": now}) == {"t": said}


@pytest.mark.parametrize(
    "now",
    [
        WAS,
        TopicState("a", (8, 5, 13)),
        TopicState("a", (7, 0, 12, 3)),
        TopicState("", (7, 0, 12)),
        TopicState("a", (UNKNOWN_END, UNKNOWN_END, 12)),
    ],
    ids=["as it was", "grown", "with one partition more", "brokers without ids", "without leaders"],
)
def test_a_topic_that_reaches_as_far_as_before_lost_nothing(now: TopicState) -> None:
    assert lost_topics({"t": WAS}, {"t": now}) == {}


def test_a_topic_that_never_had_a_record_may_go() -> None:
    assert lost_topics({"t": TopicState("a", (0, 0))}, {}) == {}
    assert lost_topics({"t": TopicState("a", (0, 0))}, {"t": TopicState("b", (0, 0))}) == {}


@given(ends, st.lists(st.integers(0, 100), min_size=4, max_size=4))
def test_a_topic_that_only_grows_is_never_lost(before: tuple[int, ...], more: list[int]) -> None:
    grown = tuple(end + by for end, by in zip(before, more, strict=False))
    assert lost_topics({"t": TopicState("a", before)}, {"t": TopicState("a", grown)}) == {}


@given(ends, ends)
def test_an_end_that_goes_back_is_always_a_loss(before: tuple[int, ...], after: tuple[int, ...]) -> None:
    padded = (*after, *(0 for _ in before))
    is_lost = any(end < recorded for end, recorded in zip(padded, before, strict=False))
    assert bool(lost_topics({"t": TopicState("a", before)}, {"t": TopicState("a", after)})) == is_lost


def test_the_error_names_some_topics_and_the_setting() -> None:
    check_topics({})
    with pytest.raises(GapError) as caught:
        check_topics({f"p.t{number}": "does not exist any more" for number in range(5)})
    assert "the topic p.t0 does not exist any more; the topic p.t1" in caught.value.message
    assert "and so with 2 more topics" in caught.value.message
    assert "sink.on_topic_lost" in caught.value.hint


def test_a_progress_of_another_cluster_is_refused_and_an_unknown_cluster_is_not() -> None:
    last = SlotRecord("s", 1, 1, 1, "1", 1, 1, 1, cluster_id="one")
    check_cluster(last, "one")
    check_cluster(last, "")
    check_cluster(SlotRecord("s", 1, 1, 1, "1", 1, 1, 1), "two")
    with pytest.raises(GapError, match=r"another Kafka cluster \(one\), not on this one \(two\)"):
        check_cluster(last, "two")
