"""SIGTERM and SIGINT: exit code 0 within ten seconds, whatever the servers do, and durable rows are acknowledged."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable

import psycopg
import pytest
import servers
from support.daemon import Daemon, command, environment
from support.stream import StreamFixture, Writer

SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)


def _end(daemon: Daemon, number: signal.Signals) -> float:
    """End the daemon with a signal, and return how many seconds that took."""
    began = time.monotonic()
    daemon.signal(number)
    assert daemon.wait(10.0) == 0
    assert "Traceback" not in daemon.log.read_text()
    return time.monotonic() - began


def _until(ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _lsn(text: str) -> int:
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


@SIGNALS
def test_a_daemon_under_load_ends_with_its_slot_confirmed_up_to_the_last_durable_record(
    stream: StreamFixture, number: signal.Signals
) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(source={"status_interval_s": 60}).start()
    daemon.wait_until_streaming()
    with Writer(stream.dsn, rows=5):
        daemon.wait_for_log("published rows=")
        time.sleep(1)
        assert _end(daemon, number) < 5
        assert stream.walsender() is None
        assert stream.confirmed() == _lsn(stream.slot_records()[-1]["lsn"])
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


@SIGNALS
def test_an_idle_daemon_ends_at_once(stream: StreamFixture, number: signal.Signals) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon(source={"status_interval_s": 60}).start()
    daemon.wait_for_log("going on")
    assert _end(daemon, number) < 3


def test_a_daemon_that_a_library_aborts_leaves_the_stacks_of_its_threads(stream: StreamFixture) -> None:
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    daemon.signal(signal.SIGABRT)
    assert daemon.wait(10.0) == -signal.SIGABRT
    log = daemon.log.read_text()
    assert "Fatal Python error: Aborted" in log
    # The thread that aborts may be one of librdkafka's, which has no Python stack: the main thread's is there always.
    assert "in execute" in log.partition("Fatal Python error")[2]


@pytest.mark.in_turns(2)
@SIGNALS
def test_a_daemon_ends_while_kafka_is_silent(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka, number: signal.Signals
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_until_streaming()
    with Writer(stream.dsn, pause_s=0.01):
        daemon.wait_for_log("published rows=")
        restartable_kafka.pause()
        try:
            time.sleep(1)
            _end(daemon, number)
        finally:
            restartable_kafka.resume()
        assert stream.confirmed() <= _lsn(stream.slot_records()[-1]["lsn"])
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


@pytest.mark.parametrize("until", ["made the publication", "holding the slot"])
def test_a_daemon_ends_before_kafka_ever_answered(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka, until: str
) -> None:
    stream = on_restartable_kafka
    stream.sql(Writer.TABLE)
    if until == "holding the slot":
        stream.sql(f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput')")
    restartable_kafka.pause()
    try:
        daemon = stream.daemon().start()
        daemon.wait_for_log(until)
        time.sleep(0.5)
        _end(daemon, signal.SIGTERM)
    finally:
        restartable_kafka.resume()


@SIGNALS
def test_a_daemon_ends_while_postgresql_is_down(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL, number: signal.Signals
) -> None:
    stream = on_restartable_postgres
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_until_streaming()
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    restartable_postgres.stop()
    try:
        daemon.wait_for_log("starting again")
        _end(daemon, number)
    finally:
        restartable_postgres.start()


def test_a_daemon_ends_while_its_slot_waits_for_an_open_transaction(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    with psycopg.connect(stream.dsn) as writing:
        writing.execute("INSERT INTO t VALUES (1)")
        daemon = stream.daemon().start()
        daemon.wait_for_log("the slot waits for the end of open write transactions: session ")
        began = time.monotonic()
        _end(daemon, signal.SIGTERM)
        assert time.monotonic() - began < 5
        writing.commit()
        time.sleep(0.5)
        assert stream.sql(SLOTS) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_slot_whose_making_a_person_gives_up_is_not_made_later(stream: StreamFixture, number: signal.Signals) -> None:
    stream.sql(Writer.TABLE, "CREATE PUBLICATION cdcd FOR TABLE t")
    with psycopg.connect(stream.dsn) as writing:
        writing.execute("INSERT INTO t VALUES (1)")
        config = stream.daemon().config
        making = subprocess.Popen(
            [*command(), "slot", "create", "--config", str(config)], env=environment(), stderr=subprocess.PIPE,
            # What a script runs in the background ignores some signals, and whatever that starts, too.
            preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509  # it takes no lock
        )  # fmt: skip
        _until(lambda: stream.sql(SLOTS) != [])  # the server waits
        making.send_signal(number)
        _, said = making.communicate(timeout=10)
        assert making.returncode == 128 + number, said
        assert b"Traceback" not in said
        writing.commit()
        time.sleep(0.5)
        assert stream.sql(SLOTS) == []
