from __future__ import annotations

import re

import pytest

from cdcd.errors import (
    AccessDenied,
    GapError,
    PostgresUnavailable,
    RequestRejected,
    SettingsError,
    StreamingUnsupported,
    TextUnconvertible,
)
from cdcd.source.server_errors import (
    NoSlotFree,
    SlotActive,
    SlotFacts,
    SlotWaits,
    connection_refused,
    publication_skipped,
    slot_refused,
    start_refused,
    stream_ended,
    unavailable,
)

READY = SlotFacts("shop", "shop", "reserved", "logical")


@pytest.mark.parametrize(
    ("text", "kind", "hint"),
    [
        ("FATAL:  permission denied to start WAL sender\nDETAIL: ...", RequestRejected, 'ALTER ROLE "cdc" REPLICATION'),
        (
            "FATAL:  must be superuser or replication role to start walsender",
            RequestRejected,
            'ALTER ROLE "cdc" REPLICATION',
        ),
        ('FATAL:  password authentication failed for user "cdc"', AccessDenied, "password"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "cdc", database "d"', AccessDenied, "pg_hba.conf"),
        ('FATAL:  role "cdc" does not exist', RequestRejected, "user"),
        ('FATAL:  database "shop" does not exist', RequestRejected, "dbname"),
        ("SSL error: certificate verify failed", AccessDenied, "sslrootcert"),
        (
            'server certificate for "db.example.org" does not match host name "10.0.0.1"',
            AccessDenied,
            "by a host name of its certificate",
        ),
        (
            "FATAL:  number of requested standby connections exceeds max_wal_senders",
            PostgresUnavailable,
            "max_wal_senders",
        ),
        (
            'FATAL:  number of requested standby connections exceeds "max_wal_senders" (currently 0)',
            RequestRejected,
            "ALTER SYSTEM SET max_wal_senders = 10",
        ),
        (
            'FATAL:  permission denied for database "a shop"\nDETAIL:  User does not have CONNECT privilege.',
            RequestRejected,
            'GRANT CONNECT ON DATABASE "a shop" TO "cdc"',
        ),
        (
            'FATAL:  database "shop" is not currently accepting connections',
            RequestRejected,
            'ALTER DATABASE "shop" ALLOW_CONNECTIONS true',
        ),
        ('FATAL:  cannot connect to invalid database "shop"', RequestRejected, 'DROP DATABASE "shop"'),
        ("FATAL:  unsupported startup parameter: options", RequestRejected, "PostgreSQL's own host"),
        ("FATAL:  unsupported startup parameter: replication", RequestRejected, "PostgreSQL's own host"),
        ("FATAL:  unsupported startup parameter in options: statement_timeout", RequestRejected, "own host"),
        ('FATAL:  unrecognized configuration parameter "work_memory"', RequestRejected, "PGOPTIONS"),
        ('FATAL:  permission denied to set parameter "log_statement"', RequestRejected, "PGOPTIONS"),
        ("server does not support SSL, but SSL was required", RequestRejected, "another sslmode"),
        ("FATAL:  connection requires a valid client certificate", AccessDenied, "sslcert"),
        ("SSL error: tlsv13 alert certificate required", AccessDenied, "sslcert"),
        ('could not open certificate file "/x": No such file or directory', AccessDenied, "sslcert"),
        ("local user with ID 10001 does not exist", RequestRejected, "Name the user"),
        ("FATAL:  sorry, too many clients already", PostgresUnavailable, "max_connections"),
        ('FATAL:  too many connections for role "cdc"', PostgresUnavailable, "CONNECTION LIMIT"),
        ('invalid sslmode value: "sometimes"', SettingsError, "PGSSLMODE"),
        ('invalid port number: "99999"', SettingsError, "PGPORT"),
        ('invalid integer value "x" for connection option "keepalives_idle"', SettingsError, "Correct it"),
        ('weak sslmode "prefer" may not be used with sslrootcert=system', SettingsError, "Correct it"),
        ('definition of service "shop" not found', SettingsError, "Correct it"),
        ("FATAL:  the database system is starting up", PostgresUnavailable, "server runs"),
        ("connection refused", PostgresUnavailable, "server runs"),
        ("", PostgresUnavailable, "server runs"),
    ],
)
def test_a_connection_that_fails_is_named_with_its_cure(text: str, kind: type, hint: str) -> None:
    error = connection_refused(text, "cdc")
    assert type(error) is kind
    assert hint in error.hint


@pytest.mark.parametrize("value", ["a", "secret", "12secret"])
def test_a_port_that_may_be_a_part_of_the_password_is_not_repeated(value: str) -> None:
    for text in (f'invalid port number: "{value}"', f'invalid integer value "{value}" for connection option "port"'):
        assert f'"{value}"' not in str(connection_refused(text, "cdc"))


def _attempts(*failures: tuple[str, str, str]) -> str:
    """Host, address and message of each attempt, as psycopg reports them."""
    lines = [f"- host: '{host}', port: '5432', hostaddr: '{address}': {text}" for host, address, text in failures]
    return "\n".join([failures[-1][2], "Multiple connection attempts failed. All failures were:", *lines])


REFUSAL = 'connection failed: FATAL:  no pg_hba.conf entry for host "10.0.0.9", user "cdc"\n  Is it so?'
OUTAGE = "connection failed: Connection refused\n\tIs the server running?"


def test_one_host_that_refuses_does_not_end_the_daemon_while_another_may_come_back() -> None:
    for order in ((OUTAGE, REFUSAL), (REFUSAL, OUTAGE)):
        error = connection_refused(_attempts(("a", "10.0.0.1", order[0]), ("b", "10.0.0.2", order[1])), "cdc")
        assert type(error) is PostgresUnavailable
        assert "pg_hba.conf" in error.message
        assert "Connection refused" in error.message


def test_hosts_that_all_refuse_refuse() -> None:
    error = connection_refused(_attempts(("a", "10.0.0.1", REFUSAL), ("b", "10.0.0.2", REFUSAL)), "cdc")
    assert type(error) is AccessDenied


def test_an_address_without_a_server_does_not_hide_what_the_host_says() -> None:
    for order in ((OUTAGE, REFUSAL), (REFUSAL, OUTAGE)):
        error = connection_refused(_attempts(("localhost", "::1", order[0]), ("localhost", "127.0.0.1", order[1])), "x")
        assert type(error) is AccessDenied


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        *((sqlstate, RequestRejected) for sqlstate in ("42710", "42602", "55000", "42501", "0A000", "XX000")),
        ("53400", NoSlotFree),
        *((sqlstate, PostgresUnavailable) for sqlstate in ("57P01", "53300", "08006", "55P03", "40001", "")),
    ],
)
def test_a_slot_that_cannot_be_made_is_refused_unless_the_reason_passes(sqlstate: str, kind: type) -> None:
    assert type(slot_refused(sqlstate, "said", "s1", {})) is kind


