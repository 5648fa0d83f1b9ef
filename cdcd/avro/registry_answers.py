"""Tells what an error of a schema registry means, by one table of its codes. Pure.

Before: `registry_requests` has the HTTP status and the registry's own code.
After: `registry_store` waits, parks the table, or stops; `cdcd check` makes findings.
Source: Confluent, "Schema Registry API Reference": Errors; RFC 9110, "Status Codes".
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class Meaning(Enum):
    """The meaning of an error for the daemon."""

    PASSING = "passing"
    """It passes by itself: ask again later."""
    MISSING = "missing"
    """The registry does not have the schema, or not the subject."""
    REFUSED = "refused"
    """The registry does not take this schema. Other schemas are not affected."""
    FORBIDDEN = "forbidden"
    """The request is not allowed for this subject: no right, or a registry in read-only mode."""
    UNKNOWN_USER = "unknown user"
    """The registry does not accept the credentials."""
    NO_REGISTRY = "no registry"
    """No schema registry answers at this URL."""


_BY_CODE: Final = {
    40401: Meaning.MISSING,  # no such subject
    40402: Meaning.MISSING,  # no such version
    40403: Meaning.MISSING,  # no such schema
    40404: Meaning.MISSING,  # the subject is deleted, but not for good
    40406: Meaning.MISSING,  # the version is deleted, but not for good
    42205: Meaning.FORBIDDEN,  # read-only mode, or the mode that imports schemas
}
"""The registry's own codes, where they say more than the HTTP status."""

_BY_STATUS: Final = {
    401: Meaning.UNKNOWN_USER,
    403: Meaning.FORBIDDEN,
    404: Meaning.NO_REGISTRY,
    405: Meaning.FORBIDDEN,  # a proxy that lets nobody write
    407: Meaning.UNKNOWN_USER,
    408: Meaning.PASSING,
    421: Meaning.PASSING,
    425: Meaning.PASSING,
    429: Meaning.PASSING,
    501: Meaning.NO_REGISTRY,
    505: Meaning.NO_REGISTRY,
}

_CLIENT_ERROR: Final = 400
_SERVER_ERROR: Final = 500


def meaning(status: int, code: int | None) -> Meaning:
    """Return the meaning of an error. `status` is HTTP's. `code` is the registry's own; None or -1: it gave none."""
    if code in _BY_CODE:
        return _BY_CODE[code]
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= _SERVER_ERROR:
        return Meaning.PASSING
    return Meaning.REFUSED if status >= _CLIENT_ERROR else Meaning.NO_REGISTRY


class RegistryError(Exception):
    """The registry did not do what it was asked for. `words` are its own."""

    def __init__(self, meaning: Meaning, words: str, *, is_conflict: bool = False) -> None:
        """`is_conflict`: the schema is incompatible with earlier ones."""
        super().__init__(words)
        self.meaning = meaning
        self.words = words
        self.is_conflict = is_conflict
        self.is_registration = False
        """It was asked to register a schema, not to look one up."""
        self.version: int | None = None
        """The newest version of the subject, if the schema conflicts with it, and the registry tells."""
