from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cdcd.verify.row_store import (
    ABSENT,
    INLINE_BYTES_MAX,
    SUM_DIGITS,
    Part,
    RowStore,
    bucket_of,
    digest,
    display,
    value_token,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RowStore]:
    store = RowStore(tmp_path / "rows", [0])
    yield store
    store.close()


def content(store: RowStore, *keys: str) -> list[str]:
    """The digest of each key's row, "" for one that is not there."""
    store.finish()
    found = {key: row for part in {bucket_of(value_token(k)) for k in keys} for key, _, row, _ in store.rows(part)}
    return [found.get(value_token(key), "") for key in keys]


def row(*values: str | None) -> list[str]:
    return [value_token(value) for value in values]


def test_tokens_tell_null_empty_short_and_long_apart() -> None:
    texts = (None, "", "-", "?", "x" * INLINE_BYTES_MAX, "x" * (INLINE_BYTES_MAX + 1))
    assert len({value_token(text) for text in texts}) == 6
    assert [display(value_token(text)) for text in (None, "", "1:a")] == [None, "", "1:a"]
    assert digest(row("a", "b")) != digest(row("ab", ""))
    assert value_token("é") == "2:é", "PostgreSQL counts bytes where the database has no encoding"


def test_the_last_change_of_a_key_counts(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "old")), is_new=True)
    store.put(0, 11, 0, list(row("1", "new")), is_new=False)
    store.put(1, 11, 1, list(row("2", "gone")), is_new=True)
    store.remove(1, 12, 0, row("2", None))
    assert content(store, "1", "2") == [digest(row("1", "new")), ""]


def test_what_was_left_unchanged_is_as_it_was(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "a", "long")), is_new=True)
    store.put(0, 11, 0, [value_token("1"), value_token("b"), None], is_new=False)
    assert content(store, "1") == [digest(row("1", "b", "long"))]


def test_a_new_key_takes_what_is_unchanged_from_the_row_deleted_before(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "long")), is_new=True)
    store.remove(0, 20, 0, row("1", None))
    store.put(1, 20, 1, [value_token("2"), None], is_new=True)
    store.remove(1, 30, 0, row("2", None))
    store.put(1, 30, 1, [value_token("3"), None], is_new=True)
    assert content(store, "1", "2", "3") == ["", "", digest(row("3", "long"))]


def test_a_row_that_a_filter_let_in_takes_nothing_from_another_row_deleted_before_it(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "long")), is_new=True, change_lsn=7)
    store.remove(0, 20, 0, row("1", None), change_lsn=17)
    store.put(0, 20, 1, [value_token("2"), None], is_new=True, change_lsn=18)
    store.put(0, 30, 0, list(row("3", "of three")), is_new=True, change_lsn=28)
    store.remove(0, 40, 0, row("3", None), change_lsn=38)
    store.put(0, 40, 1, [value_token("4"), None], is_new=True, change_lsn=38)
    assert content(store, "2", "4") == [digest([value_token("2"), "?"]), digest(row("4", "of three"))]


def test_what_the_topic_does_not_hold_is_equal_to_nothing(store: RowStore) -> None:
    store.put(0, 11, 0, [value_token("1"), None], is_new=False)
    assert content(store, "1") == [digest([value_token("1"), "?"])]


def test_a_truncate_empties_its_partition(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "a")), is_new=True)
    store.put(1, 10, 1, list(row("2", "a")), is_new=True)
    store.truncate(0)
    assert content(store, "1", "2") == ["", digest(row("2", "a"))]


def test_a_part_has_its_number_of_rows_and_the_sum_of_their_digests(store: RowStore) -> None:
    store.put(0, 10, 0, list(row("1", "a")), is_new=True)
    number = int(digest(row("1", "a"))[:SUM_DIGITS], 16)
    assert store.finish() == {bucket_of(value_token("1")): Part(1, number)}


def test_without_a_key_equal_rows_are_counted(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows", [])
    for seq in range(3):
        store.put(0, 10, seq, list(row("1", None)), is_new=True)
    store.remove(0, 11, 0, row("1", None))
    store.put(0, 11, 1, list(row("2", None)), is_new=True)
    store.remove(0, 11, 2, row("2", None))
    parts = store.finish()
    assert [(tokens, times) for part in parts for _, tokens, _, times in store.rows(part)] == [(row("1", None), 2)]
    store.close()


def test_older_rows_hold_the_default_of_an_added_column(store: RowStore) -> None:
    store.fill({0: value_token(None)})
    store.put(0, 10, 0, [*row("1"), ABSENT], is_new=True)
    store.fill({0: value_token(None), 1: value_token("7")})
    store.put(0, 11, 0, list(row("2", None)), is_new=True)
    assert content(store, "1", "2") == [digest(row("1", "7")), digest(row("2", None))]


def test_an_added_column_of_the_key_gives_older_rows_their_key(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows", [0, 1])
    store.put(0, 10, 0, [*row("1"), ABSENT], is_new=True)
    store.fill({0: value_token(None), 1: value_token("7")})
    store.remove(0, 11, 0, row("1", "7"))
    assert store.finish() == {}
    store.close()


def test_without_a_key_an_older_row_is_found_as_it_is_with_the_added_column(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows", [])
    for seq in range(2):
        store.put(0, 10, seq, [*row("1"), ABSENT], is_new=True)
    store.fill({0: value_token(None), 1: value_token("7")})
    store.remove(0, 11, 0, row("1", "7"))
    parts = store.finish()
    assert [(tokens, times) for part in parts for _, tokens, _, times in store.rows(part)] == [(row("1", "7"), 1)]
    store.close()
