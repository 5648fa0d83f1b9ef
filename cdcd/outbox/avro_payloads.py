"""Encodes payloads of the outbox, which are JSON, as Avro by schemas that applications have registered.

Before: `outbox_events` has the text of a payload. After: a value in Confluent's wire format: 00, the schema's id, Avro.
Source: Apache Avro specification, "Binary Encoding"; Confluent, "Schema Registry: Wire format".

The schema is the newest of its subject. A payload that does not fit is tried again with what the registry has now. A
field that the schema lacks does not fit: it would be lost. A field with a default may be missing.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from typing import Any, Final, NoReturn

from cdcd.avro.registry_newest import NewestSchema, NewestSchemas
from cdcd.outbox.outbox_rules import TOPIC

log = logging.getLogger(__name__)

_NAMED_MAX: Final = 1_000
"""Subjects that the log has named."""


class AvroPayloads:
    """The encoder of one stream."""

    def __init__(self, subject: str, topic_of: Callable[[str], str], schemas: NewestSchemas) -> None:
        """`subject`: the template, with {topic}. `topic_of`: gives the topic from its name without the prefix."""
        self._subject = subject
        self._topic_of = topic_of
        self._schemas = schemas
        self._named: set[str] = set()

    def encode(self, topic: str, payload: bytes) -> bytes | None:
        """The value of an event of `topic`, which has no prefix; None if no schema fits."""
        subject = self._subject.replace(TOPIC, self._topic_of(topic))
        try:
            value = json.loads(payload, parse_constant=_refused, object_pairs_hook=_object)
        except (ValueError, RecursionError):
            self._note(subject, "is no JSON")
            return None
        known = self._schemas.find(subject)
        encoded = _encoded(known, value)
        if encoded is None:
            newer = self._schemas.find(subject, again=True)
            if newer is not known:
                encoded = _encoded(newer, value)
        if encoded is None:
            self._note(subject, "does not fit the newest schema of its subject")
        return encoded

    def _note(self, subject: str, why: str) -> None:
        if subject not in self._named and len(self._named) < _NAMED_MAX:
            self._named.add(subject)
            log.warning(
                "a payload of the outbox %s, %s: such rows go to the topic of the outbox itself", why, subject,
                extra={"code": "payload-unfit"},
            )  # fmt: skip


def _encoded(schema: NewestSchema | None, value: Any) -> bytes | None:
    from fastavro import schemaless_writer  # takes long to import, and few daemons need it
    from fastavro.validation import validate

    if schema is None:
        return None
    out = io.BytesIO()
    out.write(b"\x00" + schema.schema_id.to_bytes(4, "big"))
    try:
        if not validate(value, schema.schema, raise_errors=False, strict=True):
            return None
        schemaless_writer(out, schema.schema, value, strict_allow_default=True)
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError, IndexError, RecursionError):
        return None
    return out.getvalue()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Raises ValueError for a name that comes twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
