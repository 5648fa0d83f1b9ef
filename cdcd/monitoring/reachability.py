"""Whether PostgreSQL, Kafka and the schema registry answer; if one does not, its name and since when. No I/O.

Before: `daemon.service_watch` puts a question to each service every few seconds, and notes what becomes of it.
After: health, the status page and the metrics tell what is lost. The log says `lost` and `is back`, once each, and
`lost` once more for another cause.

The stream alone does not tell it: librdkafka waits for a broker without a word, and a walsender that has nothing to
send is silent, too.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from cdcd.error_codes import Code
from cdcd.errors import CdcdError

POSTGRESQL: Final = "postgresql"
KAFKA: Final = "kafka"
REGISTRY: Final = "registry"

NAMES: Final[Mapping[str, str]] = {POSTGRESQL: "PostgreSQL", KAFKA: "Kafka", REGISTRY: "the schema registry"}
"""The names of the services for people."""

_CODES: Final[Mapping[str, Code]] = {
    POSTGRESQL: "postgres-unreachable",
    KAFKA: "kafka-unavailable",
    REGISTRY: "registry-unavailable",
}

NEEDED: Final = (POSTGRESQL, KAFKA)
"""No change flows without these. The registry is asked only when a table's schema is new."""

LOST_AFTER_S: Final = 5.0
"""A service is lost when it has answered no question for so long. A broker that restarts is sooner back."""

JUDGED_EVERY_S: Final = 1.0
_SUSPENDED_S: Final = 3.0
"""If the judge comes so late, the process was suspended: nobody could have noticed an answer."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Loss:
    """A service that is lost."""

    name: str
    since_s: float
    """Since when it has not answered, monotonic seconds."""
    error: CdcdError


class _Service:
    def __init__(self, name: str) -> None:
        self.name = name
        self.unanswered_since_s: float | None = None
        self.error: CdcdError | None = None
        self.loss: Loss | None = None
        self.hints: set[str] = set()
        """The hints of this loss that were logged."""


class Reachability:
    """The services of one daemon. Times are monotonic seconds. Any thread may call the methods."""

    def __init__(
        self, services: tuple[str, ...] = (), on_loss: Callable[[float, CdcdError], None] | None = None
    ) -> None:
        """`services`: some of NAMES. `on_loss` gets the time and the error when a service is lost."""
        self._services = {service: _Service(NAMES[service]) for service in services}
        self._on_loss = on_loss or (lambda _, __: None)
        self._lock = threading.Lock()
        self._judged_s: float | None = None

    def asked(self, service: str, now_s: float) -> None:
        """A question is on its way."""
        self._mark_unanswered(service, now_s, None)

    def answered(self, service: str) -> None:
        """The service has answered."""
        with self._lock:
            self._services[service].unanswered_since_s = None

    def failed(self, service: str, since_s: float, error: CdcdError) -> None:
        """The question failed, or the service does not do its work; it has done so at least since `since_s`."""
        self._mark_unanswered(service, since_s, error)

    def judge(self, now_s: float) -> None:
        """Find out which services are lost now, and which are back, and log it."""
        with self._lock:
            was_suspended = self._judged_s is not None and now_s - self._judged_s > _SUSPENDED_S
            self._judged_s = now_s
            for label, service in self._services.items():
                if was_suspended and service.unanswered_since_s is not None and service.loss is None:
                    service.unanswered_since_s = now_s
                self._judge(label, service, now_s)

    def losses(self) -> dict[str, Loss]:
        """Return what is lost, by service."""
        return {label: service.loss for label, service in self._services.items() if service.loss is not None}

    def unreachable_s(self, now_s: float) -> dict[str, float]:
        """Return for each service how long it has been lost; 0 if it is not."""
        found = {label: service.loss for label, service in self._services.items()}
        return {label: 0.0 if loss is None else now_s - loss.since_s for label, loss in found.items()}

    def _mark_unanswered(self, service: str, since_s: float, error: CdcdError | None) -> None:
        with self._lock:
            found = self._services[service]
            if found.unanswered_since_s is None:
                found.unanswered_since_s = since_s
                found.error = None
            found.unanswered_since_s = min(found.unanswered_since_s, since_s)
            found.error = error or found.error

    def _judge(self, label: str, service: _Service, now_s: float) -> None:
        since_s, loss = service.unanswered_since_s, service.loss
        if loss is not None and (since_s is None or since_s > loss.since_s):  # it has answered, and may be asked again
            log.warning("%s is back", loss.name, extra={"service": label, "seconds": round(now_s - loss.since_s, 1)})
            loss = service.loss = None
        if since_s is not None and loss is None and now_s - since_s >= LOST_AFTER_S:
            service.hints = set()
        elif loss is None or service.error is None or service.error.hint in service.hints:
            return
        else:  # it has another cause now: a broker that has come back refuses the client's certificate, for example
            since_s = loss.since_s
        error = service.error or CdcdError(f"{service.name} does not answer", code=_CODES[label])
        service.hints.add(error.hint)
        service.loss = Loss(service.name, since_s, error)
        log.warning("lost %s: %s", service.name, error, extra={"service": label})
        self._on_loss(now_s, CdcdError(f"lost {service.name}: {error.message}", error.hint, code=error.code))
