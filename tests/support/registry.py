"""A schema registry for tests, in this process: look up, register, versions. It fails as a real one cannot be told to.

A subject in `frozen` refuses every new schema as incompatible, with a real registry's status. `failure` is the answer
to every request; `takes_schemas = False` is a registry that others fill.
"""

from __future__ import annotations

import base64
import io
import json
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote

import fastavro

from support.json_server import JsonHandler, JsonServer

Answer = tuple[int, object]


class Registry(JsonServer):
    def __init__(self, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        super().__init__(_handler(self), tls)
        self.credentials = ""
        """The user and the password that each request must have, as user:password; "" if none is needed."""
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.frozen: set[str] = set()
        self.takes_schemas = True
        self.mode = "READWRITE"
        self.failure: Answer | None = None
        self.headers: Mapping[str, str] = {}
        """More headers of every failure."""
        self.delay_s = 0.0
        """How long each look-up takes."""
        self.failures = 0
        """How many requests have failed so."""
        self.requests: list[tuple[str, str]] = []
        """The verb and the subject of each request about a schema: "look up" or "register"."""

    def look_up(self, subject: str, schema: str) -> Answer:
        self.requests.append(("look up", subject))
        time.sleep(self.delay_s)
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        versions = self.subjects[subject]
        for version, number in enumerate(versions, 1):
            if self.schemas[number] == schema:
                return 200, {"subject": subject, "id": number + 1, "version": version, "schema": schema}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def register(self, subject: str, schema: str) -> Answer:
        self.requests.append(("register", subject))
        if not self.takes_schemas:
            return 403, {"error_code": 40301, "message": "this user may not write"}
        if not schema:
            return 422, {"error_code": 42201, "message": "an empty schema"}
        versions = self.subjects.get(subject, [])
        if schema in self.schemas and self.schemas.index(schema) in versions:
            return 200, {"id": self.schemas.index(schema) + 1}
        if subject in self.frozen:
            return 409, {"error_code": 409, "message": "the schema is incompatible with an earlier one"}
        if schema not in self.schemas:
            self.schemas.append(schema)
        versions.append(self.schemas.index(schema))
        self.subjects[subject] = versions
        return 200, {"id": versions[-1] + 1}

    def compatible(self, subject: str) -> Answer:
        if subject not in self.subjects:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 200, {"is_compatible": subject not in self.frozen}

    def version(self, subject: str, version: str) -> Answer:
        """Return a subject's schema; `version` is "latest" or a number from 1 on."""
        versions = self.subjects.get(subject)
        if versions is None:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        at = len(versions) if version == "latest" else int(version)
        number = versions[at - 1]
        return 200, {"subject": subject, "version": at, "id": number + 1, "schema": self.schemas[number]}

    def decode(self, data: bytes) -> dict[str, Any]:
        """Decode a record in Confluent's wire format."""
        assert data[0] == 0, data[:10]
        schema = fastavro.parse_schema(json.loads(self.schemas[int.from_bytes(data[1:5]) - 1]))
        record = fastavro.schemaless_reader(io.BytesIO(data[5:]), schema, None)
        assert isinstance(record, dict)
        return record


def _handler(registry: Registry) -> type[JsonHandler]:
    class Handler(JsonHandler):
        content_type = "application/vnd.schemaregistry.v1+json"

        def is_known(self) -> bool:
            wanted = f"Basic {base64.b64encode(registry.credentials.encode()).decode()}"
            return not registry.credentials or self.headers["Authorization"] == wanted

        def post(self, body: bytes) -> Answer:
            if not self.is_known():
                return 401, {"error_code": 40101, "message": "unknown user"}
            if registry.failure is not None:
                registry.failures += 1
                self.more_headers = registry.headers
                return registry.failure
            schema = json.loads(body)["schema"]
            if self.path.startswith("/compatibility/"):
                return registry.compatible(unquote(self.path.split("/")[3]))
            _, _, subject, *versions = self.path.partition("?")[0].split("/")
            return (registry.register if versions else registry.look_up)(unquote(subject), schema)

        def get(self) -> Answer:
            if not self.is_known():
                return 401, {"error_code": 40101, "message": "unknown user"}
            if registry.failure is not None:
                registry.failures += 1
                self.more_headers = registry.headers
                return registry.failure
            if self.path == "/config":
                return 200, {"compatibilityLevel": "BACKWARD"}
            if self.path == "/mode":
                return 200, {"mode": registry.mode}
            if self.path.startswith("/mode/"):
                return 404, {"error_code": 40409, "message": "the subject has no mode of its own"}
            _, _, subject, _, *version = self.path.partition("?")[0].split("/")
            if version:
                return registry.version(subject, version[0])
            return 200, list(range(1, len(registry.subjects[subject]) + 1))

    return Handler
