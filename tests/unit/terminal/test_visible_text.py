from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.terminal.visible_text import visible, visible_lines, word

HOSTILE = "\x1b]52;c;aGk=\x07\x9b31m\u202eevil\u2066\u2028\x7f\r\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;\x07", "\\u001b]52;c;\\u0007"),
        ("\x9b31m", "\\u009b31m"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202etxt.exe", "\\u202etxt.exe"),
        ("\u2028\u2029\u2066\u2069\x7f", "\\u2028\\u2029\\u2066\\u2069\\u007f"),
        ("\ud800", "\\ud800"),
        ("é 日本 🙂 \\ plain", "é 日本 🙂 \\ plain"),
    ],
)
def test_what_a_reader_would_not_see_is_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_lines_stay_lines_and_nothing_else_is_hidden() -> None:
    assert visible_lines(f"a\n{HOSTILE}b") == f"a\n{visible(HOSTILE[:-1])}\nb"


@given(st.text())
def test_no_control_character_is_left_and_showing_twice_is_showing_once(text: str) -> None:
    shown = visible(text)
    assert not {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(character) for character in shown}
    assert not {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"} & set(
        map(unicodedata.bidirectional, shown)
    )
    assert visible(shown) == shown
    shown.encode()


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_a_json_text_stays_the_same_json(value: object) -> None:
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value


@given(st.text())
def test_a_word_is_one_word_and_its_quotes_give_the_text_back(text: str) -> None:
    shown = word(text)
    assert (json.loads(shown) if shown.startswith('"') else shown) == text
    assert shown.startswith('"') or len(shown.split()) == 1