@pytest.mark.parametrize(
    ("parameters", "hint"),
    [
        ({"wal_level": "replica", "max_replication_slots": "10"}, "ALTER SYSTEM SET wal_level = logical; then"),
        ({"wal_level": "logical", "max_replication_slots": "0"}, "ALTER SYSTEM SET max_replication_slots = 10; then"),
        ({"wal_level": "logical", "max_replication_slots": "10"}, "server's log"),
        ({"wal_level": "logical", "in_hot_standby": "on"}, "primary of this standby: ALTER SYSTEM SET wal_level"),
    ],
)
def test_the_parameter_that_forbids_a_slot_is_named(parameters: dict[str, str], hint: str) -> None:
    error = slot_refused("55000", "replication slots can only be used if ...", "s1", parameters)
    assert hint in error.hint
    assert error.hint.count("ALTER SYSTEM") == hint.count("ALTER SYSTEM")


@pytest.mark.parametrize(
    ("sqlstate", "text", "facts", "kind"),
    [
        ("55006", 'replication slot "s1" is active for PID 4711', None, SlotActive),
        ("42704", 'replication slot "s1" does not exist', None, GapError),
        ("55000", "can no longer access replication slot", SlotFacts("shop", "shop", "lost", "logical"), GapError),
        (
            "55000",
            "was not created in this database",
            SlotFacts("other", "shop", "reserved", "logical"),
            RequestRejected,
        ),
        ("55000", "wal_level", SlotFacts("shop", "shop", "reserved", "replica"), RequestRejected),
        ("55000", "something else", READY, RequestRejected),
        ("55000", "and the slot is gone", None, RequestRejected),
        ("0A000", "client sent proto_version=99", None, RequestRejected),
        ("42601", "streaming requires a Boolean value", None, RequestRejected),
        ("57P01", "terminating connection", None, PostgresUnavailable),
        ("55P03", "canceling statement due to lock timeout", None, PostgresUnavailable),
    ],
)
def test_a_stream_that_cannot_start_is_told_by_sqlstate_and_facts(
    sqlstate: str, text: str, facts: SlotFacts | None, kind: type
) -> None:
    assert type(start_refused(sqlstate, text, "s1", facts)) is kind


@pytest.mark.parametrize(
    ("reason", "what", "hint"),
    [
        ("", "has lost WAL", "max_slot_wal_keep_size"),
        ("wal_removed", "has lost WAL", "max_slot_wal_keep_size"),
        ("rows_removed", "VACUUM", "hot_standby_feedback = on"),
        ("wal_level_insufficient", "primary no longer writes", "SET wal_level = logical"),
        ("idle_timeout", "idle_replication_slot_timeout", "idle_replication_slot_timeout = 0"),
        ("conflict", "VACUUM", "wal_level must be logical"),
        ("something_new", "something_new", "server's log"),
    ],
)
def test_why_a_slot_can_never_stream_again_is_told_by_the_reason(reason: str, what: str, hint: str) -> None:
    facts = SlotFacts("shop", "shop", "lost", "logical", invalidation=reason)
    error = start_refused("55000", "can no longer access replication slot", "s1", facts)
    assert type(error) is GapError
    assert what in error.message
    assert hint in error.hint
    assert 'source.on_slot_lost = "repair"' in error.hint


