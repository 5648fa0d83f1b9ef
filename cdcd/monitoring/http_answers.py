"""Answers on the HTTP port: / for a person, /status.json for programs, /metrics for Prometheus, probes for Kubernetes.

Before: `status`, `metrics` and `status_report` have the facts. After: `http_server` sends the answer. The page and
`cdcd top` show what /status.json says.

Three questions of a prober, and what a negative answer calls for:

- /healthz: does waiting work move? If not, a restart of the daemon may help: it is a liveness probe.
- /readyz: do changes flow now? They do not while PostgreSQL or Kafka is lost. Then a person should look: a restart
  brings no server back.
- /availablez: does this daemon do its part, which is to stream or to stand by? It is the readiness probe of a replica.
  It does so while a service is lost, too: no rollout or drain waits for Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.monitoring.http_server import Answer
from cdcd.monitoring.status import Status
from cdcd.monitoring.status_page import asset, render
from cdcd.monitoring.status_report import as_json, report
from cdcd.terminal.visible_text import visible

_ASSETS: Final = {"/page.css": "text/css", "/page.js": "text/javascript"}
"""What the page loads, with its media type."""


class HttpAnswers:
    """The answers of one daemon. They change nothing, and take no parameters."""

    def __init__(self, status: Status, exposition: Callable[[], bytes]) -> None:
        """`exposition` gives the metrics in Prometheus' text format."""
        self._status = status
        self._exposition = exposition

    def __call__(self, target: str) -> Answer:
        """Answer one of the paths."""
        status, now_s = self._status, monotonic_s()
        lost = status.lost(now_s)
        path = target.partition("?")[0]
        if path == "/metrics":
            return Answer(HTTPStatus.OK, "text/plain; version=0.0.4", self._exposition())
        if path == "/healthz":
            stage, seconds = status.longest_stall(now_s)
            is_alive = seconds < status.stages.stalled_after_s
            moves = f"alive: {status.state.value}"
            stalls = f"stalled: nothing moves at the {stage} for {seconds:.0f} s"
            return _verdict(is_alive, moves if is_alive else stalls, lost)
        if path == "/readyz":
            return _verdict(status.is_ready(), status.state.value, lost)
        if path == "/availablez":
            return _verdict(status.is_available(), status.state.value, lost)
        if path == "/":
            return Answer(HTTPStatus.OK, "text/html", render(report(status, now_s, wall_us())).encode())
        if path == "/status.json":
            return Answer(HTTPStatus.OK, "application/json", as_json(report(status, now_s, wall_us())).encode())
        if kind := _ASSETS.get(path):
            return Answer(HTTPStatus.OK, kind, asset(path[1:]))
        return Answer(HTTPStatus.NOT_FOUND, "text/plain", b"/ /status.json /metrics /healthz /readyz /availablez\n")


def _verdict(is_good: bool, text: str, lost: list[str]) -> Answer:
    status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
    return Answer(status, "text/plain", f"{visible('; '.join([text, *lost]))}\n".encode())
