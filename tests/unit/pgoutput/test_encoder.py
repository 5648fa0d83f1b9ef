"""The encoder writes the documented bytes, so that what the tests feed is what a server would send."""

from __future__ import annotations

import pytest
from support.wire_pgoutput import SAMPLES, Sample

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, encode_tuple, tuple_of
from cdcd.pgoutput.tuples import UNCHANGED, Binary


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_message_is_written_as_the_documented_bytes(sample: Sample) -> None:
    assert encode(sample.message) == sample.frame


def test_each_python_value_has_its_kind_byte() -> None:
    expected = bytes.fromhex("0004 6E 75 74 00000002 4869 62 00000004 0000002A")
    assert encode_tuple([None, UNCHANGED, b"Hi", Binary(bytes([0, 0, 0, 42]))]) == expected


def test_a_row_made_of_values_gives_them_back() -> None:
    values = [None, UNCHANGED, b"", Binary(b""), b"x"]
    assert tuple_of(values).values() == values


@pytest.mark.parametrize(
    "message",
    [
        m.Begin(1, 2, -1),
        m.Begin(1, 2, 2**32),
        m.Origin(1, "zero\0byte"),
        m.Truncate(0, (2**32,), False, False),
        m.Message(),
    ],
    ids=repr,
)
def test_a_field_that_does_not_fit_is_the_callers_fault(message: m.Message) -> None:
    with pytest.raises(ValueError, match=r"fit|zero byte|not a pgoutput message"):
        encode(message)
