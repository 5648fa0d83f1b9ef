"""The daemon's export of a snapshot: what stands in its way for now stops neither the stream nor the other tables."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest
import servers
from support.fix_postgres import Database

from cdcd.config.settings import Settings
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.daemon.snapshot_export import SnapshotExport
from cdcd.errors import RequestRejected
from cdcd.progress.snapshot_records import WANTED, TableSnapshot
from cdcd.source.incarnations import Incarnation
from cdcd.source.published_tables import published_tables
from cdcd.source.session import Session

pytestmark = [pytest.mark.postgres_versions("oldest", 16, "newest"), pytest.mark.in_turns(2)]


def settings(dsn: str, mode: str = "initial") -> Settings:
    return Settings(
        source={"dsn": dsn, "publication": "p", "application_name": "cdcd test"},
        sink={"bootstrap_servers": "k:1"},
        snapshot={"mode": mode},
    )


def choose(schema: str, name: str, _: Incarnation | None) -> TableSnapshot:
    return TableSnapshot("s", f"t.{name}", schema, name, WANTED, 0)


@contextmanager
def export(of: Settings, readable: ReadableTables | None = None) -> Iterator[SnapshotExport]:
    made = SnapshotExport(of, choose, readable or ReadableTables(of), lambda: None)
    made.confirm_stream_paused()
    try:
        yield made
    finally:
        made.close()


def until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def tables(of: Settings, readable: ReadableTables | None = None) -> list[str]:
    """The tables that a snapshot has now."""
    with export(of, readable) as made:
        until(lambda: made.done)
        found = made.result()
        return [] if found is None else [table.record.table for table in found.tables]


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f"role_{database.name}"
    database.execute(
        f"CREATE ROLE {name} LOGIN REPLICATION",
        "CREATE PUBLICATION p FOR ALL TABLES WITH (publish_via_partition_root = true)",
        "CREATE TABLE fine (id int PRIMARY KEY)",
        f"GRANT SELECT ON fine TO {name}",
    )
    yield name
    database.execute(f"DROP OWNED BY {name}", f"DROP ROLE {name}")


ROOT = ("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE part PARTITION OF t DEFAULT")
ROW_SECURITY = "ALTER TABLE {} ENABLE ROW LEVEL SECURITY"


@pytest.mark.parametrize(
    ("made", "said", "granted"),
    [
        (["CREATE TABLE t (id int PRIMARY KEY)"], 'may not read "public"."t"', "GRANT SELECT ON t TO {role}"),
        ([*ROOT, "GRANT SELECT ON t TO {role}"], 'may not read "public"."part"', "GRANT SELECT ON part TO {role}"),
        (
            ["CREATE TABLE t (id int PRIMARY KEY)", "GRANT SELECT ON t TO {role}", ROW_SECURITY.format("t")],
            'Row security hides rows of "public"."t"',
            "ALTER ROLE {role} BYPASSRLS",
        ),
        (
            [*ROOT, "GRANT SELECT ON t, part TO {role}", ROW_SECURITY.format("part")],
            'Row security hides rows of "public"."t"',
            "ALTER ROLE {role} BYPASSRLS",
        ),
    ],
    ids=["no-select", "no-select-on-a-partition", "row-security", "row-security-of-a-partition"],
)
def test_a_table_that_the_role_may_not_read_is_left_out_until_the_grant(
    database: Database, role: str, caplog: pytest.LogCaptureFixture, made: list[str], said: str, granted: str
) -> None:
    given = settings(database.server.dsn(database.name, user=role))
    readable = ReadableTables(given)
    database.execute(*(statement.format(role=role) for statement in made))
    with caplog.at_level(logging.WARNING):
        assert tables(given, readable) == tables(given, readable) == ["fine"]
    [line] = caplog.messages
    assert said in line
    assert granted.split(maxsplit=1)[0] in line
    with pytest.raises(RequestRejected, match=said):
        tables(settings(given.source.dsn, mode="only"))
    database.execute(granted.format(role=role))
    assert tables(given, readable) == ["fine", "t"]


def test_a_table_that_is_dropped_while_the_catalog_is_asked_ends_no_question(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with (
        database.connect(autocommit=False) as dropping,
        Session(database.dsn) as session,
        ThreadPoolExecutor() as pool,
    ):
        dropping.execute("DROP TABLE t")
        asked = pool.submit(published_tables, session, "p")
        if database.server.version >= 16:  # the question opens each table
            until(lambda: bool(database.execute("SELECT 1 FROM pg_locks WHERE NOT granted")))
        dropping.commit()
        assert {table.name for table in asked.result(30)} - {"t"} == {"u"}


def test_a_snapshot_waits_for_a_free_slot_and_the_stream_goes_on(
    postgres: servers.PostgreSQL, start_postgres: Callable[..., servers.PostgreSQL], caplog: pytest.LogCaptureFixture
) -> None:
    server = start_postgres(postgres.version, settings={"max_replication_slots": "1"})
    with psycopg.connect(server.dsn(), autocommit=True) as sql:
        sql.execute("CREATE TABLE t (id int PRIMARY KEY)")
        sql.execute("CREATE PUBLICATION p FOR TABLE t")
        sql.execute("SELECT pg_create_physical_replication_slot('other')")
        with export(settings(server.dsn())) as made:
            until(lambda: made.safe_stream_lsn > 0)
            [(before,)] = sql.execute("SELECT (pg_current_wal_lsn() - '0/0')::bigint").fetchall()
            sql.execute("INSERT INTO t VALUES (1)")
            until(lambda: made.safe_stream_lsn > before)
            assert not made.done
            sql.execute("SELECT pg_drop_replication_slot('other')")
            until(lambda: made.done)
            found = made.result()
            assert found is not None
            assert found.lsn > made.safe_stream_lsn
    assert "the snapshot waits: no replication slot is free" in caplog.text


def test_a_snapshot_waits_for_free_connections(database: Database, role: str, caplog: pytest.LogCaptureFixture) -> None:
    given = settings(database.server.dsn(database.name, user=role))
    database.execute(f"ALTER ROLE {role} CONNECTION LIMIT 2")
    with export(given) as made:
        until(lambda: "the snapshot waits: PostgreSQL has no connection free" in caplog.text)
        assert not made.done
        database.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
        until(lambda: made.done)
        assert made.result() is not None
