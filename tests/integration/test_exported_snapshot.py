"""A snapshot at an exact LSN: its tables are locked as it shows them, or it is given up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from support.fix_postgres import Database

from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.connection import Connection
from cdcd.source.exported_snapshot import export_snapshot, lock_tables
from cdcd.source.server_errors import SlotWaits, SnapshotGone
from cdcd.source.session import Session, connect, parameters
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums

pytestmark = pytest.mark.postgres_versions("oldest", "newest")
T = ("public", "t")
COMPARED = ChecksummedTable(*T, columns=("id", "v"), key=("id",))


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'v' FROM generate_series(1, 10) g",
        "CREATE TABLE parted (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION p FOR TABLE t, parted WITH (publish_via_partition_root = true)",
    )
    with Session(database.dsn) as session:
        yield session


@pytest.fixture
def reader(database: Database, session: Session) -> Iterator[SnapshotConnection]:
    """A connection that sees a snapshot of now."""
    reader = SnapshotConnection(connect(parameters(database.dsn, "cdcd test")))
    with Connection(database.dsn) as maker:
        reader.import_snapshot(export_snapshot(maker, session).snapshot or "")
    yield reader
    reader.close()


def oid(database: Database, name: str) -> int:
    [(found,)] = database.execute(f"SELECT '{name}'::regclass::oid::bigint")
    return int(found)


def test_a_locked_table_cannot_be_rewritten(database: Database, session: Session, reader: SnapshotConnection) -> None:
    [[heap]] = lock_tables(reader, session, [oid(database, "t")]).values()
    assert (heap.name, heap.blocks, heap.rewritten) == ("t", 1, False)
    with pytest.raises(psycopg.errors.LockNotAvailable):
        database.execute("SET lock_timeout = '100ms'", "TRUNCATE t")


def test_a_table_that_was_rewritten_before_the_lock_is_found(
    database: Database, session: Session, reader: SnapshotConnection
) -> None:
    database.execute("TRUNCATE t")
    with pytest.raises(SnapshotGone, match=r"public\.t was altered"):
        lock_tables(reader, session, [oid(database, "t")])


def test_a_lock_that_is_not_free_is_not_waited_for(
    database: Database, session: Session, reader: SnapshotConnection
) -> None:
    number = oid(database, "t")
    with database.connect(autocommit=False) as other:
        other.execute("LOCK TABLE t")
        with pytest.raises(SnapshotGone, match="being altered"):
            lock_tables(reader, session, [number])


def test_a_root_is_locked_with_its_partitions(database: Database, session: Session, reader: SnapshotConnection) -> None:
    [[heap]] = lock_tables(reader, session, [oid(database, "parted")], ['"public"."parted"']).values()
    assert heap.name == "parted_1"
    with pytest.raises(psycopg.errors.LockNotAvailable):
        database.execute("SET lock_timeout = '100ms'", "TRUNCATE parted_1")


def test_a_snapshot_that_waits_names_the_transaction_and_leaves_no_slot(database: Database, session: Session) -> None:
    with database.connect(autocommit=False) as writer, Connection(database.dsn) as maker:
        writer.execute("INSERT INTO t VALUES (11, 'x')")
        calls: list[int] = []
        with pytest.raises(SlotWaits, match=f"session {writer.info.backend_pid} "):
            export_snapshot(maker, session, timeout_s=0.5, meanwhile=lambda: calls.append(1))
        assert calls
    assert database.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name LIKE 'cdcd_snapshot_%'") == []


def test_checksums_hold_their_tables_until_they_are_closed(database: Database, session: Session) -> None:
    with Checksums(database.dsn, "cdcd test", "p", [T, ("public", "parted")]) as checksums:
        with pytest.raises(psycopg.errors.LockNotAvailable):
            database.execute("SET lock_timeout = '100ms'", "TRUNCATE t")
        database.execute("RESET lock_timeout", "INSERT INTO t VALUES (11, 'later')")
        parts = list(checksums.parts(COMPARED))
        assert sum(rows for _, rows, _ in parts) == 10
        assert sorted(key for _, [key], _ in checksums.rows(COMPARED, [bucket for bucket, _, _ in parts])) == sorted(
            f"{len(str(n))}:{n}" for n in range(1, 11)
        )
    database.execute("TRUNCATE t")


def test_checksums_wait_for_a_transaction_that_alters_their_table(database: Database, session: Session) -> None:
    with database.connect(autocommit=False) as other, ThreadPoolExecutor() as pool:
        other.execute("TRUNCATE t")
        other.execute("INSERT INTO t VALUES (1, 'new')")
        taken = pool.submit(Checksums, database.dsn, "cdcd test", "p", [T])
        time.sleep(1)
        assert not taken.done()
        other.commit()
        with taken.result(30) as checksums:
            assert sum(rows for _, rows, _ in checksums.parts(COMPARED)) == 1
