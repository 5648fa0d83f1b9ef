from __future__ import annotations

import pytest

from cdcd.avro.codecs.literals import LiteralScanner, quote_bound, quote_element, quote_field
from cdcd.errors import DecodeError


def items(text: bytes) -> list[tuple[bytes, bool]]:
    """The items of a text whose delimiter is `,` and whose end is `)`, each with whether it was quoted."""
    walk = LiteralScanner(b"??" + text, 2, 2 + len(text), "test")
    found = []
    while walk.at < 2 + len(text):
        walk.next(ord(","), ord(")"))
        found.append((walk.data[walk.start : walk.start + walk.size], walk.quoted))
        walk.at += 1
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b")", [(b"", False)]),
        (b'"")', [(b"", True)]),
        (b"a,b c,)", [(b"a", False), (b"b c", False), (b"", False)]),
        (b'"a,)b",c)', [(b"a,)b", True), (b"c", False)]),
        (b'"a""b",c)', [(b'a"b', True), (b"c", False)]),
        (b'"a\\"b","\\\\")', [(b'a"b', True), (b"\\", True)]),
        (b'"""",")")', [(b'"', True), (b")", True)]),
        ('"é,🐘",é)'.encode(), [("é,🐘".encode(), True), ("é".encode(), False)]),
    ],
)
def test_items_are_found_and_freed_of_their_quotes(text: bytes, found: list[tuple[bytes, bool]]) -> None:
    assert items(text) == found


@pytest.mark.parametrize("text", [b"a", b'"a', b'"a"b)', b'"a\\', b'"a\\"', b'"', b'"\\', b"a,b"])
def test_a_text_that_ends_within_an_item_is_a_decode_error(text: bytes) -> None:
    with pytest.raises(DecodeError, match="items"):
        items(text)


def test_only_a_bare_word_is_null() -> None:
    walk = LiteralScanner(b'NULL,"NULL",NUL)', 0, 16, "test")
    bare = []
    for _ in range(3):
        walk.next(ord(","), ord(")"))
        bare.append(walk.is_bare(b"NULL"))
        walk.at += 1
    assert bare == [True, False, False]


@pytest.mark.parametrize(
    ("value", "element", "field", "bound"),
    [
        ("a", "a", "a", "a"),
        ("", '""', '""', '""'),
        ("null", '"null"', "null", "null"),
        ("a b", '"a b"', '"a b"', '"a b"'),
        ("a,b", '"a,b"', '"a,b"', '"a,b"'),
        ("{", '"{"', "{", "{"),
        ("(", "(", '"("', '"("'),
        ("[", "[", "[", '"["'),
        ('"\\', '"\\"\\\\"', '"""\\\\"', '"""\\\\"'),
        ("\x0b", '"\x0b"', '"\x0b"', '"\x0b"'),
        ("\u00a0", "\u00a0", "\u00a0", "\u00a0"),
    ],
)
def test_each_kind_of_text_has_its_own_quoting(value: str, element: str, field: str, bound: str) -> None:
    assert (quote_element(value, ","), quote_field(value), quote_bound(value)) == (element, field, bound)


def test_an_element_is_quoted_for_its_types_own_delimiter() -> None:
    assert quote_element("1,2", ";") == "1,2"
    assert quote_element("1;2", ";") == '"1;2"'
