"""Slot, server and progress belong together, or it is refused; what time mends is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.errors import GapError, PostgresUnavailable
from cdcd.progress.continuity import (
    Remains,
    Server,
    check_continuity,
    check_first_start,
    check_lost_slot,
    check_server,
    check_start,
)
from cdcd.progress.records import SlotRecord

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
    for elsewhere in (0x400, 0x4F8, 0x508):
        with pytest.raises(GapError, match="does not have all that was published"):
            check_continuity(LAST, "cdcd", replace(PROMOTED, confirmed_lsn=elsewhere))
    with pytest.raises(GapError, match="did not come from it"):
        check_continuity(LAST, "cdcd", replace(PROMOTED, history=""))


OTHERS = [
    (replace(SERVER, system_id="7300000000000000002"), "another PostgreSQL cluster"),
    (replace(SERVER, database_oid=5), "the database with the OID 5, but Kafka holds changes of the one with the OID 4"),
    (replace(SERVER, timeline=2, history=""), "did not come from it"),
    (replace(SERVER, timeline=2, history="1\t0/400\tx\n", confirmed_lsn=0x4F8), "left it at 0/400"),
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
        check_lost_slot(last, "cdcd", server, resnapshot=True)


def test_what_a_later_record_may_explain_is_refused_only_once_the_progress_is_final() -> None:
    for server in (replace(SERVER, confirmed_lsn=0x508), replace(PROMOTED, confirmed_lsn=0x508)):
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
    assert not check_first_start("cdcd", remains, "p.progress", resnapshot=True)


def test_a_slot_without_traces_begins() -> None:
    assert check_start(None, Remains(), "cdcd", SERVER, "p.progress")


def test_a_slot_that_is_gone_is_refused_unless_a_new_snapshot_is_wanted() -> None:
    with pytest.raises(GapError, match="does not exist any more, but Kafka holds its changes up to 0/500"):
        check_lost_slot(LAST, "cdcd", SERVER)
    check_lost_slot(LAST, "cdcd", SERVER, resnapshot=True)
    check_lost_slot(None, "cdcd", SERVER)
