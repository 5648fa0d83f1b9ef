"""Ordinary connections to the server: their parameters, and `Session`, a connection that opens on first use.

Before: `login` has the DSN, and what makes the password.
After: `slot`, `publication` and `catalog` ask through a `Session`. `connection` and the snapshot's workers connect with
the same pinned settings, so a value has the same text form on every connection.
Source: PostgreSQL, "Client Connection Defaults"; libpqwalreceiver.c, which sets the same parameters.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from typing import Any, Final, LiteralString, Self, TypeAlias

import psycopg
from psycopg import conninfo, pq, sql

from cdcd.error_codes import Code
from cdcd.errors import CdcdError, PostgresUnavailable, RequestRejected, SettingsError
from cdcd.source import server_errors, tls_files
from cdcd.source.login import Dsn, Login, logged_in

Query: TypeAlias = LiteralString | sql.SQL | sql.Composed

VERSION_MIN: Final = 140_000
"""The oldest server that cdcd works with, as `PQserverVersion` has it."""

PINNED: Final[tuple[tuple[str, str], ...]] = (
    ("DateStyle", "ISO,MDY"),
    ("IntervalStyle", "postgres"),
    ("bytea_output", "hex"),
    ("extra_float_digits", "1"),  # the shortest text that reads back exactly; all values above 0 mean the same
    ("TimeZone", "UTC"),
    ("search_path", ""),  # makes the text of regclass qualified, and keeps other schemas' functions out
    ("quote_all_identifiers", "off"),  # it changes the text of regclass and of a row filter
    ("standard_conforming_strings", "on"),
    (
        "synchronous_commit",
        "local",
    ),  # if cdcd is the synchronous standby, CREATE PUBLICATION would wait for cdcd itself
    ("client_min_messages", "warning"),  # PostgreSQL 18 reports a missing publication by a warning only
    ("row_security", "off"),  # rows that a policy hides are then an error; they do not just lack
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),  # CREATE_REPLICATION_SLOT waits for transactions, and counts this as a lock
    ("idle_in_transaction_session_timeout", "0"),
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("exit_on_error", "off"),  # the server would end the session at its first error
    ("local_preload_libraries", ""),  # a library that is not there ends every login
)
"""Parameters that every connection sets at its login, because ALTER ROLE, ALTER DATABASE or the server's file may have
changed them. PostgreSQL 13 knows all of them: a server that is too old lets the session in, and tells its version."""

_PINNED_SINCE: Final[tuple[tuple[str, int], ...]] = (
    ("idle_session_timeout", 140_000),  # it would end the session, and release its advisory lock
    ("transaction_timeout", 170_000),  # on a walsender it bounds the time to decode one transaction
)
"""Timeouts to turn off that not every server knows, each with the first version that does: set after the login."""

RAISED: Final = "P0001"
"""raise_exception: the statement itself raised the error, with its own hint."""

TRIES: Final = 10
"""Tries of a statement, if other sessions drop tables meanwhile."""

_PINNED_BEFORE_DSN: Final = "-c role=none"
"""ALTER ROLE may have set another role, which need not have REPLICATION. The DSN itself may still choose one."""

_KEEPALIVES: Final = {
    "keepalives": 1,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # ms; TCP sends no keepalives while data is unacknowledged
}


def parameters(login: Dsn, application_name: str) -> dict[str, Any]:
    """The parameters of a connection: those of the DSN, TCP keepalives unless the DSN sets them, and PINNED.

    libpq tries the hosts of a DSN in turn. `password` may be a PasswordMaker, for `log_in`. Raises SettingsError if
    the DSN cannot be read.
    """
    dsn, maker = (login.dsn, login.maker) if isinstance(login, Login) else (login, None)
    try:
        params: dict[str, Any] = {**_KEEPALIVES, "connect_timeout": 10, **conninfo.conninfo_to_dict(dsn)}
    except psycopg.ProgrammingError as error:
        # libpq's message may repeat the DSN, and so a password. `from None` keeps it out of the traceback, too.
        why = _why(str(error), dsn)
        raise SettingsError(
            f"source.dsn cannot be read{why}",
            _meant(why) or "Write it as postgresql://user@host:5432/dbname",
            code="dsn-invalid",
        ) from None
    params.pop("replication", None)  # some programs have it in their DSN; here each connection knows whether it is one
    params.setdefault("application_name", application_name)
    own = params.get("options") or os.environ.get("PGOPTIONS", "")
    pinned = " ".join(option(name, value) for name, value in PINNED)
    params["options"] = f"{_PINNED_BEFORE_DSN} {own} {pinned}" if own else f"{_PINNED_BEFORE_DSN} {pinned}"
    params["client_encoding"] = "UTF8"
    if maker is not None:
        params["password"] = maker
    for name in ("PGDATESTYLE", "PGTZ"):  # libpq sends these, too, and they override the options
        os.environ.pop(name, None)
    return params


def version_text(server_version: int) -> str:
    """`PostgreSQL 18.6`, of the number 180006."""
    return f"PostgreSQL {server_version // 10_000}.{server_version % 10_000}"


def log_in(params: Mapping[str, Any], **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect with `parameters`, in autocommit. The caller then runs `pinning_statement`; `connect` does so itself.

    Raises RequestRejected or SettingsError for a refusal that lasts, and PostgresUnavailable.
    """
    connection = logged_in(params, lambda complete: _connected({**complete, **more}))
    version = connection.info.server_version
    if version < VERSION_MIN:
        connection.close()
        raise RequestRejected(
            f"the server is {version_text(version)}, and cdcd needs {VERSION_MIN // 10_000} or later",
            "Upgrade the server, or correct source.dsn",
            code="server-too-old",
        )
    return connection


