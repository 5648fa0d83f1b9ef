"""Each statement and each command that the page of errors shows does run, on real servers. What does not is named here.

Its settings, and what it says of commands, are tested in `unit/manual`. The commands and statements of hints have tests
where the error has its test.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg
import pytest
import servers
from servers.jars import NEWEST, find_java, install_kafka, say_on_stderr
from servers.processes import free_port
from support import daemon as installed
from support.daemon import environment
from support.error_page import ELSEWHERE, NOT_RUN, Block, blocks, blocks_of
from support.stream import StreamFixture, eventually

# SQL

TABLES = (
    "CREATE TABLE public.orders (id bigint PRIMARY KEY, customer text, total numeric)",
    "CREATE TABLE public.notes (id int NOT NULL, v text)",
    "CREATE TABLE public.events (id int, at date) PARTITION BY RANGE (at)",
    "CREATE UNLOGGED TABLE public.events_2026 PARTITION OF public.events DEFAULT",
    "CREATE SCHEMA cdcd",
    "CREATE TABLE cdcd.requests (slot text, action text, table_schema text, table_name text, keys text)",
    "CREATE PUBLICATION cdcd FOR TABLE public.orders, cdcd.requests",
)

BEFORE = {
    "CREATE PUBLICATION cdcd": "DROP PUBLICATION cdcd",
    "ALTER PUBLICATION cdcd ADD TABLE cdcd.requests": "ALTER PUBLICATION cdcd DROP TABLE cdcd.requests",
    "synchronized_standby_slots = 'standby'": "SELECT pg_create_physical_replication_slot('standby')",
    "ALLOW_CONNECTIONS true": "ALTER DATABASE shop ALLOW_CONNECTIONS false",
}
"""What makes the trouble that a statement cures, where the statement would fail without it."""


@pytest.fixture(scope="module")
def shop() -> Iterator[servers.PostgreSQL]:
    """Start the server of the page's examples: the role cdcd, and a database that each block gets a copy of."""
    with servers.PostgreSQL(NEWEST, fsync=False, settings={"max_replication_slots": "10"}) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as connection:
            connection.execute("CREATE ROLE cdcd LOGIN REPLICATION")
            connection.execute("CREATE ROLE shop_owner")
            connection.execute("CREATE DATABASE pattern TEMPLATE template0")
        with psycopg.connect(server.dsn("pattern"), autocommit=True) as connection:
            for statement in TABLES:
                connection.execute(statement.encode())
        yield server


