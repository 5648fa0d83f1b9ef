from __future__ import annotations

from collections.abc import Callable

import pytest

from cdcd.source.copy_data import read_frames


def source(*answers: bytes | int | Exception) -> Callable[[int], tuple[int, memoryview]]:
    """Answers as psycopg's `get_copy_data` does: sizes with their bytes, 0 or -1 with nothing."""
    left = iter(answers)

    def get(without_waiting: int) -> tuple[int, memoryview]:
        assert without_waiting == 1
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return (answer, memoryview(b"")) if isinstance(answer, int) else (len(answer), memoryview(answer))

    return get


def test_all_that_is_buffered_is_taken_in_order() -> None:
    frames = [b"before"]
    assert read_frames(source(b"one", b"three", 0), frames, 10, 1000) == (8, 0)
    assert frames == [b"before", b"one", b"three"]


def test_nothing_buffered_is_told_from_the_end_of_the_stream() -> None:
    assert read_frames(source(0), [], 10, 1000) == (0, 0)
    assert read_frames(source(b"last", -1), [], 10, 1000) == (4, -1)


def test_no_frame_beyond_the_bound_is_asked_for() -> None:
    frames: list[bytes] = []
    assert read_frames(source(b"one", b"two"), frames, 2, 1000) == (6, 3)
    assert len(frames) == 2


def test_the_frame_that_reaches_the_bound_of_bytes_is_the_last() -> None:
    frames: list[bytes] = []
    assert read_frames(source(b"12345", b"67890"), frames, 10, 6) == (10, 5)
    assert read_frames(source(b"12345"), frames, 10, 5) == (5, 5)


def test_what_came_before_an_error_is_kept() -> None:
    frames: list[bytes] = []
    with pytest.raises(ConnectionError):
        read_frames(source(b"one", ConnectionError()), frames, 10, 1000)
    assert frames == [b"one"]
