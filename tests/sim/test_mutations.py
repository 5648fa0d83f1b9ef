"""The simulation can fail: each deliberate bug is caught within some seeds."""

from __future__ import annotations

import pytest
from sim.mutations import MUTATIONS
from sim.world import Failure, World

import cdcd.transaction.assembler

SEEDS = 150

PREPARED = {"forget that a transaction began behind a prepare", "let go of a prepared transaction without rows"}
"""These show only where there are prepared transactions."""

pytestmark = pytest.mark.skipif(
    not cdcd.transaction.assembler.__file__.endswith(".py"), reason="compiled code cannot be patched"
)


def caught(name: str) -> Failure | None:
    """The first seed that fails with this bug."""
    with MUTATIONS[name]():
        for seed in range(SEEDS):
            try:
                World(seed, two_phase=name in PREPARED).run()
            except Failure as failure:
                return failure
    return None


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_bug_is_caught(name: str) -> None:
    assert caught(name) is not None, f"{SEEDS} seeds did not notice: {name}"
