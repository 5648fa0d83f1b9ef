"""What ALTER ROLE, ALTER DATABASE and a login do to the sessions of cdcd: nothing that decides."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
import servers
from support.fix_postgres import Database

from cdcd.errors import FatalError, PostgresUnavailable, RequestRejected, SettingsError
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.connection import Connection
from cdcd.source.exported_snapshot import export_snapshot
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import AskedPublication
from cdcd.source.query_runner import QueryRunner
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import SlotActive, SlotWaits
from cdcd.source.session import PINNED, Locked, Session, connect, parameters
from cdcd.source.slot import Slot
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

HOSTILE = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "iso_8601",
    "bytea_output": "escape",
    "extra_float_digits": "-5",
    "TimeZone": "Asia/Kathmandu",
    "search_path": "elsewhere, public",
    "quote_all_identifiers": "on",
    "standard_conforming_strings": "off",
    "synchronous_commit": "on",
    "client_min_messages": "error",
    "row_security": "on",
    "statement_timeout": "300ms",
    "lock_timeout": "200ms",
    "idle_in_transaction_session_timeout": "300ms",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "idle_session_timeout": "2s",
    "exit_on_error": "on",
    "local_preload_libraries": "no_such_library",
    "wal_sender_timeout": "20ms",
}
STYLES = 11
"""The first of them are set for the database, the others for the role."""
SINCE_17 = {"transaction_timeout": "1s"}
EXPECTED = dict(PINNED) | {
    "DateStyle": "ISO, MDY",
    "search_path": "",
    "idle_session_timeout": "0",
    "wal_sender_timeout": "1s",
}


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """A role with REPLICATION whose settings, and those of its database, are as bad as they can be."""
    role, other = f"role_{database.name}", f"other_{database.name}"
    settings = HOSTILE | (SINCE_17 if database.server.version >= 17 else {})
    of_database, of_role = list(settings.items())[:STYLES], list(settings.items())[STYLES:]
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 1000) g",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"CREATE ROLE {other}",
        f"GRANT {other} TO {role}",
        f"ALTER TABLE t OWNER TO {role}",
        f"GRANT CREATE ON DATABASE {database.name} TO {role}",
        f"ALTER ROLE {role} SET role = {other}",
        *(f"ALTER ROLE {role} SET {name} = {_value(value)}" for name, value in of_role),
        *(f"ALTER DATABASE {database.name} SET {name} = {_value(value)}" for name, value in of_database),
    )
    yield role
    for name in settings:
        with psycopg.connect(database.server.dsn(), autocommit=True) as outside:
            outside.execute(f"ALTER DATABASE {database.name} RESET {name}".encode())
    database.execute("DROP TABLE t CASCADE", f"DROP OWNED BY {role}", f"DROP ROLE {role}", f"DROP ROLE {other}")


def _value(value: str) -> str:
    return value if "," in value else f"'{value}'"


@pytest.fixture
def dsn(database: Database, role: str) -> str:
    return database.server.dsn(database.name, user=role)


def _shown(runner: QueryRunner | Connection, name: str) -> str:
    if isinstance(runner, Connection):
        return str(runner._query(f"SHOW {name}")[0][0])
    return str(runner.rows(f"SHOW {name}")[0][0])


@pytest.mark.parametrize("kind", ["session", "walsender", "copy"])
def test_no_setting_of_a_role_or_a_database_reaches_a_connection(dsn: str, kind: str) -> None:
    expected = EXPECTED | {"role": "none"}
    if kind == "session":
        made: Session | Connection | SnapshotConnection = Session(dsn)
    elif kind == "walsender":
        made = Connection(dsn)
    else:
        made = SnapshotConnection(connect(parameters(dsn, "t")))
        expected["lock_timeout"] = "1s"  # its own
    with closing(made):
        [(version,)] = (
            made._query("SHOW server_version_num")
            if isinstance(made, Connection)
            else made.rows("SHOW server_version_num")
        )
        expected |= {"transaction_timeout": "0"} if int(version or 0) >= 170_000 else {}
        assert {name: _shown(made, name) for name in expected} == expected


def test_a_lock_timeout_of_the_role_does_not_end_the_making_of_a_slot(database: Database, dsn: str) -> None:
    with database.connect(autocommit=False) as writer, ThreadPoolExecutor() as pool, Connection(dsn) as maker:
        writer.execute("INSERT INTO t VALUES (0, 'open')")
        with Session(dsn) as session:
            made = pool.submit(export_snapshot, maker, session)
            time.sleep(1)  # the role's lock_timeout is 0.2 s
            assert not made.done()
            writer.commit()
            assert made.result(30).snapshot


def test_a_lock_that_is_not_free_in_time_is_waited_for_again(database: Database, dsn: str) -> None:
    """The DSN of a user may set a timeout after all: the server reports it as 55P03."""
    with database.connect(autocommit=False) as writer, Connection(dsn) as maker, Session(dsn) as session:
        writer.execute("INSERT INTO t VALUES (0, 'open')")
        maker._query("SET lock_timeout = '100ms'")
        with pytest.raises(PostgresUnavailable, match="lock timeout") as caught:
            export_snapshot(maker, session)
        assert not isinstance(caught.value, SlotWaits)
        writer.commit()
        with database.connect(autocommit=False) as other:
            other.execute("LOCK TABLE t")
            with pytest.raises(Locked), session.lock_timeout(0.1):
                session.rows("SELECT count(*) FROM public.t")
        assert session.rows("SHOW lock_timeout") == [("0",)]


def test_verify_outlives_every_timeout_of_the_role(database: Database, dsn: str) -> None:
    with Session(dsn) as session:
        session.rows("CREATE PUBLICATION p FOR TABLE public.t")
    with Checksums(dsn, "t", "p", [("public", "t")]) as checksums:
        time.sleep(1.5)  # longer than idle_in_transaction_session_timeout and transaction_timeout
        checksums.connection.rows("SELECT pg_sleep(0.5)")  # longer than statement_timeout
        table = ChecksummedTable("public", "t", columns=("id", "v"), key=("id",))
        assert sum(rows for _, rows, _ in checksums.parts(table)) == 1000


def test_a_role_that_only_reads_by_default_still_makes_the_publication(dsn: str) -> None:
    with Session(dsn) as session:
        publication = Publication(session, "p")
        assert publication.create(AskedPublication(["public.t"]))
        assert publication.tables() == [("public", "t")]


def test_a_server_that_only_reads_names_the_statement_for_its_primary(dsn: str) -> None:
    with Session(dsn) as session:
        session.rows("SET default_transaction_read_only = on")  # as on a standby
        with pytest.raises(RequestRejected, match="cannot be made on this server") as caught:
            Publication(session, "p").create(AskedPublication(["public.t"]))
        assert 'run on its primary: CREATE PUBLICATION "p" FOR TABLE "public"."t"' in caught.value.hint


def test_an_idle_session_of_the_role_stays_connected(dsn: str) -> None:
    with Session(dsn) as session:
        [before] = session.rows("SELECT pg_backend_pid()")
        time.sleep(2.5)
        assert session.rows("SELECT pg_backend_pid()") == [before]


# A login that is refused


@pytest.fixture
def guest(database: Database) -> Iterator[str]:
    role = f"guest_{database.name}"
    database.execute(f"CREATE ROLE {role} LOGIN REPLICATION", f"REVOKE CONNECT ON DATABASE {database.name} FROM PUBLIC")
    yield database.server.dsn(database.name, user=role)
    database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def _refusal(dsn: str) -> FatalError:
    """The error of a session, which is that of a replication connection, too."""
    with pytest.raises((RequestRejected, SettingsError)) as caught:
        Connection(dsn)
    with pytest.raises(type(caught.value), match=caught.value.message[:20]), Session(dsn) as session:
        session.rows("SELECT 1")
    return caught.value


def test_a_role_without_connect_is_let_in_by_the_hint(database: Database, guest: str) -> None:
    error = _refusal(guest)
    assert "may not connect to the database" in error.message
    database.execute(error.hint.removeprefix("Let the database's owner run: "))
    with Session(guest) as session:
        assert session.rows("SELECT 1") == [(1,)]


def test_a_database_that_lets_nobody_in_is_opened_by_the_hint(database: Database) -> None:
    with psycopg.connect(database.server.dsn(), autocommit=True) as outside:
        outside.execute(f"ALTER DATABASE {database.name} ALLOW_CONNECTIONS false".encode())
        error = _refusal(database.dsn)
        outside.execute(error.hint.removeprefix("Let a superuser run, in another database: ").encode())
    with Session(database.dsn) as session:
        assert session.rows("SELECT 1") == [(1,)]


@pytest.mark.parametrize("setting", ["sslmode=sometimes", "port=99999", "keepalives_idle=often", "gssencmode=maybe"])
def test_a_value_that_libpq_does_not_take_is_an_error_of_the_settings(database: Database, setting: str) -> None:
    assert isinstance(_refusal(f"{database.dsn} {setting}"), SettingsError)


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("sslmode=require", "another sslmode"),
        ("options='-c nosuch=1'", "PGOPTIONS"),
        ("options='-c wal_level=logical'", "PGOPTIONS"),
    ],
)
def test_a_login_that_stays_refused_is_refused_with_its_hint(database: Database, setting: str, hint: str) -> None:
    assert hint in _refusal(f"{database.dsn} {setting}").hint


def test_one_host_of_two_that_is_down_leaves_hope(database: Database) -> None:
    dsn = f"host=127.0.0.1,127.0.0.2 port={database.server.port},1 dbname=nowhere user=postgres"
    with pytest.raises(PostgresUnavailable, match="does not exist"):
        Connection(dsn)


# A slot that does not fit


@pytest.mark.parametrize("kind", ["plugin", "physical", "database"])
def test_a_slot_that_another_program_must_have_made_is_told_for_what_it_is(database: Database, kind: str) -> None:
    name = f"s_{database.name}"
    if kind == "plugin":
        database.execute(f"SELECT pg_create_logical_replication_slot('{name}', 'test_decoding')")
    elif kind == "physical":
        database.execute(f"SELECT pg_create_physical_replication_slot('{name}')")
    else:
        with psycopg.connect(database.server.dsn(), autocommit=True) as outside:
            outside.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    said = {"plugin": "of plugin test_decoding", "physical": "physical, not", "database": "database postgres, not"}
    with Slot(database.dsn, name) as slot:
        state = slot.state()
        assert state is not None
        try:
            with pytest.raises(RequestRejected, match=said[kind]):
                slot.fitting_state()
        finally:
            assert slot.drop()


def test_a_program_that_has_the_slot_is_named(database: Database) -> None:
    name = f"s_{database.name}"
    options = {"proto_version": "1", "publication_names": "p"}
    database.execute("CREATE PUBLICATION p")
    with ReplicationStream(database.dsn, "pg_recvlogical") as other, Slot(database.dsn, name) as slot:
        other.create_slot(name)
        other.start(name, 0, options)
        for own, is_foreign in (("cdcd", True), ("pg_recvlogical", False)):
            with ReplicationStream(database.dsn, own) as walsender:
                with pytest.raises(SlotActive) as caught:
                    walsender.start(name, 0, options)
                assert (caught.value.pid, caught.value.is_foreign) == (other.backend_pid, is_foreign)
                assert 'application_name "pg_recvlogical"' in caught.value.message
        state = slot.state()
        assert state is not None
        assert state.used_by == "pg_recvlogical"
        assert other.stop()


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"max_replication_slots": "0"}, "ALTER SYSTEM SET max_replication_slots = 10"),
        ({"wal_level": "replica"}, "ALTER SYSTEM SET wal_level = logical"),
        ({"max_wal_senders": "0"}, "ALTER SYSTEM SET max_wal_senders = 10"),
    ],
)
def test_a_server_that_allows_no_slot_names_the_parameter(
    postgres: servers.PostgreSQL, start_postgres: Callable[..., servers.PostgreSQL], settings: dict[str, str], hint: str
) -> None:
    server = start_postgres(postgres.version, settings=settings)
    with pytest.raises(RequestRejected) as caught, Connection(server.dsn()) as connection:
        connection.create_slot("s")
    assert hint in caught.value.hint
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(hint.encode())
