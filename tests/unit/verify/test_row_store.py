from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcd.verify.row_store import SHORT, SUM_DIGITS, Part, RowStore, bucket_of, digest, piece, shown


@pytest.fixture
def fold(tmp_path: Path) -> Iterator[RowStore]:
    fold = RowStore(tmp_path / "rows", [0])
    yield fold
    fold.close()


def content(fold: RowStore, *keys: str) -> list[str]:
    """The digest of each key's row, "" for one that is not there."""
    fold.finish()
    found = {key: row for part in {bucket_of(piece(k)) for k in keys} for key, _, row, _ in fold.rows(part)}
    return [found.get(piece(key), "") for key in keys]


def row(*values: str | None) -> list[str]:
    return [piece(value) for value in values]


def test_pieces_tell_null_empty_short_and_long_apart() -> None:
    assert len({piece(None), piece(""), piece("-"), piece("?"), piece("x" * SHORT), piece("x" * (SHORT + 1))}) == 6
    assert [shown(piece(value)) for value in (None, "", "1:a")] == [None, "", "1:a"]
    assert digest(row("a", "b")) != digest(row("ab", ""))
    assert piece("é") == "2:é", "PostgreSQL counts bytes where the database has no encoding"


def test_the_last_change_of_a_key_counts(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "old")), fresh=True)
    fold.put(0, 11, 0, list(row("1", "new")), fresh=False)
    fold.put(1, 11, 1, list(row("2", "gone")), fresh=True)
    fold.remove(1, 12, 0, row("2", None))
    assert content(fold, "1", "2") == [digest(row("1", "new")), ""]


def test_what_was_left_unchanged_is_as_it_was(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "a", "long")), fresh=True)
    fold.put(0, 11, 0, [piece("1"), piece("b"), None], fresh=False)
    assert content(fold, "1") == [digest(row("1", "b", "long"))]


def test_a_new_key_takes_what_is_unchanged_from_the_row_deleted_before(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "long")), fresh=True)
    fold.remove(0, 20, 0, row("1", None))
    fold.put(1, 20, 1, [piece("2"), None], fresh=True)
    fold.remove(1, 30, 0, row("2", None))
    fold.put(1, 30, 1, [piece("3"), None], fresh=True)
    assert content(fold, "1", "2", "3") == ["", "", digest(row("3", "long"))]


def test_a_row_that_a_filter_let_in_takes_nothing_from_another_row_deleted_before_it(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "long")), fresh=True, change_lsn=7)
    fold.remove(0, 20, 0, row("1", None), change_lsn=17)
    fold.put(0, 20, 1, [piece("2"), None], fresh=True, change_lsn=18)
    fold.put(0, 30, 0, list(row("3", "of three")), fresh=True, change_lsn=28)
    fold.remove(0, 40, 0, row("3", None), change_lsn=38)
    fold.put(0, 40, 1, [piece("4"), None], fresh=True, change_lsn=38)
    assert content(fold, "2", "4") == [digest([piece("2"), "?"]), digest(row("4", "of three"))]


def test_what_the_topic_does_not_hold_is_equal_to_nothing(fold: RowStore) -> None:
    fold.put(0, 11, 0, [piece("1"), None], fresh=False)
    assert content(fold, "1") == [digest([piece("1"), "?"])]


def test_a_truncate_empties_its_partition(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "a")), fresh=True)
    fold.put(1, 10, 1, list(row("2", "a")), fresh=True)
    fold.truncate(0)
    assert content(fold, "1", "2") == ["", digest(row("2", "a"))]


def test_a_part_has_its_number_of_rows_and_the_sum_of_their_digests(fold: RowStore) -> None:
    fold.put(0, 10, 0, list(row("1", "a")), fresh=True)
    number = int(digest(row("1", "a"))[:SUM_DIGITS], 16)
    assert fold.finish() == {bucket_of(piece("1")): Part(1, number)}


def test_without_a_key_equal_rows_are_counted(tmp_path: Path) -> None:
    fold = RowStore(tmp_path / "rows", [])
    for seq in range(3):
        fold.put(0, 10, seq, list(row("1", None)), fresh=True)
    fold.remove(0, 11, 0, row("1", None))
    fold.put(0, 11, 1, list(row("2", None)), fresh=True)
    fold.remove(0, 11, 2, row("2", None))
    parts = fold.finish()
    assert [(pieces, times) for part in parts for _, pieces, _, times in fold.rows(part)] == [(row("1", None), 2)]
    fold.close()
