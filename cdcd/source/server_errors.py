"""Translates PostgreSQL's errors: the class of the result says the remedy, the hint says what to do. Pure.

Before: `connection`, `replication_stream` and `session` pass on the server's SQLSTATE and message.
After: the supervisor acts on the class, a person on the hint.
Source: PostgreSQL, "PostgreSQL Error Codes"; walsender.c, slot.c, logical.c and pgoutput.c of 14 to 18.

The SQLSTATE, the command that failed, and facts from the server decide, in this order. Servers translate the text, so
it decides only where there is nothing else: libpq gives no SQLSTATE for a connection that fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.error_codes import Code
from cdcd.errors import (
    AccessDenied,
    CdcdError,
    FatalError,
    GapError,
    PostgresUnavailable,
    RequestRejected,
    RetriableError,
    SettingsError,
    StreamingUnsupported,
    TextUnconvertible,
)
from cdcd.lsn import format_lsn
from cdcd.source.identifiers import identifier, literal

LOST_CHANGES_HINT: Final = (
    'With source.on_slot_lost = "repair" cdcd makes the slot again and publishes what differs; with "resnapshot" it '
    "takes a new snapshot of all tables. Take the setting back once cdcd verify finds no difference"
)
"""What a person can do if a slot lacks changes that Kafka lacks, too, however that came about."""
_FEEDBACK: Final = "ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf()"
_FEEDBACK_HINT: Final = f"To prevent it, run on the standby: {_FEEDBACK}; and give it a primary_slot_name"
_ROWS_REMOVED: Final = "the primary removed rows of its catalog that the slot still needed (VACUUM)"
_INVALIDATIONS: Final = {
    "wal_removed": (
        "has lost WAL that it still needed",
        "But first raise max_slot_wal_keep_size",
    ),
    "rows_removed": (f"was invalidated, because {_ROWS_REMOVED}", _FEEDBACK_HINT),
    "wal_level_insufficient": (
        "was invalidated, because the primary no longer writes what logical decoding needs",
        "First run on the primary: ALTER SYSTEM SET wal_level = logical; then restart it",
    ),
    "idle_timeout": (
        "was invalidated, because no client used it for longer than idle_replication_slot_timeout",
        "To prevent it, run: ALTER SYSTEM SET idle_replication_slot_timeout = 0; SELECT pg_reload_conf()",
    ),
    # PostgreSQL 16 does not tell the two apart.
    "conflict": (
        f"was invalidated, because {_ROWS_REMOVED}, or lowered its wal_level",
        f"{_FEEDBACK_HINT}. On the primary, wal_level must be logical",
    ),
}
"""By the reason in `pg_replication_slots`: what happened to the slot, and a hint beside that for every lost slot."""

RECOVERY_CONFLICT_HINT: Final = (
    f"The standby ended it, to go on with its recovery. Run there: {_FEEDBACK}. If this stays, raise "
    "max_standby_streaming_delay there"
)
INSUFFICIENT_PRIVILEGE: Final = "42501"
LOCK_NOT_AVAILABLE: Final = "55P03"
"""The SQLSTATE of a lock that was not free in time."""


def is_passing(sqlstate: str) -> bool:
    """Whether what an SQLSTATE says passes by itself, so that another try may succeed.

    Class 08: the connection; 40: a standby cancels statements that conflict with its recovery; 53: resources; 57: an
    operator. A lock is free when its holder has ended. A lost connection has no SQLSTATE.
    """
    return sqlstate == "" or sqlstate[:2] in {"08", "40", "53", "57"} or sqlstate == LOCK_NOT_AVAILABLE


def unavailable(sqlstate: str, message: str) -> PostgresUnavailable:
    """The error of what passes by itself. A primary gives these two SQLSTATEs to nothing that cdcd runs."""
    if sqlstate in {"40001", "40P01"}:
        return PostgresUnavailable(message, RECOVERY_CONFLICT_HINT, code="recovery-conflict")
    return PostgresUnavailable(message, code="postgres-interrupted")


def lost_slot(reason: str) -> tuple[str, str]:
    """What happened to a slot that can never stream again, as the rest of a sentence; and the hint.

    `reason`: `SlotState.invalidation`; empty if the server does not tell it.
    """
    what, hint = _INVALIDATIONS.get(reason or "wal_removed", (f"was invalidated: {reason}", "See the server's log"))
    return what, f"Changes are lost. {LOST_CHANGES_HINT}. {hint}"


_GONE: Final = re.compile(r"could not open relation with OID|cache lookup failed for ")
"""PostgreSQL does not translate its internal errors."""


def dropped_meanwhile(sqlstate: str, message: str) -> bool:
    """Whether a question to the catalog failed because another session dropped a table while it ran.

    `pg_publication_tables` lists the tables, and then opens each one (PostgreSQL 16). Ask again.
    """
    return sqlstate == "42P01" or (sqlstate == "XX000" and _GONE.search(message) is not None)


class SlotActive(PostgresUnavailable):
    """Another connection streams from this slot: wait until the slot is free, as a second daemon does."""

    def __init__(self, slot: str, pid: int | None, application_name: str = "", *, is_foreign: bool = False) -> None:
        """`pid`: the server process that has the slot; None if the server did not say. `application_name`: its name.

        `is_foreign`: it does not have the name that this process has, so it is hardly another daemon.
        """
        by = f"PostgreSQL's process {pid}" if pid is not None else "another connection"
        named = f' with the application_name "{application_name}"' if application_name or is_foreign else ""
        super().__init__(
            f'the slot "{slot}" is in use by {by}{named}',
            "It is free when that connection ends. "
            + (
                f"If it should not be in use, end it: SELECT pg_terminate_backend({pid}); or set another source.slot"
                if pid is not None
                else "If it should not be in use, see pg_stat_replication"
            ),
            code="slot-active",
        )
        self.slot = slot
        self.pid = pid
        self.application_name = application_name
        self.is_foreign = is_foreign


class NoSlotFree(RequestRejected):
    """All replication slots of the server are in use. One may become free."""


_WRITERS_FIRST: Final = (
    "The write transactions that were open at the request must end first, prepared ones, too. To see them: "
    "SELECT pid, virtualtransaction FROM pg_locks WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' "
    "AND granted; SELECT gid FROM pg_prepared_xacts"
)
_ON_PRIMARY: Final = (
    "This is a standby. While it waits, run on its primary: SELECT pg_log_standby_snapshot(). And look there: "
)


class SnapshotGone(RetriableError):
    """The snapshot cannot show a table, because another session altered the table or is altering it. Take a new one."""

    def __init__(self, message: str, hint: str = "", *, code: Code = "snapshot-gone") -> None:
        super().__init__(message, hint, code=code)


class SlotWaits(PostgresUnavailable):
    """CREATE_REPLICATION_SLOT did not reach its consistent point in time: older write transactions are still open."""

    def __init__(self, slot: str, waited_s: float, blockers: tuple[str, ...], *, standby: bool = False) -> None:
        """`blockers`: descriptions of the transactions that the server waits for; empty if not known.

        `standby`: the server is a standby. It waits for transactions of its primary, and does not know their sessions.
        """
        cause = f": it waits for {', '.join(blockers)}" if blockers else ""
        super().__init__(
            f'the slot "{slot}" found no consistent point in {waited_s:g} s{cause}',
            _ON_PRIMARY + _WRITERS_FIRST if standby else _WRITERS_FIRST,
            code="transaction-open-long",
        )
        self.blockers = blockers


@dataclass(frozen=True)
class SlotFacts:
    """Facts about a slot that the server refuses to stream from: what is wrong with it, or who uses it."""

    database: str = ""
    current_database: str = ""
    wal_status: str = ""
    """`pg_replication_slots.wal_status`: reserved, extended, unreserved or lost."""
    wal_level: str = ""
    active_pid: str = ""
    """The server process that uses it; empty if none does."""
    application_name: str = ""
    """The name of that process's client."""
    own_application_name: str = ""
    """The name of the connection that was refused."""
    invalidation: str = ""
    """Why the slot can never stream again, as `SlotState` has it; empty if it can, or if the server does not tell."""


