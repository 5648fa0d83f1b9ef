"""Messages are values: comparable, hashable, matchable, and printable without showing data."""

from __future__ import annotations

import pytest
from support.wire_pgoutput import SAMPLES

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of
from cdcd.pgoutput.tuples import Binary


def test_messages_are_equal_exactly_if_type_and_fields_are() -> None:
    for left in SAMPLES:
        for right in SAMPLES:
            same = left.frame == right.frame and left.in_stream == right.in_stream
            assert (left.message == right.message) == same, (left.name, right.name)


def test_messages_of_the_same_fields_but_another_type_differ() -> None:
    assert m.Prepare(1, 2, 3, 4, "g") != m.StreamPrepare(1, 2, 3, 4, "g")
    assert m.StreamStop() == m.StreamStop()
    assert m.StreamStop() != "StreamStop()"


def test_every_message_can_be_in_a_set() -> None:
    assert len({sample.message for sample in SAMPLES} | {sample.message for sample in SAMPLES}) == len(SAMPLES)


def test_every_message_names_all_of_its_fields_once() -> None:
    for sample in SAMPLES:
        names = type(sample.message).__match_args__
        again = type(sample.message)(*[getattr(sample.message, name) for name in names])
        assert again == sample.message


def test_a_message_matches_by_position() -> None:
    match m.StreamAbort(7, 8):
        case m.StreamAbort(xid, subxid):
            assert (xid, subxid) == (7, 8)
        case _:
            pytest.fail("no match")


def test_repr_writes_lsns_as_postgresql_does() -> None:
    assert repr(m.Begin(0x16B374D848, -5, 753)) == "Begin(final_lsn=16/B374D848, commit_time=-5, xid=753)"


def test_repr_never_shows_a_rows_value_or_a_messages_content() -> None:
    secret = b"hunter2"
    row = tuple_of([secret, Binary(secret)])
    for message in (
        m.Insert(0, 1, row),
        m.Update(0, 1, m.OLD, row, row),
        m.Delete(0, 1, m.OLD, row),
        m.LogicalMessage(0, True, 1, "prefix", secret),
    ):
        assert "hunter2" not in repr(message)
    assert "hunter2" not in repr(Binary(secret))
    assert repr(m.LogicalMessage(0, True, 1, "p", secret)).endswith("prefix='p', content=<7 bytes>)")
