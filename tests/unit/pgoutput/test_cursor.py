"""Each read gives the value and moves on, or names message, field, offset, wanted and got and does not move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdcd.errors import DecodeError
from cdcd.pgoutput.cursor import Cursor

FAR = 2**32 - 1
READS: list[tuple[Callable[[Cursor], object], str, object]] = [
    (lambda c: c.byte("f"), "FF", 255),
    (lambda c: c.int16("f"), "FFFE", -2),
    (lambda c: c.int32("f"), "FFFFFFFE", -2),
    (lambda c: c.count16("f"), "7FFF", 32767),
    (lambda c: c.count32("f"), "7FFFFFFF", 2**31 - 1),
    (lambda c: c.oid("f"), "FFFFFFFF", FAR),
    (lambda c: c.oid("f"), "00000000", 0),
    (lambda c: c.xid("f"), "FFFFFFFF", FAR),
    (lambda c: c.int64("f"), "8000000000000000", -(2**63)),
    (lambda c: c.lsn("f"), "7FFFFFFFFFFFFFFF", 2**63 - 1),
    (lambda c: c.lsn_or_zero("f"), "0000000000000000", 0),
    (lambda c: c.flags("f", 3), "03", 3),
    (lambda c: c.string("f"), "C3A900", "é"),
    (lambda c: c.string("f"), "00", ""),
    (lambda c: c.namespace("f"), "00", "pg_catalog"),
    (lambda c: c.namespace("f"), "6100", "a"),
    (lambda c: c.counted("f"), "00000002 0000", b"\0\0"),
]


@pytest.mark.parametrize(("read", "data", "value"), READS)
def test_a_read_gives_the_value_and_stops_behind_it(read: Callable[[Cursor], object], data: str, value: object) -> None:
    frame = b"..T" + bytes.fromhex(data) + b"rest"
    cursor = Cursor(frame, 2, "Test")
    assert read(cursor) == value
    assert frame[cursor.position :] == b"rest"


@pytest.mark.parametrize(("read", "data", "value"), READS)
def test_a_read_past_the_end_names_message_field_and_offset(
    read: Callable[[Cursor], object], data: str, value: object
) -> None:
    whole = bytes.fromhex(data)
    for length in range(len(whole)):
        with pytest.raises(DecodeError, match=r"^Test: field f at offset [15] (wants \d+ bytes, got \d+|has no)"):
            read(Cursor(b"..T" + whole[:length], 2, "Test"))


def test_a_string_without_an_end_says_how_far_it_was_looked_for() -> None:
    with pytest.raises(DecodeError) as caught:
        Cursor(b"R" + b"x" * 40, 0, "Relation").string("nspname")
    assert caught.value.message == "Relation: field nspname at offset 1 has no terminating zero byte within 40 bytes"


def test_an_lsn_never_comes_out_negative() -> None:
    with pytest.raises(DecodeError, match="wants an LSN below 80000000/0, got 80000000/1"):
        Cursor(b"T" + bytes.fromhex("8000000000000001"), 0, "Test").lsn_or_zero("f")


def test_the_end_is_the_end() -> None:
    cursor = Cursor(b"Txy", 0, "Test")
    cursor.byte("f")
    with pytest.raises(DecodeError, match="Test: wants its end at offset 2, got 1 bytes more"):
        cursor.finish()
    cursor.byte("f")
    cursor.finish()
