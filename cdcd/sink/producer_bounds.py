"""The bounds of a process's producers: they follow what the cluster was seen to do.

Before: `producer` tells how long each commit took; `sink.topic_limits` tells which batches a topic refuses.
After: `client_config` makes the next producer with these bounds.

Both bounds belong to a client and cannot be changed while it lives. A new stream has new producers.

- A producer that repeats the request which ends a transaction may end the next one with it: see `producer`. So a commit
  that takes longer than the pause before a repetition costs a new producer. On a slow or distant cluster every commit
  is one. There the pause must be longer. Elsewhere it must stay short, because the same pause follows every change of a
  leader.
- A topic may take less in one batch than librdkafka puts into one.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Final

RETRY_BACKOFF_MS: Final = 1_000
"""How long a producer waits before it repeats a request: longer than a healthy broker takes to answer."""
_RETRY_BACKOFF_MAX_MS: Final = 60_000
_COMMITS: Final = 5
"""The pause follows the middle one of the last commits: one slow commit changes nothing."""
_COMMITS_IN_PAUSE: Final = 4
"""The pause is so many times as long as a commit takes."""

BATCH_BYTES: Final = 1_000_000
"""The uncompressed size of one batch of records, unless a topic takes less."""
BATCH_BYTES_MIN: Final = 16_384
"""A larger record has a batch of its own, whatever the bound is: smaller batches would let nothing more pass."""


class ProducerBounds:
    """The bounds of one process. The thread of the sink writes, the next stream reads."""

    def __init__(self) -> None:
        self.batch_bytes = BATCH_BYTES
        """The bound of one batch of records, uncompressed."""
        self._commits_s: deque[float] = deque(maxlen=_COMMITS)

    @property
    def retry_backoff_ms(self) -> int:
        """How long a new producer waits before it repeats a request."""
        if not self._commits_s:
            return RETRY_BACKOFF_MS
        wanted_ms = round(_COMMITS_IN_PAUSE * 1000 * median(self._commits_s))
        return min(max(RETRY_BACKOFF_MS, wanted_ms), _RETRY_BACKOFF_MAX_MS)

    def note_commit(self, seconds: float) -> None:
        """A commit took so long."""
        self._commits_s.append(seconds)
