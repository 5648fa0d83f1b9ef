"""A copy locks a table while it reads it, and no longer; a table that was altered before is not read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psycopg
import pytest
from psycopg import sql
from support.fix_postgres import Database
from support.stream import eventually

from cdcd.config.settings import Settings
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.daemon.snapshot_export import ExportedSnapshot, SnapshotExport
from cdcd.errors import PostgresUnavailable
from cdcd.progress.snapshot_records import WANTED, TableSnapshot
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.heaps import Heap, column_numbers, heaps
from cdcd.source.server_errors import SnapshotGone
from cdcd.source.session import Session, connect, parameters

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

COLUMNS = [sql.Identifier("id"), sql.Identifier("c")]


class Copy:
    """A connection that shares an exported snapshot, and the tables that the snapshot shows."""

    def __init__(self, database: Database, dsn: str) -> None:
        self.anchor = SnapshotConnection(connect(parameters(database.dsn, "cdcd test anchor")))
        self.connection = SnapshotConnection(connect(parameters(dsn, "cdcd test copy")))
        with closing(psycopg.connect(database.dsn)) as exporter:
            exporter.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            [(name,)] = exporter.execute("SELECT pg_export_snapshot()").fetchall()
            self.anchor.import_snapshot(name)
            shared = self.anchor.export_snapshot()
        self.connection.share_snapshot(shared)
        with Session(dsn) as session:
            oids = dict(session.rows("SELECT relname, oid::bigint FROM pg_class WHERE relname IN ('a', 'b')"))
            self.heaps: dict[str, Heap] = {own[0].name: own[0] for own in heaps(session, list(oids.values())).values()}
            self.numbers = column_numbers(session, list(oids.values()))

    def start(self, table: str) -> None:
        heap = self.heaps[table]
        numbers = self.numbers[heap.oid]
        self.connection.start(
            Chunk("t", heap, 0, heap.blocks, True, None), COLUMNS, "", {"id": numbers["id"], "c": numbers["c"]}
        )

    def read(self) -> int:
        """Read the chunk to its end; returns the number of its rows."""
        messages: list[bytes] = []
        deadline = time.monotonic() + 20
        ended = False
        while not ended:
            assert time.monotonic() < deadline
            taken, ended = self.connection.read(1000)
            messages += taken
        return len(messages) - 1  # the trailer

    def close(self) -> None:
        self.connection.close()
        self.anchor.close()


@pytest.fixture
def copy(database: Database) -> Iterator[Copy]:
    database.execute(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, c text)" for name in "ab"),
        *(f"INSERT INTO {name} SELECT g, 'x' FROM generate_series(1, 100) g" for name in "ab"),
    )
    with closing(Copy(database, database.dsn)) as copy:
        yield copy


def is_locked(database: Database, table: str) -> bool:
    try:
        with database.connect(autocommit=False) as other:
            other.execute("SET lock_timeout = '100ms'")
            other.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE".encode())
    except psycopg.errors.LockNotAvailable:
        return True
    return False


def test_whoever_takes_few_rows_learns_that_more_are_there_and_gets_each_once(copy: Copy) -> None:
    copy.start("a")
    messages: list[bytes] = []
    deadline, ended = time.monotonic() + 20, False
    while not ended:
        assert time.monotonic() < deadline
        taken, ended = copy.connection.read(30)
        assert copy.connection.read_bytes == sum(map(len, taken))
        assert len(taken) == 30 or not copy.connection.has_more
        messages += taken
    assert len(messages) == len(set(messages)) == 101
    assert not copy.connection.has_more


def test_a_table_is_locked_from_its_first_chunk_until_the_next_table_begins(database: Database, copy: Copy) -> None:
    assert not is_locked(database, "a")
    copy.start("a")
    assert copy.read() == 100
    copy.start("a")  # another chunk
    assert copy.read() == 100
    assert is_locked(database, "a")
    assert not is_locked(database, "b")
    copy.start("b")
    assert copy.read() == 100
    assert not is_locked(database, "a")
    assert is_locked(database, "b")
    copy.connection.close()
    assert not is_locked(database, "b")


def test_a_pause_between_two_chunks_locks_no_table_and_keeps_the_snapshot(database: Database, copy: Copy) -> None:
    copy.connection.leave()  # it holds nothing yet
    copy.start("a")
    assert copy.read() == 100
    copy.connection.leave()
    copy.connection.leave()
    eventually(lambda: not is_locked(database, "a"), "end of the lock")
    database.execute("DELETE FROM a WHERE id <= 50")
    copy.start("a")
    assert copy.read() == 100
    assert is_locked(database, "a")
    copy.connection.leave()
    copy.start("b")  # at once
    assert copy.read() == 100
    copy.connection.leave()
    eventually(lambda: not is_locked(database, "a"), "end of the lock")
    database.execute("TRUNCATE a")
    copy.start("a")
    with pytest.raises(SnapshotGone, match="altered after the snapshot"):
        copy.read()


def test_a_connection_that_was_closed_because_no_chunk_is_left_has_nothing_to_leave(copy: Copy) -> None:
    copy.start("a")
    assert copy.read() == 100
    copy.connection.close()
    copy.connection.leave()


def test_no_more_is_read_than_there_is_room_for(copy: Copy) -> None:
    copy.start("a")
    sizes: list[int] = []
    ended = False
    while not ended:
        messages, ended = copy.connection.read(7, 30)
        assert len(messages) <= 2, "a row of 17 bytes or more, and another one"
        sizes += map(len, messages)
    assert len(sizes) == 101


def test_every_table_is_read_as_of_the_snapshot(database: Database, copy: Copy) -> None:
    copy.start("a")
    assert copy.read() == 100
    database.execute("INSERT INTO b VALUES (101, 'later')", "DELETE FROM b WHERE id <= 50")
    copy.start("b")
    assert copy.read() == 100


@pytest.mark.parametrize(
    "alteration",
    [
        "TRUNCATE b",
        "TRUNCATE b; INSERT INTO b VALUES (1, 'new')",
        "ALTER TABLE b ALTER c TYPE varchar(7)",
        "DROP TABLE b",
        "DROP TABLE b; CREATE TABLE b (id int PRIMARY KEY, c text)",
        "ALTER TABLE b RENAME TO d",
        "ALTER TABLE b RENAME TO d; CREATE TABLE b (id int PRIMARY KEY, c text)",
        "ALTER TABLE b RENAME c TO d",
        "ALTER TABLE b RENAME c TO d; ALTER TABLE b ADD c text",
        "ALTER TABLE b DROP c; ALTER TABLE b ADD c text",
    ],
)
def test_a_table_that_was_altered_while_another_was_read_is_not_read(
    database: Database, copy: Copy, alteration: str
) -> None:
    copy.start("a")
    assert copy.read() == 100
    database.execute(*alteration.split("; "))
    copy.start("b")
    with pytest.raises(SnapshotGone):
        copy.read()


def test_a_lock_that_is_not_free_ends_the_snapshot_and_not_the_daemon(database: Database, copy: Copy) -> None:
    with database.connect(autocommit=False) as other:
        other.execute("LOCK TABLE b")
        copy.start("b")
        with pytest.raises(SnapshotGone, match="being altered"):
            copy.read()


def test_a_snapshot_whose_anchor_is_gone_is_taken_again(database: Database, copy: Copy) -> None:
    copy.start("a")
    assert copy.read() == 100
    copy.anchor.close()
    time.sleep(0.2)
    copy.start("b")
    with pytest.raises(PostgresUnavailable, match="could not be imported again"):
        copy.read()


def test_a_role_that_may_read_the_columns_reads_them(database: Database, copy: Copy) -> None:
    role = f"reader_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN", "ALTER TABLE a ADD hidden text", f"GRANT SELECT (id, c) ON a TO {role}"
    )
    try:
        with closing(Copy(database, database.server.dsn(database.name, user=role))) as other:
            assert not other.heaps["a"].in_blocks, "its role may not read ctid"
            other.start("a")
            assert other.read() == 100
            other.start("b")
            with pytest.raises(SnapshotGone, match="permission denied") as caught:  # the next one leaves it out
                other.read()
            assert "GRANT SELECT" in caught.value.hint
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# The daemon's export


@contextmanager
def exported(database: Database, dsn: str) -> Iterator[ExportedSnapshot]:
    settings = Settings(
        source={"dsn": dsn, "publication": "p", "application_name": "cdcd test"}, sink={"bootstrap_servers": "k:1"}
    )
    export = SnapshotExport(
        settings,
        lambda schema, name, _: TableSnapshot("s", f"t.{name}", schema, name, WANTED, 0),
        ReadableTables(settings),
        lambda: None,
    )
    try:
        export.confirm_stream_paused()
        deadline = time.monotonic() + 30
        while not export.done:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        found = export.result()
        assert found is not None
        yield found
    finally:
        export.close()


def test_an_exported_snapshot_holds_no_lock_of_a_table(database: Database) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION p FOR TABLE a, parted WITH (publish_via_partition_root = true)",
    )
    with exported(database, database.dsn) as export:
        assert [heap.name for table in export.tables for heap in table.heaps] == ["a", "part_1"]
        held = database.execute(
            "SELECT c.relname FROM pg_locks l JOIN pg_stat_activity a USING (pid) JOIN pg_class c ON c.oid = l.relation"
            " WHERE a.application_name = 'cdcd test' AND c.relnamespace = 'public'::regnamespace"
            " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert held == []
