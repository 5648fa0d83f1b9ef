"""Which repairs are left, and the records that end them."""

from __future__ import annotations

from cdcd.daemon.repair_requests import RepairRequests
from cdcd.progress.repair_records import PendingRepair, RepairKeys, TableRepairs, parse_repair_record, pending_repair
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.repair_events import RepairOutcome, RepairRows

KEYS = RepairKeys(("id",), (("1",), ("2",), ("3",)))
PENDING = pending_repair("s", "p.public.t", "public", "t", KEYS)


def requests(*found: PendingRepair | TableRepairs, parked: frozenset[tuple[str, str]] = frozenset()) -> RepairRequests:
    return RepairRequests("s", TopicNames("p"), found, lambda: parked)


def records(found: list[tuple[bytes, bytes | None]]) -> list[PendingRepair | TableRepairs | bytes]:
    return [key if value is None else parse_repair_record(key, value) for key, value in found]


def test_what_is_requested_or_was_left_is_chosen_unless_its_table_is_parked() -> None:
    it = requests(PENDING)
    assert it.choose() == [PENDING]
    assert it.has_any
    it.request("public", "u", KEYS)
    assert [each.table for each in it.choose()] == ["t", "u"]
    parked = requests(PENDING, parked=frozenset([("public", "t")]))
    assert parked.choose() == []
    assert parked.has_any


def test_a_repair_that_is_done_leaves_a_tombstone_and_is_counted() -> None:
    it = requests(PENDING, TableRepairs("s", "p.public.t", 5, 10, 20))
    it.begin([RepairRows(PENDING)])
    done = it.finish([RepairOutcome(PENDING, (), 2, 1, "")], 100)
    assert records(done) == [PENDING.key(), TableRepairs("s", "p.public.t", 100, 12, 21)]
    assert not it.has_any
    assert not it.has_requests


def test_what_is_left_of_a_repair_is_wanted_again() -> None:
    it = requests(PENDING)
    it.begin([RepairRows(PENDING)])
    left = PENDING.with_keys([("3",)])
    done = it.finish([RepairOutcome(PENDING, [("3",)], 2, 0, "")], 100)
    assert records(done) == [left, TableRepairs("s", "p.public.t", 100, 2, 0)]
    assert it.choose() == [left]
    assert it.has_requests


def test_a_repair_that_is_refused_leaves_a_tombstone_and_no_count() -> None:
    it = requests(PENDING)
    assert records(it.finish([RepairOutcome(PENDING, (), 0, 0, "no")], 100)) == [PENDING.key()]
    assert not it.has_any


def test_a_repair_that_is_requested_again_while_it_is_read_waits_for_a_later_snapshot() -> None:
    it = requests()
    it.request("public", "t", KEYS)
    [first] = it.choose()
    it.request("public", "t", KEYS)
    it.begin([RepairRows(first)])
    assert not it.is_wanted(first)
    assert it.has_requests
    [second] = it.choose()
    it.begin([RepairRows(second)])
    assert it.is_wanted(second)
    assert not it.has_requests
