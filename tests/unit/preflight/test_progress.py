"""What `cdcd check` says of a loss, and of tables that are parked meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from cdcd.config.settings import SourceSettings
from cdcd.errors import GapError
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.progress import judge
from cdcd.progress.continuity import Remains, Server, check_lost_slot, check_start
from cdcd.progress.records import ParkedTable, SlotRecord
from cdcd.source.server_errors import LOST_CHANGES_HINT, lost_slot

PARKED = ParkedTable("public", "t", "a row is too large", 0x400, 0)
LAST = SlotRecord("s", 0x500, 0x480, 1, "1", 1, 1, 1, parked=(PARKED,))
HERE = Server("1", 1, "", 0x900, 0x500)
MOVED = Server("1", 1, "", 0x900, 0x800)


def judged(server: Server | None = HERE, on_slot_lost: str = "stop", **slot: Any) -> dict[str, Finding]:
    source = SourceSettings(dsn="d", slot="s").model_copy(update={"on_slot_lost": on_slot_lost})
    given = {"slot_exists": True, **slot}
    return {each.about: each for each in judge(LAST, Remains(), source, server, "p.progress", **given)}


@pytest.mark.parametrize(("server", "slot"), [(HERE, {"slot_exists": False}), (HERE, {"slot_lost": True}), (MOVED, {})])
@pytest.mark.parametrize("on_slot_lost", ["stop", "repair"])
def test_the_parked_events_of_a_lost_slot_are_kept_and_a_new_snapshot_follows_them(
    server: Server, slot: dict[str, bool], on_slot_lost: str
) -> None:
    hint = judged(server, on_slot_lost, **slot)["parked"].hint
    assert (
        "once a daemon streams again, run: cdcd unpark public.t. It replays the parked events, which are kept" in hint
    )
    assert hint.endswith("a new snapshot of the table follows by itself")


@pytest.mark.parametrize("server", [HERE, None, Server("2", 1, "", 0x900, 0x500)])
def test_without_a_loss_the_end_of_a_parking_is_not_followed_by_a_snapshot(server: Server | None) -> None:
    found = judged(server)
    assert found["parked"].hint == "Correct the cause, then run: cdcd unpark public.t"
    assert (found["progress"].level is Level.ERROR) == (server is not None and server.system_id == "2")


def test_what_to_do_about_lost_changes_is_said_in_the_same_words_however_they_were_lost() -> None:
    with pytest.raises(GapError) as gone:
        check_lost_slot(LAST, "s", HERE)
    with pytest.raises(GapError) as moved:
        check_start(LAST, Remains(), "s", MOVED, "p.progress")
    for hint in (gone.value.hint, moved.value.hint, lost_slot("wal_removed")[1], lost_slot("idle_timeout")[1]):
        assert LOST_CHANGES_HINT in hint
    assert judged(slot_exists=False)["progress"].hint == gone.value.hint == LOST_CHANGES_HINT