@contextmanager
def _database(server: servers.PostgreSQL) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Make the database shop with its slot. Gives a connection to another database; removes all afterwards."""
    with psycopg.connect(server.dsn(), autocommit=True) as outside:
        outside.execute("CREATE DATABASE shop TEMPLATE pattern")
        with psycopg.connect(server.dsn("shop"), autocommit=True) as inside:
            inside.execute("SELECT pg_create_logical_replication_slot('cdcd', 'pgoutput')")
        try:
            yield outside
        finally:
            outside.execute("ALTER SYSTEM RESET ALL")
            outside.execute("SELECT pg_reload_conf()")
            outside.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
            outside.execute("DROP DATABASE shop WITH (FORCE)")
            outside.execute("DROP DATABASE IF EXISTS shop_utf8")


def _sql_blocks() -> list[Block]:
    distinct = {each.text: each for each in blocks() if each.language.split()[0] == "sql"}
    return list(distinct.values())


@pytest.mark.parametrize("block", _sql_blocks(), ids=lambda block: block.code)
def test_the_statements_of_a_cure_run(shop: servers.PostgreSQL, block: Block) -> None:
    with _database(shop) as outside, ExitStack() as stack:
        if "ALLOW_CONNECTIONS" in block.text:  # the page says so: in another database
            connection = outside
        else:
            more = {"replication": "database"} if block.language == "sql replication" else {}
            connect = psycopg.connect(shop.dsn("shop", **more), autocommit=True)
            connection = stack.enter_context(connect)
        for words, statement in BEFORE.items():
            if words in block.text:
                connection.execute(statement.encode())
        for statement in block.statements:
            connection.execute(statement.encode())


# Commands


class Person:
    """Somebody who runs the commands of the page in a folder with the settings, and notes which ones."""

    def __init__(self, stream: StreamFixture, folder: Path) -> None:
        self._stream = stream
        self._folder = folder
        self.ran: set[str] = set()

    def started(self, command: str) -> subprocess.Popen[str]:
        self.ran.add(command)
        here = command.replace("shop.", f"{self._stream.prefix}.").replace("localhost:9092", self._stream.broker)
        words = shlex.split(here)
        if words[0] == "cdcd":
            words = [*installed.command(), *words[1:]]
        else:
            assert words[0] == "kafka-configs.sh"
            jars = install_kafka(
                servers.default_home(), servers.Kafka().version, python=sys.executable, say=say_on_stderr
            )
            java = [find_java(sys.executable), "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-cp", f"{jars}/*"]
            words = [*java, "kafka.admin.ConfigCommand", *words[1:]]
        return subprocess.Popen(
            words, cwd=self._folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, command: str) -> str:
        """Run a command of the page to its end, which must be good; returns what it printed."""
        with self.started(command) as process:
            said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, f"{command}\n{said}"
        return said


def test_the_commands_of_the_cures_run(stream: StreamFixture, tmp_path: Path) -> None:
    person = Person(stream, tmp_path)
    stream.sql("CREATE TABLE public.orders (id bigint PRIMARY KEY, customer text)")
    stream.publish("cdcd", "public.orders")
    (tmp_path / "cdcd.toml").write_text(
        f"""
        [source]
        dsn = "{stream.dsn}"
        slot = "{stream.slot}"
        tables = ["public.*"]
        status_interval_s = 1
        [sink]
        bootstrap_servers = "{stream.broker}"
        prefix = "{stream.prefix}"
        [monitoring]
        port = {free_port()}
        [spool]
        directory = "{tmp_path}"
        """
    )
    for command in (
        "cdcd --version", "cdcd verify --help", "cdcd config --reference", "cdcd config --config cdcd.toml",
        "cdcd schema --config cdcd.toml",
    ):  # fmt: skip
        person.run(command)
    assert "error " not in person.run("cdcd check --config cdcd.toml --log-level debug")
    person.run("cdcd slot create --config cdcd.toml")
    assert stream.slot in person.run("cdcd slot status --config cdcd.toml")
    person.run("cdcd slot drop --force --config cdcd.toml")
    stream.sql("INSERT INTO orders VALUES (1, 'Ada')")
    with person.started("cdcd run --config cdcd.toml") as daemon:
        try:
            topic = f"{stream.prefix}.public.orders"
            eventually(lambda: topic in stream.topics.names() and len(stream.events()) == 1, "the snapshot", 60)
            person.run("cdcd status --config cdcd.toml")
            _tail(person)
            _park_and_unpark(stream, person)
            for command in blocks_of("kafka-configs.sh"):
                if command not in person.ran:
                    person.run(command)
            person.run("cdcd snapshot public.orders --config cdcd.toml")
            assert "resumed" in person.run("cdcd snapshot --resume --config cdcd.toml")
            person.run("cdcd verify --config cdcd.toml")
            person.run("cdcd verify --repair --config cdcd.toml")
        finally:
            daemon.send_signal(signal.SIGINT)
            said, _ = daemon.communicate(timeout=60)
    assert daemon.returncode == 0, said
    person.run("cdcd adopt --config cdcd.toml")
    person.run("cdcd adopt --repair --config cdcd.toml")
    assert person.ran == blocks_of("") - {*ELSEWHERE, *NOT_RUN} - blocks_of("kafka-acls.sh")


def _tail(person: Person) -> None:
    with person.started("cdcd tail --from-beginning 'shop.public.*' --config cdcd.toml") as tail:
        assert tail.stdout is not None
        assert any("Ada" in line for line in tail.stdout)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(30) == 0


def _park_and_unpark(stream: StreamFixture, person: Person) -> None:
    """Follow the sections of a row that is too large for its topic, to their ends."""
    insert = "INSERT INTO orders SELECT {}, string_agg(md5(n::text), '') FROM generate_series(1, {}) n"
    parked = lambda: stream.slot_records()[-1].get("parked")  # noqa: E731
    stream.sql(insert.format(2, 60_000))
    eventually(parked, "a parked table", 60)
    assert "[row-too-large]" in person.run("cdcd unpark --config cdcd.toml")
    [raised] = [each for each in blocks_of("kafka-configs.sh") if "max.message.bytes" in each]
    person.run(raised)
    person.run("cdcd unpark public.orders --config cdcd.toml")
    eventually(lambda: not parked(), "no parked table", 60)
    stream.sql(insert.format(3, 400_000))
    eventually(parked, "a parked table", 60)
    stream.sql("DELETE FROM orders WHERE id = 3")
    person.run("cdcd unpark --discard public.orders --config cdcd.toml")
    eventually(lambda: not parked(), "no parked table", 60)
