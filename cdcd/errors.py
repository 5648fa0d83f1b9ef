"""Every error of cdcd, grouped by its remedy. The supervisor acts on the class; a person reads message, hint and code.

The tree::

    CdcdError                          message, hint and code; `str()` joins them
     +-- FatalError                    a person must act; the daemon exits 1
     |    +-- SettingsError            the settings are wrong; exits 2, before anything is touched
     |    +-- DecodeError              the server sent bytes that do not follow the protocol
     |    +-- GapError                 slot, server and progress do not belong together: rows may be missing
     |    +-- RequestRejected          PostgreSQL or Kafka rejects a request, and would reject it every time
     |    |    +-- AccessDenied        PostgreSQL or Kafka refuses the login; it may pass if it has worked before
     |    |    +-- Unpublishable       Kafka rejects the events of one table: the table may be parked
     |    |         +-- RecordTooLarge a record, or a batch of records, is larger than its topic allows
     |    +-- Fenced                   another daemon has taken over this transactional.id
     +-- RetriableError                drop uncommitted events, return to the last progress record, restart the stream
          +-- PostgresUnavailable      the connection to PostgreSQL ended, or PostgreSQL does not answer
          +-- KafkaUnavailable         Kafka could not take a record or commit a transaction
          +-- BatchTooLarge            a topic takes less in one batch: the next producer makes smaller batches
          +-- TopicLost                Kafka lost records while the daemon ran: the next start decides what to do
          +-- BinaryFormatUnsupported  a type has no binary form that cdcd knows: the stream goes on in text mode
          +-- TypeChanged              the catalog's description of a type is out of date: read the catalog again
          +-- TextUnconvertible        PostgreSQL cannot convert a text to UTF-8: get text as it is stored
          +-- ReplayFinished           a replay has put the events of a parked table on the table's own topic
          +-- StreamingUnsupported     cdcd cannot take transactions in progress: the server keeps them
          |    +-- SpoolFull           the spool has no room for them
          +-- StreamingResumed         the transaction that could not be spooled is in Kafka
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from cdcd.error_codes import Code

BUG_HINT: Final = "This is a bug of the server or of cdcd; restart the daemon, and report it if it comes back"
"""The hint of an error that can only be a bug."""


class CdcdError(Exception):
    """The base of all errors of cdcd. `message` says what happened, `hint` what to do.

    `code` names the kind of trouble: `cdcd explain CODE` says more than the hint can. A code has one cure.
    """

    def __init__(self, message: str, hint: str = "", *, code: Code) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return sentence(self.message, self.hint, self.code)

    def __reduce__(self) -> tuple[Any, ...]:
        """So that `pickle` can bring it from one process to another: what `__init__` set is in `__dict__`."""
        return _unpickled, (type(self), self.args), self.__dict__


class FatalError(CdcdError):
    """A person must act: another try would fail in the same way."""


class SettingsError(FatalError):
    """A setting is missing, unknown or wrong."""


class DecodeError(FatalError):
    """Bytes that do not follow the protocol.

    The message names the message type, the field, the offset, the expected and the actual content, but no row values.
    """

    def __init__(self, message: str, hint: str = "", *, code: Code = "stream-malformed") -> None:
        super().__init__(message, hint, code=code)


class GapError(FatalError):
    """The slot, the server or its timeline does not match the progress record: the stream could skip rows."""


class RequestRejected(FatalError):
    """PostgreSQL or Kafka rejected a request, for a reason that lasts until a person acts."""


class Unpublishable(RequestRejected):
    """Kafka or the schema registry refuses events of one table. Other tables are not affected."""

    def __init__(
        self,
        message: str,
        hint: str,
        *,
        code: Code,
        topic: str = "",
        table: tuple[str, str] | None = None,
        gone: bool = False,
        keyless: bool = False,
    ) -> None:
        """`topic` or `table` (schema, name) says which table it is; one of the two is given.

        `gone`: the parked events cannot be read any more, so another try would fail in the same way. `keyless`: the
        events are parked without their key, so they must not be replayed.
        """
        super().__init__(message, hint, code=code)
        self.topic = topic
        self.table = table
        self.gone = gone
        self.keyless = keyless
        self.others: list[tuple[str, str]] = []
        """More tables whose events the same topic refuses."""
        self.unparking = False
        """Whether the refused events come from the parked topic."""


class RecordTooLarge(Unpublishable):
    """A record, or a batch of records, is larger than `max.message.bytes` of its topic."""


class AccessDenied(RequestRejected):
    """PostgreSQL or Kafka refuses the user, the credentials or the certificate. It may pass if it has worked before."""


class Fenced(FatalError):
    """Another daemon has taken over this transactional.id. This daemon must not write any more."""


class RetriableError(CdcdError):
    """The daemon can recover: it drops uncommitted events, returns to the last progress record, and streams again."""


class PostgresUnavailable(RetriableError):
    """The connection to PostgreSQL ended, PostgreSQL refused it for now, or PostgreSQL does not answer."""


class KafkaUnavailable(RetriableError):
    """Kafka could not take a record or commit a transaction."""


class BatchTooLarge(RetriableError):
    """A topic takes less in one batch than the producer puts into one: the next producer makes smaller batches."""


class TopicLost(RetriableError):
    """A topic lost records while the daemon ran: it was deleted, made again, or cut. The next start looks at it."""

    def __init__(self, message: str, hint: str = "", lost: Mapping[str, str] | None = None, *, code: Code) -> None:
        """`lost`: the topics, each with what shows it; the abort of the open Kafka transaction may hide it."""
        super().__init__(message, hint, code=code)
        self.lost = lost or {}


class BinaryFormatUnsupported(RetriableError):
    """A value came in a binary form that cdcd does not know: the stream restarts in text mode."""


class TypeChanged(RetriableError):
    """A type is not as the catalog described it: the stream restarts, and reads the catalog again."""


class ReplayFinished(RetriableError):
    """A table is not parked any more: the stream restarts, and registers the table's schemas again."""


