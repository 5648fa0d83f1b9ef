"""The ordinary connection: opened late, opened again, and its errors by remedy."""

from __future__ import annotations

import time
from collections.abc import Callable

import psycopg
import pytest
from servers import PostgreSQL
from support.fix_postgres import Database

from cdcd.errors import PostgresUnavailable, SettingsError
from cdcd.source.connection import Connection
from cdcd.source.session import Session, StatementRejected, parameters
from cdcd.source.synchronous_standby import commits_wait


def test_nothing_is_connected_before_the_first_question() -> None:
    with Session("host=127.0.0.1 port=1 user=postgres") as session, pytest.raises(PostgresUnavailable):
        session.rows("SELECT 1")


def test_a_refused_statement_carries_its_sqlstate_and_the_session_goes_on(database: Database) -> None:
    with Session(database.dsn) as session:
        with pytest.raises(StatementRejected) as caught:
            session.rows("SELECT * FROM nosuch")
        assert caught.value.sqlstate == "42P01"
        assert session.rows("SELECT %s::int", [7]) == [(7,)]
        assert session.rows("CREATE TABLE public.t ()") == []


def test_a_lost_connection_is_a_lost_server_once_and_then_opened_again(database: Database) -> None:
    with Session(database.dsn) as session:
        [(pid,)] = session.rows("SELECT pg_backend_pid()")
        database.execute(f"SELECT pg_terminate_backend({pid})")
        time.sleep(0.1)
        with pytest.raises(PostgresUnavailable):
            session.rows("SELECT 1")
        assert session.rows("SELECT 1") == [(1,)]


def test_a_session_survives_a_restart_of_the_server(start_postgres: Callable[..., PostgreSQL]) -> None:
    server = start_postgres()
    with Session(server.dsn()) as session:
        assert session.server_version // 10_000 == server.version
        server.stop(mode="immediate")
        for _ in range(2):
            with pytest.raises(PostgresUnavailable):
                session.rows("SELECT 1")
        server.start()
        assert session.encoding == "UTF8"
        assert session.rows("SELECT 1") == [(1,)]


def test_a_statement_runs_again_if_another_session_drops_a_table_that_it_looks_at(database: Database) -> None:
    """Before their releases of 2026, PostgreSQL 16 to 18 end a question to pg_publication_tables with this error."""
    database.execute(
        "CREATE SEQUENCE tries",
        "CREATE FUNCTION looks(at_tables int) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('public.tries') < at_tables THEN"
        "   RAISE 'could not open relation with OID 12345' USING ERRCODE = 'XX000'; END IF;"
        " RETURN at_tables; END $$",
    )
    with Session(database.dsn) as session:
        assert session.rows("SELECT public.looks(4)") == [(4,)]
        with pytest.raises(PostgresUnavailable, match="other sessions drop tables"):
            session.rows("SELECT public.looks(1000)")
        assert session.rows("SELECT 1") == [(1,)]


def test_a_dsn_for_replication_serves_every_connection(database: Database) -> None:
    dsn = f"{database.dsn} replication=database"
    with Session(dsn) as session, Connection(dsn) as walsender:
        assert session.rows("SELECT %s::int", [7]) == [(7,)]
        assert walsender.identify().dbname == database.name


def test_commits_wait_for_the_name_that_the_dsn_gives(start_postgres: Callable[..., PostgreSQL]) -> None:
    server = start_postgres(settings={"synchronous_standby_names": "ANY 1 (Shop, other)"})
    for name, wait in (("shop", True), ("cdcd", False)):
        with Session(server.dsn(application_name=name), "other") as session:
            assert commits_wait(session) is wait


def test_settings_of_role_and_database_do_not_reach_a_session(database: Database) -> None:
    database.execute(
        f"ALTER DATABASE {database.name} SET search_path = public",
        f"ALTER DATABASE {database.name} SET DateStyle = 'German'",
        "CREATE TABLE t ()",
    )
    with Session(database.dsn) as session:
        [row] = session.rows("SELECT 'public.t'::regclass::text, date '2026-01-31'::text")
        assert row == ("public.t", "2026-01-31")


def test_the_dsn_has_the_last_word_on_everything_but_the_pinned_settings() -> None:
    query = "application_name=mine&keepalives_idle=5&options=-c%20work_mem%3D1MB"
    params = parameters(f"postgresql://u@h/d?{query}", "cdcd")
    assert (params["application_name"], params["keepalives_idle"]) == ("mine", "5")
    assert params["options"].startswith("-c role=none -c work_mem=1MB -c DateStyle=ISO,MDY ")
    assert parameters("host=h", "cdcd")["application_name"] == "cdcd"


def test_a_dsn_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be read") as caught:
        Session("postgresql://u:secret@h:port:5/d?x")
    assert "secret" not in str(caught.value)


def test_the_application_name_is_seen_at_the_server(database: Database) -> None:
    with Session(database.dsn, "cdcd test") as session, psycopg.connect(database.dsn) as other:
        session.rows("SELECT 1")
        found = other.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'cdcd test'").fetchone()
        assert found == (1,)