# Messages of libpq about values that it does not take. They are English: psycopg's libpq has no translations.
_INVALID: Final = re.compile(
    r'invalid (?:"?\w+"? value|port number|integer value|SSL protocol)|"?\w+"? value "[^"]*" (?:is )?invalid'
    r"|could not match \d+ |weak sslmode|definition of service|service file"
)
_NOT_A_NUMBER: Final = re.compile(r'(invalid (?:port number:|integer value)) "(?!\d*")[^"]*"')
"""libpq reads a part of an unquoted password as the port. The message must not repeat it."""

LOGIN_HINT: Final = (
    "Check the user in source.dsn, and the password: in PGPASSWORD, ~/.pgpass or the file that PGPASSFILE names, a "
    "secrets file or source.dsn"
)

# Messages about a connection that would be refused again: pattern, meaning, hint, code. The server's are English
# unless its lc_messages says otherwise. In another language the daemon keeps trying, and logs the text.
_ACCESS: Final[tuple[tuple[str, str, str, Code], ...]] = (
    (
        r"password authentication failed|no password supplied|authentication failed for user",
        "PostgreSQL refused the login",
        LOGIN_HINT,
        "login-refused",
    ),
    (
        r"no pg_hba\.conf entry|pg_hba\.conf rejects",
        "PostgreSQL's pg_hba.conf does not let cdcd in",
        "Add a line for this user, database and address to pg_hba.conf and run: SELECT pg_reload_conf()",
        "hba-refused",
    ),
    (
        r"does not match host name",
        "the server's certificate is for another host name",
        "Name the server in source.dsn by a host name of its certificate; `hostaddr` may say its address besides",
        "server-certificate-unverified",
    ),
    (
        r"certificate verify failed|root certificate file",
        "the server's certificate cannot be verified",
        "Check sslmode and sslrootcert in source.dsn",
        "server-certificate-unverified",
    ),
    (
        r"valid client certificate|alert (certificate|bad certificate|unknown ca)",
        "the server does not accept the client's certificate",
        "Check sslcert and sslkey in source.dsn",
        "client-certificate-refused",
    ),
    (
        r"certificate file|private key file",
        "the client's certificate or key cannot be read",
        "Check sslcert and sslkey in source.dsn, and that the user of this process may read the files",
        "client-certificate-refused",
    ),
)
"""These may pass if the login has worked before: a password or a certificate is renewed in several places, one after
the other. libpq reads its files for each connection."""