def _connected(params: Mapping[str, Any]) -> psycopg.Connection[tuple[Any, ...]]:
    try:
        return psycopg.connect(**params, autocommit=True, prepare_threshold=None)
    except psycopg.Error as error:
        refused = server_errors.connection_refused(str(error), str(params.get("user") or ""))
        raise tls_files.dating(refused, params) from error


def connect(params: Mapping[str, Any]) -> psycopg.Connection[tuple[Any, ...]]:
    """Connect with `parameters`, and set what can only be set after the login. Raises as `log_in` does."""
    connection = log_in(params)
    try:
        statement = pinning_statement(connection.info.server_version)
        check_pinned(connection.execute(statement.encode()).fetchall())
    except psycopg.Error as error:
        connection.close()
        raise statement_error(error) from error
    except CdcdError:
        connection.close()
        raise
    return connection


WAL_SENDER_TIMEOUT_MS_MIN: Final = 1_000
"""With a shorter one the server would end a stream before any client could answer."""

_FLOOR: Final = f"""
    (SELECT pg_catalog.set_config(name, '{WAL_SENDER_TIMEOUT_MS_MIN}', false) FROM pg_catalog.pg_settings
     WHERE name = 'wal_sender_timeout' AND setting::bigint BETWEEN 1 AND {WAL_SENDER_TIMEOUT_MS_MIN - 1})
"""  # noqa: S608 - constants
_SEARCH_PATH: Final = "pg_catalog.current_setting('search_path')"


def pinning_statement(server_version: int) -> str:
    """SQL that turns off the timeouts that this server knows, or makes them long; its result is for `check_pinned`."""
    parts = [f"pg_catalog.set_config('{name}', '0', false)" for name in _timeouts(server_version)]
    return f"SELECT {', '.join([_SEARCH_PATH, *parts, _FLOOR])}"


def pinning_commands(server_version: int) -> str:
    """The same as commands, for a client that cannot take a result."""
    return "; ".join(f"SET {name} = 0" for name in _timeouts(server_version))


def _timeouts(server_version: int) -> list[str]:
    return [name for name, since in _PINNED_SINCE if server_version >= since]


def check_pinned(rows: Sequence[Sequence[Any]]) -> None:
    """Raise RequestRejected if the parameters of the login did not reach the server. `rows`: of `pinning_statement`."""
    if rows[0][0]:
        raise server_errors.pooler_between("the parameters of the login did not reach PostgreSQL")


def option(name: str, value: str) -> str:
    """A parameter as a word of the connection parameter `options`."""
    escaped = re.sub(r"([ \\])", r"\\\1", value)
    return f"-c {name}={escaped}"


