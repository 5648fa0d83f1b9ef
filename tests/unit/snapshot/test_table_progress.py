from __future__ import annotations

from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.table_progress import ReadingProgress
from cdcd.source.heaps import Heap


def chunks(*ends: int, rows: int = 0, in_blocks: bool = True) -> list[Chunk]:
    heap = Heap(1, "public", "t", 1, ends[-1], rows, in_blocks, rewritten=False)
    return [Chunk("topic", heap, first, end, False, None) for first, end in zip((0, *ends), ends, strict=False)]


def test_a_chunk_that_is_being_read_counts_by_its_rows_and_is_never_called_read_before_its_end() -> None:
    first, second = made = chunks(100, 200)
    it = ReadingProgress(made)
    assert (it.blocks, it.blocks_left) == (200, 200)
    it.begin(first)
    it.add(first, 500)
    assert it.blocks_left == 200, "nobody knows how many rows a block has"
    it.end(first)
    assert it.blocks_left == 100
    it.begin(second)
    it.add(second, 250)
    assert it.blocks_left == 50, "5 rows a block, as before"
    it.add(second, 2_000)
    assert it.blocks_left == 5
    it.end(second)
    assert it.blocks_left == 0


def test_the_planners_estimate_serves_before_the_first_chunk_is_read() -> None:
    [only] = made = chunks(100, rows=1_000)
    it = ReadingProgress(made)
    it.begin(only)
    it.add(only, 400)
    assert it.blocks_left == 60


def test_a_heap_that_cannot_be_read_by_block_is_left_as_a_whole_until_rows_come() -> None:
    heap = Heap(1, "public", "t", 1, 100, 1_000, False, rewritten=False)
    only = Chunk("topic", heap, 0, 0, True, None)
    it = ReadingProgress([only])
    it.begin(only)
    assert it.blocks_left == 100
    it.add(only, 500)
    assert it.blocks_left == 50
