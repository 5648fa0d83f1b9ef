from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.daemon.recopies import Recopies
from cdcd.daemon.snapshot_requests import SnapshotRequests
from cdcd.errors import FatalError
from cdcd.progress.daemon_requests import SNAPSHOT, STOP, Request
from cdcd.progress.repair_records import RepairKeys, pending_repair
from cdcd.progress.snapshot_records import (
    COMPARE,
    DONE,
    ROWS,
    RUNNING,
    STOPPED,
    WANTED,
    CompletedRange,
    TableSnapshot,
    wanted_snapshot,
)
from cdcd.sink.batches import AnnouncedTable
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.repair_events import RepairOutcome
from cdcd.source.incarnations import Incarnation


def table(name: str, state: str) -> TableSnapshot:
    return TableSnapshot("s", f"p.public.{name}", "public", name, state, 0)


def requests(*known: TableSnapshot, takes_new_tables: bool = True, parked: str = "") -> SnapshotRequests:
    return SnapshotRequests(
        "s",
        TopicNames("p"),
        {each.topic: each for each in known},
        takes=(lambda *_: True) if takes_new_tables else None,
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


def test_a_table_whose_snapshot_was_stopped_gets_none_until_somebody_asks() -> None:
    it = requests(table("a", RUNNING))
    for name in ("a", "c"):
        it.stop("public", name)
        assert it.choose("public", name, Incarnation(7)) is None
        assert it.is_stopped("public", name)
        it.stop("public", name)  # twice is once
    assert it.stopped == [("public", "a"), ("public", "c")]
    it.request("public", "a")
    assert it.choose("public", "a") == replace(table("a", WANTED), starts_with_truncate=True)
    it.stop("public", "a")
    assert not it.has_requests


def test_only_what_has_not_ended_can_be_stopped() -> None:
    it = requests(table("a", DONE), takes_new_tables=False)
    with pytest.raises(ValueError, match="is complete"):
        it.stop("public", "a")
    with pytest.raises(ValueError, match="gets no snapshot"):
        it.stop("public", "c")
    assert it.stopped == []


def test_a_stopped_table_is_not_copied_because_it_was_replaced_or_has_another_key() -> None:
    known = replace(table("a", STOPPED), incarnation=Incarnation(7))
    recopies = Recopies(TopicNames("p"), {("public", "a"): ("id",)}, {known.topic: Incarnation(7)})
    it = SnapshotRequests("s", TopicNames("p"), {known.topic: known}, takes=lambda *_: True, recopies=recopies)
    assert it.choose("public", "a", Incarnation(8)) is None
    assert it.announce([AnnouncedTable("public", "a", ("other",), 8)]) == []


def test_a_table_that_is_not_to_be_copied_gets_a_snapshot_if_a_person_asks() -> None:
    it = SnapshotRequests("s", TopicNames("p"), {}, takes=lambda _, name: name != "large")
    assert it.choose("public", "large") is None
    assert it.choose("public", "a") is not None
    assert not it.has_snapshot("public", "large")
    it.request("public", "large")
    assert it.choose("public", "large") is not None


def test_a_parked_table_gets_no_snapshot() -> None:
    assert requests(parked="a").choose("public", "a") is None


def test_a_request_that_came_while_the_table_was_read_wants_another_snapshot() -> None:
    it = requests()
    chosen = it.choose("public", "a")
    assert chosen is not None
    it.begin([chosen])
    it.reach([begun(chosen)])
    it.request("public", "a")
    finished = replace(chosen, state=DONE)
    assert it.requested_since([finished]) == [replace(table("a", WANTED), starts_with_truncate=True)]
    it.finish([finished])
    assert it.has_requests
    again = it.choose("public", "a")
    assert again is not None
    it.begin([again])
    it.reach([begun(again)])
    assert not it.has_requests
    it.finish([replace(again, state=DONE)])
    assert it.choose("public", "a") is None


def test_a_request_that_came_before_the_tables_were_chosen_is_served_by_this_snapshot() -> None:
    it = requests(table("a", DONE))
    it.request("public", "a")
    chosen = it.choose("public", "a")
    assert chosen is not None
    it.begin([chosen])
    it.reach([begun(chosen)])
    assert it.requested_since([chosen]) == []
    it.finish([replace(chosen, state=DONE)])
    assert not it.has_requests
    assert it.choose("public", "a") is None


def test_a_request_before_the_rows_is_served_by_those_that_replace_all() -> None:
    it = requests()
    first, anew = begun(table("a", RUNNING), CompletedRange(7, 7, 0, 9)), begun(table("b", RUNNING))
    for each in (first, anew):
        it.request("public", each.table)
    assert it.reach([first, anew]) == {anew.topic}
    assert it.requested_since([first, anew]) == [replace(table("a", WANTED), starts_with_truncate=True)]
    it.finish([replace(first, state=DONE), replace(anew, state=DONE)])
    assert it.choose("public", "a") == replace(table("a", WANTED), starts_with_truncate=True)
    assert it.choose("public", "b") is None


def test_a_table_has_a_snapshot_if_it_gets_one() -> None:
    assert requests().has_snapshot("public", "a")
    assert not requests(takes_new_tables=False).has_snapshot("public", "a")
    assert requests(table("a", WANTED), takes_new_tables=False).has_snapshot("public", "a")


OLD, NEW = Incarnation(1, (7,), 1, 99), Incarnation(2, (7,), 2, 98)


def replaced(state: str = DONE, *, follows: bool = True) -> SnapshotRequests:
    """The requests of a daemon whose topic `a` has the rows of OLD."""
    names = TopicNames("p")
    return SnapshotRequests(
        "s",
        names,
        {"p.public.a": table("a", state)},
        takes=lambda *_: True,
        recopies=Recopies(names, {}, {"p.public.a": OLD}, stops_on_replaced=not follows),
    )


def announce(it: SnapshotRequests, oid: int) -> bool:
    """The events of another table, or of the same one, come under the name. Returns whether it gets a snapshot."""
    return it.announce([AnnouncedTable("public", "a", (), oid)]) == [("public", "a")]


def begun(chosen: TableSnapshot, *done: CompletedRange) -> TableSnapshot:
    """As its rows begin, after those of these ranges."""
    return replace(chosen, state=RUNNING, lsn=1, done=done, key_columns=())


def fresh(incarnation: Incarnation) -> TableSnapshot:
    return replace(table("a", WANTED), starts_with_truncate=True, incarnation=incarnation)


@pytest.mark.parametrize("state", [DONE, RUNNING])
def test_a_table_that_the_catalog_shows_replaced_gets_a_snapshot_from_the_start(state: str) -> None:
    assert replaced(state).choose("public", "a", NEW) == fresh(NEW)


def test_a_table_that_the_stream_shows_replaced_wants_a_snapshot_once() -> None:
    it = replaced()
    assert not announce(it, 1)
    assert announce(it, 2)
    assert not announce(it, 2)
    assert not announce(it, 3), "the snapshot that is wanted will have it"
    assert it.choose("public", "a", NEW) == fresh(NEW)


def test_what_the_stream_shows_before_the_snapshot_is_in_it() -> None:
    it = replaced()
    chosen = it.choose("public", "a", NEW)
    assert chosen is not None
    it.begin([chosen])
    assert announce(it, 2)
    it.reach([begun(chosen)])
    assert not it.has_requests
    assert not announce(it, 2)
    it.finish([replace(chosen, state=DONE)])
    assert it.choose("public", "a", NEW) is None


def test_a_table_whose_requested_snapshot_is_read_gets_another_one_if_it_is_replaced() -> None:
    it = replaced()
    it.request("public", "a")
    chosen = it.choose("public", "a", OLD)
    assert chosen is not None
    it.begin([chosen])
    it.reach([begun(chosen)])
    assert announce(it, 2), "the rows that are read are of the other table"
    it.finish([replace(chosen, state=DONE)])
    assert it.choose("public", "a", NEW) == fresh(NEW)


def test_a_table_that_is_replaced_while_it_is_read_gets_another_snapshot() -> None:
    it = replaced()
    chosen = it.choose("public", "a", NEW)
    assert chosen is not None
    it.begin([chosen])
    it.reach([begun(chosen)])
    assert announce(it, 3)
    it.finish([replace(chosen, state=DONE)])
    assert it.choose("public", "a", replace(NEW, oid=3)) == fresh(replace(NEW, oid=3))


def test_a_first_snapshot_begins_with_a_truncate_if_the_topic_has_changes_of_another_table() -> None:
    it = requests()
    chosen = it.choose("public", "a", NEW)
    assert chosen is not None
    assert not chosen.starts_with_truncate
    it.begin([chosen])
    assert not announce(it, 1)
    assert it.reach([begun(chosen)]) == {"p.public.a"}


def test_without_following_the_stream_ends_before_the_first_event_of_the_new_table() -> None:
    with pytest.raises(FatalError, match=r"public\.a was replaced: another table has its name"):
        announce(replaced(follows=False), 2)


def test_without_following_the_stream_ends_where_the_catalog_was_read() -> None:
    it = replaced(follows=False)
    chosen = it.choose("public", "a", NEW)
    assert chosen is not None
    it.begin([chosen])
    assert it.stops_here
    with pytest.raises(FatalError, match=r"public\.a was replaced"):
        it.reach([begun(chosen)])


def test_without_following_a_requested_snapshot_is_taken() -> None:
    it = replaced(follows=False)
    it.request("public", "a")
    chosen = it.choose("public", "a", NEW)
    assert chosen is not None
    it.begin([chosen])
    assert not it.stops_here
    it.reach([begun(chosen)])


def test_what_else_the_catalog_says_is_recorded_once() -> None:
    it = replaced()
    truncated = replace(OLD, file_node=5)
    [news] = it.compare({("public", "a"): truncated})
    assert news == replace(table("a", DONE), incarnation=truncated)
    assert it.compare({("public", "a"): truncated}) == []
    assert it.compare({("public", "a"): NEW}) == [], "it wants a snapshot"


def test_a_table_that_was_not_published_for_a_time_gets_a_snapshot() -> None:
    it = replaced()
    [news] = it.compare({})
    assert it.choose("public", "a", OLD) == fresh(OLD)
    assert news.incarnation is not None
    assert news.incarnation.contradiction(OLD) == "the publication was without it for a time"


def test_the_late_events_of_a_table_that_is_not_published_any_more_are_its_own() -> None:
    it = replaced()
    it.compare({})
    assert not announce(it, 1)


def repairing(repair: str = ROWS) -> SnapshotRequests:
    wanted = replace(wanted_snapshot("s", "p.public.a", "public", "a"), repair=repair)
    return requests(wanted)


PENDING = pending_repair("s", "p.public.a", "public", "a", RepairKeys(("id",), (("1",),)))


def test_a_table_is_complete_with_the_last_of_its_repairs() -> None:
    it = repairing()
    [first] = it.repaired([RepairOutcome(PENDING, (), 2, 1, "")], {"p.public.a"}, 0x500)
    assert (first.repair, first.state, first.rows) == (ROWS, WANTED, 2)
    [last] = it.repaired([RepairOutcome(PENDING, (), 3, 0, "")], set(), 0x600)
    assert (last.repair, last.state, last.rows, last.lsn, last.starts_with_truncate) == ("", DONE, 5, 0x600, False)
    assert it.repaired([RepairOutcome(PENDING, (), 3, 0, "")], set(), 0x700) == [], "somebody else asked for it"


def test_repairs_while_a_table_is_still_to_be_compared_complete_nothing() -> None:
    it = repairing(COMPARE)
    assert it.repaired([RepairOutcome(PENDING, (), 2, 1, "")], set(), 0x500) == []
    assert it.refused([PENDING]) == []
    assert it.is_to_compare("public", "a")


def test_a_table_whose_repair_is_refused_after_a_gap_gets_a_new_snapshot() -> None:
    it = repairing()
    assert it.refused([PENDING, PENDING]) == [Request(SNAPSHOT, ("public", "a"))]
    assert it.is_wanted("public", "a")
    assert it.has_requests
    assert requests(table("a", DONE)).refused([PENDING]) == []


def test_a_table_that_is_never_copied_is_not_copied_because_its_repair_is_refused() -> None:
    names, known = TopicNames("p"), replace(table("a", WANTED), repair=ROWS)
    recopies = Recopies(names, {}, {}, forbids=lambda _, name: name == "a")
    it = SnapshotRequests("s", names, {known.topic: known}, takes=lambda *_: True, recopies=recopies)
    assert it.refused([PENDING]) == [Request(STOP, ("public", "a"))]
    assert it.is_stopped("public", "a"), "readers see that its topic lacks rows"
    assert not it.has_requests
    assert it.choose("public", "a") is None


def test_a_key_that_changes_while_a_table_is_compared_or_repaired_brings_a_new_snapshot() -> None:
    for repair in (COMPARE, ROWS):
        assert not repairing(repair).is_wanted("public", "a")


def test_a_table_that_was_replaced_in_a_gap_is_copied_and_not_compared() -> None:
    wanted = replace(wanted_snapshot("s", "p.public.a", "public", "a"), repair=COMPARE)
    recopies = Recopies(TopicNames("p"), {}, {"p.public.a": Incarnation(1)})
    it = SnapshotRequests("s", TopicNames("p"), {"p.public.a": wanted}, takes=lambda *_: True, recopies=recopies)
    assert it.choose("public", "a", Incarnation(1)) is None
    chosen = it.choose("public", "a", Incarnation(2))
    assert chosen is not None
    assert chosen.wants_all_rows
    it.begin([chosen])
    it.reach([begun(chosen)])
    assert not it.is_to_compare("public", "a")
