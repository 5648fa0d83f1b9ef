"""The newest table record of every topic is where the slot record says, or later, and not too far back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cdcd.sink.kafka_transaction import KafkaTopic, Topic
from cdcd.sink.table_records import TableRecordPlaces


def topic(name: str) -> Topic:
    return Topic(name, ("public", name), KafkaTopic(name, [0]), None)


def test_a_slot_without_tables_is_read_from_where_the_progress_ended() -> None:
    assert TableRecordPlaces(end=7).record([]) == 7


def test_the_oldest_record_says_from_where_to_read() -> None:
    a, b = topic("a"), topic("b")
    places = TableRecordPlaces([(b, 5), (a, 3)], end=9)
    assert places.record([b]) == 3
    places.reached(20)
    assert places.record([a]) == 9
    assert places.record([a, b]) == 20
    assert places.topics == {"a": a, "b": b}


def test_a_record_that_is_far_back_is_written_again() -> None:
    a, b = topic("a"), topic("b")
    places = TableRecordPlaces([(a, 0), (b, 50)], end=100, window=100)
    assert places.overdue() == []
    places.reached(101)
    assert places.overdue() == [a]


def test_few_records_are_written_again_at_once() -> None:
    many = [topic(str(number)) for number in range(1000)]
    places = TableRecordPlaces(((each, number) for number, each in enumerate(many)), end=20_000, window=10)
    assert places.overdue() == many[:20]


steps = st.lists(st.tuples(st.sets(st.integers(0, 5)), st.integers(0, 30)), max_size=40)


@given(steps)
def test_nothing_that_was_recorded_lies_before_the_place_to_read_from(steps: list[tuple[set[int], int]]) -> None:
    """Played against a progress topic that other slots write to, too."""
    topics = [topic(str(number)) for number in range(6)]
    places, end, newest = TableRecordPlaces(window=20), 0, dict[str, int]()
    for numbers, others in steps:
        end += others
        written = {each.name: each for each in [*(topics[number] for number in numbers), *places.overdue()]}
        start = places.record(written.values())
        for name in written:
            newest[name] = end
            end += 1
        assert all(offset >= start for offset in newest.values())
        if others % 2:  # the end is not always known
            places.reached(end)
        assert places.end <= end
