"""How long the supervisor tries again: for ever once it has streamed, for a minute if it never did.

The minute is shortened, in the process that runs the daemon, so that the test need not last one.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
import servers
from support.daemon import environment

SHORTENED = """
import sys
from cdcd.cli.main import main
from cdcd.daemon import supervisor
supervisor.FIRST_STREAM_WITHIN_S = 3.0
sys.exit(main(["run"]))
"""


def _start(dsn: str, broker: str, log: Path, prefix: str) -> subprocess.Popen[bytes]:
    settings = {
        "CDCD_SOURCE__DSN": dsn,
        "CDCD_SOURCE__TABLES": '["*.*"]',
        "CDCD_SOURCE__SLOT": prefix.replace("-", "_"),
        "CDCD_SINK__BOOTSTRAP_SERVERS": broker,
        "CDCD_SINK__PREFIX": prefix,
        "CDCD_MONITORING__PORT": "0",
    }
    with log.open("wb") as stderr:
        return subprocess.Popen([sys.executable, "-c", SHORTENED], env=environment() | settings, stderr=stderr)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_postgresql_that_was_never_there_ends_the_daemon_with_the_hint(broker: str, log: Path, prefix: str) -> None:
    process = _start(f"host=127.0.0.1 port={servers.free_port()} dbname=x user=x", broker, log, prefix)
    try:
        assert process.wait(60) == 1
    finally:
        process.kill()
    *before, last = log.read_text().splitlines()
    assert "ERROR cdcd: no stream started" in last
    assert "source.dsn" in last
    assert "Traceback" not in log.read_text()
    assert sum("WARNING daemon.supervisor: starting again" in line for line in before) >= 3


@pytest.mark.whole
def test_a_kafka_that_was_never_there_is_waited_for(postgres: servers.PostgreSQL, log: Path, prefix: str) -> None:
    process = _start(postgres.dsn(), f"127.0.0.1:{servers.free_port()}", log, prefix)
    try:
        _until(lambda: "starting again" in log.read_text(), 60)  # an attempt waits for Kafka, too
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
    assert "sink.bootstrap_servers" in log.read_text()
    assert "Traceback" not in log.read_text()
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute("DROP PUBLICATION IF EXISTS cdcd")
        query = "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s"
        slots = connection.execute(query, [prefix.replace("-", "_")]).fetchall()
        assert slots == [], "a slot that nobody reads keeps WAL"


def test_a_server_that_was_there_once_is_waited_for(
    start_postgres: Callable[..., servers.PostgreSQL], broker: str, log: Path, prefix: str
) -> None:
    server = start_postgres()
    process = _start(server.dsn(), broker, log, prefix)
    try:
        _until(lambda: "going on" in log.read_text())
        server.stop(mode="immediate")
        time.sleep(8)  # longer than the shortened minute
        assert process.poll() is None, log.read_text()
        server.start()
        _until(lambda: log.read_text().count("going on") == 2)
        process.terminate()
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def _until(ready: Callable[[], bool], within_s: float = 30) -> None:
    deadline = time.monotonic() + within_s
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)
