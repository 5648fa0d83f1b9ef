"""Slot, server and progress belong together, or it is refused; what time mends is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.errors import GapError, PostgresUnavailable
from cdcd.progress.continuity import Server, check_continuity
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
