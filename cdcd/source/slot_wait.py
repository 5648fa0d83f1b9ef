"""What happens while the server makes a slot: the log says what it waits for, and a primary is asked for its record.

Before: `Connection.create_slot` and `create_temporary_slot` call `look` while they wait.
After: a person ends a transaction; or the primary writes the record, and the standby has the slot.
Source: PostgreSQL, "Logical Decoding on Standby"; "Snapshot Synchronization Functions", pg_log_standby_snapshot.

A slot begins at a record of the transactions that run. A primary writes one when a slot is asked for. A standby has to
wait for the next one, and for up to three of them while its primary is busy. A primary writes one every 15 s, and none
as long as nothing happens there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Self

from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError, sentence
from cdcd.source.identifiers import identifier
from cdcd.source.login import Dsn
from cdcd.source.query_runner import QueryRunner
from cdcd.source.server_errors import INSUFFICIENT_PRIVILEGE
from cdcd.source.session import Session, StatementRejected
from cdcd.source.write_transactions import described_writers

log = logging.getLogger(__name__)

SAID_AFTER_S: Final = 5.0
"""When the server has waited so long, the log says for what."""

ASK_EVERY_S: Final = 0.5
ASK_AGAIN_AFTER_S: Final = 30.0
"""After the primary did not answer, or refused."""

_RECORD: Final = "SELECT pg_catalog.pg_log_standby_snapshot()"

_CODE: Final = {"code": "transaction-open-long"}


class SlotWait:
    """One wait for a slot. For one thread."""

    def __init__(
        self,
        session: QueryRunner,
        primary: Dsn | None,
        *,
        is_standby: bool,
        application_name: str = "cdcd",
        clock: Callable[[], float] = monotonic_s,
        is_said: bool = True,
    ) -> None:
        """`session` asks the server that makes the slot. `primary`: the setting `source.primary_dsn`.

        `is_said`: the log says what the server waits for. The caller may say it in its own way.
        """
        self._session = session
        self._primary = Session(primary, application_name) if primary and is_standby else None
        self._is_standby = is_standby
        self._clock = clock
        self._ask_at_s = clock()
        self._say_at_s = clock() + SAID_AFTER_S if is_said else float("inf")

    def look(self) -> None:
        """The slot is not there yet. Raises what the session raises, but nothing about the primary."""
        now = self._clock()
        if self._primary is not None and now >= self._ask_at_s:
            self._ask(self._primary)
        if now >= self._say_at_s:
            self._say_at_s = float("inf")
            if self._is_standby:
                log.warning(
                    "the slot waits for the primary of this standby. Run there: SELECT pg_log_standby_snapshot(), "
                    "perhaps three times; or set source.primary_dsn. It also waits for write transactions there to end "
                    "[transaction-open-long]",
                    extra=_CODE,
                )
            else:
                writers = ", ".join(described_writers(self._session))
                log.warning(
                    "the slot waits for the end of open write transactions: %s [transaction-open-long]",
                    writers,
                    extra=_CODE,
                )

    def close(self) -> None:
        """End the connection to the primary."""
        if self._primary is not None:
            self._primary.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, primary: Session) -> None:
        try:
            primary.rows(_RECORD)
        except CdcdError as error:
            said = f"the server of source.primary_dsn writes no record for the slot on its standby: {error.message}"
            log.warning("%s", sentence(said, _hint(primary, error), "transaction-open-long"), extra=_CODE)
            self._ask_at_s = self._clock() + ASK_AGAIN_AFTER_S
        else:
            self._ask_at_s = self._clock() + ASK_EVERY_S


def _hint(primary: Session, error: CdcdError) -> str:
    """The hint about a primary that writes no record: the GRANT, if it refuses the role."""
    if isinstance(error, StatementRejected) and error.sqlstate == INSUFFICIENT_PRIVILEGE:
        with suppress(CdcdError):
            [(role,)] = primary.rows("SELECT current_user")
            function = "pg_catalog.pg_log_standby_snapshot()"
            return f"Run on the primary: GRANT EXECUTE ON FUNCTION {function} TO {identifier(role)}"
    return error.hint
