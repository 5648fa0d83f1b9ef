"""The HTTP port: /metrics for Prometheus, /healthz, /readyz and /availablez for Kubernetes, / for a person.

Before: `status` and `metrics` have the facts. After: Prometheus, Kubernetes or a person reads them.

The server has a thread of its own. It answers GET only, takes no parameters, and changes nothing. Connections are
bounded in number and in time, so that a slow or hostile client costs a few threads at most.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from cdcd.clock import monotonic_s, wall_us
from cdcd.errors import SettingsError
from cdcd.monitoring.status import Status
from cdcd.monitoring.status_page import render

CONNECTIONS_MAX: Final = 16
"""Requests that are served at the same time. A further connection is closed at once."""

REQUEST_TIMEOUT_S: Final = 5.0
"""A request may take this long. After that, it gives way to a new one if all places are taken."""

log = logging.getLogger(__name__)


class MonitoringServer:
    """Serves until `close`."""

    def __init__(
        self,
        host: str,
        port: int,
        status: Status,
        exposition: Callable[[], bytes],
        evict_after_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Bind; `port` 0 takes a free one. `exposition` gives the metrics in Prometheus' text format.

        `evict_after_s` is how long a request keeps its place when all places are taken.

        Raises SettingsError (the user's fault) if the address is taken or unknown.
        """
        try:
            self._server = _Server((host, port), status, exposition, evict_after_s)
        except OSError as error:
            hint = "Change [monitoring] host or port, or stop the program that uses them"
            raise SettingsError(f"Cannot listen on {host}:{port}: {error.strerror or error}", hint) from error
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="health", daemon=True)
        self._thread.start()
        log.info("listening", extra={"host": host, "port": self.port})

    def close(self) -> None:
        """Stop listening; returns once the thread has ended."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a slow client must not hold up the end of the daemon

    def __init__(
        self, address: tuple[str, int], status: Status, exposition: Callable[[], bytes], evict_after_s: float
    ) -> None:
        self.status = status
        self._evict_after_s = evict_after_s
        self.exposition = exposition
        self._served: dict[socket.socket, float] = {}
        """The requests in progress, oldest first, with the time when each began."""
        self._lock = threading.Lock()
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the base class's look-up of the host name, which can take seconds.

        SO_REUSEADDR: without it, the connections of a killed daemon would block the port for a minute.
        """
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        socket.socket.bind(self.socket, self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve in a new thread while there is a place. If there is none, the oldest request may have to end."""
        now_s = monotonic_s()
        with self._lock:
            if len(self._served) >= CONNECTIONS_MAX:
                oldest, began_s = next(iter(self._served.items()))
                if now_s - began_s < self._evict_after_s:
                    self.shutdown_request(request)
                    return
                del self._served[oldest]
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread finds the connection closed, and ends
            self._served[request] = now_s
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Free the place when the request ends, even with an error."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._served.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is not an error of the daemon. A traceback is logged at debug."""
        log.debug("request failed", exc_info=True)  # noqa: LOG014  # the base class calls this inside its `except`


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "cdcd"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one of five paths. The base class refuses other methods with 501."""
        status, now_s = self.server.status, monotonic_s()
        path, _, query = self.path.partition("?")
        if path == "/metrics":
            self._answer(HTTPStatus.OK, "text/plain; version=0.0.4", self.server.exposition())
        elif path == "/healthz":
            stage, seconds = status.longest_stall(now_s)
            is_alive = seconds < status.stages.stalled_after_s
            message = (
                f"alive: {status.state.value}"
                if is_alive
                else f"stalled: nothing moves at the {stage} for {seconds:.0f} s"
            )
            self._verdict(is_alive, message)
        elif path == "/readyz":
            self._verdict(status.is_ready(), status.state.value)
        elif path == "/availablez":
            self._verdict(status.is_available(), status.state.value)
        elif path == "/":
            self._answer(HTTPStatus.OK, "text/html", render(status, now_s, wall_us(), still=query == "still").encode())
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", b"/metrics /healthz /readyz /availablez /\n")

    def _verdict(self, is_good: bool, text: str) -> None:
        status = HTTPStatus.OK if is_good else HTTPStatus.SERVICE_UNAVAILABLE
        self._answer(status, "text/plain", f"{text}\n".encode())

    def _answer(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class's name
        """Log a request at debug only: probes come every few seconds."""
        log.debug(format, *args)
