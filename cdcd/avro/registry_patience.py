"""Waits for an answer of the schema registry: a failure that passes is waited for, as long as PATIENCE_S.

Before: `registry_ids` asks in other threads, and gives futures.
After: `registry_store` and `registry_newest` have the answer. If none comes, the stream starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any, Final, TypeAlias, TypeVar

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.clock import monotonic_s
from cdcd.errors import KafkaUnavailable

log = logging.getLogger(__name__)

PATIENCE_S: Final = 20.0
"""How long a failure is waited for before the stream starts again."""

PAUSE_MIN_S: Final = 0.2
PAUSE_MAX_S: Final = 5.0
"""Between two requests for the same schema, unless the registry asks for more."""

Wait: TypeAlias = "Callable[[Future[Any] | None, float], object]"
"""Waits for a future, at most so many seconds; None: for as long as that."""

Answer = TypeVar("Answer")


def blocking_wait(future: Future[Any] | None, seconds: float) -> None:
    """Do nothing else meanwhile."""
    wait([future or Future()], seconds)


class RegistryPatience:
    """The waiting of one thread."""

    def __init__(
        self, requests: RegistryRequests, wait: Wait = blocking_wait, clock: Callable[[], float] = monotonic_s
    ) -> None:
        """`wait` may raise an error that ends the waiting for good. `clock` returns seconds and never goes back."""
        self._requests = requests
        self._wait = wait
        self.clock = clock

    def answer(self, ask: Callable[[], Future[Answer]]) -> Answer:
        """The answer; `ask` asks once more. Raises KafkaUnavailable if none comes in time.

        Raises RegistryError if none will come.
        """
        requests, pause_s = self._requests, PAUSE_MIN_S
        until_s = self.clock() + PATIENCE_S
        failure: KafkaUnavailable | None = None
        while (left_s := until_s - self.clock()) > 0:
            if (silent_s := requests.silent_s()) > 0:
                self._wait(None, min(silent_s, left_s))
                continue
            future = ask()
            self._wait(future, left_s)
            if not future.done():
                break
            try:
                return future.result()
            except RegistryError as error:
                if error.meaning is not Meaning.PASSING:
                    raise
                if failure is None:
                    log.warning(
                        "waiting for the schema registry at %s: %s [registry-unavailable]",
                        requests.url,
                        error.words,
                        extra={"code": "registry-unavailable"},
                    )
                failure = requests.unavailable(error)
            self._wait(None, min(pause_s, left_s))
            pause_s = min(PAUSE_MAX_S, pause_s * 2)
        silence = RegistryError(Meaning.PASSING, f"no answer came in {PATIENCE_S:.0f} s")
        raise failure or requests.unavailable(silence)