_LOGIN: Final[tuple[tuple[str, str, str, Code], ...]] = (
    (
        r"permission denied to start WAL sender|must be superuser or replication role",
        "the role may not replicate",
        "Let a superuser run: ALTER ROLE {user} REPLICATION",
        "replication-denied",
    ),
    (
        r'role ".*" (does not exist|is not permitted to log in)',
        "the role cannot log in",
        "Check the user in source.dsn, or run the SQL of cdcd init: it makes the role",
        "login-refused",
    ),
    (r'database ".*" does not exist', "the database does not exist", "Check dbname in source.dsn", "database-missing"),
    (
        r'permission denied for database "(?P<database>.*)"',
        "the role may not connect to the database",
        "Let the database's owner run: GRANT CONNECT ON DATABASE {database} TO {user}",
        "connect-denied",
    ),
    (
        r'database "(?P<database>.*)" is not currently accepting connections',
        "the database lets nobody in",
        "Let a superuser run, in another database: ALTER DATABASE {database} ALLOW_CONNECTIONS true",
        "database-closed",
    ),
    (
        r'cannot connect to invalid database "(?P<database>.*)"',
        "a DROP DATABASE of this database did not end",
        "Let the owner drop it: DROP DATABASE {database}; or correct dbname in source.dsn",
        "database-closed",
    ),
    (
        r"(unrecognized configuration|invalid value for|permission denied to set) parameter|cannot be (changed|set) ",
        "PostgreSQL refuses a parameter of the login",
        "Correct `options` in source.dsn, or PGOPTIONS",
        "dsn-invalid",
    ),
    (
        r"does not support (SSL|GSSAPI)",
        "the server has no encryption of the kind that is asked for",
        "Turn it on at the server (ssl = on), or set another sslmode in source.dsn",
        "login-method-unfit",
    ),
    (
        r"authentication method requirement .* failed|channel binding (is )?required",
        "the server does not log cdcd in in the way that the settings require",
        "Correct require_auth or channel_binding in source.dsn; channel binding needs TLS and scram-sha-256",
        "login-method-unfit",
    ),
    (
        r"GSSAPI encryption required but",
        "there are no credentials for the encryption that is asked for",
        "Get a Kerberos ticket (kinit), or set another gssencmode in source.dsn",
        "login-method-unfit",
    ),
    (
        r"conversion between UTF8 and \w+ is not supported",
        "the database's text cannot be converted to UTF-8 at all",
        "PostgreSQL has no such conversion. Move the tables to a database in another encoding, such as UTF8",
        "database-unconvertible",
    ),
    (
        r"local user with ID \d+ does not exist",
        "source.dsn names no user, and the user of this process has no name",
        "Name the user in source.dsn",
        "dsn-invalid",
    ),
    (
        r"max_wal_senders\W.*\bcurrently 0\b",
        "the server allows no replication connection",
        "Run: ALTER SYSTEM SET max_wal_senders = 10; then restart the server",
        "walsenders-exhausted",
    ),
)
_POOLER: Final = "unsupported startup parameter"


