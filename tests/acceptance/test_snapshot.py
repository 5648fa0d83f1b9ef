"""Snapshots: the rows that the tables had before the first change are published once, whenever the daemon is killed."""

from __future__ import annotations

import os
import random
import threading
import time
from hashlib import md5
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support import topics, workload
from support.daemon import Daemon, cdcd
from support.fix_postgres import Database

ROWS = int(os.environ.get("CDCD_TEST_SNAPSHOT_ROWS", "20000"))
KILLS = int(os.environ.get("CDCD_TEST_SNAPSHOT_KILLS", "5"))

BIG = """
    CREATE TABLE big (id bigint PRIMARY KEY, n int, note text, body text);
    ALTER TABLE big ALTER body SET STORAGE EXTERNAL;
    INSERT INTO big SELECT i, 0, 'row ' || i, CASE i % 50 WHEN 0 THEN repeat(md5(i::text), 90) END
    FROM generate_series(1, {rows}) i;
"""


class Writer(threading.Thread):
    """Changes every table until `stop`: it runs the workload's mix, and updates, deletes and inserts rows of `big`."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self.done = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._database.dsn, autocommit=True) as connection:
                turn = 1000
                while not self.done.is_set():
                    turn += 1
                    workload.mix(connection, turn * 10, 10)
                    connection.execute(
                        "UPDATE big SET n = n + 1 WHERE id IN (SELECT (random() * %s)::int FROM generate_series(1, 9))",
                        (ROWS,),
                    )
                    connection.execute("DELETE FROM big WHERE id = (random() * %s)::int", (ROWS,))
                    connection.execute("INSERT INTO big VALUES (%s, 0, 'late', NULL)", (10**9 + turn,))
                    time.sleep(0.02)
        except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
            self.error = error

    def stop(self) -> None:
        self.done.set()
        self.join()
        if self.error is not None:
            raise self.error


def _check(database: Database, broker: str, prefix: str, tables: list[tuple[str, str]]) -> list[topics.Event]:
    """Fold the topics of these tables, and compare them; returns all events except those of `big`."""
    reader = topics.Topics(broker, prefix)
    by_table = reader.by_table()
    big = by_table.get(("public", "big"))
    events = [event for topic in reader.names() if topic != big for event in reader.events(topic)]
    topics.check_exactly_once(events)
    for schema, table in tables:
        with database.connect() as connection:
            wanted = workload.content(connection, schema, table)
        own = [event for event in events if event.topic == by_table[schema, table]]
        folded = topics.fold(own, snapshot=True)
        assert folded - wanted == wanted - folded, f"{schema}.{table} differs"
    return events


def _check_big(database: Database, broker: str, prefix: str) -> tuple[int, int]:
    """Check `big` event by event, whatever its size; returns the number of events, and of rows from snapshots."""
    reader = topics.Topics(broker, prefix)
    rows: dict[int, tuple[int, str, str | None]] = {}
    last: dict[int, tuple[int, int]] = {}
    positions: set[int] = set()
    read: set[int] = set()
    for message in reader.raw(reader.by_table()["public", "big"]):
        value = reader._decode(message.value())
        position = value["source"]["commit_lsn"], value["source"]["seq"]
        assert last.get(message.partition(), (-1, -1)) < position, f"out of order at {message.offset()}"
        last[message.partition()] = position
        mark = position[0] << 32 | position[1]
        assert mark not in positions, f"two events at {position}"
        positions.add(mark)
        key, after = reader._decode(message.key())["id"], value["after"]
        if value["op"] == "d":
            rows.pop(key, None)
            continue
        same = "body" in value["unchanged"]
        body = rows.get(key, (0, "", None))[2] if same else after["body"] and md5(after["body"].encode()).hexdigest()
        rows[key] = after["n"], after["note"], body
        if value["op"] == "r":
            read.add(key)
    with psycopg.connect(database.dsn) as connection, connection.cursor("big") as cursor:
        cursor.itersize = 100_000
        for key, *row in cursor.execute("SELECT id, n, note, md5(body) FROM big"):
            assert rows.pop(key, None) == tuple(row), f"row {key} differs"
    assert not rows, f"{len(rows)} rows too many, such as {next(iter(rows))}"
    return len(positions), len(read)


def _takes_a_snapshot(daemon: Daemon) -> bool:
    """Whether this start of the daemon takes a snapshot: it logs so soon after the stream goes on."""
    daemon.wait_for_log("going on", timeout_s=60)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline and "took a snapshot" not in daemon.log.read_text():
        time.sleep(0.05)
    return "took a snapshot" in daemon.log.read_text()


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("kills", [0, KILLS])
def test_folding_the_topics_equals_the_tables(
    database: Database, broker: str, prefix: str, tmp_path: Path, kills: int
) -> None:
    database.execute(workload.SCHEMA)
    with database.connect() as connection:
        for statement in BIG.format(rows=ROWS).split(";\n"):
            if statement.strip():
                connection.execute(statement)
        workload.mix(connection, 1, 1000)
        for number in range(4):
            connection.execute(f"CREATE TABLE small_{number} (id int PRIMARY KEY, v text)")
            connection.execute(f"INSERT INTO small_{number} SELECT i, i FROM generate_series(1, {number} * 50) i")
    tables = [*workload.TABLES, *(("public", f"small_{n}") for n in range(4))]
    writer = Writer(database)
    settings: dict[str, dict[str, Any]] = {
        "snapshot": {"mode": "initial", "chunk_bytes": 1 << 18},
        "source": {"tables": ["*.*"]},
    }
    with Daemon(tmp_path, database.dsn, broker, prefix, **settings) as daemon:
        daemon.start()
        writer.start()
        try:
            for _ in range(kills):
                if not _takes_a_snapshot(daemon):
                    break
                time.sleep(random.uniform(0.1, max(1.0, ROWS / 2_000_000)))
                daemon.kill()
                daemon.log.unlink()
                daemon.start()
            if _takes_a_snapshot(daemon):
                daemon.wait_for_log("the snapshot is complete", timeout_s=90 + ROWS / 20_000)
            time.sleep(1)
        finally:
            writer.stop()
        daemon.wait_until_confirmed(timeout_s=90)
        assert daemon.stop() == 0
    _check(database, broker, prefix, tables)
    events, read = _check_big(database, broker, prefix)
    print(f"\n{events:,} events of the big table, {read:,} of its rows by snapshots, {kills} kills")
    assert read >= ROWS * 0.9


def test_a_table_that_is_published_later_gets_a_snapshot_by_itself(
    database: Database, broker: str, prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE first (id int PRIMARY KEY)")
    database.execute("CREATE TABLE later (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO later SELECT i, 'before' FROM generate_series(1, 1000) i")
    database.execute("CREATE PUBLICATION cdcd FOR TABLE first")
    with Daemon(tmp_path, database.dsn, broker, prefix, snapshot={"mode": "initial"}) as daemon:
        daemon.start().wait_for_log("the snapshot is complete")
        database.execute("ALTER PUBLICATION cdcd ADD TABLE later")
        database.execute("UPDATE later SET v = 'after' WHERE id <= 10")
        daemon.until(lambda: daemon.log.read_text().count("the snapshot is complete") == 2, "a second snapshot", 40)
        database.execute("DELETE FROM later WHERE id > 990")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    events = _check(database, broker, prefix, [("public", "later")])
    assert sum(event.value["op"] == "r" for event in events if event.value) == 1000


def test_a_table_that_the_role_may_not_read_stops_nothing_and_follows_its_grant(
    database: Database, broker: str, prefix: str, tmp_path: Path
) -> None:
    role = f"reader_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        "CREATE TABLE first (id int PRIMARY KEY)",
        f"GRANT SELECT ON first TO {role}",
        "CREATE PUBLICATION cdcd FOR ALL TABLES",
    )
    dsn = database.server.dsn(database.name, user=role)
    try:
        with Daemon(tmp_path, dsn, broker, prefix, snapshot={"mode": "initial"}) as daemon:
            daemon.start().wait_for_log("the snapshot is complete")
            database.execute("CREATE TABLE hidden (id int PRIMARY KEY)", "INSERT INTO hidden VALUES (1)")
            daemon.wait_for_log('may not read "public"."hidden"')
            database.execute("INSERT INTO first VALUES (1)")
            daemon.wait_until_confirmed()
            daemon.kill()
            daemon.start().wait_until_streaming()
            database.execute("INSERT INTO hidden VALUES (2)", f"GRANT SELECT ON hidden TO {role}")
            daemon.until(lambda: daemon.log.read_text().count("the snapshot is complete") == 2, "a second snapshot", 40)
            daemon.wait_until_confirmed()
            assert daemon.stop() == 0
        _check(database, broker, prefix, [("public", "first"), ("public", "hidden")])
    finally:
        database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_a_requested_snapshot_survives_a_kill(database: Database, broker: str, prefix: str, tmp_path: Path) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 3000) i")
    with Daemon(tmp_path, database.dsn, broker, prefix, snapshot={"mode": "never"}) as daemon:
        daemon.start().wait_until_streaming()
        database.execute("UPDATE t SET v = 'w' WHERE id <= 100")
        daemon.wait_until_confirmed()
        cdcd(daemon, "snapshot", "public.t", "--no-wait")
        time.sleep(random.uniform(0.0, 0.3))
        daemon.kill()
        daemon.start().wait_for_log("the snapshot is complete", timeout_s=40)
        assert cdcd(daemon, "snapshot", "public.t") == "done public.t (3,000 rows)\n"
        assert "has no table public.x" in cdcd(daemon, "snapshot", "public.t", "public.x", code=1)
        assert cdcd(daemon, "snapshot", "public.*") == "done public.t (3,000 rows)\n"
        assert daemon.stop() == 0
    _check(database, broker, prefix, [("public", "t")])


@pytest.mark.whole
def test_a_snapshot_that_is_requested_during_another_one_follows_it(
    database: Database, broker: str, prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT i, repeat('v', 300) FROM generate_series(1, 50000) i")
    with Daemon(tmp_path, database.dsn, broker, prefix, snapshot={"mode": "initial"}) as daemon:
        daemon.start().wait_for_log("took a snapshot")
        for _ in range(2):
            database.execute("UPDATE t SET v = v || 'w' WHERE id <= 100")
            database.execute("DELETE FROM t WHERE id = (SELECT min(id) FROM t)")
            cdcd(daemon, "snapshot", "public.t")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    _check(database, broker, prefix, [("public", "t")])


def test_a_stream_after_snapshot_only_goes_on_where_the_snapshot_ended(
    database: Database, broker: str, prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("CREATE TABLE empty (id int PRIMARY KEY)")
    database.execute("INSERT INTO t SELECT i, 'v' FROM generate_series(1, 100) i")
    with Daemon(tmp_path, database.dsn, broker, prefix, snapshot={"mode": "initial"}) as daemon:
        said = cdcd(daemon, "run", "--snapshot-only").splitlines()
        assert [line.split()[:3] for line in said[:2]] == [["public.empty", "0", "rows"], ["public.t", "100", "rows"]]
        assert said[2:] == ["100 rows of 2 tables"]
        database.execute("UPDATE t SET v = 'w'")
        daemon.start().wait_until_confirmed()
        assert daemon.stop() == 0
    events = _check(database, broker, prefix, [("public", "t"), ("public", "empty")])
    assert [event.value["op"] for event in events if event.value].count("r") == 100
