"""Waits for the schema registry in the thread that owns the stream, and lets the loop answer the server meanwhile.

Before: `avro.registry_store` needs an answer before it can go on with an event.
After: `pipeline` sends status updates and takes commits, but reads nothing.

So a registry that is slow or away costs neither the stream (`wal_sender_timeout`) nor a COMMIT that waits for rows that
Kafka has.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from cdcd.errors import KafkaUnavailable


class RegistryWait:
    """Plays `registry_store.Wait` for one stream."""

    def __init__(self, wake: Callable[[], None], stopping: Callable[[], bool], clock: Callable[[], float]) -> None:
        """`wake` ends the loop's waiting. `clock` returns seconds and never goes back."""
        self._wake = wake
        self._stopping = stopping
        self._clock = clock
        self.turn: Callable[[float], None] | None = None
        """The work of the loop meanwhile, for so many seconds at most. The loop sets it."""

    def __call__(self, future: Future[Any] | None, seconds: float) -> None:
        """Wait for the future, at most so many seconds; None: for as long as that.

        Raises what the loop raises, and KafkaUnavailable if the daemon is told to stop.
        """
        assert self.turn is not None, "the loop has not begun"
        if future is not None:
            future.add_done_callback(lambda _: self._wake())
        until_s = self._clock() + seconds
        while (future is None or not future.done()) and (left_s := until_s - self._clock()) > 0:
            if self._stopping():
                raise KafkaUnavailable("the schema registry had not answered yet", code="registry-unavailable")
            self.turn(left_s)
        self._wake()  # the loop's own waiting was for more than this future
