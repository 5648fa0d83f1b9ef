"""The replication connection and its commands: who the server is, a new slot, what a slot's refusal means. Thin I/O.

Before: a PostgreSQL server, 14 to 18. After: `replication_stream` streams over the same connection.
Source: PostgreSQL, "Streaming Replication Protocol", and libpq, "Asynchronous Command Processing".

Nothing here holds up other threads: commands are sent and waited for as libpq's asynchronous calls have it, and Python
sleeps in poll meanwhile.
"""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import psycopg
from psycopg import pq, sql

from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected
from cdcd.lsn import parse_lsn
from cdcd.source import server_errors
from cdcd.source.server_errors import SlotFacts, SlotWaits
from cdcd.source.session import parameters

COMMAND_TIMEOUT_S: Final = 60.0
"""How long a command other than CREATE_REPLICATION_SLOT may take before the server counts as lost."""

INPUT_BUFFER_BYTES: Final = 1 << 20
"""libpq reads at most what its input buffer has room for, 16 KB at first; see `Connection.grow_input`."""

MEANWHILE_S: Final = 0.05
"""How often `create_slot` calls who has something to do while it waits."""

TLS_WAIT_S: Final = 0.1
"""With TLS, bytes may lie decrypted where poll does not see them: look again after this time."""


@dataclass(frozen=True)
class SystemIdentity:
    """What IDENTIFY_SYSTEM tells. `wal_lsn`: where the server's WAL has been flushed to."""

    system_id: str
    timeline: int
    wal_lsn: int
    dbname: str


@dataclass(frozen=True)
class CreatedSlot:
    """A slot just made: it streams from `consistent_lsn`, and the exported `snapshot` shows the tables as of there."""

    name: str
    consistent_lsn: int
    snapshot: str | None
    plugin: str