_WORDS: Final = re.compile(r'([a-zA-Z][^"]*(?:"="[^"]*)?)"(\w+)"([^"]*)')
"""libpq's message about one word of the DSN. If a character is missing, the message quotes that, too: `"="`."""


def _why(message: str, dsn: str) -> str:
    """The text of libpq's message about a DSN; empty if a word in it could be part of a password."""
    match = _WORDS.fullmatch(message.strip())
    if match is None:
        return "" if '"' in message else f": {message.strip()}"
    _, word, _ = match.groups()
    # libpq ends a password at a space or a #, for example, and reads the rest of it as another parameter.
    before, _, _ = dsn.rpartition(word)
    _, _, after = dsn.partition(word)
    return "" if "passw" in before.lower() or "@" in after else f": {message.strip()}"


_UNKNOWN: Final = re.compile(r'invalid (?:connection option|URI query parameter:) "(\w+)"')


def _meant(why: str) -> str:
    """The hint for a parameter that libpq does not know; empty if no other has a similar name."""
    unknown = _UNKNOWN.search(why)
    known = [option.keyword.decode() for option in pq.Conninfo.get_defaults()]
    nearest = get_close_matches(unknown[1].lower(), known, n=1) if unknown else []
    return f"Did you mean {nearest[0]}?" if nearest else ""


def dsn_parameters(dsn: str) -> dict[str, str]:
    """The parameters in a DSN, by name. Empty if it cannot be read: the connection attempt then raises the error."""
    try:
        return {name: str(value) for name, value in conninfo.conninfo_to_dict(dsn).items() if value is not None}
    except psycopg.ProgrammingError:
        return {}


def dsns_by_setting(dsn: str, primary_dsn: str | None) -> dict[str, dict[str, str]]:
    """The parameters of the DSNs that are set, by the setting."""
    named = {"source.dsn": dsn, **({"source.primary_dsn": primary_dsn} if primary_dsn else {})}
    return {setting: dsn_parameters(text) for setting, text in named.items()}


_NAME_HINT: Final = (
    "A table, a column or a type has a name without an equivalent in UTF-8: rename it. To find it, run: "
    "SET client_encoding TO 'SQL_ASCII'; SELECT oid, relname FROM pg_class WHERE relname ~ '[^ -~]'; "
    "and so on with pg_attribute and pg_type"
)
"""The daemon converts no text but that of the catalog by a statement: see `server_errors.UNCONVERTIBLE`."""


class StatementRejected(RequestRejected):
    """PostgreSQL refused a statement. The caller may know a hint for the SQLSTATE."""

    def __init__(self, message: str, sqlstate: str, hint: str = "", code: Code = "statement-refused") -> None:
        """`sqlstate`: five characters, as in PostgreSQL's appendix of error codes."""
        super().__init__(message, hint, code=code)
        self.sqlstate = sqlstate


class Locked(PostgresUnavailable):
    """Another transaction holds a lock for longer than `lock_timeout` allows. It passes: try again."""


