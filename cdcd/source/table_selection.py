"""Which tables a command means: `schema.table`, where `*` stands for any characters.

Before: `cli.main` has the words.
After: `table_schemas`, `verify`, `commands.snapshot` and `unpark` do their work on these tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from cdcd.errors import RequestRejected


def select_tables(
    words: Sequence[str], known: Iterable[str], lacks: Callable[[str], str], lists_them: str
) -> list[str]:
    """Those of `known` (`schema.table`) that one of the words stands for, in their order; all of them without words.

    Raises RequestRejected for a word that stands for none: with what it `lacks`, and the nearest there is, or else the
    command that `lists_them`.
    """
    names = list(known)
    for word in words:
        if not any(_stands_for(word, name) for name in names):
            nearest = get_close_matches(word, names, n=1)
            hint = f"Did you mean {nearest[0]}?" if nearest else f"{lists_them} lists those that are"
            raise RequestRejected(lacks(word), hint)
    return [name for name in names if not words or any(_stands_for(word, name) for word in words)]


def select_published(words: Sequence[str], published: Iterable[str], publication: str) -> list[str]:
    """As `select_tables`, of the tables of a publication."""
    return select_tables(
        words, published, lambda word: f"the publication {publication} has no table {word}", "cdcd schema"
    )


def _stands_for(word: str, name: str) -> bool:
    return word == name or fnmatchcase(name, word)
