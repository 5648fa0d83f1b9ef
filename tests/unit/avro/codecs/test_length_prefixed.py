from __future__ import annotations

import pytest

from cdcd.avro.codecs.length_prefixed import LengthPrefixedReader
from cdcd.errors import DecodeError

VALUE = bytes.fromhex("00000007 00000002 6869 ffffffff 00000000")
FRAME = b"before" + VALUE + b"after"


def test_parts_are_numbers_and_lengths_with_their_bytes() -> None:
    parts = LengthPrefixedReader(6, len(VALUE), "test")
    assert parts.int4(FRAME) == 7
    assert parts.size(FRAME) == 2
    assert FRAME[parts.at : parts.at + 2] == b"hi"
    parts.skip(2)
    assert parts.size(FRAME) == -1
    parts.skip(-1)
    assert parts.size(FRAME) == 0
    parts.skip(0)
    parts.finish()


def test_a_part_that_leaves_the_value_is_a_decode_error_although_the_frame_goes_on() -> None:
    parts = LengthPrefixedReader(6, 9, "test")
    parts.int4(FRAME)
    with pytest.raises(DecodeError, match="test: wanted a part of at most 1 bytes, got 2"):
        parts.size(FRAME)


def test_a_number_that_leaves_the_value_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="test: wanted 4 more bytes, got 3"):
        LengthPrefixedReader(6, 3, "test").int4(FRAME)


def test_a_length_below_minus_one_is_a_decode_error() -> None:
    with pytest.raises(DecodeError, match="got -2"):
        LengthPrefixedReader(0, 8, "test").size(b"\xff\xff\xff\xfe????")


def test_bytes_left_over_are_a_decode_error() -> None:
    parts = LengthPrefixedReader(6, len(VALUE), "test")
    with pytest.raises(DecodeError, match="nothing after the last part, got 18 bytes"):
        parts.finish()
