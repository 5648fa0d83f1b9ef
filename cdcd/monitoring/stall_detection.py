"""Whether the stages of the flow move: a stage stalls when work waits at it and nothing happens.

Before: `pipeline` notes once a turn what waits at each stage, with a mark that changes whenever something moves there.
After: `status` tells `http_server` and `metrics` of a stage that has stalled for too long.

A daemon that hangs with its health "up" is the worst failure there is: nobody looks, and WAL piles up. So health is not
"the process answers" but "what waits moves". What has no work has not stalled, however long nothing happens.
"""

from __future__ import annotations

from typing import Final

LOOP: Final = "loop"
"""The thread that owns the replication connection: it turns at least four times before it counts as stalled."""
SERVER: Final = "server"
"""The walsender: it answers when it is asked to."""
SINK: Final = "sink"
"""From the queue to Kafka's commit."""
STREAM: Final = "stream"
"""From the end of a stream to the beginning of the next."""

STAGES: Final = (LOOP, SERVER, SINK, STREAM)


class Stage:
    """One stage. Times are monotonic seconds; written by one thread, read by any."""

    def __init__(self, now_s: float) -> None:
        self._working = False
        self._mark: object = None
        self._since_s = now_s

    def note(self, now_s: float, working: bool, mark: object = None) -> None:
        """Now work waits here, or none does; `mark` is another than before if something has moved meanwhile."""
        if not (working and self._working) or mark != self._mark:
            self._since_s = now_s
        self._working = working
        self._mark = mark

    def stalled_s(self, now_s: float) -> float:
        """For how long work has waited here without anything moving; 0 if none waits."""
        return max(0.0, now_s - self._since_s) if self._working else 0.0
