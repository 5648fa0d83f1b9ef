"""How the loads log in and wait: what libpq finds holds over JDBC, and transactions that are waited for are named."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Timer

import psycopg
import pytest

pytest.importorskip("pyspark")

from psycopg.conninfo import conninfo_to_dict
from support.fix_postgres import Database

from cdcd.source.exported_snapshot import export_snapshot
from cdcd.source.server_errors import SlotWaits
from cdcd.source.session import PINNED, connect, parameters
from cdcd.spark.exported_snapshot import ExportedSnapshot, login
from cdcd.spark.load import jdbc


def over_jdbc(dsn: str) -> tuple[str, dict[str, str]]:
    with connect(parameters(dsn, "cdcd-spark")) as connection:
        return jdbc(login(connection))


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_services_password_files_environments_and_several_hosts_mean_what_they_mean_to_libpq(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead_port: int
) -> None:
    parts = {name: str(value) for name, value in conninfo_to_dict(database.dsn).items()}
    host, port, name, user = parts["host"], parts["port"], parts["dbname"], parts["user"]
    url = f"jdbc:postgresql://{host}:{port}/{name}"
    assert over_jdbc(f"host={host},{host} port={dead_port},{port} dbname={name} user={user}")[0] == url
    (tmp_path / "service.conf").write_text(
        f"[shop]\nhost={host}\nport={port}\ndbname={name}\nuser={user}\nsslmode=disable\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "service.conf"))
    passwords = tmp_path / "passwords"
    passwords.write_text(f"*:{port}:{name}:{user}:from a file\n")
    passwords.chmod(0o600)
    found, properties = over_jdbc(f"service=shop passfile={passwords}")
    assert (found, properties["user"], properties["password"]) == (url, user, "from a file")
    assert properties["sslmode"] == "disable"
    assert all(f"-c {pinned}=" in properties["options"] for pinned, _ in PINNED)
    for variable, value in ("PGHOST", host), ("PGPORT", port), ("PGUSER", user), ("PGPASSWORD", "of the environment"):
        monkeypatch.setenv(variable, value)
    found, properties = over_jdbc(f"dbname={name} options='-c work_mem=1MB -c statement_timeout=1s'")
    assert (found, properties["password"]) == (url, "of the environment")
    assert properties["options"].index("work_mem=1MB") < properties["options"].index("statement_timeout=0")


@pytest.mark.whole
def test_a_snapshot_that_waits_for_an_open_transaction_names_it(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR TABLE t")
    caplog.set_level("INFO")
    with psycopg.connect(database.dsn, application_name="a long writer") as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        timer = Timer(6.5, writer.commit)
        timer.start()
        with ExportedSnapshot(database.dsn, "cdcd", ["public.t"]) as snapshot:
            timer.join()
            assert snapshot.lsn
    assert "a long writer" in caplog.text


def test_a_snapshot_does_not_wait_for_an_open_transaction_for_ever(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR TABLE t")
    soon = partial(export_snapshot, timeout_s=1.0)
    with psycopg.connect(database.dsn, application_name="a long writer") as writer:
        writer.execute("INSERT INTO t VALUES (1)")
        with (
            pytest.raises(SlotWaits, match="a long writer"),
            ExportedSnapshot(database.dsn, "cdcd", ["public.t"], soon),
        ):
            pass