def connection_refused(text: str, user: str) -> CdcdError:
    """The error of a connection that could not be made. `text`: psycopg's message; `user`: the role.

    A DSN may name several hosts. If one of them may let cdcd in later, the error is PostgresUnavailable.
    """
    by_host: dict[str, CdcdError] = {}
    for host, failure in _failures(text):
        error = _failure(failure, user)
        if isinstance(by_host.get(host), FatalError):  # another address of the host has refused
            continue
        by_host[host] = error
    return of_hosts([*by_host.values()])


def of_hosts(errors: Sequence[CdcdError]) -> CdcdError:
    """The error of a connection that could be made to none of several hosts, from the error of each, at least one."""
    *others, last = errors
    passing = [error for error in errors if not isinstance(error, FatalError)]
    if not passing or not others:
        return last
    return PostgresUnavailable("; ".join(error.message for error in errors), passing[-1].hint, code=passing[-1].code)


_ALL_FAILURES: Final = "Multiple connection attempts failed. All failures were:\n"
_HOST: Final = re.compile(r"^- host: (.*?), port: (.*?), hostaddr: (.*?): ", re.MULTILINE)


def _failures(text: str) -> list[tuple[str, str]]:
    """Host and message of each attempt. psycopg tries each address of each host, and lists what failed."""
    _, marker, listed = text.partition(_ALL_FAILURES)
    if not marker:
        return [("", text)]
    _, *parts = _HOST.split(listed)
    quads = zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=True)
    return [(f"{host if host != 'None' else address} {port}", failure) for host, port, address, failure in quads]


