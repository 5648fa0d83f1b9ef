"""A server on loopback, in a thread of this process, that answers in JSON. Stand-ins for registries are built on it."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class JsonHandler(BaseHTTPRequestHandler):
    """Answers one request; writes nothing to standard error."""

    content_type = "application/json"
    more_headers: Mapping[str, str] = {}

    def get(self) -> tuple[int, object]:
        """The status and the document to answer a GET with."""
        return 501, {}

    def post(self, body: bytes) -> tuple[int, object]:
        """The status and the document to answer a POST with."""
        return 501, {}

    def do_GET(self) -> None:
        self._answer(*self.get())

    def do_POST(self) -> None:
        self._answer(*self.post(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, status: int, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in self.more_headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class _TlsServer(ThreadingHTTPServer):
    def __init__(self, handler: type[JsonHandler], tls: Callable[[], ssl.SSLContext]) -> None:
        super().__init__(("127.0.0.1", 0), handler)
        self._tls = tls

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, peer = super().get_request()
        return self._tls().wrap_socket(connection, server_side=True, do_handshake_on_connect=False), peer

    def handle_error(self, *_: object) -> None:
        """A client that is refused is no error of the test."""


class JsonServer:
    """Serves while a `with` lasts."""

    def __init__(self, handler: type[JsonHandler], tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`tls` gives the context of each new connection; None: no TLS."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler) if tls is None else _TlsServer(handler, tls)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        self.url = f"{scheme}://{host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
