"""The topics of the outbox: their names are legal, short, and no error, whatever an application writes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.outbox.outbox_rules import OutboxRules
from cdcd.sink.topics import TopicNames

RULES = OutboxRules(None, "outbox", "outbox.{aggregate}", ("id", "a", "b", "type", "payload"))


@pytest.mark.parametrize(
    ("aggregate", "topic"),
    [
        ("Order", "outbox.Order"),
        ("Order-line_2.x", "outbox.Order-line_2.x"),
        ("a b/é", "outbox.a-20b-2f-c3-a9"),
        ("messages--table", "outbox.messages-2d-table"),
        ("-é-", "outbox.-2d-c3-a9-"),
        ("..", "outbox..."),
    ],
)
def test_a_type_is_readable_in_the_name_of_its_topic(aggregate: str, topic: str) -> None:
    assert RULES.topic(aggregate) == topic


def test_types_that_give_one_name_share_a_topic() -> None:
    assert RULES.topic("a b") == RULES.topic("a-20b")


@given(st.text(min_size=1, max_size=400))
def test_any_type_has_a_legal_topic(aggregate: str) -> None:
    name = RULES.topic(aggregate)
    assert re.fullmatch(r"outbox\.[a-zA-Z0-9._-]+", name)
    assert len(name) <= 249
    assert "--" not in name or len(name) == 249


def test_two_long_types_have_two_topics_and_the_progress_does_not_grow_with_them() -> None:
    names, long = TopicNames("shop"), "é" * 1_000_000
    one, other = RULES.topic(long), RULES.topic(long + "x")
    assert len(one) == len(other) == 249
    assert len({names.topic("", one), names.topic("", other)}) == 2
