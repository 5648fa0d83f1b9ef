"""A schema registry for tests, as far as Confluent's client asks one: register, versions. It runs in this process.

A subject in `frozen` refuses every new schema as incompatible, with the status that registries give.
"""

from __future__ import annotations

import io
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import fastavro


class Registry:
    def __init__(self) -> None:
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.frozen: set[str] = set()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def register(self, subject: str, schema: str) -> tuple[int, dict[str, Any]]:
        versions = self.subjects.setdefault(subject, [])
        if schema in self.schemas and self.schemas.index(schema) in versions:
            return 200, {"id": self.schemas.index(schema) + 1}
        if subject in self.frozen:
            return 409, {"error_code": 409, "message": "the schema is incompatible with an earlier one"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        versions.append(self.schemas.index(schema))
        return 200, {"id": versions[-1] + 1}

    def version(self, subject: str, version: str) -> tuple[int, dict[str, Any]]:
        """Of a subject: "latest", or the number of a version, from 1 on."""
        versions = self.subjects[subject]
        at = len(versions) if version == "latest" else int(version)
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number + 1, "schema": self.schemas[number]}

    def decode(self, data: bytes) -> dict[str, Any]:
        """A record in Confluent's wire format."""
        assert data[0] == 0, data[:10]
        schema = fastavro.parse_schema(json.loads(self.schemas[int.from_bytes(data[1:5]) - 1]))
        record = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
        assert isinstance(record, dict)
        return record


def _handler(registry: Registry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer(*registry.register(self.path.split("/")[2], body["schema"]))

        def do_GET(self) -> None:
            _, _, subject, _, *version = self.path.partition("?")[0].split("/")
            if version:
                self._answer(*registry.version(subject, version[0]))
            else:
                self._answer(200, list(range(1, len(registry.subjects[subject]) + 1)))

        def _answer(self, status: int, document: dict[str, Any] | list[int]) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
