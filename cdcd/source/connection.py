"""The replication connection and its commands: the server's identity, and new slots. Thin I/O.

Before: a PostgreSQL server, 14 to 18.
After: `replication_stream` streams over the same connection; `exported_snapshot` takes a snapshot over another one.
Source: PostgreSQL, "Streaming Replication Protocol", and libpq, "Asynchronous Command Processing".

No call here blocks other threads: libpq sends a command asynchronously, and Python polls for its result.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

import psycopg
from psycopg import pq

from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.source import server_errors
from cdcd.source.identifiers import identifier
from cdcd.source.login import Dsn
from cdcd.source.server_errors import SlotFacts, SlotWaits
from cdcd.source.session import check_pinned, log_in, parameters, pinning_statement
from cdcd.source.slot import facts_of_refusal

COMMAND_TIMEOUT_S: Final = 60.0
"""How long a command other than CREATE_REPLICATION_SLOT may take before the server counts as lost."""

SLOT_TIMEOUT_S: Final = 300.0
"""How long CREATE_REPLICATION_SLOT may wait for open write transactions."""

INPUT_BUFFER_BYTES: Final = 1 << 20
"""libpq's input buffer has 16 KB at first, and one read never brings more: see `Connection.enlarge_read_buffer`."""

MEANWHILE_S: Final = 0.05
"""How often `create_slot` and `create_temporary_slot` call `meanwhile`."""

CANCEL_TIMEOUT_S: Final = 5.0
INTERRUPTED_CANCEL_TIMEOUT_S: Final = 0.5
"""The same after an interruption: the process is about to end."""

_SLOT_PARAMETERS: Final = (
    "SELECT name, setting FROM pg_catalog.pg_settings "
    "WHERE name IN ('wal_level', 'max_replication_slots', 'max_wal_senders', 'in_hot_standby')"
)

_POSITION: Final = (
    "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() "
    "ELSE pg_catalog.pg_current_wal_flush_lsn() END"
)

TLS_WAIT_S: Final = 0.1
"""How long to wait with TLS: libpq may hold decrypted bytes that poll does not see."""


@dataclass(frozen=True)
class SystemIdentity:
    """The answer to IDENTIFY_SYSTEM. `wal_lsn`: the server has flushed its WAL up to this LSN."""

    system_id: str
    timeline: int
    wal_lsn: int
    dbname: str


@dataclass(frozen=True)
class CreatedSlot:
    """A new slot. It streams from `consistent_lsn`; `snapshot`, if exported, shows the tables as of this LSN."""

    name: str
    consistent_lsn: int
    snapshot: str | None
    plugin: str


