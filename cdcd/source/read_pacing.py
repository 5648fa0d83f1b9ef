"""When to read at once, and when to let the stream gather first. Pure: the time and what was read are arguments.

Before: `walsender.read` says what has come. After: the caller waits as told, then reads again.

The problem: a walsender hands each message to the socket by itself. A reader that sleeps in poll is woken by each, and
the *server* pays for waking it, as long as there is a backlog. A reader that stays away for some
milliseconds finds hundreds of messages, and leaves the server alone meanwhile (as network cards coalesce interrupts).
But a lone transaction must not wait for others that never come.

The state: a bucket that every frame fills and time drains, at `frames_per_s`. A flow below that rate, however it comes,
leaves it nearly empty; a backlog fills it at once.

1. Bucket below `backlog_frames`: no pause. The next frame is seen when it comes; unless it would only wait behind a
   commit (`commit_in_progress`): then as in a backlog, until the caller says that it would not any more.
2. Else the socket is read again `interval_s` after it was last read. Time spent on decoding counts: a reader
   that is itself the bottleneck never pauses.
3. A burst that came near what a socket holds shortens the next interval, so that the server does not stand still
   before a full socket.

Not over a Unix socket (`Walsender.local`): it holds some 150 messages, whatever their size, so every pause is one of
the server (measured: 88,000 rows a second without, 47,000 with pauses of 2 ms, 23,000 with 8 ms).
Use `interval_s` 0 there.
"""

from __future__ import annotations

from typing import Final

INTERVAL_S: Final = 0.008
"""On two cores shared with server and broker: sending a transaction in blocks takes the server a tenth less time than
at 4 ms, a quarter less than at 2, and no less at 16; small transactions drain alike from 4 ms on."""
FRAMES_PER_S: Final = 40_000.0
"""3,000 single-row transactions a second are some 12,000 frames; what drains a backlog gets 90,000 and more."""
BACKLOG_FRAMES: Final = 500.0
BURST_BYTES: Final = 512 * 1024
INTERVAL_MIN_S: Final = 0.0005


class ReadPacing:
    """Decides the pause before the next read of one stream. Times are seconds of a clock that never goes back."""

    def __init__(
        self,
        interval_s: float = INTERVAL_S,
        frames_per_s: float = FRAMES_PER_S,
        backlog_frames: float = BACKLOG_FRAMES,
        burst_bytes: int = BURST_BYTES,
    ) -> None:
        """`interval_s` 0 turns pacing off; `burst_bytes`: what a socket surely holds."""
        self.interval_s = interval_s
        self.frames_per_s = frames_per_s
        self.backlog_frames = backlog_frames
        self.burst_bytes = burst_bytes
        self._bucket = 0.0
        self._read_s = 0.0
        self._next_s = interval_s

    @property
    def has_backlog(self) -> bool:
        """Whether the stream comes faster than single transactions would."""
        return self._bucket >= self.backlog_frames

    def note_read(self, now_s: float, frames: int, size_bytes: int) -> None:
        """The socket was read: `frames` frames of `size_bytes` in all, at `now_s`."""
        drained = max(0.0, now_s - self._read_s) * self.frames_per_s
        self._bucket = min(max(0.0, self._bucket - drained) + frames, 2 * self.backlog_frames)
        self._read_s = now_s
        fits = self.burst_bytes / size_bytes if size_bytes else 2.0
        self._next_s = min(self.interval_s, max(INTERVAL_MIN_S, self._next_s * min(2.0, fits)))

    def pause_s(self, now_s: float, commit_in_progress: bool = False) -> float:
        """How long to stay away from the socket; 0: wait for the next frame itself.

        `commit_in_progress`: what was read now could not be published yet.
        """
        if not (self.has_backlog or commit_in_progress) or not self.interval_s:
            return 0.0
        return max(0.0, self._read_s + self._next_s - now_s)
