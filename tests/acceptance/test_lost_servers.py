"""Servers that stop, die, fall silent and come back while the daemon streams."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from support.daemon import Daemon
from support.proxy import Proxy
from support.stream import StreamFixture, Table, Writer, eventually, metric

PAUSE_S = float(os.environ.get("CDCD_TEST_PAUSE_S", "15"))


def _finish(stream: StreamFixture, daemon: Daemon, *more: Table) -> None:
    """Wait until everything is published, end the daemon, and compare the topics with the tables."""
    daemon.wait_until_confirmed(timeout_s=90)
    assert daemon.stop() == 0
    stream.check(("public", "t"), *more)


def _written_past(stream: StreamFixture) -> bool:
    """Write WAL of a table that is not published; returns whether the slot is not confirmed up to its end.

    (It is confirmed if the writer commits a row of a published table right after it.)
    """
    stream.sql("CREATE TEMP TABLE x AS SELECT generate_series(1, 1000)")
    return stream.confirmed() < stream.written()


def test_a_fast_shutdown_waits_for_kafka_only_and_the_daemon_goes_on_after_it(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL
) -> None:
    stream = on_restartable_postgres
    stream.sql(Writer.TABLE)
    with stream.daemon(source={"status_interval_s": 30}).start() as daemon:
        daemon.wait_until_streaming()
        with Writer(stream.dsn):
            time.sleep(1)
            eventually(lambda: _written_past(stream), "WAL that is not confirmed")
            began = time.monotonic()
            restartable_postgres.stop(mode="fast")
            assert time.monotonic() - began < 3
            restartable_postgres.start()
            daemon.wait_until_streaming()
            time.sleep(1)
        _finish(stream, daemon)
        assert "starting again" in daemon.log.read_text()


def test_a_fast_shutdown_does_not_wait_while_kafka_is_taken_over(
    on_restartable_servers: StreamFixture, restartable_postgres: servers.PostgreSQL, restartable_kafka: servers.Kafka
) -> None:
    # Found by chaos: while a daemon takes Kafka over, it answers the server, but confirms no new position.
    stream = on_restartable_servers
    stream.sql(Writer.TABLE)
    with stream.daemon() as daemon:
        daemon.start().wait_for_log("going on")
        assert daemon.stop() == 0
        stream.sql("INSERT INTO t VALUES (1)")
        restartable_kafka.pause()
        try:
            daemon.start()
            eventually(lambda: daemon.log.read_text().count("holding the slot") == 2, "the slot")
            time.sleep(1)
            began = time.monotonic()
            restartable_postgres.stop(mode="fast")
            assert time.monotonic() - began < 5
        finally:
            restartable_kafka.resume()
        restartable_postgres.start()
        _finish(stream, daemon)


def test_a_fast_shutdown_does_not_wait_for_a_kafka_that_has_fallen_silent(
    on_restartable_servers: StreamFixture, restartable_postgres: servers.PostgreSQL, restartable_kafka: servers.Kafka
) -> None:
    stream = on_restartable_servers
    stream.sql(Writer.TABLE)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        with Writer(stream.dsn):
            daemon.wait_for_log("published")
            restartable_kafka.pause()
            try:
                time.sleep(1)
                began = time.monotonic()
                restartable_postgres.stop(mode="fast")
                assert 2 < time.monotonic() - began < 15, "the daemon must wait for Kafka, but only a moment"
            finally:
                restartable_kafka.resume()
            restartable_postgres.start()
            time.sleep(1)
        _finish(stream, daemon)


def test_a_terminated_session_does_not_end_the_stream_while_kafka_is_silent(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        first = stream.walsender()
        [(ended,)] = stream.sql(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'cdcd'"
            " AND backend_type = 'client backend' AND datname = current_database()"
        )
        assert ended > 0
        with Writer(stream.dsn):
            daemon.wait_for_log("published")
            restartable_kafka.pause()
            try:
                time.sleep(8)
                assert stream.walsender() == first
                assert metric(daemon, "cdcd_restarts_total") == 0
            finally:
                restartable_kafka.resume()
        _finish(stream, daemon)


def test_a_fast_shutdown_does_not_wait_for_a_prepared_transaction(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL
) -> None:
    # Found by chaos: a prepared transaction is acknowledged at COMMIT PREPARED, and a fast shutdown waits for that.
    stream = on_restartable_postgres
    if restartable_postgres.version < 15:
        pytest.skip("two-phase decoding needs PostgreSQL 15")
    stream.sql(Writer.TABLE)
    with stream.daemon(source={"two_phase": True}).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("BEGIN; INSERT INTO t VALUES (1); PREPARE TRANSACTION 'p'", "INSERT INTO t VALUES (2)")
        eventually(lambda: len(stream.events()) == 1, "the row that is committed")
        began = time.monotonic()
        restartable_postgres.stop(mode="fast", timeout_s=20)
        assert time.monotonic() - began < 5
        restartable_postgres.start()
        daemon.wait_until_streaming()
        stream.sql("COMMIT PREPARED 'p'")
        _finish(stream, daemon)
        assert len(stream.events()) == 2


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("how", ["immediate", "SIGKILL", "terminate"])
def test_every_row_once_after_the_server_is_lost(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL, how: str
) -> None:
    stream = on_restartable_postgres
    stream.sql(Writer.TABLE)
    with stream.daemon().start() as daemon:
        daemon.wait_until_streaming()
        with Writer(stream.dsn):
            time.sleep(1.5)
            if how == "immediate":
                restartable_postgres.restart(mode="immediate")
            elif how == "SIGKILL":
                restartable_postgres.kill()
                restartable_postgres.start()
            else:
                for _ in range(3):
                    pid = eventually(stream.walsender, "walsender")
                    stream.sql(f"SELECT pg_terminate_backend({pid})")
                    eventually(_other_walsender(stream, pid), "new walsender")
            time.sleep(1.5)
        _finish(stream, daemon)
        assert "starting again" in daemon.log.read_text()


def test_a_half_open_connection_is_given_up(stream: StreamFixture, postgres: servers.PostgreSQL) -> None:
    # Found by chaos: a proxy or a firewall may hide the end of a connection, and the daemon waited without end.
    stream.sql(Writer.TABLE)
    with Proxy(postgres.port) as proxy:
        dsn = psycopg.conninfo.make_conninfo(stream.dsn, port=proxy.port, options="-c wal_sender_timeout=5s")
        daemon = stream.daemon(source={"dsn": dsn})
        with daemon.start():
            daemon.wait_for_log("going on")
            stream.sql("INSERT INTO t VALUES (1)")
            daemon.wait_until_confirmed()
            proxy.half_open()
            stream.sql("INSERT INTO t VALUES (2)")
            daemon.wait_for_log("PostgreSQL has been silent for 10 s", 20)
            _finish(stream, daemon)
            assert len(stream.events()) == 2


def test_a_server_that_never_notices_a_lost_connection_gives_the_slot_back(
    stream: StreamFixture, postgres: servers.PostgreSQL
) -> None:
    stream.sql(Writer.TABLE)
    with Proxy(postgres.port) as proxy:
        dsn = psycopg.conninfo.make_conninfo(stream.dsn, port=proxy.port, options="-c wal_sender_timeout=0")
        daemon = stream.daemon(source={"dsn": dsn})
        with daemon.start():
            daemon.wait_for_log("going on")
            stream.sql("INSERT INTO t VALUES (1)")
            daemon.wait_until_confirmed()
            proxy.lose_clients()
            stream.sql("INSERT INTO t VALUES (2)")
            daemon.wait_for_log("the server had not noticed that the last connection of this daemon is lost")
            _finish(stream, daemon)
            assert "standing by" not in daemon.log.read_text()
            assert len(stream.events()) == 2


def test_changes_that_a_crashed_server_sends_again_are_left_out(
    start_postgres: Callable[..., servers.PostgreSQL], broker: str, prefix: str, tmp_path: Path
) -> None:
    # A slot's position reaches the disk with a checkpoint, so a crash sets it back. Version 14 also sends empty
    # transactions; in Kafka, only the position of an idle slot record covers them.
    server = start_postgres(14)
    with StreamFixture(server.dsn(), broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE, "CREATE TABLE other (id int)", "CREATE PUBLICATION cdcd FOR TABLE t")
        daemon = stream.daemon(source={"status_interval_s": 0.1}).start()
        daemon.wait_for_log("going on")
        with psycopg.connect(stream.dsn, autocommit=True) as connection:
            for number in range(5000):
                connection.execute(f"INSERT INTO {'t' if number % 100 == 0 else 'other'} VALUES ({number})".encode())
        daemon.wait_until_confirmed()
        before = stream.confirmed()
        server.kill()
        server.start()
        assert stream.confirmed() < before, "the crash did not set the slot back, so this tests nothing"
        daemon.wait_until_confirmed()
        stream.sql("INSERT INTO t VALUES (-1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        assert len(stream.check(("public", "t"))) == 51


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("how", ["clean", "SIGKILL"])
def test_every_row_once_after_the_broker_was_restarted(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka, how: str
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    with stream.daemon().start() as daemon:
        daemon.wait_until_streaming()
        with Writer(stream.dsn):
            daemon.wait_until_confirmed()
            time.sleep(1)
            # This table has no topic yet: a broker that stops or starts answers such a request with special errors.
            late = ["CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)"]
            if how == "clean":
                stream.sql(*late)
                restartable_kafka.stop()
            else:
                restartable_kafka.kill()
                stream.sql(*late)
            restartable_kafka.start()
            time.sleep(1)
        _finish(stream, daemon, ("public", "late"))


@pytest.mark.whole
def test_a_silent_broker_ends_no_connection_and_loses_no_row(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    impatient = psycopg.conninfo.make_conninfo(stream.dsn, options="-c wal_sender_timeout=10s")
    settings: dict[str, dict[str, Any]] = {
        "source": {"dsn": impatient, "status_interval_s": 10},
        "sink": {"queue_bytes_max": 1 << 20},
    }
    with stream.daemon(**settings).start() as daemon:
        daemon.wait_until_streaming()
        with Writer(stream.dsn, rows=100, pause_s=0.03) as writer:
            daemon.wait_for_log("published")
            first = stream.walsender()
            assert first is not None
            before = writer.commits
            restartable_kafka.pause()
            try:
                deadline = time.monotonic() + PAUSE_S
                while time.monotonic() < deadline:
                    assert stream.walsender() == first
                    time.sleep(0.25)
            finally:
                restartable_kafka.resume()
            written = writer.commits - before
        daemon.wait_until_confirmed(timeout_s=120)
        # After a pause, the broker may be slow to end a transaction. Then the daemon gives up its producer, and starts
        # again with a new connection. This is the only reason that is allowed.
        starts = [line for line in daemon.log.read_text().splitlines() if "starting again" in line]
        assert all("to end a transaction" in line for line in starts), starts
        assert starts or stream.walsender() == first
        assert metric(daemon, "cdcd_transactions_total") > 0
        assert metric(daemon, "cdcd_restarts_total") == len(starts)
        assert daemon.stop() == 0
    events = stream.check(("public", "t"))
    assert written > PAUSE_S * 5, "too little was written during the pause"
    print(f"\npaused {PAUSE_S:g} s, {written} transactions during the pause, {len(events)} events")


def _other_walsender(stream: StreamFixture, pid: int) -> Callable[[], bool]:
    return lambda: stream.walsender() not in (None, pid)
