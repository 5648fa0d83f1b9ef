from __future__ import annotations

from dataclasses import replace

from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.progress.snapshot_records import DONE, RUNNING, WANTED, TableSnapshot
from cdcd.sink.topics import TopicNames


def table(name: str, state: str) -> TableSnapshot:
    return TableSnapshot("s", f"p.public.{name}", "public", name, state, 0)


def requests(*known: TableSnapshot, takes_new_tables: bool = True, parked: str = "") -> SnapshotRequests:
    return SnapshotRequests(
        "s",
        TopicNames("p"),
        {each.topic: each for each in known},
        takes_new_tables=takes_new_tables,
        parked=lambda: {("public", parked)},
    )


def test_a_table_wants_a_snapshot_unless_it_has_one() -> None:
    it = requests(table("a", DONE), table("b", RUNNING))
    assert it.choose("public", "a") is None
    assert it.choose("public", "b") == table("b", RUNNING)
    assert it.choose("public", "c") == table("c", WANTED)


def test_without_new_tables_only_what_is_unfinished_or_asked_for_wants_a_snapshot() -> None:
    it = requests(table("a", DONE), takes_new_tables=False)
    assert it.choose("public", "c") is None
    assert not it.may_want_tables
    it.request("public", "c")
    assert it.may_want_tables
    assert it.choose("public", "c") == replace(table("c", WANTED), starts_with_truncate=True)


def test_a_parked_table_gets_no_snapshot() -> None:
    assert requests(parked="a").choose("public", "a") is None


def test_a_request_that_came_while_the_table_was_read_wants_another_snapshot() -> None:
    it = requests()
    chosen = it.choose("public", "a")
    assert chosen is not None
    it.begin([chosen])
    it.request("public", "a")
    finished = replace(chosen, state=DONE)
    assert it.requested_since([finished]) == [replace(table("a", WANTED), starts_with_truncate=True)]
    it.finish([finished])
    assert it.has_requests
    again = it.choose("public", "a")
    assert again is not None
    it.begin([again])
    assert not it.has_requests
    it.finish([replace(again, state=DONE)])
    assert it.choose("public", "a") is None


def test_a_request_that_came_before_the_tables_were_chosen_is_served_by_this_snapshot() -> None:
    it = requests(table("a", DONE))
    it.request("public", "a")
    chosen = it.choose("public", "a")
    assert chosen is not None
    it.begin([chosen])
    assert it.requested_since([chosen]) == []
    it.finish([replace(chosen, state=DONE)])
    assert not it.has_requests
    assert it.choose("public", "a") is None