def _failure(text: str, user: str) -> CdcdError:
    message = _one_line(text)
    if _INVALID.search(text):
        shown = _NOT_A_NUMBER.sub(r"\1", message)
        return SettingsError(
            f"source.dsn has a value that libpq does not take: {shown}",
            "Correct it in source.dsn, or in the variable of the environment (PGSSLMODE, PGPORT ...). "
            "In a URI, write the special characters of a password as %xx",
            code="dsn-invalid",
        )
    if _POOLER in text:
        return pooler_between(message)
    for kind, causes in ((AccessDenied, _ACCESS), (RequestRejected, _LOGIN)):
        for pattern, meaning, hint, code in causes:
            if found := re.search(pattern, text):
                names = {"user": identifier(user) if user else "the role"}
                names |= {name: identifier(value) for name, value in found.groupdict().items()}
                return kind(f"{meaning}: {message}", hint.format(**names), code=code)
    if "max_wal_senders" in text:
        return PostgresUnavailable(
            f"PostgreSQL has no replication connection free: {message}",
            "Raise max_wal_senders, or end other replication connections",
            code="walsenders-exhausted",
        )
    if "pg_use_reserved_connections" in text:
        role = identifier(user) if user else "the role"
        return PostgresUnavailable(
            f"PostgreSQL has no connection free: {message}",
            f"Run: GRANT pg_use_reserved_connections TO {role}; or raise max_connections, or end other sessions",
            code="connections-exhausted",
        )
    if re.search(r"too many (clients|connections)|remaining connection slots|connection limit exceeded", text):
        return PostgresUnavailable(
            f"PostgreSQL has no connection free: {message}",
            "Raise max_connections, or the CONNECTION LIMIT of the role or the database; or end other sessions",
            code="connections-exhausted",
        )
    return PostgresUnavailable(
        f"PostgreSQL cannot be reached: {message}",
        "Check source.dsn, and that the server runs",
        code="postgres-unreachable",
    )


def pooler_between(message: str) -> RequestRejected:
    """The error of a connection that reaches a pooler, and not PostgreSQL itself."""
    return RequestRejected(
        f"source.dsn goes through a connection pooler, which cannot carry a replication stream: {message}",
        "Name PostgreSQL's own host and port in source.dsn",
        code="pooler-between",
    )


def slot_refused(sqlstate: str, text: str, slot: str, parameters: Mapping[str, str]) -> CdcdError:
    """The error of a CREATE_REPLICATION_SLOT that failed. `parameters`: the server's wal_level and so on, for 55000."""
    message = _one_line(text)
    match sqlstate:
        case "42710":
            return RequestRejected(f'the slot "{slot}" already exists', "cdcd slot status shows it", code="slot-exists")
        case "42602":
            return RequestRejected(
                f'"{slot}" is no name for a slot: {message}',
                "Use lower-case letters, digits and underscores, 63 at most, in source.slot",
                code="setting-invalid",
            )
        case "53400":
            return NoSlotFree(
                f'no replication slot is free for "{slot}": {message}',
                "Raise max_replication_slots (needs a restart), or drop a slot that is not in use: "
                "SELECT slot_name, active, restart_lsn FROM pg_replication_slots",
                code="slots-exhausted",
            )
        case "55000":
            wanted = {}
            if parameters.get("wal_level", "logical") != "logical":
                wanted["wal_level"] = "logical"
            for name in ("max_replication_slots", "max_wal_senders"):
                if parameters.get(name) == "0":
                    wanted[name] = "10"
            statements = "; ".join(f"ALTER SYSTEM SET {name} = {value}" for name, value in wanted.items())
            hint = f"Run: {statements}; then restart the server" if wanted else "See the server's log"
            code: Code = "statement-refused"
            if "wal_level" in wanted:
                code = "wal-level-insufficient"
            elif wanted:
                code = "slots-exhausted" if "max_replication_slots" in wanted else "walsenders-exhausted"
            if not wanted and parameters.get("in_hot_standby") == "on":
                hint = "Run on the primary of this standby: ALTER SYSTEM SET wal_level = logical; then restart it"
                code = "wal-level-insufficient"
            return RequestRejected(f'the slot "{slot}" cannot be made: {message}', hint, code=code)
        case "42501":
            return RequestRejected(
                f'the role may not make the slot "{slot}": {message}',
                "It needs the attribute REPLICATION; the output plugin must be listed in output_plugin_libraries",
                code="replication-denied",
            )
        case "0A000":
            return RequestRejected(
                f'the slot "{slot}" cannot be made here: {message}',
                "On a standby this needs PostgreSQL 16",
                code="server-too-old",
            )
        case _:
            return _other(sqlstate, message, f'the slot "{slot}" cannot be made')


