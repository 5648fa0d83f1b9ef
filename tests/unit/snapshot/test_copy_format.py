from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import Binary
from cdcd.sink.batches import BatchBuilder, Message
from cdcd.snapshot.copy_format import SIGNATURE, TableRows
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
DATE = PgType(1082, "pg_catalog", "date")
KINDS = b"btbt"
HEADER = SIGNATURE + struct.pack("!ii", 0, 0)
TRAILER = b"\xff\xff"
FAR = struct.pack("!i", 2**31 - 1)
"""A date that Avro cannot hold: infinity."""


def row(*values: bytes | None) -> bytes:
    parts = [b"\xff\xff\xff\xff" if value is None else struct.pack("!i", len(value)) + value for value in values]
    return struct.pack("!h", len(values)) + b"".join(parts)


class Table:
    """An int, a text, a date and a text; `keys` are the columns of its key."""

    def __init__(self, keys: Sequence[int], identity: str = "d") -> None:
        self.batches = BatchBuilder(tombstones=False)
        self.encoder = EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions())
        columns = [ResolvedColumn(f"c{at}", kind, -1, at in keys) for at, kind in enumerate((INT4, TEXT, DATE, TEXT))]
        self.changes = self.encoder.open_relation(ResolvedRelation(7, "public", "t", identity, columns))

    def records(self) -> list[Message]:
        return [message for table in self.batches.build().tables for message in table.messages]


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).map(str.encode)
rows = st.tuples(
    st.one_of(st.none(), st.binary(min_size=4, max_size=4)),
    st.one_of(st.none(), texts),
    st.one_of(st.none(), st.just(FAR), st.integers(-10_000, 10_000).map(lambda day: struct.pack("!i", day))),
    st.one_of(st.none(), texts),
)


@given(st.lists(rows, min_size=1, max_size=4), st.sampled_from([(), (0,), (1, 2), (2,), (0, 3)]), st.booleans())
def test_a_row_of_copy_is_the_event_that_an_insert_would_be_but_for_its_op(
    values: list[tuple[bytes | None, ...]], keys: tuple[int, ...], alone: bool
) -> None:
    ours, theirs = Table(keys, "f"), Table(keys, "f")  # a key from the catalog: parts of it may be null
    ours.encoder.begin_snapshot(99, 1_700_000_000_000_000)
    table = TableRows(ours.changes, KINDS)
    copy = table.begin_copy()
    first = [HEADER, row(*values[0])] if alone else [HEADER + row(*values[0])]
    assert table.encode([*first, *(row(*each) for each in values[1:])], copy, 42) == len(values)
    assert not copy.has_ended
    assert table.encode([TRAILER], copy, 42) == 0
    assert copy.has_ended
    theirs.encoder.begin(99, 1_700_000_000_000_000, 0)
    for each in values:
        new = [v if v is None or KINDS[at] == ord("t") else Binary(v) for at, v in enumerate(each)]
        theirs.changes.insert(encode(m.Insert(0, 7, tuple_of(new))), 5, 42)
    theirs.encoder.commit(100)
    op = 11  # after the header of the schema and the length of the string
    wanted = theirs.records()
    for message in wanted:
        value = message["value"]
        assert value is not None
        assert value[op : op + 1] == b"c"
        message["value"] = value[:op] + b"r" + value[op + 1 :]
    assert ours.records() == wanted


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x00",
        row(b"0001", b"2", FAR),
        row(b"0001", b"2", FAR, b"3", b""),
        row(b"0001", b"2", FAR, b"3")[:-1],
        row(b"0001", b"2", FAR, b"3")[:-3],
        row(b"0001", b"2", FAR, b"3") + b"x",
        row(b"0001", b"2", FAR, b"3")[:4],
        row(None, b"2", FAR, b"3"),
    ],
)
def test_what_is_no_row_of_the_table_is_refused(message: bytes) -> None:
    table = TableRows(Table([0]).changes, KINDS)
    copy = table.begin_copy()
    with pytest.raises(DecodeError, match=r"of COPY|no value for the key column"):
        table.encode([HEADER, message], copy, 42)


def test_another_format_is_refused() -> None:
    table = TableRows(Table([0]).changes, KINDS)
    with pytest.raises(DecodeError, match="signature"):
        table.encode([b"1\ttext\n"], table.begin_copy(), 42)
