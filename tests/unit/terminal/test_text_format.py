from __future__ import annotations

import pytest

from cdcd.terminal.text_format import duration, plural, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.2 s"),
        (42.4, "42 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (7260, "2 h 1 min"),
        (187200, "2 d 4 h"),
    ],
)
def test_durations_are_written_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (1 << 30, "1.0 GiB"), (1 << 50, "1024.0 TiB")]
)
def test_sizes_are_written_for_people(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 tables"), (1, "1 table"), (2, "2 tables")])
def test_one_of_a_thing_is_not_written_as_many(count: int, text: str) -> None:
    assert plural(count, "table") == text
