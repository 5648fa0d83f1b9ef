"""The walk over a row's columns: it ends behind the tuple, or says what is wrong, and never leaves the frame."""

from __future__ import annotations

import pytest

from cdcd.errors import DecodeError
from cdcd.pgoutput.tuples import (
    ANY_COUNT,
    BINARY,
    NULL,
    TEXT,
    TOAST_UNCHANGED,
    UNCHANGED,
    Binary,
    TupleData,
    tuple_end,
)

ROW = bytes.fromhex("0004 6E 75 74 00000002 4869 62 00000004 0000002A")


def test_the_end_is_behind_the_last_column_wherever_the_tuple_lies() -> None:
    assert tuple_end(ROW, 0, 4) == len(ROW)
    assert tuple_end(b"before" + ROW + b"after", 6, 4) == 6 + len(ROW)
    assert tuple_end(b"\0\0", 0, 0) == 2


def test_the_number_of_columns_must_be_the_relations_unless_it_is_not_known() -> None:
    assert tuple_end(ROW, 0, ANY_COUNT) == len(ROW)
    with pytest.raises(DecodeError, match=r"TupleData: field tuple at offset 0 wants 5 columns, got 4"):
        tuple_end(ROW, 0, 5)


def test_a_tuple_cut_short_anywhere_is_an_error() -> None:
    for length in range(len(ROW)):
        with pytest.raises(DecodeError, match=r"TupleData: field tuple"):
            tuple_end(ROW[:length], 0, 4)


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("", "field tuple at offset 0 wants 2 bytes, got 0"),
        ("FFFF", "wants 0 columns or more, got -1"),
        ("0002 6E", "field tuple (column 2 of 2) at offset 3 wants 1 bytes, got 0"),
        ("0001 00", "field tuple (column 1 of 1) at offset 2 wants kind n, u, t or b, got byte 0x00"),
        ("0001 74 0000", "field tuple (length of column 1 of 1) at offset 3 wants 4 bytes, got 2"),
        ("0001 74 FFFFFFFF", "field tuple (column 1 of 1) at offset 3 wants a length of 0 or more, got -1"),
        ("0001 62 80000000 00", "wants a length of 0 or more, got -2147483648"),
        ("0001 74 00000002 00", "field tuple (column 1 of 1) at offset 7 wants 2 bytes, got 1"),
        ("0001 74 7FFFFFFF 00", "field tuple (column 1 of 1) at offset 7 wants 2147483647 bytes, got 1"),
    ],
)
def test_a_malformed_tuple_is_named_by_column_and_offset(row: str, wanted: str) -> None:
    with pytest.raises(DecodeError) as caught:
        tuple_end(bytes.fromhex(row), 0, ANY_COUNT)
    assert wanted in caught.value.message


def test_offsets_in_errors_count_from_the_message_when_its_start_is_given() -> None:
    with pytest.raises(DecodeError, match=r"Insert: field new tuple \(column 1 of 1\) at offset 8"):
        tuple_end(bytes(31) + b"\0\1x", 31, ANY_COUNT, "Insert", "new tuple", 25)


def test_as_many_columns_as_a_table_can_have_are_walked() -> None:
    row = (1600).to_bytes(2, "big") + b"n" * 1600
    assert tuple_end(row, 0, 1600) == 1602


def test_columns_are_found_where_they_lie() -> None:
    frame = bytes(10) + ROW
    found = TupleData(frame, 10, len(frame), 4).columns()
    assert found == [(NULL, 13, 0), (TOAST_UNCHANGED, 14, 0), (TEXT, 19, 2), (BINARY, 26, 4)]


def test_values_are_copied_out_by_kind() -> None:
    assert TupleData(ROW, 0, len(ROW), 4).values() == [None, UNCHANGED, b"Hi", Binary(bytes([0, 0, 0, 42]))]


def test_tuples_are_equal_by_their_bytes_wherever_they_lie() -> None:
    here, there = TupleData(ROW, 0, len(ROW), 4), TupleData(b"xx" + ROW, 2, 2 + len(ROW), 4)
    assert here == there
    assert hash(here) == hash(there)
    assert here != TupleData(b"\0\0", 0, 2, 0)
    assert here != "a tuple"


def test_a_value_in_binary_form_is_not_its_text_form() -> None:
    assert Binary(b"1") == Binary(b"1")
    assert Binary(b"1") != b"1"
    assert len({Binary(b"1"), Binary(b"1"), b"1"}) == 2
