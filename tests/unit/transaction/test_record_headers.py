"""The headers of an event, by the settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.source.pg_types import PgType
from cdcd.transaction.record_headers import HeaderChoice, HeaderWriter, rfc3339, schema_version
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
CREATE, UPDATE, READ, MESSAGE = (ord(op) for op in "curm")
TIME_US = 1_795_658_412_068_442


def relation(*columns: ResolvedColumn, name: str = "orders", oid: int = 7) -> ResolvedRelation:
    return ResolvedRelation(oid, "public", name, "d", list(columns) or [ResolvedColumn("id", INT4, -1, True)])


def writer(*names: str, prefix: str = "shop", content_type: str = "application/json") -> HeaderWriter:
    return HeaderWriter(HeaderChoice(names, prefix, "s1", content_type))


def test_the_headers_of_a_row_of_a_transaction() -> None:
    made = writer("op", "table", "lsn", "txid", "commit_time", "schema_version")
    made.begin(300, TIME_US, 42)
    made.relation, made.lsn = made.of_relation(relation()), 250
    headers = dict(made.next(UPDATE))
    assert headers.pop("__schema_version") == schema_version(relation())
    assert headers == {
        "__op": b"u",
        "__table": b"public.orders",
        "__lsn": b"250",
        "__txid": b"42",
        "__commit_time": b"2026-11-26T02:00:12.068442Z",
    }


def test_the_headers_of_cloudevents_in_binary_mode() -> None:
    made = writer("cloudevents", prefix="a b/ü")
    made.begin(300, TIME_US, 42)
    made.relation = made.of_relation(relation())
    first, second = made.next(CREATE), made.next(CREATE)
    assert dict(first) == {
        "ce_specversion": b"1.0",
        "ce_source": b"/cdcd/a%20b%2F%C3%BC/s1",
        "ce_type": b"cdcd.create",
        "ce_time": b"2026-11-26T02:00:12.068442Z",
        "ce_subject": b"public.orders",
        "content-type": b"application/json",
        "ce_id": b"300-0",
    }
    assert dict(second)["ce_id"] == b"300-1"


def test_a_content_type_that_is_not_known_is_left_out() -> None:
    made = writer("cloudevents", content_type="")
    made.begin(300, TIME_US, 42)
    assert "content-type" not in dict(made.next(CREATE))


def test_what_belongs_to_no_transaction_or_no_table_lacks_these_headers() -> None:
    made = writer("op", "table", "txid", "schema_version", "cloudevents")
    made.begin_snapshot(299, TIME_US)
    made.relation = made.messages
    headers = dict(made.next(MESSAGE))
    assert headers["ce_type"] == b"cdcd.message"
    assert not headers.keys() & {"__table", "__txid", "__schema_version", "ce_subject"}


def test_rows_of_two_snapshots_at_one_lsn_have_other_ids_and_so_do_copies_and_repairs_of_one() -> None:
    made = writer("cloudevents")
    ids = []
    for taken_us in (1, 1, 2):
        made.begin_snapshot(299, taken_us)
        ids += [dict(made.next(READ))["ce_id"] for _ in range(3)]
    made.begin(299, 3, 4)
    ids.append(dict(made.next(CREATE))["ce_id"])
    assert len(set(ids)) == 10


def test_a_transaction_that_is_sent_again_gets_the_same_headers() -> None:
    made = writer("op", "table", "lsn", "txid", "commit_time", "schema_version", "cloudevents")
    seen = []
    for _ in range(2):
        made.begin(300, TIME_US, 42)
        for each, lsn in ((relation(), 250), (relation(name="lines"), 260), (relation(), 270)):
            made.relation, made.lsn = made.of_relation(each), lsn
            seen.append(made.next(CREATE))
    assert seen[:3] == seen[3:]


@given(
    st.sets(st.sampled_from(["op", "table", "lsn", "txid", "commit_time", "schema_version", "cloudevents"])),
    st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.sampled_from("cudrtm"), st.integers(1, 1 << 62))),
)
def test_no_header_is_of_an_earlier_event_and_the_size_is_that_of_all(
    names: set[str], events: list[tuple[bool, int, str, int]]
) -> None:
    made, number = writer(*sorted(names)), 0
    relations = [made.of_relation(relation(name=name)) for name in ("a", "b")]
    made.begin(1000, 0, 1)
    for begins, table, op, lsn in events:
        if begins:
            number += 1
            made.begin(1000 + number, number, 1 + number)
        made.relation, made.lsn = relations[table], lsn
        headers = made.next(ord(op))
        assert made.bytes == sum(len(name) + len(value) for name, value in headers)
        found = dict(headers)
        assert len(found) == len(headers)
        shown = {
            "__op": op, "__table": f"public.{'ab'[table]}", "__lsn": str(lsn), "__txid": str(1 + number),
            "__commit_time": f"1970-01-01T00:00:00.{number:06d}Z",
        }  # fmt: skip
        wanted = {name: value.encode() for name, value in shown.items() if name[2:] in names}
        assert {name: value for name, value in found.items() if name in shown} == wanted
        assert ("ce_id" in found) == ("cloudevents" in names)


@given(st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31)))
def test_a_time_reads_back(time: datetime) -> None:
    time = time.replace(tzinfo=UTC)
    text = rfc3339((time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)).decode()
    assert datetime.fromisoformat(text) == time


@pytest.mark.parametrize("time_us", [-(1 << 63), -1, (1 << 63) - 1])
def test_a_time_that_no_calendar_has_ends_nothing(time_us: int) -> None:
    """The server's clock says what it likes."""
    assert rfc3339(time_us).endswith(b"Z")


def test_the_schema_version_follows_what_readers_see_of_the_columns() -> None:
    one = relation(ResolvedColumn("id", INT4, -1, True), ResolvedColumn("note", TEXT, -1, False))
    same = relation(ResolvedColumn("id", INT4, -1, True), ResolvedColumn("note", TEXT, -1, False), name="x", oid=8)
    others = [
        relation(ResolvedColumn("id", INT4, -1, True)),
        relation(ResolvedColumn("id", INT4, -1, True), ResolvedColumn("note", TEXT, 14, False)),
        relation(ResolvedColumn("id", INT4, -1, True), ResolvedColumn("note", INT4, -1, False)),
        relation(ResolvedColumn("id", INT4, -1, True), ResolvedColumn("notes", TEXT, -1, False)),
        relation(ResolvedColumn("id", INT4, -1, False), ResolvedColumn("note", TEXT, -1, True)),
    ]
    assert schema_version(one) == schema_version(same)
    assert len({schema_version(each) for each in (one, *others)}) == 6
