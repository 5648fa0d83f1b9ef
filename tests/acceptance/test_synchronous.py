"""cdcd as a synchronous standby: a COMMIT returns as soon as Kafka has the rows, and not before."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psycopg
import pytest
import servers
from psycopg.conninfo import make_conninfo
from support.daemon import Daemon, cdcd
from support.stream import StreamFixture, eventually

from cdcd.daemon.service_watch import ASK_EVERY_S


@pytest.fixture(scope="module")
def synchronous_postgres() -> Iterator[servers.PostgreSQL]:
    """Start a server whose COMMITs wait for the standby `cdcd`."""
    with servers.PostgreSQL(fsync=False, settings={"synchronous_standby_names": "cdcd"}) as server:
        yield server


def local(dsn: str) -> str:
    """The DSN for a session whose COMMITs do not wait."""
    return make_conninfo(dsn, options="-c synchronous_commit=local")


@pytest.fixture
def stream(
    synchronous_postgres: servers.PostgreSQL,
    restartable_kafka: servers.Kafka,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[StreamFixture]:
    name = f"sync_{abs(hash(request.node.name)) % 10**6}"
    with psycopg.connect(local(synchronous_postgres.dsn()), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name}".encode())
    dsn = local(synchronous_postgres.dsn(name))
    with StreamFixture(dsn, restartable_kafka.bootstrap, name.replace("_", "-"), tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE unpublished (id int)")
        stream.publish("cdcd", "t")
        yield stream


def streaming(stream: StreamFixture) -> Daemon:
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    ask = "SELECT sync_state FROM pg_stat_replication WHERE application_name = 'cdcd'"
    eventually(lambda: stream.sql(ask) == [("sync",)], "a synchronous standby")
    return daemon


def waiting(synchronous_postgres: servers.PostgreSQL, stream: StreamFixture) -> psycopg.Connection[object]:
    """Return a session whose COMMITs wait."""
    name = stream.sql("SELECT current_database()")[0][0]
    return psycopg.connect(synchronous_postgres.dsn(name), autocommit=True)


def test_a_commit_returns_after_kafka_has_its_row(
    synchronous_postgres: servers.PostgreSQL, stream: StreamFixture
) -> None:
    daemon = streaming(stream)
    took = []
    with waiting(synchronous_postgres, stream) as session:
        for number in range(200):
            began = time.monotonic()
            session.execute("INSERT INTO t VALUES (%s)", (number,))
            took.append(time.monotonic() - began)
            if number % 40 == 0:
                assert len(stream.events()) == number + 1, "the COMMIT returned before Kafka had the row"
        began = time.monotonic()
        session.execute("INSERT INTO unpublished VALUES (1)")
        unpublished_s = time.monotonic() - began
    assert unpublished_s < 2, "a COMMIT without published changes waited for the next status interval"
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 200
    print(
        f"\nsynchronous COMMIT: p50 {statistics.median(took) * 1000:.1f} ms, unpublished {unpublished_s * 1000:.1f} ms"
    )


def test_while_kafka_is_down_commits_wait_and_can_be_let_go_without_loss(
    synchronous_postgres: servers.PostgreSQL, stream: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    daemon = streaming(stream)
    with waiting(synchronous_postgres, stream) as session, waiting(synchronous_postgres, stream) as patient:
        session.execute("INSERT INTO t VALUES (1)")
        restartable_kafka.pause()
        try:
            done = threading.Event()

            def wait_long() -> None:
                patient.execute("INSERT INTO t VALUES (2)")
                done.set()

            thread = threading.Thread(target=wait_long)
            thread.start()
            assert not done.wait(1.5), "the COMMIT returned while Kafka was down"
            # Another session cancels its wait: its transaction is committed anyway, and the client gets a notice.
            notices: list[str] = []
            session.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
            timer = threading.Timer(0.5, session.cancel_safe)
            timer.start()
            session.execute("INSERT INTO t VALUES (3)")
            timer.join()
            assert "canceling wait for synchronous replication due to user request" in notices
            # A session with synchronous_commit = local does not wait.
            session.execute("SET synchronous_commit = local")
            session.execute("INSERT INTO t VALUES (4)")
            assert stream.sql("SELECT count(*) FROM t WHERE id > 2") == [(2,)]
            assert not done.is_set()
        finally:
            restartable_kafka.resume()
        assert done.wait(30), "the COMMIT did not return after Kafka came back"
        thread.join()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 4


def test_a_snapshot_does_not_wait_for_commits_that_wait_for_cdcd(
    synchronous_postgres: servers.PostgreSQL, stream: StreamFixture
) -> None:
    """A snapshot waits until every open transaction has ended, and these transactions end when Kafka has their rows."""
    done = threading.Event()
    commits = [0, 0, 0]
    errors: list[Exception] = []

    def commit(number: int) -> None:
        try:
            with waiting(synchronous_postgres, stream) as session:
                while not done.is_set():
                    commits[number] += 1
                    session.execute("INSERT INTO t VALUES (%s)", (commits[number] * 3 + number,))
        except psycopg.Error as error:
            errors.append(error)

    daemon = streaming(stream)
    threads = [threading.Thread(target=commit, args=(number,), daemon=True) for number in range(len(commits))]
    for thread in threads:
        thread.start()
    try:
        for turn in range(1, 4):
            cdcd(daemon, "snapshot", "public.t")
            complete = partial(lambda turn: daemon.log.read_text().count("the snapshot is complete") == turn, turn)
            eventually(complete, "a snapshot", timeout_s=10)
            more = min(commits) + 10
            eventually(partial(lambda number: min(commits) > number, more), "commits go on")
    finally:
        done.set()
        for thread in threads:
            thread.join(10)
    assert not errors
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_snapshot_does_not_wait_for_a_lock_whose_owner_waits_for_cdcd(
    synchronous_postgres: servers.PostgreSQL, stream: StreamFixture
) -> None:
    """TRUNCATE keeps its lock until its COMMIT returns, that is, until Kafka has it."""
    truncates = 0
    done = threading.Event()

    def truncate() -> None:
        nonlocal truncates
        with waiting(synchronous_postgres, stream) as session:
            while not done.wait(0.2):
                session.execute("TRUNCATE t")
                truncates += 1

    daemon = streaming(stream)
    thread = threading.Thread(target=truncate, daemon=True)
    thread.start()
    try:
        for _ in range(4):
            cdcd(daemon, "snapshot", "public.t")
            more = truncates + 3
            eventually(partial(lambda number: truncates > number, more), "TRUNCATEs go on")
    finally:
        done.set()
        thread.join(10)
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_start_does_not_wait_for_a_lock_whose_owner_waits_for_cdcd(
    synchronous_postgres: servers.PostgreSQL, stream: StreamFixture
) -> None:
    daemon = streaming(stream)
    done = threading.Event()
    with waiting(synchronous_postgres, stream) as session:

        def truncate() -> None:
            session.execute("TRUNCATE t")
            done.set()

        session.execute("INSERT INTO t VALUES (1)")
        daemon.kill()
        thread = threading.Thread(target=truncate, daemon=True)
        thread.start()
        assert not done.wait(0.5), "the COMMIT returned without Kafka"
        daemon.start()
        try:
            assert done.wait(30), "the daemon waits for the TRUNCATE, which waits for the daemon"
        finally:
            if not done.is_set():
                session.cancel_safe()
            thread.join()
        session.execute("INSERT INTO t VALUES (2)")
    assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_daemon_that_becomes_a_synchronous_standby_confirms_without_waiting_for_its_next_status(
    restartable_kafka: servers.Kafka, tmp_path: Path
) -> None:
    with (
        servers.PostgreSQL(fsync=False) as server,
        StreamFixture(server.dsn(), restartable_kafka.bootstrap, "later", tmp_path) as stream,
    ):
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE unpublished (id int)")
        stream.sql("CREATE PUBLICATION cdcd FOR TABLE t")
        daemon = stream.daemon().start()
        daemon.wait_for_log("going on")
        stream.sql("ALTER SYSTEM SET synchronous_standby_names = 'cdcd'", "SELECT pg_reload_conf()")
        time.sleep(1.5 * ASK_EVERY_S)
        with psycopg.connect(server.dsn(), autocommit=True) as session:
            session.execute("INSERT INTO unpublished VALUES (0)")
            began = time.monotonic()
            for number in range(10):
                session.execute("INSERT INTO unpublished VALUES (%s)", (number,))
            assert time.monotonic() - began < 2
        assert daemon.stop() == 0
