"""Every error of cdcd, grouped by its remedy: the supervisor reads the class, a person reads the message.

The tree::

    CdcdError                 message and cure, one sentence each; `str()` joins them
     +-- Stop                 a person must act; the daemon exits 1
     |    +-- SettingsError   the settings are wrong; exits 2, before anything is touched
     |    +-- DecodeError     the server sent bytes that do not follow the protocol (the peer's fault, or ours)
     |    +-- EncodeError     a change that cannot become an event
     |    +-- GapError        slot, server and progress do not belong together: rows may be missing
     |    +-- Refused         PostgreSQL or Kafka said no, and would say it again
     |    |    +-- Unpublishable    events of one table: it may be parked, and the others go on
     |    +-- Fenced          another daemon has taken over this transactional.id
     +-- Restart              drop what is not committed, go back to the last progress record, stream again
          +-- ServerLost      the connection to PostgreSQL ended or went silent
          +-- BrokerLost      Kafka could not take or commit a transaction
          +-- ModeChanged     the stream must go on with other options (a new type has no known binary form)
          +-- TypeChanged     what is known of a type is out of date: ask the catalogue anew
          +-- Unparked        a table's events go to its own topic again
          +-- WholeOnly       transactions in progress cannot be taken: let the server keep them
               +-- SpoolFull  there is no room for them
"""

from __future__ import annotations

import re


class CdcdError(Exception):
    """Any failure that cdcd names: what happened in `message`, what to do about it in `cure`."""

    def __init__(self, message: str, cure: str = "") -> None:
        super().__init__(message, cure)
        self.message = message
        self.cure = cure

    def __str__(self) -> str:
        return f"{self.message}. {self.cure}" if self.cure else self.message


class Stop(CdcdError):
    """A person must act: trying again would end the same way."""


class SettingsError(Stop):
    """A setting is missing, unknown or wrong."""


class DecodeError(Stop):
    """Bytes that do not follow the protocol.

    The message names the message type, the field, the offset, what was wanted and what was got; never row values.
    """


class EncodeError(Stop):
    """A change that cannot become an event: its relation or one of its types is unknown."""


class GapError(Stop):
    """The slot, the server or its history does not match the progress record: going on could skip rows."""


class Refused(Stop):
    """PostgreSQL or Kafka refused a request for a reason that does not pass by itself."""


class Unpublishable(Refused):
    """Kafka or the schema registry refuses what is to be published of one table, and of that table alone."""

    def __init__(
        self, message: str, cure: str, *, topic: str = "", table: tuple[str, str] | None = None, gone: bool = False
    ) -> None:
        """`topic` or `table` (schema, name), whichever is known where it is raised.

        `gone`: what is to be published cannot be read any more, so that no other try would come to another end.
        """
        super().__init__(message, cure)
        self.topic = topic
        self.table = table
        self.gone = gone
        self.unparking = False
        """It happened to parked events on their way to the table's own topic."""


class Fenced(Stop):
    """Another producer has taken this transactional.id: this daemon is the zombie of the two."""


class Restart(CdcdError):
    """Passes by itself: drop what is not committed, go back to the last progress record, stream again."""


class ServerLost(Restart):
    """The connection to PostgreSQL ended, was refused for now, or fell silent."""


class BrokerLost(Restart):
    """Kafka could not take a record or commit a transaction."""


class ModeChanged(Restart):
    """The stream must be started again with other options, as the message says."""


class TypeChanged(Restart):
    """A type is not what the catalogue said of it: the stream starts again, and the catalogue is asked anew."""


class Unparked(Restart):
    """A table's events go to its own topic again: its schemas are made known anew, where the registry wants them."""


class WholeOnly(Restart):
    """Transactions in progress cannot be taken: the stream goes on without them, and the server keeps them."""


class SpoolFull(WholeOnly):
    """There is no room for transactions in progress."""


def without_password(text: str) -> str:
    """The text as people may see it: URLs lose their user and password."""
    return re.sub(r"(\w+:/+)[^/\s@]*@", r"\1", text)
