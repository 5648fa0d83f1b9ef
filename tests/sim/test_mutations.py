"""The simulation can fail: each deliberate bug is caught within some seeds."""

from __future__ import annotations

import pytest
import sim.mutations_snapshots
from sim.mutations import MUTATIONS
from sim.scenes import (
    BrokenSnapshots,
    LostWhileTakingOver,
    MarkersLost,
    PreparedWithoutRows,
    RolledBackBeforeALargeOne,
    SnapshotsUnderFaults,
    TornSpool,
    TwoFirstStarts,
    ZombieThatPublishes,
)
from sim.world import Failure, World

import cdcd.transaction.assembler
from cdcd.errors import CdcdError

SEEDS = 400

PLAYED = {
    "forget that a transaction began behind a prepare": RolledBackBeforeALargeOne,
    "let go of a prepared transaction without rows": PreparedWithoutRows,
    "take the slot of another daemon for a lost one": TwoFirstStarts,
    "take the news of another daemon for a gap": LostWhileTakingOver,
    "read the progress before fencing": ZombieThatPublishes,
    "fence with the second producer when its turn comes": ZombieThatPublishes,
    "trust the disk": TornSpool,
    "take the rows of undecided progress for visible": MarkersLost,
    "take where the slot began for an acknowledgement": MarkersLost,
    **dict.fromkeys(sim.mutations_snapshots.NAMES, SnapshotsUnderFaults),
    **dict.fromkeys(sim.mutations_snapshots.OF_BROKEN_SNAPSHOTS, BrokenSnapshots),
}
"""These show so seldom that they have a scene of their own."""

BEGIN = {
    "take blocks of a file that is gone for done": 100,
    "leave undecided what hangs of the second producer": 110,
    "look for what has moved since the last snapshot, not since the first": 210,
    "leave out what has moved into blocks that are done": 210,
}
"""The seeds before these take minutes, and have caught nothing."""

GARBLED = {"trust the disk"}
"""These hand bytes to the decoder that no server sent: any error is their sign."""

pytestmark = pytest.mark.skipif(
    not cdcd.transaction.assembler.__file__.endswith(".py"), reason="compiled code cannot be patched"
)


def caught(name: str) -> Failure | None:
    """The first seed that fails with this bug."""
    with MUTATIONS[name]():
        for seed in range(BEGIN.get(name, 0), SEEDS):
            try:
                PLAYED.get(name, World)(seed).run()
            except Failure as failure:
                # Anything else would be the simulation's own mistake.
                if not isinstance(failure.error, AssertionError | CdcdError) and name not in GARBLED:
                    raise
                return failure
    return None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bug_is_caught(name: str) -> None:
    assert caught(name) is not None, f"{SEEDS} seeds did not notice: {name}"
