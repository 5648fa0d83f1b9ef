"""Slot, server and progress belong together, or it is refused; what time mends is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.errors import GapError, PostgresUnavailable
from cdcd.progress.continuity import (
    Remains,
    Server,
    adopted_base,
    check_continuity,
    check_drained,
    check_first_start,
    check_lost_slot,
    check_server,
    check_start,
    migrated_record,
)
from cdcd.progress.records import ParkedTable, SlotRecord

LAST = SlotRecord("cdcd", 0x500, 0x480, 1, "7300000000000000001", 1, 1, 1)
SERVER = Server("7300000000000000001", 1, "", wal_lsn=0x600, confirmed_lsn=0x500)
PROMOTED = replace(SERVER, timeline=2, history="1\t0/400\tno recovery target specified\n")


def test_a_server_whose_wal_ends_before_the_progress_is_a_gap_but_a_standby_may_get_there() -> None:
    with pytest.raises(GapError, match="restored to an earlier state"):
        check_continuity(LAST, "cdcd", replace(SERVER, wal_lsn=0x4F0, confirmed_lsn=0x400))
    with pytest.raises(PostgresUnavailable, match="the standby has replayed WAL up to 0/4F0"):
        check_continuity(LAST, "cdcd", replace(SERVER, wal_lsn=0x4F0, confirmed_lsn=0x400, standby=True))


def test_a_slot_where_the_progress_ends_has_lived_through_the_promotion_and_no_other_has() -> None:
    assert check_continuity(LAST, "cdcd", PROMOTED)
    for elsewhere in (0x488, 0x4F8, 0x508):
        with pytest.raises(GapError, match="does not have all that was published"):
            check_continuity(LAST, "cdcd", replace(PROMOTED, confirmed_lsn=elsewhere))
    with pytest.raises(GapError, match="did not come from it"):
        check_continuity(LAST, "cdcd", replace(PROMOTED, history=""))


@pytest.mark.parametrize("confirmed_lsn", [0x3F0, 0x400, 0x480])
def test_a_promotion_that_was_not_noticed_is_proven_by_what_the_slot_sends_again(confirmed_lsn: int) -> None:
    """The daemon was killed before it had told the server, or the server crashed: the slot stands further back.

    It was refused.
    """
    server = replace(PROMOTED, confirmed_lsn=confirmed_lsn)
    check_server(LAST, server)
    assert check_continuity(LAST, "cdcd", server)
    last = replace(LAST, commit_lsn=0x3F8)  # the old primary may have published what is between
    for refused in (
        (last, server, 0),
        (LAST, server, 0x488),  # it need not come again: tables have snapshots instead
        (LAST, replace(server, slot_was_synced=True), 0),  # only the old primary can have published it
    ):
        with pytest.raises(GapError, match="does not have all that was published"):
            check_continuity(refused[0], "cdcd", refused[1], refused[2])


def test_a_slot_that_the_standby_kept_in_sync_proves_at_once_that_published_changes_are_lost() -> None:
    with pytest.raises(GapError, match="left it at 0/400"):
        check_server(LAST, replace(PROMOTED, confirmed_lsn=0x400, slot_was_synced=True))


OTHERS = [
    (replace(SERVER, system_id="7300000000000000002"), "another PostgreSQL cluster"),
    (replace(SERVER, database_oid=5), "the database with the OID 5, but Kafka holds changes of the one with the OID 4"),
    (replace(SERVER, timeline=2, history=""), "did not come from it"),
    (replace(SERVER, timeline=2, history="1\t0/400\tx\n", confirmed_lsn=0), "left it at 0/400"),
    (replace(SERVER, wal_lsn=0x4F0, confirmed_lsn=0x400), "restored to an earlier state"),
]


@pytest.mark.parametrize(("server", "said"), OTHERS)
def test_a_server_that_no_later_record_can_explain_is_refused_at_once(server: Server, said: str) -> None:
    last = replace(LAST, database_oid=4)
    with pytest.raises(GapError, match=said):
        check_server(last, server)
    with pytest.raises(GapError, match=said):
        check_start(last, Remains(), "cdcd", server, "p.progress")
    with pytest.raises(GapError, match=said):
        check_lost_slot(last, "cdcd", server, accepts_gap=True)


def test_what_a_later_record_may_explain_is_refused_only_once_the_progress_is_final() -> None:
    for server in (
        replace(SERVER, confirmed_lsn=0x508),
        *(replace(PROMOTED, confirmed_lsn=at) for at in (0x488, 0x508)),
    ):
        check_server(LAST, server)
        with pytest.raises(GapError):
            check_continuity(LAST, "cdcd", server)


def test_records_without_a_database_and_a_database_that_is_not_known_are_no_contradiction() -> None:
    check_server(LAST, replace(SERVER, database_oid=5))
    check_server(replace(LAST, database_oid=4), SERVER)


REMAINS = [
    (Remains(beginning_lsn=0x100), "its stream begins at 0/100"),
    (Remains(snapshots=["p.b", "p.a"]), "the snapshot of p.a and 1 more"),
    (Remains(unclaimed_topics=["p.a"]), "there are rows on p.a"),
]


@pytest.mark.parametrize(("remains", "said"), REMAINS)
def test_a_slot_that_left_traces_but_no_progress_has_lost_it(remains: Remains, said: str) -> None:
    with pytest.raises(
        GapError, match=f"no progress of the slot cdcd, but .*{said}.* of p.progress are lost"
    ) as caught:
        check_start(None, remains, "cdcd", SERVER, "p.progress")
    assert "resnapshot" in caught.value.hint
    assert "sink.prefix" in caught.value.hint
    assert not check_first_start("cdcd", remains, "p.progress", accepts_gap=True)


def test_a_slot_without_traces_begins() -> None:
    assert check_start(None, Remains(), "cdcd", SERVER, "p.progress")


def test_a_slot_that_is_gone_is_refused_unless_a_new_snapshot_is_wanted() -> None:
    with pytest.raises(GapError, match="does not exist any more, but Kafka holds its changes up to 0/500"):
        check_lost_slot(LAST, "cdcd", SERVER)
    check_lost_slot(LAST, "cdcd", SERVER, accepts_gap=True)
    check_lost_slot(None, "cdcd", SERVER)


MOVED = replace(SERVER, system_id="7300000000000000002", wal_lsn=0x80, confirmed_lsn=0x40)


def test_a_base_makes_the_lsns_of_another_server_higher_than_all_in_kafka_and_keeps_their_lower_half() -> None:
    base = adopted_base(LAST, MOVED)
    assert base == 1 << 32
    assert MOVED.rebased(base).rebased(0) == MOVED
    assert MOVED.rebased(base).wal_lsn == (1 << 32) + 0x80
    assert adopted_base(replace(LAST, lsn=(5 << 32) + 0x500), MOVED) == 6 << 32
    assert adopted_base(replace(LAST, lsn=(5 << 32) + 0x80), MOVED) == 5 << 32
    assert adopted_base(LAST, replace(MOVED, wal_lsn=0x500)) == 0, "LSNs rise by themselves after pg_upgrade"


def test_the_server_that_kafka_knows_keeps_its_base_as_long_as_that_is_high_enough() -> None:
    last = replace(LAST, lsn=(3 << 32) + 0x500, lsn_base=3 << 32)
    assert adopted_base(last, SERVER) == 3 << 32
    assert adopted_base(last, replace(SERVER, wal_lsn=0x4F0)) == 4 << 32, "it was put back"
    assert adopted_base(last, replace(MOVED, wal_lsn=9 << 32)) == 0


def test_without_progress_or_without_room_nothing_is_adopted() -> None:
    with pytest.raises(GapError, match="nothing to adopt"):
        adopted_base(None, SERVER)
    with pytest.raises(GapError, match="there is no LSN above"):
        adopted_base(replace(LAST, lsn=(1 << 63) - 1), MOVED)


def test_an_adopted_server_is_judged_by_its_lsns_in_kafka() -> None:
    last = replace(LAST, lsn=(1 << 32) + 0x500, lsn_base=1 << 32)
    assert check_continuity(last, "cdcd", SERVER)
    with pytest.raises(GapError, match="restored to an earlier state"):
        check_continuity(last, "cdcd", replace(SERVER, wal_lsn=0x4F0, confirmed_lsn=0x400))
    with pytest.raises(GapError, match="confirmed up to 1/508"):
        check_continuity(last, "cdcd", replace(SERVER, confirmed_lsn=0x508))
    promoted = replace(last, commit_lsn=0)
    assert check_continuity(promoted, "cdcd", replace(PROMOTED, history="1\t0/500\tx\n"))
    with pytest.raises(GapError, match="left it at 1/400"):
        check_continuity(promoted, "cdcd", replace(PROMOTED, confirmed_lsn=0x400))


def test_nobody_can_say_of_a_server_that_kafka_knows_that_it_has_everything() -> None:
    assert check_drained(LAST, "cdcd", MOVED)
    assert check_drained(replace(LAST, database_oid=4), "cdcd", replace(SERVER, database_oid=5))
    assert not check_drained(LAST, "cdcd", SERVER)
    with pytest.raises(GapError, match="restored to an earlier state"):
        check_drained(LAST, "cdcd", replace(SERVER, wal_lsn=0x4F0, confirmed_lsn=0x400))


def test_what_a_person_can_run_is_in_each_refusal_of_another_server() -> None:
    for server, _ in OTHERS:
        with pytest.raises(GapError, match="run: cdcd adopt"):
            check_server(replace(LAST, database_oid=4), server)


@pytest.mark.parametrize("last", [None, LAST, replace(LAST, lsn=0x480)])
def test_the_slot_of_a_connector_goes_on_where_it_stands(last: SlotRecord | None) -> None:
    record = migrated_record(last, "cdcd", SERVER)
    assert (record.slot, record.lsn, record.commit_lsn, record.system_id) == ("cdcd", 0x500, 0, SERVER.system_id)


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (replace(LAST, lsn=0x508), "Run: cdcd run"),
        (replace(LAST, parked=(ParkedTable("public", "t", "refused", 0x400, 0),)), "parked topic"),
        (replace(LAST, lsn=0x1_0000_0400, lsn_base=0x1_0000_0000), "not those of the server"),
    ],
)
def test_a_slot_of_which_cdcd_has_more_is_not_taken_over(last: SlotRecord, said: str) -> None:
    with pytest.raises(GapError, match=said):
        migrated_record(last, "cdcd", SERVER)
