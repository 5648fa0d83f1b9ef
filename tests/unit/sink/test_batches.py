"""Batches hold whole transactions, or a piece of one; and nothing is lost where they are divided."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from cdcd.sink.batches import REQUESTS_MAX, Batch, BatchBuilder, Message, TableBatch
from cdcd.transaction.record_consumer import LargeValue

CREATE, DELETE, TRUNCATE, MESSAGE = (ord(op) for op in "cdtm")


class Builder:
    """A builder, with tables by name."""

    def __init__(self, *, tombstones: bool = False, shared: str = "") -> None:
        """`shared`: the names, of one letter, of tables with one topic."""
        self.builder = BatchBuilder(tombstones, shared_topic=lambda _, name: "t" if name in shared else "")
        self.build = self.builder.build

    def begin(self, lsn: int) -> None:
        self.builder.begin(lsn, lsn * 1000)

    def add(self, table: str, value: bytes, op: int = CREATE) -> None:
        self.builder.add(self.builder.open_table("public", table), op, b"k", value)

    def truncate(self, table: str, value: bytes) -> None:
        self.builder.add_to_every_partition(self.builder.open_table("public", table), TRUNCATE, value)

    def commit(self, lsn: int) -> None:
        self.builder.commit(lsn + 1)

    def transaction(self, lsn: int, *rows: tuple[str, bytes]) -> None:
        self.begin(lsn)
        for table, value in rows:
            self.add(table, value)
        self.commit(lsn)


def values(batch: Batch) -> dict[str, list[bytes | None]]:
    return {table.name: [message["value"] for message in table.messages] for table in batch.tables}


def test_whole_transactions_come_before_the_beginning_of_the_next_and_without_it() -> None:
    made = Builder()
    made.transaction(10, ("a", b"1"), ("b", b"2"))
    made.transaction(20, ("a", b"3"))
    made.begin(30)
    made.add("a", b"4")
    made.add("c", b"5")
    whole = made.build()
    assert values(whole) == {"a": [b"1", b"3"], "b": [b"2"]}
    assert (whole.ends_inside_transaction, whole.rows, whole.bytes, whole.transactions) == (False, 3, 6, 2)
    assert (whole.commit_lsn, whole.end_lsn, whole.commit_ts, whole.oldest_commit_ts) == (20, 21, 20_000, 10_000)
    piece = made.build()
    assert values(piece) == {"a": [b"4"], "c": [b"5"]}
    assert (piece.ends_inside_transaction, piece.rows, piece.bytes, piece.transactions, piece.end_lsn) == (
        True,
        2,
        4,
        0,
        0,
    )
    made.commit(30)
    end = made.build()
    assert (end.ends_inside_transaction, end.rows, end.transactions, end.end_lsn) == (False, 0, 1, 31)


def test_a_transaction_without_rows_is_never_named_as_the_last_one() -> None:
    """PostgreSQL need not send it again after a restart: a start that waited for it would be refused."""
    made = Builder()
    made.transaction(10, ("a", b"1"))
    made.transaction(20)
    batch = made.build()
    assert (batch.transactions, batch.commit_lsn, batch.commit_ts, batch.end_lsn) == (2, 10, 10_000, 21)
    made.begin(30)
    made.add("a", b"2")
    made.build()
    made.commit(30)
    batch = made.build()
    assert (batch.rows, batch.commit_lsn, batch.end_lsn) == (0, 30, 31)
    made.begin(40)
    made.build()
    made.commit(40)
    batch = made.build()
    assert (batch.transactions, batch.commit_lsn, batch.end_lsn) == (1, 0, 41)
    made.transaction(50, ("a", b"3"))
    made.begin(60)
    made.add("a", b"4")
    assert made.build().commit_lsn == 50
    made.commit(60)
    assert made.build().commit_lsn == 60


def test_the_beginning_waits_for_what_follows_in_the_same_transaction() -> None:
    made = Builder()
    made.transaction(10, ("a", b"1"))
    made.begin(20)
    made.add("a", b"2")
    assert values(made.build()) == {"a": [b"1"]}
    made.add("a", b"3")
    made.commit(20)
    made.transaction(30, ("a", b"4"))
    rest = made.build()
    assert values(rest) == {"a": [b"2", b"3", b"4"]}
    assert (rest.ends_inside_transaction, rest.rows, rest.transactions) == (False, 3, 2)


def keys(batch: Batch) -> list[tuple[str, ...]]:
    return [each.key for each in batch.announced]


def test_a_key_is_told_no_earlier_than_with_its_first_event() -> None:
    made = Builder()
    made.begin(10)
    made.builder.set_key("public", "a", ("id",), 1)
    assert keys(made.build()) == [], "no row has come"
    made.add("a", b"1")
    made.commit(10)
    made.begin(20)
    made.builder.set_key("public", "a", ("tenant", "id"), 1)
    made.add("a", b"2")
    assert keys(made.build()) == [("id",)], "the transaction with the new key has not ended"
    made.commit(20)
    assert keys(made.build()) == [("tenant", "id")]
    assert keys(made.build()) == []


def test_a_key_is_told_with_the_first_piece_of_a_large_transaction() -> None:
    made = Builder()
    made.begin(10)
    made.builder.set_key("public", "a", ("id",), 1)
    made.add("a", b"1")
    assert keys(made.build()) == [("id",)]


def test_the_last_piece_of_a_transaction_may_be_followed_by_whole_ones_only() -> None:
    made = Builder()
    made.begin(10)
    made.add("a", b"1")
    assert made.build().ends_inside_transaction
    made.add("a", b"2")
    made.commit(10)
    made.transaction(20, ("b", b"3"))
    made.begin(30)
    made.add("a", b"4")
    end = made.build()
    assert (values(end), end.ends_inside_transaction, end.end_lsn) == ({"a": [b"2"], "b": [b"3"]}, False, 21)
    assert (values(made.build()), made.builder.build().rows) == ({"a": [b"4"]}, 0)


def test_an_end_without_rows_is_divided_from_the_next_transaction_too() -> None:
    made = Builder()
    made.begin(10)
    made.add("a", b"1")
    assert made.build().ends_inside_transaction
    made.commit(10)
    made.begin(20)
    made.add("a", b"2")
    end = made.build()
    assert (end.rows, end.ends_inside_transaction, end.transactions, end.end_lsn, end.tables) == (0, False, 1, 11, [])
    assert values(made.build()) == {"a": [b"2"]}


def test_truncates_ops_and_tombstones_are_divided_with_their_rows() -> None:
    made = Builder(tombstones=True)
    made.begin(10)
    made.add("a", b"1", DELETE)
    made.truncate("a", b"2")
    made.commit(10)
    made.begin(20)
    made.add("a", b"3", DELETE)
    made.truncate("a", b"4")
    made.add("a", b"5", CREATE)
    (whole,), (piece,) = made.build().tables, made.build().tables
    assert [message["value"] for message in whole.messages] == [b"1", None, b"2"]
    assert (whole.everywhere, *whole.counts.values()) == ([2], {DELETE: 1, TRUNCATE: 1})
    assert [message["value"] for message in piece.messages] == [b"3", None, b"4", b"5"]
    assert (piece.everywhere, *piece.counts.values()) == ([2], {DELETE: 1, TRUNCATE: 1, CREATE: 1})


def test_a_schema_comes_with_the_first_rows_after_it_or_before_them() -> None:
    made = Builder()
    made.transaction(10, ("a", b"1"))
    made.begin(20)
    made.builder.add_schema("ff", "{}")
    made.add("a", b"2")
    assert made.build().schemas == [("ff", "{}")]
    assert made.build().schemas == []
    made.commit(20)
    made.begin(30)
    made.builder.add_schema("00", "{}")
    made.add("a", b"3")
    assert made.build().schemas == [], "a batch without rows may never be published"
    assert made.build().schemas == [("00", "{}")]


steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["add", "truncate"]), st.sampled_from("abc")),
        st.tuples(st.sampled_from(["begin", "commit", "take"]), st.just("")),
    ),
    max_size=80,
)


@given(steps)
def test_whatever_the_order_batches_divide_the_history_and_lose_nothing(steps: list[tuple[str, str]]) -> None:
    made = Builder()
    wanted: dict[str, list[tuple[bytes, int]]] = {"a": [], "b": [], "c": []}
    found: dict[str, list[tuple[bytes, int]]] = {"a": [], "b": [], "c": []}
    truncated: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    committed: set[int] = set()
    inside = False
    lsn = ended = 0

    def take() -> None:
        nonlocal ended
        batch = made.build()
        ended += batch.transactions
        rows: list[tuple[bytes, int]] = []
        for table in batch.tables:
            owners = [(message["value"] or b"", owner(message)) for message in table.messages]
            [counts] = table.counts.values()
            assert sum(counts.values()) == len(owners)
            assert counts.get(TRUNCATE, 0) == len(table.everywhere)
            assert all((table.messages[at]["value"] or b"").endswith(b"t") for at in table.everywhere)
            truncated[table.name] += len(table.everywhere)
            found[table.name] += owners
            rows += owners
        assert batch.rows == len(rows)
        assert batch.bytes == sum(len(value) + (0 if value.endswith(b"t") else 1) for value, _ in rows)
        if batch.ends_inside_transaction:
            assert {of for _, of in rows} <= {lsn}, "a piece holds rows of the open transaction alone"
        else:
            assert {of for _, of in rows} <= committed, "what is not open holds rows of whole transactions alone"

    def owner(message: Message) -> int:
        return int((message["value"] or b"").partition(b" ")[0])

    for step, table in steps:
        if step == "take":
            take()
        elif step == "begin" and not inside:
            lsn += 10
            inside = True
            made.begin(lsn)
        elif step == "commit" and inside:
            inside = False
            committed.add(lsn)
            made.commit(lsn)
        elif inside and step in ("add", "truncate"):
            value = b"%d %d %s" % (lsn, len(wanted[table]), step[0].encode())
            wanted[table].append((value, lsn))
            (made.add if step == "add" else made.truncate)(table, value)
    take()
    take()
    assert found == wanted
    assert ended == len(committed)
    for name, rows in wanted.items():
        assert truncated[name] == sum(value.endswith(b"t") for value, _ in rows)


def test_taking_costs_what_was_touched_not_what_is_known() -> None:
    def seconds(tables: int) -> float:
        made = Builder()
        for number in range(tables):
            made.builder.open_table("public", f"t{number}")
        fastest = 1.0
        for lsn in range(200):
            made.transaction(lsn, ("t0", b"v"))
            began = time.perf_counter()
            made.build()
            fastest = min(fastest, time.perf_counter() - began)
        return fastest

    assert seconds(100_000) < 20 * seconds(1)


def test_a_request_goes_with_its_transaction_and_waits_for_no_later_one() -> None:
    made = Builder()
    made.begin(10)
    made.builder.request({"slot": "s"})
    made.build()
    assert made.builder.take_requests() == []
    made.commit(10)
    made.begin(20)
    made.add("a", b"1")
    made.builder.request({"slot": "later"})
    whole = made.build()
    assert (made.builder.take_requests(), whole.rows, whole.end_lsn, whole.ends_inside_transaction) == (
        [{"slot": "s"}], 0, 11, False,
    )  # fmt: skip
    made.build()
    assert made.builder.take_requests() == []
    made.commit(20)
    assert made.builder.take_requests() == [{"slot": "later"}]


def test_the_requests_of_one_transaction_have_a_bound_and_the_log_counts_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = Builder()
    made.begin(10)
    for _ in range(REQUESTS_MAX + 5):
        made.builder.request({})
    made.commit(10)
    assert len(made.builder.take_requests()) == REQUESTS_MAX
    made.builder.take_requests()
    assert caplog.messages == ["passed over 5 requests: a transaction may make 1000, 64 of them for repairs"]


def test_a_large_value_is_copied_when_the_batch_is_built() -> None:
    builder = BatchBuilder(tombstones=True)
    table = builder.open_table("public", "t")
    value = BytesWriter()
    value.write(b"large" * 1000)
    for lsn in (100, 200):  # the first transaction is whole when the batch is built, the second is not
        builder.begin(lsn, 1)
        builder.add(table, ord("c"), b"k", b"small")
        builder.add_large(table, ord("d"), b"k", LargeValue(value))
        builder.add_large(table, ord("u"), b"k", LargeValue(value))
        if lsn == 100:
            builder.commit(lsn + 1)
    size = builder.gathered_bytes
    large = value.getvalue()
    for _ in range(2):
        batch = builder.build()
        [gathered] = batch.tables
        assert [each["value"] for each in gathered.messages] == [b"small", large, None, large]
        assert batch.bytes == 5 + 2 * len(large) + 3 * len(b"k")
        assert batch.rows == 3
        size -= batch.bytes
    assert size == 0
    assert builder.build().tables == []


def test_a_delete_that_is_no_event_is_its_key_alone() -> None:
    builder = BatchBuilder(tombstones=False)
    builder.begin(10, 1)
    table = builder.open_table("public", "t")
    builder.add_without_value(table, ord("d"), b"k1")
    builder.add_without_value(table, ord("d"), b"k2")
    builder.add_headers(table, [("h", b"xyz")], 4)
    builder.commit(11)
    batch = builder.build()
    assert batch.tables[0].messages == [
        {"key": b"k1", "value": None},
        {"key": b"k2", "value": None, "headers": [("h", b"xyz")]},
    ]
    assert batch.tables[0].has_headers
    assert list(batch.tables[0].counts.values()) == [{DELETE: 2}]
    assert (batch.rows, batch.bytes, batch.commit_lsn) == (2, 8, 10)


def turns(batch: TableBatch) -> list[tuple[str, list[bytes | None]]]:
    """The tables in the order of their records."""
    ends = [at for at, _ in batch.turns[1:]] + [len(batch.messages)]
    return [
        (name, [each["value"] for each in batch.messages[at:end]])
        for (at, (_, name)), end in zip(batch.turns, ends, strict=True)
    ]


def test_tables_that_share_a_topic_are_gathered_in_commit_order() -> None:
    made = Builder(shared="ab")
    made.transaction(10, ("a", b"1"), ("c", b"2"), ("b", b"3"), ("b", b"4"), ("a", b"5"))
    made.transaction(20, ("b", b"6"))
    shared, alone = made.build().tables
    assert turns(shared) == [("a", [b"1"]), ("b", [b"3", b"4"]), ("a", [b"5"]), ("b", [b"6"])]
    assert shared.counts == {("public", "a"): {CREATE: 2}, ("public", "b"): {CREATE: 3}}
    assert (alone.tables, alone.turns) == ([("public", "c")], [])
    made.transaction(30, ("b", b"7"))
    (shared,) = made.build().tables
    assert turns(shared) == [("b", [b"7"])]


def test_a_shared_batch_is_divided_where_the_open_transaction_begins() -> None:
    made = Builder(shared="ab")
    made.transaction(10, ("a", b"1"), ("b", b"2"))
    made.begin(20)
    made.add("b", b"3")
    made.add("a", b"4")
    (whole,), (piece,) = made.build().tables, made.build().tables
    assert turns(whole) == [("a", [b"1"]), ("b", [b"2"])]
    assert turns(piece) == [("b", [b"3"]), ("a", [b"4"])]
    made.add("a", b"5")
    made.add("b", b"6")
    (rest,) = made.build().tables
    assert turns(rest) == [("a", [b"5"]), ("b", [b"6"])]


ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("rdt")), max_size=20)


@given(ROWS, st.sets(st.sampled_from("abc")))
def test_what_is_taken_apart_is_whole_and_in_order(rows: list[tuple[str, str]], away: set[str]) -> None:
    made = Builder(tombstones=True, shared="abc")
    made.begin(10)
    for number, (table, op) in enumerate(rows):
        if op == "t":
            made.truncate(table, b"%d" % number)
        else:
            made.add(table, b"%d" % number, DELETE if op == "d" else CREATE)
    made.commit(10)
    gathered = made.build().tables
    if not rows:
        assert not gathered
        return
    (batch,) = gathered
    parts = batch.without({("public", name) for name in away})
    found: dict[tuple[str, str], dict[int, int]] = {}
    for part in parts:
        names = {name for _, name in part.tables}
        assert len(names) == 1 if names & away else not names & away
        wanted = [(b"%d" % number, op) for number, (table, op) in enumerate(rows) if table in names]
        written = [message for message in part.messages if message["value"] is not None]
        assert [message["value"] for message in written] == [value for value, _ in wanted]
        truncates = [value for value, op in wanted if op == "t"]
        assert [part.messages[at]["value"] for at in part.everywhere] == truncates
        assert len(part.ops.getvalue()) == len(part.messages)
        found |= part.counts
    assert sum(len(part.messages) for part in parts) == len(batch.messages)
    assert found == batch.counts


def test_the_truncate_of_a_table_does_not_replace_that_of_another_on_a_compacted_topic() -> None:
    made = Builder(tombstones=True, shared="ab")
    made.begin(10)
    for table in "ab":
        made.truncate(table, b"t")
    made.commit(10)
    (batch,) = made.build().tables
    assert [message["key"] for message in batch.messages] == [b"public.a", b"public.b"]
