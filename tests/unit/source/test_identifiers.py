"""Names and strings in statements and in replication commands."""

from __future__ import annotations

import pytest

from cdcd.errors import RequestRejected
from cdcd.source.identifiers import identifier, literal, publication_names


def test_quotes_in_a_name_or_a_string_are_doubled() -> None:
    assert identifier('say "hi"', "täble.x") == '"say ""hi"""."täble.x"'
    assert literal("it's a \\ backslash") == "'it''s a \\ backslash'"


def test_a_zero_byte_is_refused() -> None:
    for quote in (identifier, literal):
        with pytest.raises(RequestRejected, match="zero byte"):
            quote("a\0b")


def test_publication_names_are_neither_folded_nor_split() -> None:
    assert publication_names(["cdcd", 'A,b "c"', "é"]) == '"cdcd","A,b ""c""","é"'
