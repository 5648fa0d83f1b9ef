"""A registry as far as Apicurio's Avro converter asks one, in this process: a schema comes in, its number goes out.

It is asked once for each schema, so that what it costs does not matter.
Source: Apicurio Registry 2.6 "Core Registry API", POST /groups/{groupId}/artifacts.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self


class AvroRegistry:
    """Knows the schemas that were registered while it was entered."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler({}, threading.Lock()))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/apis/registry/v2"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def _handler(ids: dict[bytes, int], lock: threading.Lock) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            schema = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                number = ids.setdefault(schema, len(ids) + 1)
            name = self.headers.get("X-Registry-ArtifactId", "schema")
            answer = {"id": name, "groupId": "default", "version": "1", "type": "AVRO", "state": "ENABLED",
                      "globalId": number, "contentId": number}  # fmt: skip
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
