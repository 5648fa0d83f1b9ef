"""Finds the newest schema of a subject, and remembers it.

Before: `registry_ids` asks the registry in other threads.
After: `outbox.avro_payloads` encodes what applications write by schemas that they have registered.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from cdcd.avro.registry_answers import Meaning, RegistryError
from cdcd.avro.registry_ids import RegistryIds
from cdcd.avro.registry_patience import RegistryPatience

AGAIN_S: Final = 10.0
"""A subject is asked for again no sooner than so many seconds after the last time."""

KNOWN_MAX: Final = 10_000
"""Subjects that are remembered: applications choose their names. The oldest go first."""


class NewestSchema:
    """The schema that the registry gave as the newest of a subject."""

    def __init__(self, schema_id: int, schema: Any) -> None:
        self.schema_id = schema_id
        self.schema = schema
        """As fastavro has parsed it."""


class NewestSchemas:
    """The newest schemas, for one thread."""

    def __init__(self, ids: RegistryIds, patience: RegistryPatience) -> None:
        self._ids = ids
        self._patience = patience
        self._known: dict[str, tuple[float, NewestSchema | None]] = {}
        """By subject: when it was asked for, and what it had."""

    def find(self, subject: str, *, again: bool = False) -> NewestSchema | None:
        """The newest schema; None if the subject has none, or none in Avro that stands for itself.

        `again`: ask, if the last answer is some seconds old. Raises KafkaUnavailable, RequestRejected.
        """
        now, known = self._patience.clock(), self._known.get(subject)
        if known is not None and not (again and now >= known[0] + AGAIN_S):
            return known[1]
        found = self._ask(subject)
        self._known.pop(subject, None)
        self._known[subject] = now, found
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        return found

    def _ask(self, subject: str) -> NewestSchema | None:
        try:
            answer = self._patience.answer(partial(self._ids.newest, subject))
        except RegistryError as error:
            if error.meaning in (Meaning.UNKNOWN_USER, Meaning.NO_REGISTRY):
                raise self._ids.requests.rejected(error) from error
            return None  # an application chooses the subject: this one is refused
        return None if answer is None else _parsed(*answer)


def _parsed(schema_id: int, text: str) -> NewestSchema | None:
    """None for what is no Avro schema, or refers to schemas of other subjects."""
    from fastavro import parse_schema  # takes long to import, and few daemons need it
    from fastavro.schema import SchemaParseException

    try:
        return NewestSchema(schema_id, parse_schema(json.loads(text)))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SchemaParseException):
        return None