def test_a_statement_that_a_standby_cancels_passes_and_its_hint_is_for_the_standby() -> None:
    said = "canceling statement due to conflict with recovery"
    for error in (
        stream_ended("40001", said, "s1", 0),
        slot_refused("40001", said, "s1", {}),
        unavailable("40P01", said),
    ):
        assert type(error) is PostgresUnavailable
        assert "max_standby_streaming_delay" in error.hint
    assert unavailable("57P01", "terminating connection").hint == ""


@pytest.mark.parametrize(
    ("text", "pid"),
    [
        ('replication slot "s1" is active for PID 4711', 4711),
        ("le slot « s1 » est actif pour le PID 4711", 4711),
        ("in use", None),
    ],
)
def test_the_pid_that_has_the_slot_is_found_in_any_language(text: str, pid: int | None) -> None:
    error = start_refused("55006", text, "s1", None)
    assert isinstance(error, SlotActive)
    assert error.pid == pid


def test_a_program_that_has_the_slot_is_named_and_told_from_another_daemon() -> None:
    for name, is_foreign in (("pg_recvlogical", True), ("", True), ("cdcd", False)):
        facts = SlotFacts("shop", "shop", "reserved", "logical", "4711", name, "cdcd")
        error = start_refused("55006", "in use", "s1", facts)
        assert isinstance(error, SlotActive)
        assert (error.pid, error.is_foreign) == (4711, is_foreign)
        assert f'process 4711 with the application_name "{name}"' in error.message
        assert "pg_terminate_backend(4711)" in error.hint


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        *((sqlstate, RequestRejected) for sqlstate in ("42704", "0A000", "55000")),
        # A row filter that a row does not go through: it would not the next time, either.
        *((sqlstate, RequestRejected) for sqlstate in ("22012", "22003", "2201B", "22007", "22P02")),
        *((sqlstate, TextUnconvertible) for sqlstate in ("22P05", "22021")),
        *((sqlstate, PostgresUnavailable) for sqlstate in ("57P01", "55P03", "XX000", "")),
    ],
)
def test_a_stream_that_ends_is_started_again_unless_it_would_end_the_same(sqlstate: str, kind: type) -> None:
    error = stream_ended(sqlstate, "ERROR:  what the server said.\nCONTEXT: a statement", "s1", 0x16B374D848)
    assert type(error) is kind
    assert "16/B374D848: what the server said" in error.message
    assert "CONTEXT" not in str(error)


def test_a_table_that_the_server_has_forgotten_is_told_from_what_passes_by_itself() -> None:
    said = 'ERROR:  could not map filenumber "base/5/16394" to relation OID'
    error = stream_ended("XX000", said, "s" * 63, 0)
    assert type(error) is RequestRejected
    copies = re.findall(r"'(s+_2)'", error.hint)
    assert {len(name) for name in copies} == {62}, "a name that the server takes"
    assert type(stream_ended("XX000", said, "s", 0, in_progress=True)) is StreamingUnsupported


@pytest.mark.parametrize(
    ("sqlstate", "text"),
    [
        ("54000", "string buffer exceeds maximum allowed length (1073741823 bytes)"),  # as PostgreSQL 18 has it
        ("54000", "out of memory"),
        ("XX000", "invalid memory alloc request size 1080000003"),
    ],
)
def test_a_change_larger_than_a_message_may_be_is_refused_with_the_cure(sqlstate: str, text: str) -> None:
    error = stream_ended(sqlstate, f"ERROR:  {text}", "s1", 0x1742878C80)
    assert type(error) is RequestRejected
    assert "17/42878C80" in error.message
    assert "gigabyte" in error.hint
    assert "pg_replication_slot_advance('s1'" in error.hint


def test_a_skipped_publication_names_the_way_out_quoted() -> None:
    error = publication_skipped('skipped loading publication "p"', "it's", 0)
    assert "pg_replication_slot_advance('it''s', pg_current_wal_lsn())" in error.hint
    assert "near" not in error.message


def test_a_waiting_slot_names_its_blockers() -> None:
    blockers = ("session 1", "prepared transaction x")
    assert "it waits for session 1, prepared transaction x" in SlotWaits("s", 5, blockers).message
    assert SlotWaits("s", 5, ()).message.endswith("in 5 s")


def test_a_slot_that_waits_on_a_standby_names_what_its_primary_can_do() -> None:
    assert "run on its primary: SELECT pg_log_standby_snapshot()" in SlotWaits("s", 300, (), standby=True).hint
    assert "standby" not in SlotWaits("s", 300, ("session 1",)).hint
