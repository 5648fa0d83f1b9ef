"""A schema registry in this process, with the one request of Apicurio's Avro converter: it numbers schemas.

The converter asks once for each schema, so the registry's cost does not matter.
Source: Apicurio Registry 2.6 "Core Registry API", POST /groups/{groupId}/artifacts.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from support.json_server import JsonHandler, JsonServer  # noqa: E402


class AvroRegistry(JsonServer):
    """Numbers the schemas that it gets while a `with` lasts."""

    def __init__(self) -> None:
        super().__init__(_handler({}, threading.Lock()))
        self.url += "/apis/registry/v2"


def _handler(ids: dict[bytes, int], lock: threading.Lock) -> type[JsonHandler]:
    class Handler(JsonHandler):
        def post(self, body: bytes) -> tuple[int, object]:
            with lock:
                number = ids.setdefault(body, len(ids) + 1)
            name = self.headers.get("X-Registry-ArtifactId", "schema")
            return 200, {"id": name, "groupId": "default", "version": "1", "type": "AVRO", "state": "ENABLED",
                         "globalId": number, "contentId": number}  # fmt: skip

    return Handler
