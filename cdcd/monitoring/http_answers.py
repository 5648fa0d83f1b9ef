"""What the HTTP port says: /metrics for Prometheus, /healthz, /readyz and /availablez for Kubernetes, / for a person.

Before: `status` and `metrics` have the facts. After: `http_server` sends the answer.

Three questions of a prober, and what a negative answer calls for:

- /healthz: does waiting work move? If not, a restart of the daemon may help: it is a liveness probe.
- /readyz: do changes flow now? If not, a person should look. A restart brings no server back.
- /availablez: does this daemon do its part, which is to stream or to stand by? It is the readiness probe of a replica.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from cdcd.clock import monotonic_s, wall_us
from cdcd.monitoring.http_server import Answer
from cdcd.monitoring.status import Status
from cdcd.monitoring.status_page import render
from cdcd.terminal.visible_text import visible


class HttpAnswers:
    """The answers of one daemon. They change nothing, and take no parameters but `?still`."""

    def __init__(self, status: Status, exposition: Callable[[], bytes]) -> None:
        """`exposition` gives the metrics in Prometheus' text format."""
        self._status = status
        self._exposition = exposition

    def __call__(self, target: str) -> Answer:
        """Answer one of five paths."""
        status, now_s = self._status, monotonic_s()
        path, _, query = target.partition("?")
        if path == "/metrics":
            return Answer(HTTPStatus.OK, "text/plain; version=0.0.4", self._exposition())
        if path == "/healthz":
            stage, seconds = status.longest_stall(now_s)
            if seconds < status.stages.stalled_after_s:
                return _verdict(True, f"alive: {status.state.value}")
            return _verdict(False, f"stalled: nothing moves at the {stage} for {seconds:.0f} s")
        if path == "/readyz":
            return _verdict(status.is_ready(), status.state.value)
        if path == "/availablez":
            return _verdict(status.is_available(), status.state.value)
        if path == "/":
            page = render(status, now_s, wall_us(), still=query == "still")
            return Answer(HTTPStatus.OK, "text/html", page.encode())
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /healthz /readyz /availablez /\n")


def _verdict(is_good: bool, text: str) -> Answer:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "text/plain", f"{visible(text)}\n".encode())
