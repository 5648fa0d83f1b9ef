"""The ids that a schema registry gave, on the topic `{prefix}.snapshots`: one record a schema.

Before: `sink.publisher` writes the records with the first events of a schema.
After: a start reads them. So it asks the registry for nothing that was registered before.

An id stays what it is: so nothing depends on these records, and a schema without one is asked for. They hold for one
registry, which they name. If `avro.registry_ids` finds that another one answers at its URL, the generation goes up:
only records of the last generation count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

VERSION: Final = 1
_SLASHES: Final = 3


@dataclass(frozen=True)
class SchemaId:
    """The id of one schema."""

    slot: str
    subject: str
    digest: bytes
    """SHA-256 of the schema's text."""
    schema_id: int
    registry: str
    """Its URL, without a password."""
    generation: int = 0
    """How often another registry was found at this URL."""

    def key(self) -> bytes:
        """Return the record's key. Neither a slot nor a subject has a `/`."""
        return f"{self.slot}/schema/{self.subject}/{self.digest.hex()}".encode()

    def value(self) -> bytes:
        """Return the record's value: JSON with sorted keys."""
        document = {
            "version": VERSION,
            "slot": self.slot,
            "subject": self.subject,
            "sha256": self.digest.hex(),
            "id": self.schema_id,
            "registry": self.registry,
            "generation": self.generation,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def is_schema_id(key: bytes) -> bool:
    """Whether a record of the snapshots topic tells the id of a schema, by its key."""
    return key.count(b"/") == _SLASHES


def parse_schema_id(value: bytes) -> SchemaId | None:
    """Read one record; None if it cannot be understood: then the registry is asked."""
    try:
        document = json.loads(value)
        digest, schema_id = bytes.fromhex(document["sha256"]), int(document["id"])
        if document["version"] != VERSION or not 0 <= schema_id < 1 << 31:
            return None
        slot, subject, registry = (str(document[name]) for name in ("slot", "subject", "registry"))
        return SchemaId(slot, subject, digest, schema_id, registry, int(document["generation"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
