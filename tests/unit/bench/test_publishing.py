from __future__ import annotations

from bench.publishing import TURN_BYTES, TURN_ROWS, turns


def test_every_record_is_handed_over_once_in_its_partitions_order() -> None:
    sizes = {("orders", 0): 5_001, ("orders", 1): 4_999, ("orders", 2): 1, ("empty", 0): 0}
    found: dict[tuple[str, int], list[int]] = {place: [] for place in sizes}
    for place, some in turns(sizes, 1_000_000):
        found[place] += range(some.start, some.stop)
    assert found == {place: list(range(size)) for place, size in sizes.items()}


def test_each_turn_has_records_of_all_partitions_and_is_bounded_in_rows_and_bytes() -> None:
    of_rows = list(turns({("a", 0): 2 * TURN_ROWS, ("a", 1): 2 * TURN_ROWS}, 1))
    assert [place for place, _ in of_rows] == [("a", 0), ("a", 1)] * 4
    assert all(some.stop - some.start == TURN_ROWS // 2 for _, some in of_rows)
    of_bytes = list(turns({("a", 0): 10}, 5 * TURN_BYTES))
    assert [some.stop - some.start for _, some in of_bytes] == [2] * 5
