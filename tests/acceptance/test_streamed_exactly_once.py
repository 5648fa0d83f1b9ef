"""Exactly once, at whatever point of a streamed or prepared transaction the daemon is killed."""

from __future__ import annotations

import random
import threading
import time
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.stream import StreamFixture

KILLS = 12
WRITERS = 2
OPTIONS = "-c logical_decoding_work_mem=64kB"

SCHEMA = (
    "CREATE TABLE t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0, pad text)",
    "CREATE TABLE log (id bigint PRIMARY KEY, session int, pad text)",
)


class Writer(threading.Thread):
    """Commits, rolls back or prepares transactions of up to some thousand rows, with savepoints, until told to stop."""

    def __init__(self, dsn: str, number: int, two_phase: bool, done: threading.Event) -> None:
        super().__init__(daemon=True)
        self._dsn = dsn
        self._number = number
        self._two_phase = two_phase
        self._done = done
        self._random = random.Random(number)
        self.error: BaseException | None = None
        self.committed = 0

    def run(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                turn = 0
                while not self._done.wait(0.2):
                    turn += 1
                    self._transaction(connection, (self._number << 40) + (turn << 16), f"g{self._number}-{turn}")
        except BaseException as error:  # noqa: BLE001  # reported by the test's own thread
            self.error = error

    def _transaction(self, connection: psycopg.Connection[Any], first: int, gid: str) -> None:
        choose = self._random
        connection.execute("BEGIN")
        for part in range(choose.randint(1, 6)):
            start = first + part * 4_000
            rows = choose.choice([1, 10, 300, 1_000])
            connection.execute("SAVEPOINT s")
            connection.execute(
                "INSERT INTO t SELECT n, 0, repeat('p', 100) FROM generate_series(%s::bigint, %s) n",
                (start, start + rows - 1),
            )
            connection.execute("INSERT INTO log VALUES (%s, %s, repeat('q', 1000))", (start, self._number))
            connection.execute(
                "UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s AND id %% 3 = 0", (first, start + rows)
            )
            if choose.random() < 0.3:
                connection.execute("ROLLBACK TO s")
        connection.execute("DELETE FROM t WHERE id BETWEEN %s AND %s AND id %% 7 = 0", (first, first + 1_000))
        end = choose.choice(["COMMIT", "COMMIT", "ROLLBACK", "PREPARE"])
        if end != "PREPARE" or not self._two_phase:
            connection.execute("ROLLBACK" if end == "ROLLBACK" else "COMMIT")
        else:
            connection.execute(f"PREPARE TRANSACTION '{gid}'".encode())
            time.sleep(choose.choice([0, 0.05, 1.0]))
            end = choose.choice(["COMMIT", "ROLLBACK"])
            connection.execute(f"{end} PREPARED '{gid}'".encode())
        self.committed += end != "ROLLBACK"


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_streamed_and_prepared_transactions_come_once_while_the_daemon_is_killed(stream: StreamFixture) -> None:
    stream.sql(*SCHEMA)
    two_phase = stream.sql("SELECT current_setting('server_version_num')::int >= 150000")[0][0]
    daemon = stream.daemon(
        source={"dsn": make_conninfo(stream.dsn, options=OPTIONS), "two_phase": two_phase},
        spool={"memory_bytes": 1 << 20},
    )
    daemon.start().wait_for_log("going on")
    done = threading.Event()
    writers = [Writer(stream.dsn, number, two_phase, done) for number in range(1, WRITERS + 1)]
    for writer in writers:
        writer.start()
    choose = random.Random(4711)
    for _ in range(KILLS):
        time.sleep(choose.uniform(0.1, 2.5))
        daemon.kill()
        daemon.start()
    time.sleep(1)
    done.set()
    for writer in writers:
        writer.join(60)
        assert writer.error is None, writer.error
    daemon.wait_until_confirmed(timeout_s=120)
    assert daemon.stop() == 0
    assert "Stop" not in daemon.log.read_text()
    events = stream.check(("public", "t"), ("public", "log"))
    [(streamed,)] = stream.sql(f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{stream.slot}'")
    assert streamed > 5
    committed = sum(writer.committed for writer in writers)
    assert committed > KILLS
    print(f"\n{committed} transactions, {len(events)} events, {streamed} streamed, {KILLS} kills")


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("newest")
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("rows", [3, 5_000], ids=["whole", "streamed"])
def test_a_prepared_transaction_survives_a_kill_before_its_end(stream: StreamFixture, end: str, rows: int) -> None:
    stream.sql(*SCHEMA)
    source = {"dsn": make_conninfo(stream.dsn, options=OPTIONS), "two_phase": True}
    daemon = stream.daemon(source=source)
    daemon.start().wait_for_log("going on")
    stream.sql(f"BEGIN; INSERT INTO t SELECT n, 0, 'p' FROM generate_series(1, {rows}) n; PREPARE TRANSACTION 'g'")
    prepared = stream.written()
    stream.sql("INSERT INTO log VALUES (1, 1, '')")
    daemon.until(lambda: published(stream) == 1, "the row that was committed after it", 30)
    assert stream.confirmed() < prepared, "a restart must get its rows again"
    daemon.kill()
    daemon.start()
    stream.sql("INSERT INTO log VALUES (2, 1, '')")
    daemon.until(lambda: published(stream) == 2, "the second row", 30)
    assert stream.confirmed() < prepared
    daemon.kill()
    stream.sql(f"{end} PREPARED 'g'", "INSERT INTO log VALUES (3, 1, '')")
    daemon.start().wait_until_confirmed()
    assert stream.confirmed() >= prepared, "an ended transaction must not hold back the slot"
    assert daemon.stop() == 0
    events = stream.check(("public", "t"), ("public", "log"))
    assert len(events) == 3 + (rows if end == "COMMIT" else 0)


def published(stream: StreamFixture) -> int:
    """How many rows the slot records count."""
    return sum(record["rows"] for record in stream.slot_records())


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_a_transaction_that_the_server_cannot_decode_in_progress_comes_whole(stream: StreamFixture) -> None:
    """The server decodes late, and confuses the TRUNCATE at the end with the rolled back TRUNCATE of the savepoint."""
    small_blocks = {"dsn": make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")}
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    with stream.daemon(source=small_blocks).start() as daemon:
        daemon.wait_for_log("going on")
        assert daemon.stop() == 0
        with psycopg.connect(stream.dsn) as large:
            rows = "INSERT INTO t SELECT n, repeat('p', 200) FROM generate_series(1, 2000) n"
            for statement in ("SAVEPOINT s", "TRUNCATE t", rows, "ROLLBACK TO s", rows, "TRUNCATE t"):
                large.execute(statement.encode())
        daemon.start().wait_until_confirmed()
        assert "asks for whole ones" in daemon.log.read_text()
        assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) > 2000
