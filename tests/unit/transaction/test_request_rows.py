"""Rows of cdcd.requests are requests if a trusted role owns the table, and never events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.assembly import (
    Assembly,
    begin,
    begin_prepare,
    block,
    commit,
    commit_prepared,
    insert,
    message,
    prepare,
    relation,
    stream_commit,
    truncate,
)

from cdcd.errors import GapError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import tuple_of
from cdcd.pgoutput.tuples import Binary, ColumnValue
from cdcd.sink.batches import REPAIRS_MAX
from cdcd.source.requests_table import KEYS_BYTES_MAX
from cdcd.transaction.request_rows import VALUE_BYTES_MAX
from cdcd.transaction.sent_again import SentAgain

OID = 9
COLUMNS = ("id", "slot", "action", "table_schema", "table_name", "requested_by", "requested_at", "keys")
ASKED = {"slot": "s", "action": "snapshot", "table_schema": "public", "table_name": "t", "requested_by": "ann"}


def announced(xid: int = 0, names: tuple[str, ...] = COLUMNS, schema: str = "cdcd", oid: int = OID) -> m.Relation:
    columns = tuple(m.Column(name == "id", name, 23 if name == "id" else 25, -1) for name in names)
    return m.Relation(xid, oid, schema, "requests", "d", columns)


def asked(xid: int = 0, oid: int = OID, **other: ColumnValue) -> m.Insert:
    values = {
        "id": b"1",
        **{name: value.encode() for name, value in ASKED.items()},
        "requested_at": b"now",
        "keys": None,
        **other,
    }
    return m.Insert(xid, oid, tuple_of([values[name] for name in COLUMNS]))


@pytest.fixture
def it(tmp_path: Path) -> Assembly:
    return Assembly(tmp_path)


def taken(it: Assembly) -> list[dict[str, str]]:
    """The requests so far; there must be no event beside them."""
    batch = it.take()
    assert not batch.tables
    assert batch.rows == 0
    return it.batches.take_requests()


def test_an_inserted_row_is_a_request_and_no_event(it: Assembly) -> None:
    it.feed(announced(), begin(100), asked(), commit(100))
    assert taken(it) == [ASKED]


def test_values_in_binary_form_are_the_same(it: Assembly) -> None:
    binary: dict[str, Any] = {name: Binary(value.encode()) for name, value in ASKED.items()}
    it.feed(announced(), begin(100), asked(id=Binary(b"\0\0\0\1"), **binary), commit(100))
    assert taken(it) == [ASKED]


def test_rows_of_a_strangers_table_ask_for_nothing_and_are_no_events(it: Assembly) -> None:
    it.catalog.trusts = False
    it.feed(announced(), begin(100), asked(), asked(), commit(100))
    assert taken(it) == []


def test_logical_messages_ask_for_nothing(it: Assembly) -> None:
    content = b'{"snapshot": {"schema": "public", "table": "t"}}'
    it.feed(m.LogicalMessage(0, False, 90, "cdcd", content), begin(100), message(content), commit(100))
    batch = it.take()
    assert not it.batches.take_requests()
    assert batch.rows == 2


def test_another_table_of_that_name_is_an_ordinary_one(it: Assembly) -> None:
    it.feed(announced(schema="public", names=("id",)), begin(100), insert(5, oid=OID), commit(100))
    batch = it.take()
    assert not it.batches.take_requests()
    assert [(table.schema, table.name) for table in batch.tables] == [("public", "requests")]


def test_updates_deletes_and_truncates_of_requests_ask_for_nothing(it: Assembly) -> None:
    row = asked().new
    it.feed(announced(), relation(), begin(100), m.Update(0, OID, m.NO_OLD, None, row), m.Delete(0, OID, m.KEY, row))
    it.feed(truncate(0, OID, 7), commit(100))
    batch = it.take()
    assert not it.batches.take_requests()
    assert [table.name for table in batch.tables] == ["t"]


def test_a_value_that_is_no_name_is_left_out(it: Assembly) -> None:
    long = b"x" * (VALUE_BYTES_MAX + 1)
    it.feed(announced(), begin(100), asked(table_name=long, action=None, table_schema=b"\xff"), commit(100))
    [row] = taken(it)
    assert row == {"slot": "s", "requested_by": "ann", "table_schema": "\ufffd"}


def test_a_table_without_these_columns_gives_requests_without_them(it: Assembly) -> None:
    it.feed(announced(names=("id", "request")), begin(100), m.Insert(0, OID, tuple_of([b"1", b"{}"])), commit(100))
    assert taken(it) == [{}]


def test_a_request_counts_when_its_transaction_has_committed(it: Assembly) -> None:
    it.feed(announced(), begin(100), asked())
    assert taken(it) == []
    it.feed(commit(100))
    assert taken(it) == [ASKED]


def test_a_request_that_is_rolled_back_does_not_count(it: Assembly) -> None:
    it.feed(*block(700, announced(700), asked(700, requested_by=b"bob"), asked(701), first=True))
    it.feed(m.StreamAbort(700, 701, None, None), stream_commit(700, 200))
    assert taken(it) == [{**ASKED, "requested_by": "bob"}]


def test_a_request_of_a_prepared_transaction_counts_at_commit_prepared(it: Assembly) -> None:
    it.feed(begin_prepare(700, 100), announced(), asked(), prepare(700, 100))
    assert taken(it) == []
    it.feed(commit_prepared(700, 200))
    assert taken(it) == [ASKED]


def test_a_request_that_kafka_has_does_not_come_again(tmp_path: Path) -> None:
    it = Assembly(tmp_path, durable_lsn=150)
    it.feed(announced(), begin(100), asked(), commit(100), begin(200), asked(requested_by=b"bob"), commit(200))
    assert [row["requested_by"] for row in taken(it)] == ["bob"]


@pytest.mark.parametrize("way", ["plain", "streamed", "prepared"])
def test_a_request_that_was_passed_over_is_no_row_that_kafka_lacks(tmp_path: Path, way: str) -> None:
    """Kafka has the position after it, and nothing of it: PostgreSQL may send it again."""
    again = SentAgain(durable_lsn=150, commit_lsn=50, confirmed_lsn=60, since_lsn=0)
    row = asked().new
    rows = [asked(), m.Update(0, OID, m.NO_OLD, None, row), m.Delete(0, OID, m.KEY, row)]
    streamed = [asked(700), m.Update(700, OID, m.NO_OLD, None, row), m.Delete(700, OID, m.KEY, row)]
    event = insert(1) if way != "streamed" else insert(1, 700)
    for more in ([], [event]):
        it = Assembly(tmp_path / str(len(more)), sent_again=again)
        it.feed(announced(), relation())
        messages: list[m.Message] = [begin(100), *rows, *more, commit(100)]
        if way == "streamed":
            messages = [
                *block(700, announced(700), relation(700), *streamed, *more, first=True),
                stream_commit(700, 100),
            ]
        elif way == "prepared":
            messages = [begin_prepare(700, 90), *rows, *more, prepare(700, 90), commit_prepared(700, 100)]
        if more:
            with pytest.raises(GapError, match="a transaction with events"):
                it.feed(*messages)
        else:
            it.feed(*messages)
            assert taken(it) == []


def test_keys_may_be_longer_than_a_name_and_not_without_bound(it: Assembly) -> None:
    fits, too_long = b"k" * KEYS_BYTES_MAX, b"k" * (KEYS_BYTES_MAX + 1)
    it.feed(announced(), begin(100), asked(keys=fits), asked(keys=too_long), commit(100))
    assert taken(it) == [ASKED | {"keys": fits.decode()}, ASKED]


def test_one_transaction_asks_for_no_more_repairs_than_memory_allows(it: Assembly) -> None:
    it.feed(announced(), begin(100), *[asked(keys=b"k")] * (REPAIRS_MAX + 5), asked(), commit(100))
    assert [request.get("keys") for request in taken(it)] == ["k"] * REPAIRS_MAX + [None]