class Connection:
    """A replication connection to one database. One thread owns it.

    Every method raises PostgresUnavailable when the connection has ended. Its docstring names other errors.
    """

    def __init__(self, dsn: Dsn, application_name: str = "cdcd", *, as_stored: bool = False) -> None:
        """Connect. `dsn`: a libpq connection string or URI, several hosts allowed; or a Login.

        `as_stored`: the server does not convert text to UTF-8. Raises RequestRejected if the server does not let this
        role replicate, PostgresUnavailable if it cannot be reached.
        """
        self._as_stored = as_stored
        self._unsent = False
        self._poll = select.poll()
        self._conn = log_in(parameters(dsn, application_name), replication="database")
        self._pg = self._conn.pgconn
        self._socket = self._pg.socket
        self._tls = self._pg.ssl_in_use
        try:
            self._ready()
        except CdcdError:
            self._conn.close()
            raise

    @property
    def server_version(self) -> int:
        """The server's version as `PQserverVersion` has it: 180006 is 18.6."""
        return self._pg.server_version

    @property
    def encoding(self) -> str:
        """The encoding of the database. From an SQL_ASCII database, text comes as the stored bytes, not as UTF-8."""
        return (self._pg.parameter_status(b"server_encoding") or b"").decode()

    @property
    def local(self) -> bool:
        """Whether it is a Unix socket. It holds only some 150 messages, so a reader that pauses stops the server."""
        return self._pg.host.startswith((b"/", b"@"))

    @property
    def standby(self) -> bool:
        """Whether the server was a standby when the connection was made."""
        return self._pg.parameter_status(b"in_hot_standby") == b"on"

    @property
    def backend_pid(self) -> int:
        """The process id of the walsender at the server."""
        return self._pg.backend_pid

    def identify(self) -> SystemIdentity:
        """Ask for the server's identity and the end of its WAL."""
        [(system_id, timeline, wal_lsn, dbname)] = self._query("IDENTIFY_SYSTEM")
        return SystemIdentity(system_id or "", int(timeline or 0), parse_lsn(wal_lsn or ""), dbname or "")

    def position(self) -> int:
        """The end of the server's WAL: of what it has flushed, or, if it is a standby, replayed."""
        [(lsn,)] = self._query(_POSITION)
        return parse_lsn(lsn or "")

    def timeline_history(self, timeline: int) -> str:
        """The history file of the server's timeline; empty for the first timeline, which has none."""
        if timeline < 2:
            return ""
        [(_, content)] = self._query(f"TIMELINE_HISTORY {timeline:d}")
        return content or ""

    def create_slot(
        self,
        slot: str,
        *,
        two_phase: bool = False,
        failover: bool = False,
        timeout_s: float = SLOT_TIMEOUT_S,
        blockers: Callable[[], Sequence[str]] = tuple,
        meanwhile: Callable[[], None] | None = None,
    ) -> CreatedSlot:
        """Make a logical slot of the plugin pgoutput.

        The server waits until every write transaction, in any database, has ended that was open at the request.
        `meanwhile` is called every MEANWHILE_S seconds while it waits. If that raises, or a signal does, the request is
        cancelled: else the server would make the slot later, and nobody would know of it.

        Raises SlotWaits after `timeout_s` seconds: the request is cancelled, and leaves no slot. The error names what
        `blockers()` describes. Raises RequestRejected if the server would refuse the request again.
        """
        version = self.server_version // 10_000
        if two_phase and version < 15:
            raise RequestRejected(
                f"two-phase decoding needs PostgreSQL 15, this is {version}",
                "Set two_phase = false",
                code="server-too-old",
            )
        if failover and version < 17:
            raise RequestRejected(
                f"failover slots need PostgreSQL 17, this is {version}", "Set failover = false", code="server-too-old"
            )
        command = f"CREATE_REPLICATION_SLOT {identifier(slot)} LOGICAL pgoutput"
        if version < 15:
            command += " NOEXPORT_SNAPSHOT"
        else:
            options = ["SNAPSHOT 'nothing'", *(["TWO_PHASE"] * two_phase), *(["FAILOVER"] * failover)]
            command += f" ({', '.join(options)})"
        return self._create(slot, command, timeout_s, blockers, meanwhile)

    def create_temporary_slot(
        self,
        slot: str,
        *,
        timeout_s: float = SLOT_TIMEOUT_S,
        blockers: Callable[[], Sequence[str]] = tuple,
        meanwhile: Callable[[], None] | None = None,
    ) -> CreatedSlot:
        """As `create_slot`, but the server drops the slot when this connection ends, and exports a snapshot.

        The snapshot lives until this connection's next command. `meanwhile` is called every MEANWHILE_S seconds while
        the server waits.
        """
        export = "EXPORT_SNAPSHOT" if self.server_version < 150_000 else "(SNAPSHOT 'export')"
        command = f"CREATE_REPLICATION_SLOT {identifier(slot)} TEMPORARY LOGICAL pgoutput {export}"
        return self._create(slot, command, timeout_s, blockers, meanwhile)

    def enlarge_read_buffer(self, size_bytes: int = INPUT_BUFFER_BYTES) -> None:
        """Make libpq's input buffer at least `size_bytes` large, by receiving one value of that size.

        libpq has no call for this. But libpq never shrinks a buffer that a large row has enlarged, and it reads as much
        at once as the buffer has room for. `tests/bench/read_rate.py` measures the gain. Call it before the stream
        starts.
        """
        self._query(f"SELECT pg_catalog.repeat('x', {size_bytes:d})")

    def fileno(self) -> int:
        """The socket, for the caller's own poll."""
        return self._socket

    def close(self) -> None:
        """End the connection at once."""
        with suppress(psycopg.Error):
            self._conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    def _create(
        self,
        slot: str,
        command: str,
        timeout_s: float,
        blockers: Callable[[], Sequence[str]],
        meanwhile: Callable[[], None] | None,
    ) -> CreatedSlot:
        try:
            result = self._run(command, timeout_s, meanwhile)
        except PostgresUnavailable:
            raise
        except BaseException:
            self._cancel(INTERRUPTED_CANCEL_TIMEOUT_S)
            raise
        if result is None:
            held_by = tuple(blockers())
            self._cancel()
            raise SlotWaits(slot, timeout_s, held_by, standby=self.standby)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._error(
                result,
                lambda sqlstate, text: server_errors.slot_refused(
                    sqlstate, text, slot, self._parameters_of_refusal(sqlstate)
                ),
            )
        [(name, consistent, snapshot, used)] = _rows(result)
        return CreatedSlot(name or "", parse_lsn(consistent or ""), snapshot, used or "")

    def _ready(self) -> None:
        """Set the parameters that depend on the server, which is known only now."""
        check_pinned(self._query(pinning_statement(self.server_version)))
        if self._as_stored or self._pg.parameter_status(b"server_encoding") == b"SQL_ASCII":
            # Such a database holds bytes of any encoding. If the server had to convert them, it would end the stream
            # at the first byte that is not UTF-8, and again at every restart.
            self._query("SET client_encoding TO 'SQL_ASCII'")

    def _error(self, result: pq.abc.PGresult, translate: Callable[[str, str], CdcdError]) -> CdcdError:
        """The error of a result. `translate` makes it from SQLSTATE and message, unless the connection has ended."""
        sqlstate, text = error_of(result)
        if self._pg.status == pq.ConnStatus.BAD:
            return PostgresUnavailable(
                f"the connection to PostgreSQL ended: {text.strip() or 'no reason was given'}",
                code="postgres-interrupted",
            )
        return translate(sqlstate, text)

    def _facts_of_refusal(self, slot: str, sqlstate: str) -> SlotFacts | None:
        """The facts that explain a 55000 or a 55006; None for other SQLSTATEs, which have one meaning."""
        return facts_of_refusal(self._query, slot) if sqlstate in {"55000", "55006"} else None

    def _parameters_of_refusal(self, sqlstate: str) -> dict[str, str]:
        """The server's parameters that explain why no slot can be made; empty if the SQLSTATE says it."""
        if sqlstate != "55000":
            return {}
        return {name or "": setting or "" for name, setting in self._query(_SLOT_PARAMETERS)}

    def _query(self, command: str) -> list[tuple[str | None, ...]]:
        """Run a command that answers with rows. Raises RequestRejected or PostgresUnavailable."""
        result = self._run(command, COMMAND_TIMEOUT_S)
        if result is None:
            raise PostgresUnavailable(
                f"PostgreSQL did not answer within {COMMAND_TIMEOUT_S:g} s", code="postgres-interrupted"
            )
        if result.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            raise self._error(result, _command_refused)
        return _rows(result)

    def _run(
        self, command: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> pq.abc.PGresult | None:
        """Send one command and return its last result, or None if none came in time."""
        deadline = time.monotonic() + timeout_s
        try:
            self._pg.send_query(command.encode())
            self._unsent = True
            return self._result(deadline, meanwhile)
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(
                f"the connection to PostgreSQL ended: {str(error).strip()}", code="postgres-interrupted"
            ) from error

    def _result(self, deadline: float, meanwhile: Callable[[], None] | None = None) -> pq.abc.PGresult | None:
        last = None
        while True:
            while self._unsent or self._pg.is_busy():
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return None
                self._flush()
                if meanwhile is None:
                    self._await(left_s)
                elif not self._await(min(left_s, MEANWHILE_S)):
                    meanwhile()
                self._pg.consume_input()
            result = self._pg.get_result()
            if result is None:
                return last
            last = result
            if result.status == pq.ExecStatus.COPY_BOTH:
                return last

    def _cancel(self, timeout_s: float = CANCEL_TIMEOUT_S) -> None:
        """Cancel the running command and read its results. Close the connection if that fails."""
        try:
            self._conn.cancel_safe(timeout=timeout_s)
            if self._result(time.monotonic() + timeout_s) is not None:
                return
        except psycopg.Error:
            pass
        self.close()

    def _flush(self) -> None:
        """Send as much of libpq's output buffer as the socket takes. libpq reads meanwhile, so neither side blocks."""
        self._unsent = self._pg.flush() != 0

    def _await(self, timeout_s: float, wake: Sequence[int] = (), *, reading: bool = True) -> list[int]:
        """Poll the socket (for input only if `reading`) and the descriptors `wake`; return the readable ones."""
        poll = self._poll
        events_wanted = (select.POLLIN if reading else 0) | (select.POLLOUT if self._unsent else 0)
        if events_wanted:
            poll.register(self._socket, events_wanted)
        for fd in wake:
            poll.register(fd, select.POLLIN)
        try:
            limit_s = min(timeout_s, TLS_WAIT_S) if self._tls and reading else timeout_s
            ready = poll.poll(max(0.0, limit_s) * 1_000)
        finally:
            if events_wanted:
                poll.unregister(self._socket)
            for fd in wake:
                poll.unregister(fd)
        return [fd for fd, events in ready if fd != self._socket or events & ~select.POLLOUT]


def _command_refused(sqlstate: str, text: str) -> CdcdError:
    if server_errors.is_passing(sqlstate):
        return server_errors.unavailable(sqlstate, f"PostgreSQL could not answer: {text.strip()}")
    return RequestRejected(f"PostgreSQL refused a command: {text.strip()} ({sqlstate})", code="statement-refused")


def _rows(result: pq.abc.PGresult) -> list[tuple[str | None, ...]]:
    return [
        tuple(
            None if (value := result.get_value(row, column)) is None else value.decode()
            for column in range(result.nfields)
        )
        for row in range(result.ntuples)
    ]


def error_of(result: pq.abc.PGresult) -> tuple[str, str]:
    """A result's SQLSTATE (empty if it has none) and its message."""
    sqlstate = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
    text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message
    return sqlstate.decode(), text.decode(errors="replace")
