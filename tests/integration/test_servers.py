"""The servers that other tests use: killed ones keep their data and port, and none outlives its owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from servers.jars import KAFKAS, LOCK, NEWEST, OLDEST, ServerError, fetch_jars
from support.stream import eventually

pytestmark = pytest.mark.whole

OWNER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from servers import PostgreSQL, Kafka

server = (PostgreSQL if sys.argv[2] == "postgresql" else Kafka)().start()
if sys.argv[2] == "kafka":
    server.pause()
print(server.pid, server.directory, flush=True)
time.sleep(60)
"""


def gone(path: Path) -> bool:
    deadline = time.monotonic() + 15
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not path.exists()


@pytest.mark.parametrize("server", ["postgresql", "kafka"])
def test_a_server_and_its_data_go_with_an_owner_that_is_killed(server: Any) -> None:
    tests = str(Path(servers.__file__).parents[1])
    with subprocess.Popen([sys.executable, "-c", OWNER, tests, server], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        assert servers.alive(int(pid))
        owner.kill()
    assert gone(Path(directory))
    assert not servers.alive(int(pid))


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_a_killed_postgresql_comes_back_on_its_port_with_what_was_committed(start_postgres: Any, version: int) -> None:
    server = start_postgres(version, fsync=True)
    with psycopg.connect(server.dsn(), autocommit=True) as before:
        before.execute("CREATE TABLE t AS SELECT 1 AS i")
        port = server.port
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            before.execute("SELECT 1")
    server.start()
    assert server.port == port
    with psycopg.connect(server.dsn(), autocommit=True) as after:
        assert after.execute("TABLE t").fetchall() == [(1,)]


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("version", KAFKAS)
def test_a_killed_broker_comes_back_on_its_port_with_its_topics(start_kafka: Any, version: str) -> None:
    broker = start_kafka(version=version, heap_mb=256)
    quiet = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
    admin = AdminClient(quiet)
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    broker.kill()
    assert not broker.running
    broker.start()
    # A broker that has ZooKeeper knows of the brokers for a moment, and of no topic yet.
    eventually(lambda: "t" in AdminClient(quiet).list_topics(timeout=10).topics, "topic")


def test_a_paused_broker_answers_again_after_it_is_resumed(start_kafka: Any) -> None:
    broker = start_kafka(settings={"auto.create.topics.enable": "true"})
    delivered = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 0})
    producer.produce("t", b"1")
    assert producer.flush(20) == 0
    broker.pause()
    threads = Path(f"/proc/{broker.pid}/task").glob("*/stat")
    assert {thread.read_text().rpartition(")")[2].split()[0] for thread in threads} == {"T"}
    producer.produce("t", b"2", on_delivery=lambda error, _message: delivered.append(error))
    assert producer.flush(0.5) == 1
    broker.resume()
    assert producer.flush(20) == 0
    assert delivered == [None]


def test_a_server_that_does_not_start_says_what_its_log_says(start_postgres: Any) -> None:
    with pytest.raises(ServerError, match="no_such_setting"):
        start_postgres(settings={"no_such_setting": "1"})


def test_an_orderly_stop_of_postgresql_needs_no_recovery(start_postgres: Any) -> None:
    server = start_postgres()
    server.stop()
    end_of_first_run = server.log.stat().st_size
    server.start()
    assert "was shut down at" in server.log_tail(end_of_first_run)
    assert "recovery" not in server.log_tail(end_of_first_run)


def test_a_fetched_jar_that_is_not_the_locked_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, digest, coordinate = next(
        line.split() for line in LOCK.read_text().splitlines() if line.endswith("jspecify:1.0.0")
    )
    lock = tmp_path / "servers.lock"
    lock.write_text(f"{name} {digest[::-1]} {coordinate}\n")
    monkeypatch.setattr("servers.jars.LOCK", lock)
    with pytest.raises(ServerError, match="SHA-256"):
        fetch_jars(name, tmp_path, say=lambda _line: None)


def test_the_terminal_s_ctrl_c_does_not_reach_a_server(start_postgres: Any) -> None:
    server = start_postgres()
    assert os.getpgid(server.pid) != os.getpgid(0)
    assert os.getsid(server.pid) != os.getsid(0)
    server.stop()
    with pytest.raises(ServerError, match="does not run"):
        os.kill(server.pid, signal.SIGTERM)
