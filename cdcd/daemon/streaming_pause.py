"""Decides when transactions in progress may come again, after one of them could not be spooled. Pure.

Before: the supervisor began a stream in which PostgreSQL keeps transactions until they commit, because a logical
message of one transaction may have been rolled back.
After: `pipeline` ends this stream once Kafka has that transaction. The next stream gets transactions in progress again.

Any role that may connect can write such a transaction. So the pause has a least length, too: it bounds how often a
role can make the stream start again.
"""

from __future__ import annotations

from typing import Final

PAUSE_MIN_S: Final = 10.0


class StreamingPause:
    """The pause of one stream."""

    def __init__(self, began_s: float, until_lsn: int) -> None:
        """`until_lsn`: the end of the transaction; 0: this stream has no pause, or one without end."""
        self._until_s = began_s + PAUSE_MIN_S
        self._until_lsn = until_lsn

    def is_over(self, now: float, durable_lsn: int) -> bool:
        """Whether to end the stream: the pause is over. Kafka has everything before `durable_lsn`."""
        return 0 < self._until_lsn <= durable_lsn and now >= self._until_s