class Connection:
    """A replication connection to one database. Not safe for several threads: its thread owns it.

    Every method raises PostgresUnavailable when the connection has ended, for whatever reason; what else, is said
    there.
    """

    def __init__(self, dsn: str, application_name: str = "cdcd") -> None:
        """Connect. `dsn`: a libpq connection string or URI, several hosts allowed.

        Raises RequestRejected if the server does not let this role replicate, PostgresUnavailable if it is not there.
        """
        self._unsent = False
        self._poll = select.poll()
        self._conn = _connect(dsn, application_name)
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
        """The encoding of the database: SQL_ASCII means that text comes as the bytes it is, not as UTF-8."""
        return (self._pg.parameter_status(b"server_encoding") or b"").decode()

    @property
    def local(self) -> bool:
        """Whether it is a Unix socket: it holds some 150 messages only, so that pauses stop the server."""
        return self._pg.host.startswith((b"/", b"@"))

    @property
    def standby(self) -> bool:
        """Whether the server was a standby when we connected to it."""
        return self._pg.parameter_status(b"in_hot_standby") == b"on"

    @property
    def backend_pid(self) -> int:
        """The process id of the walsender at the server."""
        return self._pg.backend_pid

    def identify(self) -> SystemIdentity:
        """Ask who the server is and how far its WAL reaches."""
        [(system_id, timeline, wal_lsn, dbname)] = self._query("IDENTIFY_SYSTEM")
        return SystemIdentity(system_id or "", int(timeline or 0), parse_lsn(wal_lsn or ""), dbname or "")

    def timeline_history(self, timeline: int) -> str:
        """The history file of the server's timeline; empty for the first, which has none."""
        if timeline < 2:
            return ""
        [(_, content)] = self._query(f"TIMELINE_HISTORY {timeline:d}")
        return content or ""

    def create_slot(
        self,
        slot: str,
        *,
        plugin: str = "pgoutput",
        export_snapshot: bool = False,
        two_phase: bool = False,
        failover: bool = False,
        temporary: bool = False,
        timeout_s: float = 300.0,
        blockers: Callable[[], Sequence[str]] = tuple,
        meanwhile: Callable[[], None] | None = None,
    ) -> CreatedSlot:
        """Make a logical slot; with `export_snapshot`, its snapshot lives until this connection's next command.

        The server waits for every transaction that was writing when it was asked, in any database. After `timeout_s`
        seconds the request is cancelled, no slot stays behind, and SlotWaits names what `blockers()` describes.
        `meanwhile` is called every now and then while the server lets us wait.
        Raises RequestRejected if the server would refuse it again.
        """
        version = self.server_version // 10_000
        if two_phase and version < 15:
            raise RequestRejected(f"two-phase decoding needs PostgreSQL 15, this is {version}", "Set two_phase = false")
        if failover and version < 17:
            raise RequestRejected(f"failover slots need PostgreSQL 17, this is {version}", "Set failover = false")
        lifetime = " TEMPORARY" if temporary else ""
        command = f"CREATE_REPLICATION_SLOT {identifier(slot)}{lifetime} LOGICAL {identifier(plugin)}"
        if version < 15:
            command += " EXPORT_SNAPSHOT" if export_snapshot else " NOEXPORT_SNAPSHOT"
        else:
            asked = [f"SNAPSHOT '{'export' if export_snapshot else 'nothing'}'"]
            asked += ["TWO_PHASE"] if two_phase else []
            asked += ["FAILOVER"] if failover else []
            command += f" ({', '.join(asked)})"
        result = self._run(command, timeout_s, meanwhile)
        if result is None:
            held_by = tuple(blockers())
            self._cancel()
            raise SlotWaits(slot, timeout_s, held_by, standby=self.standby)
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise self._named(result, lambda sqlstate, text: server_errors.slot_refused(sqlstate, text, slot))
        [(name, consistent, snapshot, used)] = _rows(result)
        return CreatedSlot(name or "", parse_lsn(consistent or ""), snapshot, used or "")

    def grow_input(self, size_bytes: int = INPUT_BUFFER_BYTES) -> None:
        """Make libpq's input buffer at least `size_bytes` large, by receiving one value of that size.

        There is no call for it, but libpq never shrinks the buffer that a large row has made, and reads as much at once
        as it has room for. What that saves, `tests/bench/read_rate.py` shows. Before the stream only.
        """
        self._query(f"SELECT pg_catalog.repeat('x', {size_bytes:d})")

    def fileno(self) -> int:
        """The socket, for a select of the caller's own."""
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

    def _ready(self) -> None:
        """Set what depends on the server, and so cannot be asked for while connecting."""
        if self._pg.parameter_status(b"server_encoding") == b"SQL_ASCII":
            # Such a database holds bytes of any encoding: asked to convert them, the server ends the stream for good
            # at the first one that is no UTF-8.
            self._query("SET client_encoding TO 'SQL_ASCII'")
        if self.server_version >= 170_000:
            # The role's own is for people; it would bound how long the decoding of one transaction may take.
            self._query("SET transaction_timeout TO 0")

    def _named(self, result: pq.abc.PGresult, name: Callable[[str, str], CdcdError]) -> CdcdError:
        sqlstate, text = error_of(result)
        if self._pg.status == pq.ConnStatus.BAD:
            return PostgresUnavailable(f"the connection to PostgreSQL ended: {text.strip() or 'no reason was given'}")
        return name(sqlstate, text)

    def _facts(self, slot: str, sqlstate: str) -> SlotFacts | None:
        """What the server knows of a slot that it will not stream from, where the SQLSTATE has many meanings."""
        if sqlstate != "55000":
            return None
        rows = self._query(_SLOT_FACTS.format(sql.Literal(slot)).as_string(self._conn))
        if not rows:
            return None
        database, current_database, wal_status, wal_level = (value or "" for value in rows[0])
        return SlotFacts(database, current_database, wal_status, wal_level)

    def _query(self, command: str) -> list[tuple[str | None, ...]]:
        """Run a command that answers with rows; raises RequestRejected or PostgresUnavailable."""
        result = self._run(command, COMMAND_TIMEOUT_S)
        if result is None:
            raise PostgresUnavailable(f"PostgreSQL did not answer within {COMMAND_TIMEOUT_S:g} s")
        if result.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            raise self._named(
                result,
                lambda sqlstate, text: RequestRejected(f"PostgreSQL refused a command: {text.strip()} ({sqlstate})"),
            )
        return _rows(result)

    def _run(
        self, command: str, timeout_s: float, meanwhile: Callable[[], None] | None = None
    ) -> pq.abc.PGresult | None:
        """Send one command and return its last result, or None if none came in time. Does not hold up other threads."""
        deadline = time.monotonic() + timeout_s
        try:
            self._pg.send_query(command.encode())
            self._unsent = True
            return self._result(deadline, meanwhile)
        except psycopg.OperationalError as error:
            raise PostgresUnavailable(f"the connection to PostgreSQL ended: {str(error).strip()}") from error

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

    def _cancel(self) -> None:
        """End the command under way and take its results; the connection is closed if even that fails."""
        try:
            self._conn.cancel_safe(timeout=5)
            if self._result(time.monotonic() + 5) is not None:
                return
        except psycopg.Error:
            pass
        self.close()

    def _flush(self) -> None:
        """Hand what libpq holds to the socket as far as it takes it; libpq reads meanwhile, so neither side blocks."""
        self._unsent = self._pg.flush() != 0

    def _await(self, timeout_s: float, wake: Sequence[int] = (), *, reading: bool = True) -> list[int]:
        """Poll the socket, for what comes only if `reading`, and the descriptors `wake`; returns which are readable."""
        poll = self._poll
        ours = (select.POLLIN if reading else 0) | (select.POLLOUT if self._unsent else 0)
        if ours:
            poll.register(self._socket, ours)
        for fd in wake:
            poll.register(fd, select.POLLIN)
        try:
            limit_s = min(timeout_s, TLS_WAIT_S) if self._tls and reading else timeout_s
            ready = poll.poll(max(0.0, limit_s) * 1_000)
        finally:
            if ours:
                poll.unregister(self._socket)
            for fd in wake:
                poll.unregister(fd)
        return [fd for fd, events in ready if fd != self._socket or events & ~select.POLLOUT]


_SLOT_FACTS: Final = sql.SQL(
    "SELECT database, pg_catalog.current_database(), wal_status, pg_catalog.current_setting('wal_level') "
    "FROM pg_catalog.pg_replication_slots WHERE slot_name = {}"
)


def _connect(dsn: str, application_name: str) -> psycopg.Connection[Any]:
    params = parameters(dsn, application_name)
    try:
        return psycopg.connect(**params, replication="database", autocommit=True)
    except psycopg.Error as error:
        raise server_errors.connection_refused(str(error), str(params.get("user", ""))) from error


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


# The replication commands have a grammar of their own (repl_scanner.l): identifiers and strings as in SQL, but none of
# the E'...' strings that psycopg's Literal writes where there is a backslash, which is an ordinary character there.


def identifier(name: str) -> str:
    """`name` in double quotes. Raises RequestRejected for a zero byte."""
    return '"' + _whole(name).replace('"', '""') + '"'


def literal(value: str) -> str:
    """`value` in single quotes. Raises RequestRejected for a zero byte."""
    return "'" + _whole(value).replace("'", "''") + "'"


def _whole(text: str) -> str:
    if re.search(r"\x00", text):
        raise RequestRejected("a name or option for PostgreSQL holds a zero byte", "Remove it")
    return text
