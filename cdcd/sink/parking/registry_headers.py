"""Gives replayed records the header of the schema registry: while they were parked, a fingerprint named their schema.

Before: `parking.state` replays parked records onto their own topic.
After: `avro.registry_store` names the schema as that topic's readers know it.
Source: Apache Avro specification, "Single-object encoding".
"""

from __future__ import annotations

from collections.abc import Callable

from cdcd.avro.schema_store import SchemaStore
from cdcd.avro.single_object import MARKER, split
from cdcd.progress.daemon_requests import MESSAGES
from cdcd.sink.kafka_transaction import Table
from cdcd.transaction.record_consumer import TRANSACTIONS


class RegistryHeaders:
    """Plays `state.Rename`. For one thread."""

    def __init__(self, registry: SchemaStore, find: Callable[[str], str]) -> None:
        """`find` returns the schema of a fingerprint (hex)."""
        self._registry = registry
        self._find = find
        self._headers: dict[tuple[Table, str, str], bytes] = {}

    def __call__(self, table: Table, subject: str, data: bytes) -> bytes:
        """The record with the registry's header; unchanged if it has that already. `subject` is "key" or "value".

        An event of the outbox stays as it is: an application has written it, perhaps in this encoding.
        """
        is_outbox = not table[0] and table not in (MESSAGES, TRANSACTIONS)
        if is_outbox or not data.startswith(MARKER):
            return data
        fingerprint, start = split(data)
        header = self._headers.get((table, subject, fingerprint))
        if header is None:
            header = self._registry.header_for(*table, subject, self._find(fingerprint))
            self._headers[table, subject, fingerprint] = header
        return header + data[start:]
