"""Detects a stage of the flow where work waits and nothing moves.

Before: the pipeline notes once a turn what waits at each stage, with a mark that changes when something moves there.
After: `status` reports a stage that has stalled for too long to the HTTP server and to the metrics.

A daemon that hangs while its health check says "up" is the worst failure: no person looks, and WAL piles up. So health
means "waiting work moves", not "the process answers". A stage without work is never stalled.
"""

from __future__ import annotations

from typing import Final

STALLED_AFTER_S: Final = 120.0
"""The default of `monitoring.stalled_after_s`."""

LOOP: Final = "loop"
"""The thread that owns the replication connection. It turns at least four times before it counts as stalled."""
SERVER: Final = "server"
"""The walsender: it answers when the daemon asks."""
SINK: Final = "sink"
"""From the queue to Kafka's commit."""
STREAM: Final = "stream"
"""From the end of one stream to the start of the next."""


class Stage:
    """One stage. Times are monotonic seconds. One thread writes, any thread reads."""

    def __init__(self, now_s: float) -> None:
        self._has_work = False
        self._mark: object = None
        self._since_s = now_s

    def note(self, now_s: float, has_work: bool, mark: object = None) -> None:
        """Record whether work waits here now. `mark` differs from the last one if something has moved since."""
        if not (has_work and self._has_work) or mark != self._mark:
            self._since_s = now_s
        self._has_work = has_work
        self._mark = mark

    def stalled_s(self, now_s: float) -> float:
        """Return for how many seconds work has waited here while nothing moved; 0 if no work waits."""
        return max(0.0, now_s - self._since_s) if self._has_work else 0.0


class Stages:
    """Every stage of one daemon, and the bound after which one counts as stalled."""

    def __init__(self, now_s: float, stalled_after_s: float = STALLED_AFTER_S) -> None:
        """`stalled_after_s`: how long work may wait at a stage where nothing moves."""
        self.stalled_after_s = stalled_after_s
        self.last_loop_s = now_s
        """When the loop turned last."""
        self.server = Stage(now_s)
        self.sink = Stage(now_s)
        self.stream = Stage(now_s)

    def begin_stream(self, now_s: float) -> None:
        """The slot streams."""
        self.stream.note(now_s, False)

    def end_stream(self, now_s: float) -> None:
        """The stream has ended: changes wait for the next one."""
        self.server.note(now_s, False)
        self.sink.note(now_s, False)
        self.stream.note(now_s, True)

    def stalled_s(self, now_s: float, *, loop_runs: bool = True) -> dict[str, float]:
        """Return by stage for how many seconds work has waited there while nothing moved.

        Without `loop_runs` the loop has not started yet, so it cannot stall.
        """
        return {
            LOOP: max(0.0, now_s - self.last_loop_s) if loop_runs else 0.0,
            SERVER: self.server.stalled_s(now_s),
            SINK: self.sink.stalled_s(now_s),
            STREAM: self.stream.stalled_s(now_s),
        }
