"""A schema registry for tests, in this process. It has the requests that Confluent's client makes: register, versions.

A subject in `frozen` refuses every new schema as incompatible, with a real registry's status.
"""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from support.json_server import JsonHandler, JsonServer


class Registry(JsonServer):
    def __init__(self) -> None:
        super().__init__(_handler(self))
        self.schemas: list[str] = []
        self.subjects: dict[str, list[int]] = {}
        self.frozen: set[str] = set()

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
        """Return a subject's schema; `version` is "latest" or a number from 1 on."""
        versions = self.subjects[subject]
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

        def post(self, body: bytes) -> tuple[int, object]:
            return registry.register(self.path.split("/")[2], json.loads(body)["schema"])

        def get(self) -> tuple[int, object]:
            if self.path == "/config":
                return 200, {"compatibilityLevel": "BACKWARD"}
            _, _, subject, _, *version = self.path.partition("?")[0].split("/")
            if version:
                return registry.version(subject, version[0])
            return 200, list(range(1, len(registry.subjects[subject]) + 1))

    return Handler
