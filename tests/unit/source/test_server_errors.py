from __future__ import annotations

import re

import pytest

from cdcd.errors import GapError, PostgresUnavailable, RequestRejected, StreamingUnsupported, TextUnconvertible
from cdcd.source.server_errors import (
    SlotActive,
    SlotFacts,
    SlotWaits,
    connection_refused,
    publication_skipped,
    slot_refused,
    start_refused,
    stream_ended,
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
        ('FATAL:  password authentication failed for user "cdc"', RequestRejected, "password"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "cdc", database "d"', RequestRejected, "pg_hba.conf"),
        ('FATAL:  role "cdc" does not exist', RequestRejected, "user"),
        ('FATAL:  database "shop" does not exist', RequestRejected, "dbname"),
        ("SSL error: certificate verify failed", RequestRejected, "sslrootcert"),
        (
            "FATAL:  number of requested standby connections exceeds max_wal_senders",
            PostgresUnavailable,
            "max_wal_senders",
        ),
        ("FATAL:  the database system is starting up", PostgresUnavailable, "server runs"),
        ("connection refused", PostgresUnavailable, "server runs"),
        ("", PostgresUnavailable, "server runs"),
    ],
)
def test_a_connection_that_fails_is_named_with_its_cure(text: str, kind: type, hint: str) -> None:
    error = connection_refused(text, "cdc")
    assert type(error) is kind
    assert hint in error.hint


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        *((sqlstate, RequestRejected) for sqlstate in ("42710", "42602", "53400", "55000", "42501", "0A000", "XX000")),
        *((sqlstate, PostgresUnavailable) for sqlstate in ("57P01", "53300", "08006", "")),
    ],
)
def test_a_slot_that_cannot_be_made_is_refused_unless_the_reason_passes(sqlstate: str, kind: type) -> None:
    assert type(slot_refused(sqlstate, "said", "s1")) is kind


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
    ],
)
def test_a_stream_that_cannot_start_is_told_by_sqlstate_and_facts(
    sqlstate: str, text: str, facts: SlotFacts | None, kind: type
) -> None:
    assert type(start_refused(sqlstate, text, "s1", facts)) is kind


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


@pytest.mark.parametrize(
    ("sqlstate", "kind"),
    [
        *((sqlstate, RequestRejected) for sqlstate in ("42704", "0A000", "55000")),
        # A row filter that a row does not go through: it would not the next time, either.
        *((sqlstate, RequestRejected) for sqlstate in ("22012", "22003", "2201B", "22007", "22P02")),
        *((sqlstate, TextUnconvertible) for sqlstate in ("22P05", "22021")),
        *((sqlstate, PostgresUnavailable) for sqlstate in ("57P01", "XX000", "")),
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
