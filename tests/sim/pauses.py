"""A person pauses the snapshots, resumes them, and limits their rate: and the judgement whether the daemon obeys.

Before: `world` lets the person act now and then. After: requests in `sql`, and the limits of the daemons that live.

A daemon may begin a snapshot, or a chunk of one, unless the last slot record that it has committed, or has found at its
start, says that the snapshots are paused, and nobody has asked to resume them since.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from sim.sql import REQUESTS, Session

from cdcd.progress.daemon_requests import ALL_TABLES, PAUSE, RESUME

if TYPE_CHECKING:
    from sim.replica import Life
    from sim.world import World

LIMITS = [(0, 0), (3, 0), (0, 40), (40, 1_000)]
"""Rows and bytes a second."""


class Pauses:
    """The person."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = Random(f"pauses {seed}")
        self.chance = 0.0
        """How often something is done after something was done in SQL."""

    @property
    def is_paused(self) -> bool:
        """The last request asks for a pause."""
        requests = self._world.database.pauses
        return bool(requests) and requests[-1].is_paused

    def act(self) -> None:
        """Pause, resume or limit, sometimes."""
        if self._rng.random() >= self.chance:
            return
        if self._rng.random() < 0.5:
            limits = self._rng.choice(LIMITS)
            self._limit(*limits)
        elif self._world.server.up:
            self._ask(is_paused=self._rng.random() < 0.6)

    def rest(self) -> None:
        """Nothing is paused or slow from now on."""
        if self.is_paused:
            self._ask(is_paused=False)
        self._limit(0, 0)

    def judge(self, life: Life) -> None:
        """A daemon begins a snapshot, or a chunk."""
        last = None if life.opened is None else life.opened.publisher.last
        if last is None or not last.snapshots_paused:
            return
        resumed = [each for each in self._world.database.pauses if not each.is_paused and each.end_lsn > last.lsn]
        assert resumed, f"{life.name} copies although the snapshots are paused at {last.lsn:X}"

    def _ask(self, *, is_paused: bool) -> None:
        session = Session(self._world.database)
        session.ask(REQUESTS, *ALL_TABLES, action=PAUSE if is_paused else RESUME)
        self._world.note(f"{'pause' if is_paused else 'resume'} the snapshots, {session.commit()}")

    def _limit(self, rows: int, size_bytes: int) -> None:
        for life in self._world.lives.values():
            if life is not None:
                life.clients.copy_rate.limit(rows, size_bytes)
