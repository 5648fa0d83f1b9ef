from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdcd.progress.snapshot_records import COPYING, WANTED, TableSnapshot
from cdcd.snapshot.chunks import Chunk, begin, units
from cdcd.source.heaps import Heap

WANTED_COPY = TableSnapshot("s", "p.t", "public", "t", WANTED, 0)


def heap(blocks: int, oid: int = 1, file_node: int = 10, *, in_blocks: bool = True) -> Heap:
    return Heap(oid, "public", "t", file_node, blocks, 0, in_blocks, False)


def full(found: list[Chunk]) -> list[tuple[int, int, bool]]:
    return [(unit.first, unit.end, unit.last) for unit in found if unit.changed_since is None]


def test_a_table_is_read_from_its_first_block_to_beyond_its_last() -> None:
    copy = begin(WANTED_COPY, [heap(25)], keyed=True, lsn=0x100, xmin=700)
    assert (copy.state, copy.lsn, copy.xmin, copy.again) == (COPYING, 0x100, 700, False)
    assert full(units(copy, [heap(25)], 10)) == [(0, 10, False), (10, 20, False), (20, 25, True)]


def test_an_empty_table_is_read_too_for_it_may_have_grown_since_it_was_measured() -> None:
    copy = begin(WANTED_COPY, [heap(0)], keyed=True, lsn=1, xmin=1)
    assert full(units(copy, [heap(0)], 10)) == [(0, 0, True)]


def test_what_is_no_heap_of_blocks_is_read_at_once() -> None:
    copy = begin(WANTED_COPY, [heap(25, in_blocks=False)], keyed=True, lsn=1, xmin=1)
    assert full(units(copy, [heap(25, in_blocks=False)], 10)) == [(0, 0, True)]


def test_after_a_crash_done_blocks_are_read_only_for_what_changed_since_the_first_snapshot() -> None:
    copy = begin(WANTED_COPY, [heap(30)], keyed=True, lsn=1, xmin=700)
    [first, *_] = units(copy, [heap(30)], 10)
    assert first.done is not None
    again = begin(copy.with_blocks(first.done), [heap(30)], keyed=True, lsn=0x200, xmin=900)
    assert (again.lsn, again.xmin) == (0x200, 700)
    found = units(again, [heap(30)], 10)
    assert [(u.first, u.end, u.changed_since) for u in found if u.changed_since is not None] == [(0, 10, 700)]
    assert full(found) == [(10, 20, False), (20, 30, True)]
    assert [u.done for u in found if u.changed_since is not None] == [None]


def test_a_heap_that_was_rewritten_is_read_again() -> None:
    copy = begin(WANTED_COPY, [heap(30)], keyed=True, lsn=1, xmin=700)
    done = units(copy, [heap(30)], 10)[0].done
    assert done is not None
    rewritten = heap(20, file_node=11)
    again = begin(copy.with_blocks(done), [rewritten], keyed=True, lsn=2, xmin=900)
    assert (again.done, again.xmin) == ((), 900)
    assert full(units(again, [rewritten], 10)) == [(0, 10, False), (10, 20, True)]


def test_a_table_without_a_key_begins_with_a_truncate_and_again_after_a_crash() -> None:
    copy = begin(WANTED_COPY, [heap(30)], keyed=False, lsn=1, xmin=700)
    assert copy.again
    done = units(copy, [heap(30)], 10)[0].done
    assert done is not None
    again = begin(replace(copy.with_blocks(done), rows=5), [heap(30)], keyed=False, lsn=2, xmin=900)
    assert (again.again, again.done, again.rows) == (True, (), 0)


def test_the_truncate_that_an_asked_for_copy_begins_with_does_not_come_again_behind_blocks_that_are_done() -> None:
    copy = begin(replace(WANTED_COPY, again=True), [heap(30)], keyed=True, lsn=1, xmin=700)
    assert copy.again
    assert begin(copy, [heap(30)], keyed=True, lsn=2, xmin=900).again
    done = units(copy, [heap(30)], 10)[0].done
    assert done is not None
    assert not begin(copy.with_blocks(done), [heap(30)], keyed=True, lsn=2, xmin=900).again


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20), st.sets(st.integers(0, 9)), st.integers(1, 20))
def test_every_block_is_read_whole_once_over_all_attempts(
    blocks: int, later: int, size: int, finished: set[int], later_size: int
) -> None:
    copy = begin(WANTED_COPY, [heap(blocks)], keyed=True, lsn=1, xmin=1)
    done_blocks: set[int] = set()
    for number, unit in enumerate(units(copy, [heap(blocks)], size)):
        if number in finished and unit.done is not None:
            copy = copy.with_blocks(unit.done)
            done_blocks |= set(range(unit.first, unit.end))
    copy = begin(copy, [heap(later)], keyed=True, lsn=2, xmin=2)
    left = units(copy, [heap(later)], later_size)
    read = [block for unit in left if unit.changed_since is None for block in range(unit.first, unit.end)]
    assert len(read) == len(set(read))
    assert not done_blocks & set(read)
    assert set(range(later)) <= done_blocks | set(read)  # a heap that shrank: blocks are read that are no more
    again = {block for unit in left if unit.changed_since is not None for block in range(unit.first, unit.end)}
    assert again == done_blocks
    if later > blocks or not done_blocks:
        assert any(unit.last for unit in left)
