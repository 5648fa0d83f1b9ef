"""PostgreSQL's password changes all the time, or is a token that expires: each connection of cdcd has the one of now.

What fails to make one is waited for, as a server that is away, and no log and no process list shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import psycopg
import pytest
import servers
from psycopg.conninfo import make_conninfo
from support.background_thread import BackgroundThread
from support.daemon import Daemon, cdcd
from support.fix_aws import KEY, SECRET, Credentials
from support.fix_postgres import Database
from support.iam_gates import RdsGate
from support.stream import StreamFixture


class Rotation(BackgroundThread):
    """Gives the role another password every two seconds, and writes it to the command's file, while a `with` lasts."""

    EVERY_S = 2.0

    def __init__(self, dsn: str, file: Path) -> None:
        super().__init__()
        self._dsn = dsn
        self._file = file
        self.passwords: list[str] = []
        self._lock = Lock()
        self.rotate()

    def rotate(self) -> None:
        with self._lock:
            self._rotate()

    def _rotate(self) -> None:
        self.passwords.append(f"rotated-{len(self.passwords)}-secret")
        with psycopg.connect(self._dsn, autocommit=True) as admin:
            admin.execute(f"ALTER ROLE rotating PASSWORD '{self.passwords[-1]}'".encode())
        made = self._file.with_suffix(".new")
        made.write_text(self.passwords[-1] + "\nanother line\n")
        made.rename(self._file)

    def run(self) -> None:
        while not self._done.wait(self.EVERY_S):
            self.rotate()


@pytest.fixture(scope="module")
def server() -> Iterator[servers.PostgreSQL]:
    """Start a server on which one role needs a password."""
    with servers.PostgreSQL(fsync=False) as server:
        hba = server.data / "pg_hba.conf"
        hba.write_text("host all rotating all scram-sha-256\n" + hba.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE ROLE rotating SUPERUSER LOGIN REPLICATION")
            admin.execute("CREATE ROLE iam SUPERUSER LOGIN REPLICATION")
            admin.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture
def stream(server: servers.PostgreSQL, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    name = "db_" + prefix.replace("-", "_")
    with psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    with StreamFixture(server.dsn(name), broker, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT generate_series(1, 5000)")
        yield stream
    Database(name, server).drop()


def command_lines(daemon: Daemon) -> str:
    """Of the daemon and of what it has started: whatever anybody may read."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.name == str(daemon.pid) or re.search(
                rf"^PPid:\t{daemon.pid}$", (path / "status").read_text(), re.MULTILINE
            ):
                found.append((path / "cmdline").read_text())
        except OSError:
            continue
    return "\n".join(found)


def confirm(stream: StreamFixture, daemon: Daemon) -> None:
    """Wait until Kafka has everything. The test has a login of its own."""
    daemon.until(lambda: stream.confirmed() >= stream.written(), "confirmation", 60)


def cut(stream: StreamFixture, user: str) -> None:
    stream.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{user}'")


@pytest.mark.whole
def test_a_password_that_changes_all_the_time_lets_every_connection_in_and_a_command_that_fails_is_waited_for(
    server: servers.PostgreSQL, stream: StreamFixture, tmp_path: Path
) -> None:
    file, program = tmp_path / "password", tmp_path / "tell"
    program.write_text(f'#!/bin/sh\n[ -e {tmp_path}/broken ] && echo "Run: vault login" >&2 && exit 2\ncat {file}\n')
    program.chmod(0o755)
    dsn = make_conninfo(stream.dsn, user="rotating")
    with Rotation(stream.dsn, file) as rotation:
        daemon = stream.daemon(
            source={"dsn": dsn, "password_command": [str(program)]}, snapshot={"mode": "initial", "chunk_bytes": 8192}
        ).start()
        daemon.wait_for_log("going on")
        for number in range(3):
            cut(stream, "rotating")  # walsender, sessions of the watch, workers of the snapshot
            stream.sql(f"INSERT INTO t VALUES ({10_000 + number})")
            confirm(stream, daemon)
            assert daemon.running()
        assert "ok" in cdcd(daemon, "check")
        assert "equal" in cdcd(daemon, "verify")
        cdcd(daemon, "slot", "status")
        # The command fails: nothing but that stops the stream.
        (tmp_path / "broken").touch()
        rotation.rotate()
        cut(stream, "rotating")
        said = "source.password_command made no password: it ended with exit status 2: Run: vault login"
        daemon.wait_for_log(said)
        daemon.wait_for_log(f"lost PostgreSQL: {said}", 30)
        assert said in cdcd(daemon, "check", code=1)
        stream.sql("INSERT INTO t VALUES (20000)")
        (tmp_path / "broken").unlink()
        confirm(stream, daemon)
        # The program is replaced: for a moment it is not there.
        program.rename(tmp_path / "elsewhere")
        rotation.rotate()
        cut(stream, "rotating")
        daemon.wait_for_log("it cannot be run: No such file or directory")
        (tmp_path / "elsewhere").rename(program)
        stream.sql("INSERT INTO t VALUES (20001)")
        confirm(stream, daemon)
        seen = daemon.log.read_text() + command_lines(daemon) + cdcd(daemon, "config")
        assert not [password for password in rotation.passwords if password in seen]
        assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_passwords_of_rds_are_signed_for_each_host_and_renewed_credentials_are_used(
    server: servers.PostgreSQL, stream: StreamFixture, aws: Credentials
) -> None:
    dead = servers.free_port()
    with RdsGate(server.port, {KEY: SECRET}) as gate:
        dsn = make_conninfo(stream.dsn, user="iam", host="127.0.0.1,127.0.0.1", port=f"{dead},{gate.port}")
        daemon = stream.daemon(source={"dsn": dsn, "password_function": "aws-rds-iam"}).start()
        daemon.wait_for_log("going on")
        assert "ok" in cdcd(daemon, "check")
        stream.sql("INSERT INTO t VALUES (10000)")
        confirm(stream, daemon)
        # AWS takes the old key no more, and the new one is not in the file yet.
        gate.secrets = {"AKIDSECOND": SECRET}
        gate.cut()
        daemon.wait_for_log("PAM authentication failed")
        aws.remove()
        daemon.wait_for_log('"aws-rds-iam" made no password: it found no credentials of AWS')
        aws.write("AKIDSECOND")
        stream.sql("INSERT INTO t VALUES (10001)")
        confirm(stream, daemon)
        assert set(gate.admitted) == {KEY, "AKIDSECOND"}
        assert "expired" not in "".join(gate.refused)
        log = daemon.log.read_text()
        assert "X-Amz-" not in log
        assert SECRET not in log
        assert daemon.stop() == 0
