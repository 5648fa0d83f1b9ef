from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.outbox.message_content import fields_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_a_string_is_its_characters_and_any_other_value_its_own_text() -> None:
    content = rb' { "a" : "x\u00e9\n", "b":  {"n": 1.50, "n": 2e400} , "c":null,"d":[ ] ,"e":true } '
    found = {"a": "xé\n", "b": '{"n": 1.50, "n": 2e400}', "c": None, "d": "[ ]", "e": "true"}
    assert fields_of(content) == found


@pytest.mark.parametrize("content", [b"{}", b" { } "])
def test_an_object_may_be_empty(content: bytes) -> None:
    assert fields_of(content) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"null", b"[]", b'"a"', b"{", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{,"a":1}', b'{"a":1 "b":2}', b'{"a":1}}',
        b'{"a":1,"a":2}', b"{1:2}", b'{"a":1}x', b"\xff", b'{"a":"\xff"}', b'{"a":' + b"[" * 100_000,
        rb'{"a":"\ud800"}', rb'{"a":"\udc00\ud800"}',
    ],
)  # fmt: skip
def test_what_is_no_object_is_none(content: bytes) -> None:
    assert fields_of(content) is None


@pytest.mark.parametrize("number", ["9" * 5_000, "-0", "0.10", "1e999999", "NaN"])
def test_a_number_keeps_its_text(number: str) -> None:
    assert fields_of(f'{{"a": {number}, "b": [{number}]}}'.encode()) == {"a": number, "b": f"[{number}]"}


@given(st.dictionaries(st.text(), JSON, max_size=5), st.sampled_from([None, 1, "\t"]))
def test_the_fields_of_any_object_come_back(document: dict[str, object], indent: int | str | None) -> None:
    found = fields_of(json.dumps(document, indent=indent).encode())
    assert found is not None
    assert found.keys() == document.keys()
    for name, value in document.items():
        text = found[name]
        if isinstance(value, str):
            assert text == value
        else:
            assert (None if text is None else json.loads(text)) == value
