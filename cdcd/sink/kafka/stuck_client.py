"""Finds a client that makes no progress although Kafka answers: then only a new client helps.

Before: `producer_client` and `producer` watch each call that waits for Kafka.
After: `KafkaUnavailable`, and the supervisor starts again with a new producer.

The problem: the daemon waits for a Kafka that is away. But librdkafka 2.16 can wait for minutes for an answer that no
broker will send any more. This happens after a connection died without an error, or was lost at the wrong moment. A
second client on a new connection tells the two cases apart.

A cluster that answers may still take no records, because a topic lacks a leader or replicas in sync. A new client would
wait in the same way: then the daemon waits, too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Final

from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError, KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.errors import TRY_AGAIN
from cdcd.sink.kafka.unwritable_topics import why_unwritable

SUSPICIOUS_S: Final = 10.0
"""A call that makes no progress for this long is looked at: does Kafka answer another client?"""
STUCK_S: Final = 30.0
"""If Kafka answers another client for this long, the first client is stuck."""
_QUESTION_S: Final = 2.0


class StuckClient:
    """Judges the calls of one client."""

    def __init__(
        self, connection: KafkaConnection, suspicious_s: float = SUSPICIOUS_S, stuck_s: float = STUCK_S
    ) -> None:
        """`connection` is the client's own. Times are in seconds."""
        self.bootstrap = connection.bootstrap
        self.suspicious_s = suspicious_s
        self.stuck_s = stuck_s
        self.topics: set[str] = set()
        """The topics that the client writes to now."""
        self._silent = connection.silent()

    def watch(self) -> CallWatch:
        """Begin to watch a call."""
        return CallWatch(self)

    def another_could_write(self) -> bool:
        """Whether Kafka answers a second client, and nothing speaks against its writing to the topics.

        The connection is a new one: the first client's may be dead.
        """
        try:
            with closing(KafkaAdmin(self._silent, _QUESTION_S)) as admin:
                return not why_unwritable(admin, self.topics)
        except CdcdError:
            return False


class CallWatch:
    """Watches one call, or one stretch of a call without progress."""

    def __init__(self, judge: StuckClient, clock: Callable[[], float] = monotonic_s) -> None:
        self._judge = judge
        self._clock = clock
        self._began_s = clock()
        self._answers_since_s: float | None = None
        self._asks_again_s = self._began_s + judge.suspicious_s

    def raise_if_stuck(self, doing: str) -> None:
        """Raise KafkaUnavailable if a second client gets answers while this client has made no progress for `stuck_s`.

        `doing` is what the call does, a participle: "committing a transaction".
        """
        now = self._clock()
        if now < self._asks_again_s:
            return
        self._asks_again_s = now + self._judge.suspicious_s / 2  # each question is a new client
        if not self._judge.another_could_write():
            self._answers_since_s = None
            return
        if self._answers_since_s is None:
            self._answers_since_s = now
        if now - self._answers_since_s >= self._judge.stuck_s:
            raise KafkaUnavailable(
                f"Kafka ({self._judge.bootstrap}) answers, but this client makes no progress, {doing}",
                TRY_AGAIN,
                code="kafka-unavailable",
            )
