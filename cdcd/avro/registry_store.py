"""Names the schemas of records by their ids in a Confluent-compatible schema registry.

Before: `schema` makes the JSON text of a relation's schemas. `schema_store` has the base class.
After: `event_encoder` starts every record with 00 and the schema's id, in Confluent's wire format.
Source: Confluent, "Schema Registry: Wire format".

The registry is asked in other threads (`registry_ids`). The thread that needs an id waits for it here, and may do
something else meanwhile (`registry_patience`).
Every schema is whole: it defines each type that it uses, so it refers to no schema of another subject. A type that two
tables share may change in one table's subject before it does in the other's.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import partial
from urllib.parse import quote

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_ids import RegistryIds
from cdcd.avro.registry_patience import RegistryPatience, Wait, blocking_wait
from cdcd.avro.registry_subjects import SubjectNames
from cdcd.avro.schema_store import SchemaStore
from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError, Unpublishable
from cdcd.source.table_selection import qualified_name


class RegistryStore(SchemaStore):
    """The registry, for one thread."""

    def __init__(
        self,
        ids: RegistryIds,
        subjects: SubjectNames,
        wait: Wait = blocking_wait,
        clock: Callable[[], float] = monotonic_s,
    ) -> None:
        """`wait` may raise an error that ends the waiting for good. `clock` returns seconds and never goes back."""
        self._ids = ids
        self._subjects = subjects
        self._patience = RegistryPatience(ids.requests, wait, clock)

    def expect(self, schema: str, name: str, subject: str, text: str) -> None:
        if self._ids.requests.silent_s() <= 0:
            self._ids.schema_id(self._subjects.name(schema, name, subject, text), text)

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        full_subject = self._subjects.name(schema, name, subject, text)
        try:
            found = self._patiently(full_subject, text)
        except RegistryError as error:
            raise self._error(error, (schema, name), full_subject) from error
        if found is None:
            raise self._missing((schema, name), full_subject, "avro.register is false")
        return b"\x00" + found.to_bytes(4, "big")

    def _patiently(self, subject: str, text: str) -> int | None:
        """The schema's id, or None. Raises KafkaUnavailable if none comes in time, RegistryError if none will come."""
        if (known := self._ids.known(subject, text)) is not None:
            return known
        return self._patience.answer(partial(self._ids.schema_id, subject, text))

    def _error(self, error: RegistryError, table: tuple[str, str], subject: str) -> CdcdError:
        url, name = self._ids.requests.url, qualified_name(*table)
        if error.meaning in (Meaning.REFUSED, Meaning.MISSING):
            earlier = "earlier versions" if error.version is None else f"version {error.version}"
            how = f"incompatible with {earlier} of" if error.is_conflict else "invalid for"
            hint = f"Look at the schema, which this prints: cdcd schema --json {name}"
            if error.is_conflict:
                hint = (
                    f"Allow the change: {allow_command(url, subject)}. When the registry has the schema, give the "
                    "subject back the level that it had"
                )
            return Unpublishable(
                f"the registry refuses the new schema of {name} as {how} subject {subject}: {error.words}",
                hint,
                table=table,
                code="schema-incompatible",
            )
        if error.meaning is Meaning.FORBIDDEN and error.is_registration:
            return self._missing(table, subject, f"the registry does not let this user register it: {error.words}")
        if error.meaning is Meaning.FORBIDDEN:
            return Unpublishable(
                f"the registry does not let this user look up schemas of {name} in subject {subject}: {error.words}",
                "Give the user of avro.registry_config the right to read and to write that subject",
                table=table,
                code="registry-access-denied",
            )
        return self._ids.requests.rejected(error)

    def _missing(self, table: tuple[str, str], subject: str, why: str) -> Unpublishable:
        name = qualified_name(*table)
        return Unpublishable(
            f"the registry lacks a schema of {name} in subject {subject}, and {why}",
            f"Register it, as a user that may: cdcd schema --register {name}",
            table=table,
            code="schema-not-registered",
        )


def allow_command(url: str, subject: str) -> str:
    """The command that lets a subject take any schema. `url` without users and passwords."""
    content = "-H 'Content-Type: application/vnd.schemaregistry.v1+json'"
    where = f"{url.partition(',')[0].rstrip('/')}/config/{quote(subject, safe='')}"
    return f"""curl -X PUT {content} -d '{{"compatibility": "NONE"}}' {shlex.quote(where)}"""