class Session:
    """A connection for queries. It opens at the first query, and again after it was lost. Safe for several threads.

    Every statement is its own transaction. Raises PostgresUnavailable if the server is gone or cannot be reached, else
    RequestRejected.
    """

    def __init__(self, dsn: Dsn, application_name: str = "cdcd") -> None:
        """Does not connect yet. `dsn`: a libpq connection string or URI, or a Login."""
        self._parameters = parameters(dsn, application_name)
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None
        self._lock = threading.Lock()

    def rows(
        self, query: Query, values: Sequence[Any] | None = None, *, prepare: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run one statement, with `values` for its placeholders (%s), and return its rows; empty if it returns none.

        `prepare`: it comes for each of many tables, and the server plans it once.
        """
        with self._lock:
            connection = self._open()
            try:
                return _execute(connection, query, values, prepare=prepare)
            except psycopg.Error as error:
                if connection.closed or connection.broken:
                    self._drop()
                    said = f"the connection to PostgreSQL ended: {_message(error)}"
                    raise server_errors.unavailable(error.sqlstate or "", said) from error
                raise statement_error(error) from error

    @contextmanager
    def lock_timeout(self, seconds: float) -> Iterator[None]:
        """Inside this context a statement that waits longer than `seconds` for a lock raises Locked.

        Without it, two sides could wait for each other: if the daemon is the synchronous standby, a TRUNCATE holds its
        lock until Kafka has its event.
        """
        self.rows("SELECT pg_catalog.set_config('lock_timeout', %s, false)", [f"{round(seconds * 1_000)}ms"])
        try:
            yield
        finally:
            with suppress(PostgresUnavailable):
                self.rows("RESET lock_timeout")

    @property
    def server_version(self) -> int:
        """The server's version as `PQserverVersion` has it: 180006 is 18.6."""
        with self._lock:
            return self._open().info.server_version

    @property
    def encoding(self) -> str:
        """The encoding of the database, in PostgreSQL's words: UTF8, LATIN1, SQL_ASCII ..."""
        with self._lock:
            return self._open().info.parameter_status("server_encoding") or ""

    def sockets(self) -> list[int]:
        """The socket, for a poll between two queries; empty if there is no connection."""
        with self._lock:
            connection = self._connection
            return [] if connection is None or connection.closed else [connection.fileno()]

    def ended(self, readable: Sequence[int]) -> bool:
        """If the socket is among `readable`, read the server's notices; return whether the connection has ended.

        At a shutdown the server first ends its sessions. It ends a walsender only after the client has confirmed all
        WAL. So the end of a session announces a shutdown.
        """
        with self._lock:
            connection = self._connection
            if connection is None or connection.closed or connection.fileno() not in readable:
                return False
            try:
                connection.pgconn.consume_input()
                return False
            except psycopg.OperationalError:
                self._drop()
                return True

    def close(self) -> None:
        """End the connection; the next query opens a new one."""
        with self._lock:
            self._drop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is not None and self._connection.closed:
            self._drop()
        if self._connection is None:
            self._connection = connect(self._parameters)
        return self._connection

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error):
                connection.close()


def _execute(
    connection: psycopg.Connection[tuple[Any, ...]],
    query: Query,
    values: Sequence[Any] | None,
    *,
    prepare: bool = False,
) -> list[tuple[Any, ...]]:
    """Run one statement. If other sessions drop tables that it looks at, run it again: it has changed nothing."""
    for left in reversed(range(TRIES)):
        try:
            cursor = connection.execute(query, values, prepare=prepare)
            return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            if not (left and server_errors.dropped_meanwhile(error.sqlstate or "", _message(error))):
                raise
    raise AssertionError("the last try returns or raises")


class SessionClient:
    """Base of classes that query the server through a session, which may be shared."""

    def __init__(self, source: Dsn | Session) -> None:
        """`source`: a DSN, a Login or a session."""
        self.session = source if isinstance(source, Session) else Session(source)

    def close(self) -> None:
        """End the session's connection; the next query opens a new one."""
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def statement_error(error: psycopg.Error) -> CdcdError:
    """Translate an SQL error: PostgresUnavailable if it passes by itself, else StatementRejected."""
    sqlstate = error.sqlstate or ""
    message = _message(error)
    if sqlstate == server_errors.LOCK_NOT_AVAILABLE:
        return Locked(
            f"PostgreSQL could not get a lock in time: {message}",
            "It is free when its holder has ended",
            code="table-locked",
        )
    if sqlstate == "XX000" and server_errors.dropped_meanwhile(sqlstate, message):
        return PostgresUnavailable(
            f"PostgreSQL could not answer, because other sessions drop tables: {message}", code="postgres-interrupted"
        )
    if server_errors.is_passing(sqlstate) and (sqlstate or isinstance(error, psycopg.OperationalError)):
        return server_errors.unavailable(sqlstate, f"PostgreSQL could not answer: {message}")
    refused = f"PostgreSQL refused a statement: {message} ({sqlstate})"
    if sqlstate in server_errors.UNCONVERTIBLE:
        return StatementRejected(refused, sqlstate, _NAME_HINT, "name-unconvertible")
    if sqlstate == RAISED:
        return StatementRejected(refused, sqlstate, error.diag.message_hint or "")
    return StatementRejected(refused, sqlstate)


def _message(error: psycopg.Error) -> str:
    return error.diag.message_primary or str(error).strip().split("\n", 1)[0]