def start_refused(sqlstate: str, text: str, slot: str, facts: SlotFacts | None) -> CdcdError:
    """The error of a START_REPLICATION that failed. `facts`: about the slot; None if it is gone."""
    message = _one_line(text)
    match sqlstate:
        case "55006" if facts is not None and facts.active_pid:
            is_foreign = facts.application_name != facts.own_application_name
            return SlotActive(slot, int(facts.active_pid), facts.application_name, is_foreign=is_foreign)
        case "55006":
            numbers = re.findall(r"\d+", text.replace(slot, "", 1))
            return SlotActive(slot, int(numbers[-1]) if numbers else None)
        case "42704":
            return GapError(
                f'the slot "{slot}" does not exist',
                "Run cdcd slot status: it says whether changes are lost, and what to do",
                code="slot-missing",
            )
        case "55000" if facts is not None:
            return _not_ready(message, slot, facts)
        case "0A000" | "22023" | "42601" | "42602" | "XX000":
            return RequestRejected(
                f"the server does not stream as asked: {message}",
                "Check source.streaming, source.two_phase, source.origin and source.publication against its version",
                code="stream-options-refused",
            )
        case _:
            return _other(sqlstate, message, f'the slot "{slot}" cannot be streamed from')


def _not_ready(message: str, slot: str, facts: SlotFacts) -> CdcdError:
    if facts.wal_level and facts.wal_level != "logical":
        return RequestRejected(
            f"the server runs with wal_level = {facts.wal_level}: {message}",
            "Run: ALTER SYSTEM SET wal_level = logical, then restart the server",
            code="wal-level-insufficient",
        )
    if facts.database and facts.database != facts.current_database:
        return RequestRejected(
            f'the slot "{slot}" belongs to the database "{facts.database}", not to "{facts.current_database}"',
            "Correct dbname in source.dsn, or name another slot in source.slot",
            code="slot-of-others",
        )
    if facts.wal_status == "lost" or facts.invalidation:
        what, hint = lost_slot(facts.invalidation)
        return GapError(f'the slot "{slot}" {what}: {message}', hint, code="slot-lost")
    return RequestRejected(
        f'the slot "{slot}" cannot be streamed from: {message}', "See the server's log", code="statement-refused"
    )


UNCONVERTIBLE: Final = ("22P05", "22021")
"""The SQLSTATEs of text without an equivalent in UTF-8, and of bytes that are no text of the database's encoding."""

UNCONVERTIBLE_HINT: Final = (
    "From now on PostgreSQL sends text as it is stored, and the daemon converts it: a value without an equivalent in "
    "UTF-8 is unrepresentable. If this error stays, a row filter of the publication converts text: correct the filter"
)

RELATION_FILE: Final = r'"base/\d+/\d+"'
"""The path of a relation's file. The server names it in an error if it finds no relation for the file."""


