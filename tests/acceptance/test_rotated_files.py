"""Certificates, keys, CAs and passwords in files are renewed while the daemon runs: it reads them, and does not end.

The files lie as Kubernetes mounts a Secret: behind a symbolic link to a folder, which is replaced as a whole.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import servers
import trustme
from psycopg.conninfo import make_conninfo
from support.daemon import Daemon
from support.fix_postgres import Database
from support.stream import StreamFixture, metric

pytestmark = pytest.mark.whole


class Secret:
    """The client's certificate, its key and the CA, as files that are renewed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._versions = 0
        folder.mkdir()
        for name in ("ca.crt", "tls.crt", "tls.key"):
            (folder / name).symlink_to(Path("..data") / name)

    def __getitem__(self, name: str) -> str:
        return str(self._folder / name)

    def renew(self, ca: trustme.CA) -> None:
        """Replace all files at once."""
        self._versions += 1
        version = self._folder / f"..{self._versions}"
        version.mkdir()
        client = ca.issue_cert("cdcd@example.org", common_name="cdcd")
        ca.cert_pem.write_to_path(version / "ca.crt")
        client.cert_chain_pems[0].write_to_path(version / "tls.crt")
        client.private_key_pem.write_to_path(version / "tls.key")
        (version / "tls.key").chmod(0o600)
        link = self._folder / "..data_tmp"
        link.symlink_to(version.name)
        link.rename(self._folder / "..data")

    def break_key(self) -> Callable[[], object]:
        """Write half of a key, as whoever renews file by file; returns what writes the other half."""
        key = (self._folder / "tls.key").resolve()
        content = key.read_bytes()
        key.write_bytes(content[: len(content) // 2])
        return lambda: key.write_bytes(content)


class Renewed:
    """A broker behind mutual TLS, whose CA is replaced with a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = trustme.CA()
        self._write()
        settings = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "both.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "ssl.client.auth": "required",
        }
        self.server = servers.Kafka(settings=settings, listeners={"MUTUAL": "SSL"})

    def replace_ca(self) -> None:
        """As after the day on which everything signed by the old CA has expired."""
        self.ca = trustme.CA()
        self._write()
        self.server.restart()

    def _write(self) -> None:
        made = self.ca.issue_cert("localhost", "127.0.0.1")
        key = subprocess.run(  # Kafka reads only PKCS#8
            ["openssl", "pkcs8", "-topk8", "-nocrypt"],
            input=made.private_key_pem.bytes(), capture_output=True, check=True,
        ).stdout  # fmt: skip
        (self._folder / "both.pem").write_bytes(key + made.cert_chain_pems[0].bytes())
        self.ca.cert_pem.write_to_path(self._folder / "ca.pem")


@pytest.fixture(scope="module")
def mutual() -> Iterator[Renewed]:
    with tempfile.TemporaryDirectory(dir=servers.default_home() / "run") as folder:
        renewed = Renewed(Path(folder))
        with renewed.server:
            yield renewed


@pytest.fixture
def secret(tmp_path: Path) -> Secret:
    return Secret(tmp_path / "secret")


def streaming(stream: StreamFixture, kafka: Renewed, secret: Secret) -> Daemon:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    properties = {
        "security.protocol": "SSL",
        "ssl.ca.location": secret["ca.crt"],
        "ssl.certificate.location": secret["tls.crt"],
        "ssl.key.location": secret["tls.key"],
    }
    sink = {"bootstrap_servers": kafka.server.address("MUTUAL"), "librdkafka": properties}
    daemon = stream.daemon(sink=sink).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    return daemon


def test_renewed_files_of_kafka_are_read_without_an_exit(
    database: Database, mutual: Renewed, secret: Secret, prefix: str, tmp_path: Path
) -> None:
    secret.renew(mutual.ca)
    with StreamFixture(database.dsn, mutual.server.bootstrap, prefix, tmp_path) as stream:
        daemon = streaming(stream, mutual, secret)
        secret.renew(mutual.ca)
        daemon.wait_for_log("new clients read it")
        daemon.until(lambda: daemon.log.read_text().count("going on") == 2, "another stream", 30)
        stream.sql("INSERT INTO t VALUES (2)")
        daemon.wait_until_confirmed()
        # Half a key: the stream goes on with what it has read before.
        write_the_rest = secret.break_key()
        daemon.wait_for_log("cannot be used yet")
        stream.sql("INSERT INTO t VALUES (3)")
        daemon.wait_until_confirmed()
        write_the_rest()
        assert metric(daemon, "cdcd_streaming") == 1
        assert daemon.log.read_text().count("going on") == 2
        assert daemon.stop() == 0
        stream.check(("public", "t"))


def test_files_that_are_renewed_after_the_brokers_refuse_the_old_ones_let_the_stream_go_on(
    database: Database, mutual: Renewed, secret: Secret, prefix: str, tmp_path: Path
) -> None:
    secret.renew(mutual.ca)
    with StreamFixture(database.dsn, mutual.server.bootstrap, prefix, tmp_path) as stream:
        daemon = streaming(stream, mutual, secret)
        mutual.replace_ca()
        stream.sql("INSERT INTO t VALUES (2)")
        daemon.wait_for_log(f"ssl.certificate.location = {secret['tls.crt']}", 60)
        secret.renew(mutual.ca)
        daemon.wait_until_confirmed()
        daemon.wait_for_log("Kafka is back", 30)
        assert daemon.stop() == 0
        stream.check(("public", "t"))


def test_a_stream_that_starts_while_a_file_is_half_written_waits_for_the_rest(
    database: Database, mutual: Renewed, secret: Secret, prefix: str, tmp_path: Path
) -> None:
    secret.renew(mutual.ca)
    with StreamFixture(database.dsn, mutual.server.bootstrap, prefix, tmp_path) as stream:
        daemon = streaming(stream, mutual, secret)
        write_the_rest = secret.break_key()
        stream.sql(f"SELECT pg_terminate_backend({stream.walsender()})", "INSERT INTO t VALUES (2)")
        daemon.wait_for_log(f"ssl.key.location = {secret['tls.key']}")
        daemon.wait_for_log("starting again")
        write_the_rest()
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(("public", "t"))


@pytest.fixture(scope="module")
def postgres_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=servers.default_home() / "run") as folder:  # PostgreSQL's user can reach it
        Path(folder).chmod(0o755)
        yield Path(folder)


class Guarded:
    """A PostgreSQL that wants a certificate of its CA in one database, and a password in the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.ca = trustme.CA()
        self._write()
        files = {"ssl_ca_file": "ca.pem", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}
        settings = {"ssl": "on"} | {name: str(folder / file) for name, file in files.items()}
        self.server = servers.PostgreSQL(18, fsync=False, settings=settings)

    def prepare(self) -> None:
        hba = self.server.data / "pg_hba.conf"
        lines = "hostssl certified cdcd 127.0.0.1/32 cert\nhost passworded cdcd 127.0.0.1/32 scram-sha-256\n"
        hba.write_text(lines + hba.read_text())
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE ROLE cdcd SUPERUSER LOGIN REPLICATION PASSWORD 'first'")
            for name in ("certified", "passworded"):
                admin.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
            admin.execute("SELECT pg_reload_conf()")

    def replace_ca(self) -> None:
        self.ca = trustme.CA()
        self._write()
        with psycopg.connect(self.server.dsn(), autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")

    def _write(self) -> None:
        made = self.ca.issue_cert("localhost", "127.0.0.1")
        self.ca.cert_pem.write_to_path(self._folder / "ca.pem")
        made.cert_chain_pems[0].write_to_path(self._folder / "server.pem")
        key = self._folder / "server.key"
        made.private_key_pem.write_to_path(key)
        for path in self._folder.iterdir():
            path.chmod(0o644)
        if user := servers.PostgreSQL(home=self._folder / "none", data=self._folder / "none")._user():
            shutil.chown(key, user)
        key.chmod(0o600)


@pytest.fixture(scope="module")
def guarded(postgres_folder: Path) -> Iterator[Guarded]:
    guarded = Guarded(postgres_folder)
    with guarded.server:
        guarded.prepare()
        yield guarded


def test_renewed_files_of_postgresql_are_read_after_the_old_ones_were_refused(
    guarded: Guarded, broker: str, secret: Secret, prefix: str, tmp_path: Path
) -> None:
    secret.renew(guarded.ca)
    parts = {"sslmode": "verify-full", "sslrootcert": secret["ca.crt"], "sslcert": secret["tls.crt"]}
    dsn = make_conninfo(guarded.server.dsn("certified", user="cdcd"), sslkey=secret["tls.key"], **parts)
    with StreamFixture(guarded.server.dsn("certified"), broker, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
        daemon = stream.daemon(source={"dsn": dsn}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed(timeout_s=30)
        guarded.replace_ca()
        stream.sql(f"SELECT pg_terminate_backend({stream.walsender()})", "INSERT INTO t VALUES (2)")
        daemon.wait_for_log("certificate cannot be verified")
        secret.renew(guarded.ca)
        daemon.until(lambda: stream.walsender() is not None, "another stream", 60)
        write_the_rest = secret.break_key()
        stream.sql(f"SELECT pg_terminate_backend({stream.walsender()})")
        daemon.wait_for_log("certificate or key cannot be read")
        assert secret["tls.key"] in daemon.log.read_text()
        write_the_rest()
        daemon.until(lambda: stream.walsender() is not None, "another stream", 60)
        stream.sql("INSERT INTO t VALUES (3)")
        daemon.until(lambda: stream.confirmed() >= stream.written(), "confirmation", 30)
        assert daemon.stop() == 0
        stream.check(("public", "t"))


def test_a_password_that_is_changed_at_the_server_first_is_waited_for_in_its_file(
    guarded: Guarded, broker: str, prefix: str, tmp_path: Path
) -> None:
    passfile = tmp_path / "pgpass"
    passfile.write_text("*:*:*:*:first\n")
    passfile.chmod(0o600)
    dsn = make_conninfo(guarded.server.dsn("passworded", user="cdcd"), passfile=str(passfile))
    with StreamFixture(guarded.server.dsn("passworded"), broker, prefix, tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
        daemon = stream.daemon(source={"dsn": dsn}).start()
        daemon.wait_for_log("going on")
        stream.sql("ALTER ROLE cdcd PASSWORD 'second'", f"SELECT pg_terminate_backend({stream.walsender()})")
        daemon.wait_for_log("PostgreSQL refused the login")
        stream.sql("INSERT INTO t VALUES (1)")
        passfile.write_text("*:*:*:*:second\n")
        daemon.until(lambda: stream.walsender() is not None, "another stream", 60)
        daemon.until(lambda: stream.confirmed() >= stream.written(), "confirmation", 30)
        assert daemon.stop() == 0
        stream.check(("public", "t"))
