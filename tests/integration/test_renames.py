"""Tables that get other names, and others that get theirs, while the stream goes on: every row comes, once."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from support.assembly import Assembly
from support.fix_postgres import Database

from cdcd.source.replication_stream import ReplicationStream

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

MANY = 1_000
"""Rows that take more than logical_decoding_work_mem."""
either_way = pytest.mark.parametrize("streaming", ["off", "on"])


class Stream:
    """What cdcd makes of the stream that a server sends while the tables are renamed."""

    def __init__(self, database: Database, folder: Path, streaming: str) -> None:
        self._walsender = ReplicationStream(f"{database.dsn} options='-c logical_decoding_work_mem=64kB'")
        self._assembly = Assembly(folder)
        slot = f"s_{database.name}"
        self._walsender.create_slot(slot)
        options = {"proto_version": "2", "publication_names": '"p"', "streaming": streaming}
        self._walsender.start(slot, 0, options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._walsender.close()

    def rows(self, count: int) -> list[Any]:
        """The ids of so many rows, sorted."""
        found: list[Any] = []
        deadline = time.monotonic() + 20
        while len(found) < count:
            assert time.monotonic() < deadline, f"only {len(found)} rows came"
            self._walsender.wait(0.1)
            self._assembly.assembler.feed(self._walsender.read(10_000, 1 << 20))
            self._assembly.feed_on()
            found += self._assembly.rows()
        return sorted(found)


def impatient(database: Database) -> psycopg.Connection[Any]:
    """A connection that fails rather than waits for a lock."""
    return psycopg.connect(f"{database.dsn} options='-c lock_timeout=5s'")


@either_way
def test_partitions_whose_root_has_lost_its_name_to_another_table(
    database: Database, tmp_path: Path, streaming: str
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE a1 PARTITION OF a FOR VALUES FROM (0) TO (100000)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE PUBLICATION p FOR TABLE a, b WITH (publish_via_partition_root = true)",
    )
    with Stream(database, tmp_path, streaming) as stream, impatient(database) as writer, impatient(database) as swap:
        writer.execute("INSERT INTO a1 VALUES (0)")  # from now on this session need not look at the root
        writer.commit()
        writer.execute("INSERT INTO a1 SELECT generate_series(1, %s)", (MANY,))
        swap.execute("ALTER TABLE a RENAME TO a_old")
        swap.execute("INSERT INTO a_old VALUES (90000)")
        swap.execute("ALTER TABLE b RENAME TO a")
        swap.execute("INSERT INTO a VALUES (90001)")
        swap.execute("INSERT INTO a_old VALUES (90002)")
        swap.commit()
        writer.execute("INSERT INTO a1 SELECT generate_series(%s::int + 1, 2 * %s)", (MANY, MANY))
        writer.commit()
        database.execute(
            "INSERT INTO a VALUES (90003)", "INSERT INTO a_old VALUES (90004)", "INSERT INTO a VALUES (90005)"
        )
        assert stream.rows(2 * MANY + 7) == [*range(2 * MANY + 1), *range(90_000, 90_006)]


@either_way
def test_a_table_whose_schema_has_lost_its_name_to_another_schema(
    database: Database, tmp_path: Path, streaming: str
) -> None:
    database.execute("CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES")
    with Stream(database, tmp_path, streaming) as stream, impatient(database) as writer:
        database.execute("INSERT INTO s.t VALUES (0)")
        writer.execute("INSERT INTO s.t SELECT generate_series(1, %s)", (MANY,))
        database.execute(
            "ALTER SCHEMA s RENAME TO s_old", "CREATE SCHEMA s", "CREATE TABLE s.t (id int PRIMARY KEY)",
            "INSERT INTO s.t VALUES (90000)", "INSERT INTO s_old.t VALUES (90001)", "INSERT INTO s.t VALUES (90002)",
        )  # fmt: skip
        writer.execute("INSERT INTO s_old.t SELECT generate_series(%s::int + 1, 2 * %s)", (MANY, MANY))
        writer.commit()
        database.execute(
            "INSERT INTO s.t VALUES (90003)", "INSERT INTO s_old.t VALUES (90004)", "INSERT INTO s.t VALUES (90005)"
        )
        assert stream.rows(2 * MANY + 7) == [*range(2 * MANY + 1), *range(90_000, 90_006)]


@either_way
def test_tables_that_swap_their_names_in_and_between_transactions(
    database: Database, tmp_path: Path, streaming: str
) -> None:
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE other (id int PRIMARY KEY)", "CREATE PUBLICATION p FOR ALL TABLES",
    )  # fmt: skip
    with Stream(database, tmp_path, streaming) as stream, impatient(database) as writer, impatient(database) as swap:
        database.execute("INSERT INTO a VALUES (90000)", "INSERT INTO b VALUES (90001)")
        writer.execute("INSERT INTO other SELECT generate_series(0, %s)", (MANY,))
        writer.execute("SAVEPOINT one")
        writer.execute("INSERT INTO a SELECT generate_series(1, %s)", (MANY,))
        writer.execute("ROLLBACK TO one")  # this gives up the lock
        swap.execute("INSERT INTO a SELECT generate_series(%s::int + 1, 2 * %s)", (MANY, MANY))
        swap.execute("ALTER TABLE a RENAME TO a_old")
        swap.execute("ALTER TABLE b RENAME TO a")
        swap.execute("INSERT INTO a VALUES (90002)")
        swap.execute("INSERT INTO a_old VALUES (90003)")
        swap.execute("DROP TABLE a")
        swap.execute("CREATE TABLE a (id int PRIMARY KEY)")
        swap.execute("INSERT INTO a VALUES (90004)")
        swap.commit()
        writer.execute("INSERT INTO a VALUES (90005)")
        writer.execute("INSERT INTO a_old VALUES (90006)")
        writer.commit()
        database.execute("INSERT INTO a VALUES (90007)", "INSERT INTO a_old VALUES (90008)")
        assert stream.rows(2 * MANY + 10) == [*range(2 * MANY + 1), *range(90_000, 90_009)]