def stream_ended(sqlstate: str, text: str, slot: str, at: int, in_progress: bool = False) -> CdcdError:
    """The error of a stream that ended. `at`: the LSN reached, or 0. `sqlstate`: empty if the server sent none.

    `in_progress`: the server sent transactions while they were in progress.
    """
    message = _one_line(text) or "no reason was given"
    where = f'the stream of the slot "{slot}" ended{_near(at)}: {message}'
    match sqlstate:
        case "42704":
            return RequestRejected(
                where,
                "The publication did not exist when this change was made, and a publication made now does not help. "
                f"Make it, then go past the change with SELECT pg_replication_slot_advance({literal(slot)}, "
                "pg_current_wal_lsn()) and take a new snapshot",
                code="publication-too-young",
            )
        case "0A000":
            return RequestRejected(
                where,
                "Give one table the same column list in every publication that is streamed together",
                code="column-lists-differ",
            )
        case _ if sqlstate in UNCONVERTIBLE:
            return TextUnconvertible(where, UNCONVERTIBLE_HINT, code="text-unconvertible")
        case "54000" | "XX000" if sqlstate == "54000" or "invalid memory alloc request size" in message:
            return RequestRejected(
                where,
                "The change is larger than a gigabyte: PostgreSQL cannot send it as one message. In text mode a bytea "
                "takes twice its size. Go past it with "
                f"SELECT pg_replication_slot_advance({literal(slot)}, pg_current_wal_lsn()) and take a new snapshot. "
                "Then leave such columns out of the publication",
                code="change-too-large",
            )
        case "XX000" if re.search(RELATION_FILE, message) and in_progress:
            # This happens if two savepoints truncate or rewrite the same table, and the first is rolled back.
            return StreamingUnsupported(
                where,
                "PostgreSQL could not decode a transaction in progress. cdcd now asks for whole ones",
                code="stream-restarted",
            )
        case "XX000" if re.search(RELATION_FILE, message):
            copy = literal(f"{slot[:60]}_2")
            return RequestRejected(
                where,
                "PostgreSQL cannot decode a prepared transaction that was rolled back, if one of its savepoints made, "
                "truncated or rewrote a table. Replace the slot by a copy that is not two-phase: "
                f"SELECT pg_copy_logical_replication_slot({literal(slot)}, {copy}); "
                f"SELECT pg_drop_replication_slot({literal(slot)}); "
                f"SELECT pg_copy_logical_replication_slot({copy}, {literal(slot)}); "
                f"SELECT pg_drop_replication_slot({copy}); and set source.two_phase = false",
                code="prepared-undecodable",
            )
        case "22P02" | "22023" | "42501" | "55000":
            return RequestRejected(
                where, "Decoding this change again would fail again: see the server's log", code="statement-refused"
            )
        case _ if sqlstate[:2] == "22":
            return RequestRejected(
                where,
                "PostgreSQL could not evaluate an expression for a change, most likely a row filter of the publication "
                "(division by zero, a number out of range). A corrected filter counts for later changes only: "
                f"correct it, go past this change with SELECT pg_replication_slot_advance({literal(slot)}, "
                "pg_current_wal_lsn()) and take a new snapshot",
                code="row-filter-failed",
            )
        case _:
            return unavailable(sqlstate, where)


STANDBY_SLOTS_FUNCTION: Final = "StandbySlotsHaveCaughtup"
"""The function of the server that complains of a slot in synchronized_standby_slots. PostgreSQL does not translate
it."""

STANDBY_AWAY_HINT: Final = (
    "PostgreSQL sends a failover slot only what these standbys have. Start the standby. If it does not come back, take "
    "it out: ALTER SYSTEM SET synchronized_standby_slots = ...; SELECT pg_reload_conf()"
)


def standby_away(text: str, slot: str) -> PostgresUnavailable:
    """The error of a server that shut down while it waited for a standby: it ends the stream of a failover slot."""
    return PostgresUnavailable(
        f'the stream of the slot "{slot}" ended: {_one_line(text)}', STANDBY_AWAY_HINT, code="standby-away"
    )


def publication_skipped(text: str, slot: str, at: int) -> RequestRejected:
    """The error of a missing publication. PostgreSQL 18 only warns and skips its changes: they would be lost unseen."""
    return RequestRejected(
        f'the stream of the slot "{slot}" skips changes{_near(at)}: {_one_line(text)}',
        "The publication did not exist when these changes were made. Make it, then go past them with "
        f"SELECT pg_replication_slot_advance({literal(slot)}, pg_current_wal_lsn()) and take a new snapshot",
        code="publication-too-young",
    )


def _other(sqlstate: str, message: str, what: str) -> CdcdError:
    if is_passing(sqlstate):
        return unavailable(sqlstate, f"{what}: {message}")
    return RequestRejected(f"{what}: {message} ({sqlstate})", "See the server's log", code="statement-refused")


def _one_line(text: str) -> str:
    """The first line of the server's message. The other lines repeat it, or show a statement."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return re.sub(r"^(ERROR|FATAL|WARNING):\s+", "", lines[0]).rstrip(".") if lines else ""


def _near(lsn: int) -> str:
    return f" near {format_lsn(lsn)}" if lsn else ""
