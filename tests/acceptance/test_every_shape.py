"""A publication for all tables, over tables of every shape, under a mixed workload: no stop, no difference."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from random import Random
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support import topics
from support.nodes import columns_of
from support.shapes import NAMES, TEXT_ONLY, Table, make, quoted
from support.stream import StreamFixture

TRANSACTIONS = 250
SEED = int(os.environ.get("CDCD_TEST_SEED", "4711"))


class Workload:
    """Random changes of all tables, from a seed. Its own DDL keeps its descriptions of the tables right."""

    def __init__(self, connection: psycopg.Connection[Any], tables: list[Table], seed: int) -> None:
        self.tables = tables
        self.counts: Counter[str] = Counter()
        self._connection = connection
        self._random = Random(seed)
        self._number = 0

    def fill(self) -> None:
        """Insert some rows into every table, twenty tables in a transaction."""
        for first in range(0, len(self.tables), 20):
            with self._connection.transaction():
                for table in self.tables[first : first + 20]:
                    self._insert(table, 4)

    def transaction(self) -> None:
        """Run one transaction with a few changes of a few tables; some changes are rolled back."""
        choose = self._random
        with self._connection.transaction() as whole:
            for _ in range(choose.randint(1, 6)):
                with self._connection.transaction() as part:
                    self._change(choose.choice(self.tables))
                    if choose.random() < 0.15:
                        raise psycopg.Rollback(part)
            if choose.random() < 0.1:
                self._run("CREATE TABLE shapes.in_vain (id int PRIMARY KEY)")
                self._run("INSERT INTO shapes.in_vain VALUES (1)")
                raise psycopg.Rollback(whole)

    def large(self) -> None:
        """Run one transaction of thousands of rows in many tables; a part of it is rolled back."""
        with self._connection.transaction():
            for table in self._random.sample(self.tables, 30):
                with self._connection.transaction() as part:
                    self._insert(table, 60)
                    if self._random.random() < 0.2:
                        raise psycopg.Rollback(part)
                    self._change(table)

    def alter(self) -> None:
        """Alter one table, update all its rows and insert one, so that every row has the new columns."""
        choose = self._random
        table = choose.choice([t for t in self.tables if t.is_alterable and t.is_updatable and t.columns])
        others = [column for column in table.columns if column != table.key and column != next(iter(table.columns))]
        name = choose.choice([name for name in NAMES if name not in table.columns])
        with self._connection.transaction():
            if choose.random() < 0.5 or not others:
                type_, value = choose.choice([("text", "'added'"), ("int[]", "ARRAY[{n}]::int[]"), ("date", "NULL")])
                self._run(f"ALTER TABLE {table.sql} ADD {quoted(name)} {type_}")
                table.columns[name] = value
            elif choose.random() < 0.5:
                gone = choose.choice(others)
                self._run(f"ALTER TABLE {table.sql} DROP {quoted(gone)}")
                del table.columns[gone]
            else:
                old = choose.choice(others)
                self._run(f"ALTER TABLE {table.sql} RENAME {quoted(old)} TO {quoted(name)}")
                table.columns[name] = table.columns.pop(old)
            column = quoted(next(iter(table.columns)))
            self._run(f"UPDATE {table.only} SET {column} = {column}")
            self._insert(table, 1)
        self.counts["DDL"] += 1

    def make(self) -> None:
        """Create a new table with rows, and another one that is dropped again."""
        number = self._next()
        with self._connection.transaction():
            self._run(f"CREATE TABLE shapes.made_{number} (id int PRIMARY KEY, v text)")
            self.tables.append(Table("shapes", f"made_{number}", {"id": "{n}", "v": "'m'"}, "id"))
            self._insert(self.tables[-1], 3)
        self._run("CREATE TABLE shapes.short_lived (id int PRIMARY KEY)")
        self._run("INSERT INTO shapes.short_lived VALUES (1)")
        self._run("DROP TABLE shapes.short_lived")

    def _change(self, table: Table) -> None:
        what = self._random.choices(["insert", "update", "delete", "truncate"], [5, 4, 2, 1])[0]
        if what == "truncate":
            self._truncate(table)
        elif what == "insert" or not table.is_updatable or not table.columns:
            self._insert(table, self._random.choice([1, 1, 2, 8]))
        else:
            rows = f"SELECT tableoid, ctid FROM {table.written} ORDER BY tableoid, ctid"
            some = (
                f"(tableoid, ctid) IN ({rows} LIMIT {self._random.randint(1, 3)} OFFSET {self._random.randint(0, 4)})"
            )
            if what == "delete":
                self._run(f"DELETE FROM {table.written} WHERE {some}")
            else:
                self._update(table, some)
        self.counts[what] += 1

    def _insert(self, table: Table, rows: int) -> None:
        if not table.columns:
            for _ in range(rows):
                self._run(f"INSERT INTO {table.sql} DEFAULT VALUES")
            return
        names = ", ".join(quoted(column) for column in table.columns)
        values = ", ".join(value.format(n="n") for value in table.columns.values())
        first = self._next(rows)
        series = f"generate_series({first}, {first + rows - 1}) n"
        self._run(f"INSERT INTO {table.through or table.sql} ({names}) SELECT {values} FROM {series}")

    def _update(self, table: Table, some: str) -> None:
        if table.key and self._random.random() < 0.3:
            some = some.replace("LIMIT 2", "LIMIT 1").replace("LIMIT 3", "LIMIT 1")
            changed = [table.key]
        else:
            changed = [c for c in table.columns if c != table.key and self._random.random() < 0.6]
        if changed:
            n = self._next()
            new = ", ".join(f"{quoted(c)} = {table.columns[c].format(n=n)}" for c in changed)
            self._run(f"UPDATE {table.written} SET {new} WHERE {some}")

    def _truncate(self, table: Table) -> None:
        others = self._random.sample(self.tables, self._random.randint(0, 2))
        names = {each.only for each in (table, *others)}
        how = self._random.choice(["", " RESTART IDENTITY"]) + " CASCADE"
        self._run(f"TRUNCATE {', '.join(sorted(names))}{how}")

    def _next(self, count: int = 1) -> int:
        self._number += count
        return self._number - count + 1

    def _run(self, statement: str) -> None:
        self._connection.execute(statement.encode())


@pytest.mark.parametrize(
    ("via_root", "types"),
    [
        pytest.param(False, TEXT_ONLY, id="leaves-text", marks=pytest.mark.postgres_versions("oldest")),
        pytest.param(True, {}, id="roots-binary", marks=pytest.mark.postgres_versions("newest")),
    ],
)
def test_a_server_wide_publication_neither_stops_nor_differs(
    stream: StreamFixture, via_root: bool, types: dict[str, str]
) -> None:
    [(version,)] = stream.sql("SELECT current_setting('server_version_num')::int / 10000")
    made = make(version, via_root, types)
    options = [f"publish_via_partition_root = {via_root}"]
    if version >= 18:
        options.append("publish_generated_columns = stored")
    stream.sql(*made.statements, f"CREATE PUBLICATION cdcd FOR ALL TABLES WITH ({', '.join(options)})")
    assert len(made.tables) > 200
    dsn = make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")
    daemon = stream.daemon(source={"dsn": dsn}, sink={"partitions": 2}, spool={"memory_bytes": 1 << 20}).start()
    daemon.wait_for_log("going on")
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        connection.execute("SET client_min_messages = error")
        connection.execute("CREATE TEMPORARY TABLE temporary AS SELECT 1 AS id")
        connection.execute("INSERT INTO shapes.unlogged VALUES (1)")
        workload = Workload(connection, made.tables, SEED)
        workload.fill()
        for number in range(TRANSACTIONS):
            workload.transaction()
            if number % 8 == 0:
                workload.alter()
            if number % 60 == 0:
                workload.make()
                workload.large()
                connection.execute("UPDATE temporary SET id = 2")
                connection.execute("UPDATE shapes.unlogged SET id = id + 1")
                connection.execute("REFRESH MATERIALIZED VIEW shapes.seen")
    daemon.wait_until_confirmed(timeout_s=60)
    assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert "starting again" not in log
    assert ("streaming in text mode" in log) == bool(types)

    events = stream.events()
    topics.check_exactly_once(events)
    by_table = stream.topics.by_table()
    assert len(by_table) == len(set(by_table.values())) > 200
    assert not {name for _, name in by_table} & set(made.unpublished)
    of_topic = defaultdict(list)
    for event in events:
        of_topic[event.topic].append(event)
    differing = dict(differences(stream, made.tables, {table: of_topic[topic] for table, topic in by_table.items()}))
    assert not differing, f"{len(differing)} tables differ: {list(differing.items())[:3]}"
    [(streamed,)] = stream.sql(f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{stream.slot}'")
    assert streamed > 0
    print(f"\n{len(made.tables)} tables, {len(events)} events, {streamed} streamed, {dict(workload.counts)}")


def differences(
    stream: StreamFixture, tables: list[Table], events: dict[tuple[str, str], list[topics.Event]]
) -> Iterator[tuple[str, str]]:
    """Yield each table whose folded topic does not have the server's rows, and what differs."""
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for table in tables:
            theirs = events.get((table.schema, table.name), [])
            columns = columns_of(theirs)
            texts = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns)
            query = sql.SQL("SELECT {} FROM ").format(texts).as_string(connection) + table.only
            wanted, folded = Counter(connection.execute(query.encode()).fetchall()), topics.fold(theirs)
            if folded != wanted:
                too_many, missing = (str(list((a - b).items()))[:300] for a, b in ((folded, wanted), (wanted, folded)))
                yield table.sql, f"too many {too_many}, missing {missing}"
