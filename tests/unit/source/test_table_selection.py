"""Which tables are meant by words, for every command that takes them."""

from __future__ import annotations

import pytest

from cdcd.errors import RequestRejected
from cdcd.source.table_selection import select_published, select_tables

KNOWN = ["public.items", "public.orders", "sales.[odd]", "sales.orders"]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ([], KNOWN),
        (["public.*"], ["public.items", "public.orders"]),
        (["sales.orders", "*.orders"], ["public.orders", "sales.orders"]),
        (["sales.[odd]"], ["sales.[odd]"]),
    ],
)
def test_a_star_stands_for_any_characters(words: list[str], meant: list[str]) -> None:
    assert select_published(words, KNOWN, "cdcd") == meant


def test_a_word_that_stands_for_none_is_refused_with_the_nearest_or_with_what_lists_them() -> None:
    with pytest.raises(RequestRejected, match=r"cdcd has no table public\.order\. Did you mean public\.orders\?"):
        select_published(["public.*", "public.order"], KNOWN, "cdcd")
    with pytest.raises(RequestRejected, match=r"x\.\* is not parked\. cdcd unpark lists those that are"):
        select_tables(["x.*"], [], lambda word: f"{word} is not parked", "cdcd unpark")
