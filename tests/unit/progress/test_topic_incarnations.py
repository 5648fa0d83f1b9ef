"""Which table the events of each topic are of, as the stream announces it."""

from __future__ import annotations

from cdcd.progress.topic_incarnations import TopicIncarnations
from cdcd.source.incarnations import Incarnation

FULL = Incarnation(1, (7,), 1, 99)


def test_the_first_table_of_a_topic_replaces_nothing() -> None:
    it = TopicIncarnations({})
    assert it.announce("a", 1) == {"a": None}
    assert it.announce("a", 1) == {}
    assert it.get("a") == Incarnation(1)


def test_the_same_table_stays_as_the_catalog_has_described_it() -> None:
    it = TopicIncarnations({"a": FULL})
    assert it.announce("a", 1) == {}
    assert it.get("a") == FULL


def test_two_tables_that_swap_their_names_replace_each_other() -> None:
    it = TopicIncarnations({"a": FULL, "b": Incarnation(2)})
    assert it.announce("a", 2) == {"a": FULL, "b": Incarnation(2)}
    assert it.announce("b", 1) == {"b": Incarnation(0)}
    assert it.all() == {"a": Incarnation(2), "b": Incarnation(1)}


def test_a_table_that_comes_back_replaces_itself_because_its_topic_lacks_what_came_between() -> None:
    it = TopicIncarnations({"a": FULL})
    it.announce("b", 1)
    assert it.announce("a", 1)["a"] == Incarnation(0)


def test_a_table_that_is_copied_to_another_topic_has_left_its_own_although_no_event_says_so() -> None:
    it = TopicIncarnations({"a": FULL})
    assert it.put("a", FULL) == {}
    assert it.put("b", FULL) == {"a": FULL}
    assert it.announce("b", 1) == {}
    assert it.get("a") == Incarnation(0)
    assert it.announce("a", 1) == {"b": FULL, "a": Incarnation(0)}
    assert it.put("c", Incarnation(0)) == it.put("d", Incarnation(0)) == {}
