from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cdcd.progress.snapshot_records import RUNNING, WANTED, TableSnapshot
from cdcd.snapshot.chunks import Chunk, begin, divide
from cdcd.source.heaps import Heap

WANTED_TABLE = TableSnapshot("s", "p.t", "public", "t", WANTED, 0)


def heap(blocks: int, oid: int = 1, file_node: int = 10, *, in_blocks: bool = True) -> Heap:
    return Heap(oid, "public", "t", file_node, blocks, 0, in_blocks, False)


def full(found: list[Chunk]) -> list[tuple[int, int, bool]]:
    return [(chunk.first, chunk.end, chunk.to_the_end) for chunk in found if chunk.changed_since is None]


def test_a_table_is_read_from_its_first_block_to_beyond_its_last() -> None:
    table = begin(WANTED_TABLE, [heap(25)], key=("id",), lsn=0x100, xmin=700)
    assert (table.state, table.lsn, table.xmin, table.starts_with_truncate) == (RUNNING, 0x100, 700, False)
    assert full(divide(table, [heap(25)], 10)) == [(0, 10, False), (10, 20, False), (20, 25, True)]


def test_an_empty_table_is_read_too_for_it_may_have_grown_since_it_was_measured() -> None:
    table = begin(WANTED_TABLE, [heap(0)], key=("id",), lsn=1, xmin=1)
    assert full(divide(table, [heap(0)], 10)) == [(0, 0, True)]


def test_what_is_no_heap_of_blocks_is_read_at_once() -> None:
    table = begin(WANTED_TABLE, [heap(25, in_blocks=False)], key=("id",), lsn=1, xmin=1)
    assert full(divide(table, [heap(25, in_blocks=False)], 10)) == [(0, 0, True)]


def test_after_a_crash_done_blocks_are_read_only_for_what_changed_since_the_first_snapshot() -> None:
    table = begin(WANTED_TABLE, [heap(30)], key=("id",), lsn=1, xmin=700)
    [first, *_] = divide(table, [heap(30)], 10)
    assert first.completes is not None
    again = begin(table.with_range(first.completes), [heap(30)], key=("id",), lsn=0x200, xmin=900)
    assert (again.lsn, again.xmin) == (0x200, 700)
    found = divide(again, [heap(30)], 10)
    assert [(u.first, u.end, u.changed_since) for u in found if u.changed_since is not None] == [(0, 10, 700)]
    assert full(found) == [(10, 20, False), (20, 30, True)]
    assert [u.completes for u in found if u.changed_since is not None] == [None]


def test_rows_under_another_key_are_read_again_behind_a_truncate() -> None:
    table = begin(WANTED_TABLE, [heap(30)], key=("id",), lsn=1, xmin=700)
    done = divide(table, [heap(30)], 10)[0].completes
    assert done is not None
    again = begin(replace(table.with_range(done), rows=5), [heap(30)], key=("tenant", "id"), lsn=2, xmin=900)
    assert (again.done, again.rows, again.starts_with_truncate, again.xmin) == ((), 0, True, 900)
    assert again.key_columns == ("tenant", "id")


def test_rows_under_another_condition_are_read_again_behind_a_truncate() -> None:
    table = begin(WANTED_TABLE, [heap(30)], key=("id",), lsn=1, xmin=700, where="id > 1")
    [done] = [each.completes for each in divide(table, [heap(30)], 100)]
    assert done is not None
    again = begin(replace(table.with_range(done), rows=5), [heap(30)], key=("id",), lsn=2, xmin=900)
    assert (again.where, again.starts_with_truncate, again.rows, again.done) == ("", True, 0, ())
    same = begin(table.with_range(done), [heap(30)], key=("id",), lsn=2, xmin=900, where="id > 1")
    assert (same.where, same.done) == ("id > 1", (done,))


def test_a_heap_that_was_rewritten_is_read_again() -> None:
    table = begin(WANTED_TABLE, [heap(30)], key=("id",), lsn=1, xmin=700)
    done = divide(table, [heap(30)], 10)[0].completes
    assert done is not None
    rewritten = heap(20, file_node=11)
    again = begin(table.with_range(done), [rewritten], key=("id",), lsn=2, xmin=900)
    assert (again.done, again.xmin) == ((), 900)
    assert full(divide(again, [rewritten], 10)) == [(0, 10, False), (10, 20, True)]


def test_a_table_without_a_key_begins_with_a_truncate_and_again_after_a_crash() -> None:
    table = begin(WANTED_TABLE, [heap(30)], key=(), lsn=1, xmin=700)
    assert table.starts_with_truncate
    done = divide(table, [heap(30)], 10)[0].completes
    assert done is not None
    again = begin(replace(table.with_range(done), rows=5), [heap(30)], key=(), lsn=2, xmin=900)
    assert (again.starts_with_truncate, again.done, again.rows) == (True, (), 0)


def test_the_truncate_that_a_requested_snapshot_begins_with_does_not_come_twice() -> None:
    table = begin(replace(WANTED_TABLE, starts_with_truncate=True), [heap(30)], key=("id",), lsn=1, xmin=700)
    assert table.starts_with_truncate
    assert begin(table, [heap(30)], key=("id",), lsn=2, xmin=900).starts_with_truncate
    done = divide(table, [heap(30)], 10)[0].completes
    assert done is not None
    assert not begin(table.with_range(done), [heap(30)], key=("id",), lsn=2, xmin=900).starts_with_truncate


@given(st.integers(0, 60), st.integers(0, 60), st.integers(1, 20), st.sets(st.integers(0, 9)), st.integers(1, 20))
def test_every_block_is_read_whole_once_over_all_attempts(
    blocks: int, later: int, size: int, finished: set[int], later_size: int
) -> None:
    table = begin(WANTED_TABLE, [heap(blocks)], key=("id",), lsn=1, xmin=1)
    done_blocks: set[int] = set()
    for number, chunk in enumerate(divide(table, [heap(blocks)], size)):
        if number in finished and chunk.completes is not None:
            table = table.with_range(chunk.completes)
            done_blocks |= set(range(chunk.first, chunk.end))
    table = begin(table, [heap(later)], key=("id",), lsn=2, xmin=2)
    left = divide(table, [heap(later)], later_size)
    read = [block for chunk in left if chunk.changed_since is None for block in range(chunk.first, chunk.end)]
    assert len(read) == len(set(read))
    assert not done_blocks & set(read)
    assert set(range(later)) <= done_blocks | set(read)  # a heap that shrank: blocks are read that are no more
    again = {block for chunk in left if chunk.changed_since is not None for block in range(chunk.first, chunk.end)}
    assert again == done_blocks
    if later > blocks or not done_blocks:
        assert any(chunk.to_the_end for chunk in left)
