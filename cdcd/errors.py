"""Every error of cdcd, grouped by its remedy: the supervisor reads the class, a person reads the message.

The tree::

    CdcdError                          message and hint, one sentence each; `str()` joins them
     +-- FatalError                    a person must act; the daemon exits 1
     |    +-- SettingsError            the settings are wrong; exits 2, before anything is touched
     |    +-- DecodeError              the server sent bytes that do not follow the protocol
     |    +-- GapError                 slot, server and progress do not belong together: rows may be missing
     |    +-- RequestRejected          PostgreSQL or Kafka rejects a request, and would reject it again
     |    |    +-- Unpublishable       Kafka rejects the events of one table: the table may be parked
     |    +-- Fenced                   another daemon has taken over this transactional.id
     +-- RetriableError                drop what is not committed, go back to the last progress record, stream again
          +-- PostgresUnavailable      the connection to PostgreSQL ended, or PostgreSQL does not answer
          +-- KafkaUnavailable         Kafka could not take a record or commit a transaction
          +-- BinaryFormatUnsupported  a type has no binary form that cdcd knows: the stream goes on in text mode
          +-- TypeChanged              the catalog's description of a type is out of date: read the catalog again
          +-- ReplayFinished           a parked table's events are on its own topic again
          +-- StreamingUnsupported     cdcd cannot take transactions in progress: the server keeps them
               +-- SpoolFull           the spool has no room for them
"""

from __future__ import annotations

import re
from typing import Final

BUG_HINT: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"
"""The hint of errors that no person can cause."""


class CdcdError(Exception):
    """Any failure that cdcd names: what happened in `message`, what to do about it in `hint`."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}. {self.hint}" if self.hint else self.message


class FatalError(CdcdError):
    """A person must act: trying again would end the same way."""


class SettingsError(FatalError):
    """A setting is missing, unknown or wrong."""


class DecodeError(FatalError):
    """Bytes that do not follow the protocol.

    The message names the message type, the field, the offset, what was wanted and what was got; never row values.
    """


class GapError(FatalError):
    """The slot, the server or its history does not match the progress record: going on could skip rows."""


class RequestRejected(FatalError):
    """PostgreSQL or Kafka refused a request for a reason that does not pass by itself."""


class Unpublishable(RequestRejected):
    """Kafka or the schema registry refuses what is to be published of one table, and of that table alone."""

    def __init__(
        self, message: str, hint: str, *, topic: str = "", table: tuple[str, str] | None = None, gone: bool = False
    ) -> None:
        """`topic` or `table` (schema, name), whichever is known where it is raised.

        `gone`: what is to be published cannot be read any more, so that no other try would come to another end.
        """
        super().__init__(message, hint)
        self.topic = topic
        self.table = table
        self.gone = gone
        self.unparking = False
        """It happened to parked events on their way to the table's own topic."""


class Fenced(FatalError):
    """Another producer has taken this transactional.id: this daemon is the zombie of the two."""


class RetriableError(CdcdError):
    """Passes by itself: drop what is not committed, go back to the last progress record, stream again."""


class PostgresUnavailable(RetriableError):
    """The connection to PostgreSQL ended, was refused for now, or fell silent."""


class KafkaUnavailable(RetriableError):
    """Kafka could not take a record or commit a transaction."""


class BinaryFormatUnsupported(RetriableError):
    """The stream must be started again with other options, as the message says."""


class TypeChanged(RetriableError):
    """A type is not what the catalog said of it: the stream starts again, and the catalog is asked anew."""


class ReplayFinished(RetriableError):
    """A table's events go to its own topic again: its schemas are made known anew, where the registry wants them."""


class StreamingUnsupported(RetriableError):
    """Transactions in progress cannot be taken: the stream goes on without them, and the server keeps them."""


class SpoolFull(StreamingUnsupported):
    """There is no room for transactions in progress."""


def without_password(text: str) -> str:
    """The text as people may see it: URLs lose their user and password."""
    return re.sub(r"(\w+:/+)[^/\s@]*@", r"\1", text)
