"""A server on loopback, in a thread of this process, that answers in JSON. Stand-ins for registries are built on it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class JsonHandler(BaseHTTPRequestHandler):
    """Answers one request; writes nothing to standard error."""

    content_type = "application/json"

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
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class JsonServer:
    """Serves while a `with` lasts."""

    def __init__(self, handler: type[JsonHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
