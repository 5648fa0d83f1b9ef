"""`cdcd init` as a process: asked at a terminal, run by a role that may do little, and beside files that are there."""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.daemon import command, environment
from support.fix_postgres import Database

from cdcd.manual import page


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    """Give the name of a role that does not exist yet."""
    name = f"cdcd_{database.name}"
    yield name
    if database.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        database.execute(f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def init(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), "init", *words], cwd=folder, env=environment(), stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=60, check=False,
    )  # fmt: skip


def test_a_person_at_a_terminal_is_asked_and_told_what_comes_next(
    database: Database, broker: str, role: str, prefix: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [*command(), "init"], cwd=tmp_path, env=environment(), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    for answer in (f"{database.dsn} password=hunter2", broker, role, "public.orders", prefix, role):
        os.write(person, f"{answer}\n".encode())
    said = b""
    try:
        while more := os.read(person, 65536):
            said += more
    except OSError:  # a terminal ends so
        pass
    os.close(person)
    assert process.wait(30) == 0, said
    assert b"cdcd check" in said
    text = (tmp_path / "cdcd.toml").read_text()
    assert "hunter2" not in text
    settings = tomllib.loads(text)
    assert settings["source"] == {
        "dsn": f"host=127.0.0.1 port={database.server.port} dbname={database.name} user={role}",
        "tables": ["public.orders"],
        "slot": role,
        "publication": role,
        "application_name": role,
    }
    assert settings["sink"] == {"bootstrap_servers": broker, "prefix": prefix}
    assert "CREATE ROLE" in (tmp_path / "cdcd.sql").read_text()


def test_what_the_role_may_not_make_is_said_with_who_may(
    database: Database, broker: str, role: str, tmp_path: Path
) -> None:
    owner = f"owner_{database.name}"
    database.execute(f"CREATE ROLE {owner} LOGIN", f"GRANT CREATE ON DATABASE {database.name} TO {owner}")
    try:
        database.execute(f"GRANT ALL ON SCHEMA public TO {owner}")
        dsn = make_conninfo(database.dsn, user=owner)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        words = ("--dsn", dsn, "--brokers", broker, "--role", role, "--port", "0", "--apply")
        denied = init(tmp_path, *words)
        assert denied.returncode == 1
        assert "not done role: " in denied.stdout
        assert "Run it as a superuser" in denied.stdout
        assert database.execute("SELECT 1 FROM pg_publication") == []
        database.execute(f"CREATE ROLE {role} LOGIN REPLICATION")
        done = init(tmp_path, *words)  # the files are there, with the same text
        assert done.returncode == 0, done.stdout + done.stderr
        for step in ("role", "replica identities", "publication", "grants for the snapshot", "table of requests"):
            assert f"done     {step}\n" in done.stdout
        checked = subprocess.run(
            [*command(), "check"],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert checked.returncode == 0, checked.stdout
    finally:
        database.execute(f"DROP OWNED BY {owner} CASCADE", f"DROP ROLE {owner}")


def test_a_file_that_is_there_stays_and_nothing_is_made(
    database: Database, broker: str, role: str, tmp_path: Path
) -> None:
    (tmp_path / "cdcd.toml").write_text("mine")
    words = ("--dsn", database.dsn, "--brokers", broker, "--role", role, "--apply")
    refused = init(tmp_path, *words)
    assert refused.returncode == 2
    assert "cdcd.toml exists already" in refused.stderr
    assert (tmp_path / "cdcd.toml").read_text() == "mine"
    assert database.execute(f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'") == []


def test_the_port_of_another_program_is_said_before_the_daemon_meets_it(
    database: Database, broker: str, role: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = str(other.getsockname()[1])
        words = ("--dsn", database.dsn, "--brokers", broker, "--role", role, "--slot", role, "--port", taken)
        done = init(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert f"The daemon cannot listen on 127.0.0.1:{taken}: Address already in use" in done.stdout
    assert "Name another one with --port" in done.stdout
    free = init(tmp_path, *words)
    assert "port-taken" not in free.stdout


def test_without_a_terminal_the_options_that_lack_are_named(tmp_path: Path) -> None:
    done = init(tmp_path)
    assert done.returncode == 2
    assert (
        done.stderr
        == "cdcd: --dsn is not given. Name it with --dsn; on a terminal, cdcd init asks [arguments-invalid]\n"
    )


def test_what_a_next_step_brings_is_no_error(database: Database, broker: str, role: str, tmp_path: Path) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    kafka = ("--kafka", "security.protocol=SASL_SSL", "--kafka", "sasl.mechanism=PLAIN", "--kafka", "sasl.username=app")
    done = init(tmp_path, "--dsn", database.dsn, "--brokers", broker, "--role", role, "--slot", role, *kafka)
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stdout
    assert "later    Kafka is not asked now: no sasl.password is given" in done.stdout
    assert "Put the password of Kafka's user app into the file sink__librdkafka__sasl.password" in done.stdout
    assert "PRINCIPAL=${PRINCIPAL:-User:app}" in (tmp_path / "cdcd-acls.sh").read_text()
    made = (tmp_path / "cdcd.toml").read_text()
    assert "Another daemon with this prefix" in made
    assert "~/.pgpass, the file that PGPASSFILE names" in made
    assert "~/.pgpass, the file that PGPASSFILE names" in done.stdout
    assert "cdcd check\n  5. A new role has no password. If cdcd check cannot log in as" in done.stdout, (
        "many servers need no password"
    )


def test_two_daemons_with_two_prefixes_share_nothing_as_the_manual_says(
    database: Database, broker: str, role: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    [command] = re.findall(r"`cdcd init (--slot billing .*?)`", page("deployment"), re.DOTALL)
    for words in (["--slot", role, "--prefix", "shop"], command.split()):
        done = init(tmp_path, "--dsn", database.dsn, "--brokers", broker, "--role", role, *words)
        assert done.returncode == 0, done.stderr
    first, second = (tomllib.loads((tmp_path / name).read_text()) for name in ("cdcd.toml", "billing.toml"))
    for section, name in (("source", "slot"), ("source", "publication"), ("sink", "prefix")):
        assert first[section][name] != second[section][name]
    assert second["monitoring"] == {"port": 9479}
    assert {"messages"} & {*first["source"], *second["source"]} == set(), "each publishes its own messages"
    assert "billing" in (tmp_path / "billing.sql").read_text()
