"""When to read at once, and when to let the stream gather first. Pure: the time and what was read are arguments.

Before: `replication_stream.read` says what has come.
After: the caller waits for `pause_s`, then reads again.

The problem: a walsender hands each message to the socket by itself. Each one wakes a reader that sleeps in poll, and in
a backlog the *server* pays for waking it. A reader that stays away for some milliseconds finds hundreds of messages,
and leaves the server alone meanwhile (network cards coalesce interrupts for the same reason). But a lone transaction
must not wait for others that never come.

The state is a bucket. Every frame fills it, and time drains it at `frames_per_s`. A flow below that rate leaves it
nearly empty, in whatever bursts it comes; a backlog fills it at once.

1. Below `backlog_frames`: no pause. Read the next frame at once, unless a Kafka commit is in progress
   (`commit_in_progress`): the frame could not be published anyway, so pause as in a backlog.
2. From `backlog_frames` on: read again `interval_s` after the last read. Time spent on decoding counts, so a reader
   that is itself the bottleneck never pauses.
3. A burst that nearly filled the socket shortens the next interval, so that the server does not stand still before a
   full socket.

A Unix socket (`ReplicationStream.local`) holds some 150 messages, whatever their size, so every pause is a pause of the
server (measured: 88,000 rows a second without pauses, 47,000 with pauses of 2 ms, 23,000 with 8 ms). Use `interval_s` 0
there.
"""

from __future__ import annotations

from typing import Final

INTERVAL_S: Final = 0.008
"""Measured on two cores shared with server and broker: with 8 ms the server takes a tenth less time to send a
transaction in blocks than with 4 ms, a quarter less than with 2 ms, and as long as with 16 ms. Small transactions drain
at the same rate from 4 ms on."""
FRAMES_PER_S: Final = 40_000.0
"""3,000 single-row transactions a second are some 12,000 frames; a backlog comes at 90,000 and more."""
BACKLOG_FRAMES: Final = 500.0
BURST_BYTES: Final = 512 * 1024
INTERVAL_MIN_S: Final = 0.0005


class ReadPacing:
    """Decides the pause before the next read of one stream. Times are seconds of a monotonic clock."""

    def __init__(
        self,
        interval_s: float = INTERVAL_S,
        frames_per_s: float = FRAMES_PER_S,
        backlog_frames: float = BACKLOG_FRAMES,
        burst_bytes: int = BURST_BYTES,
    ) -> None:
        """`interval_s` 0 turns pacing off. `burst_bytes`: how much every socket holds."""
        self.interval_s = interval_s
        self.frames_per_s = frames_per_s
        self.backlog_frames = backlog_frames
        self.burst_bytes = burst_bytes
        self._bucket = 0.0
        self._read_s = 0.0
        self._next_s = interval_s

    @property
    def has_backlog(self) -> bool:
        """Whether frames come faster than single transactions would bring them."""
        return self._bucket >= self.backlog_frames

    def note_read(self, now_s: float, frames: int, size_bytes: int) -> None:
        """The socket was read at `now_s`, and gave `frames` frames of `size_bytes` in all."""
        drained = max(0.0, now_s - self._read_s) * self.frames_per_s
        self._bucket = min(max(0.0, self._bucket - drained) + frames, 2 * self.backlog_frames)
        self._read_s = now_s
        fits = self.burst_bytes / size_bytes if size_bytes else 2.0
        self._next_s = min(self.interval_s, max(INTERVAL_MIN_S, self._next_s * min(2.0, fits)))

    def pause_s(self, now_s: float, commit_in_progress: bool = False) -> float:
        """Return for how many seconds to leave the socket alone; 0: wait for the next frame.

        `commit_in_progress`: a Kafka commit is in progress, so frames that are read now could not be published yet.
        """
        if not (self.has_backlog or commit_in_progress) or not self.interval_s:
            return 0.0
        return max(0.0, self._read_s + self._next_s - now_s)
