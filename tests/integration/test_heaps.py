"""What became of a table between a snapshot and its lock, told by the catalog of both."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest
from support.fix_postgres import Database

from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.heaps import altered_heaps, heaps
from cdcd.source.session import Session, connect, parameters

ALTERATIONS = {
    "nothing": ("INSERT INTO t VALUES (2, 'y')", []),
    "what does not matter": ("CREATE INDEX ON t (c); ALTER TABLE t ALTER c SET NOT NULL", []),
    "rewritten": ("TRUNCATE t", ["t"]),
    "dropped": ("DROP TABLE t", ["t"]),
    "a column under another's name": ("ALTER TABLE t RENAME c TO d; ALTER TABLE t ADD c text", ["t"]),
    "a column remade": ("ALTER TABLE t DROP c; ALTER TABLE t ADD c text", ["t"]),
    "a table under another's name": ("ALTER TABLE t RENAME TO u; CREATE TABLE t (id int PRIMARY KEY, c text)", ["t"]),
    "a partition's column": ("ALTER TABLE p RENAME c TO d; ALTER TABLE p ADD c text", ["p1"]),
}  # fmt: skip


@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("what", ALTERATIONS)
def test_what_a_snapshot_can_show_no_more_is_found(database: Database, what: str) -> None:
    statement, altered = ALTERATIONS[what]
    database.execute("CREATE TABLE t (id int PRIMARY KEY, c text)")
    database.execute("INSERT INTO t VALUES (1, 'x')")
    database.execute("CREATE TABLE p (id int PRIMARY KEY, c text) PARTITION BY RANGE (id)")
    database.execute("CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    oids = [oid for (oid,) in database.execute("SELECT oid::bigint FROM pg_class WHERE relname IN ('t', 'p')")]
    with (
        psycopg.connect(database.dsn) as exporter,
        closing(SnapshotConnection(connect(parameters(database.dsn, "cdcd-test")))) as snapshot,
        Session(database.dsn) as session,
    ):
        exporter.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        [(name,)] = exporter.execute("SELECT pg_export_snapshot()").fetchall()
        snapshot.import_snapshot(name)
        database.execute(statement)
        found = [heap for own in heaps(snapshot, oids).values() for heap in own]
        assert [heap.name for heap in altered_heaps(snapshot, session, found)] == altered