class TextUnconvertible(RetriableError):
    """PostgreSQL cannot convert a text to UTF-8: the stream restarts, and gets text as it is stored."""


class StreamingUnsupported(RetriableError):
    """cdcd cannot spool transactions in progress: the stream restarts without them, and PostgreSQL keeps them."""

    def __init__(self, message: str, hint: str = "", *, code: Code, until_lsn: int = 0) -> None:
        """`until_lsn`: where the transaction ends that cannot be spooled; 0: any other could fail in the same way."""
        super().__init__(message, hint, code=code)
        self.until_lsn = until_lsn


class StreamingResumed(RetriableError):
    """The transaction that could not be spooled is in Kafka: the stream restarts, with transactions in progress."""


class SpoolFull(StreamingUnsupported):
    """The spool has no room left for transactions in progress, or for prepared ones."""

    def __init__(self, message: str, remedy: str, *, may_pass: bool = False) -> None:
        """`remedy` says what makes room. `may_pass`: there may be room again without that."""
        waits = "Until the daemon is restarted, large transactions wait on the server's own disk instead"
        super().__init__(message, f"{remedy}. {waits}", code="spool-full")
        self.remedy = remedy
        self.may_pass = may_pass


def _unpickled(kind: type[CdcdError], args: tuple[Any, ...]) -> CdcdError:
    return kind.__new__(kind, *args)


def sentence(message: str, hint: str, code: str | None) -> str:
    """What a person reads of an error or a finding: it ends in the code."""
    said = f"{message}. {hint}" if hint else message
    return f"{said} [{code}]" if code else said


def without_password(text: str) -> str:
    """`text` without the users and passwords in its URLs."""
    return re.sub(r"(\w+:/+)[^/\s@]*@", r"\1", text)
