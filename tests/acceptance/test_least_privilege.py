"""The daemon runs with the grants and ACLs of `deploy/` and no others, over verified TLS.

The tests run `deploy/postgres/setup.sql` and the commands of `deploy/kafka/acls.sh` unchanged, and make their own CA.
"""

from __future__ import annotations

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import servers
from psycopg.conninfo import make_conninfo
from support import kafka_acls
from support.certificates import Certificates, certificates_for_servers
from support.daemon import Daemon, command, environment
from support.fix_postgres import Database
from support.stream import StreamFixture, eventually, port_of

DEPLOY = Path(__file__).parents[2] / "deploy"
PASSWORD = "s3cret-Pass.word"


@pytest.fixture(scope="module")
def certificates() -> Iterator[Certificates]:
    with certificates_for_servers() as made:
        yield made


@pytest.fixture(scope="module")
def tls_postgres(certificates: Certificates) -> Iterator[servers.PostgreSQL]:
    """Start a server that accepts `cdcd` only over TLS, with its certificate, and only in one database."""
    settings = {
        "ssl": "on",
        "ssl_ca_file": str(certificates.ca),
        "ssl_cert_file": str(certificates.server),
        "ssl_key_file": str(certificates.server_key),
    }
    with servers.PostgreSQL(18, fsync=False, settings=settings) as server:
        hba = server.data / "pg_hba.conf"
        hba.write_text("hostssl shop cdcd 127.0.0.1/32 cert\nhost all cdcd 127.0.0.1/32 reject\n" + hba.read_text())
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop TEMPLATE template0")
            admin.execute("SELECT pg_reload_conf()")
            admin.execute("CREATE ROLE app LOGIN")
            admin.execute("GRANT CREATE ON DATABASE shop TO app")
        with psycopg.connect(server.dsn("shop"), autocommit=True) as admin:
            admin.execute("GRANT ALL ON SCHEMA public TO app")
            admin.execute("CREATE ROLE cdcd LOGIN REPLICATION NOINHERIT")
        with psycopg.connect(server.dsn("shop", user="app"), autocommit=True) as owner:
            owner.execute("CREATE TABLE orders (id int PRIMARY KEY, v text)")
            owner.execute('CREATE TABLE "odd ""name" (id int PRIMARY KEY)')
            owner.execute("CREATE TABLE hidden (id int PRIMARY KEY)")
            owner.execute("ALTER TABLE hidden ENABLE ROW LEVEL SECURITY")
            owner.execute("CREATE SCHEMA private CREATE TABLE keys (id int PRIMARY KEY)")
        # The owner of the tables can run it, once the role is there.
        with psycopg.connect(server.dsn("shop", user="app"), autocommit=True) as dba:
            dba.execute((DEPLOY / "postgres" / "setup.sql").read_bytes())
        yield server


LISTENERS = {"SASL": "SASL_SSL", "MUTUAL": "SSL"}


@pytest.fixture(scope="module")
def tls_kafka(certificates: Certificates) -> Iterator[servers.Kafka]:
    """Start a broker with ACLs, and with listeners for SASL_SSL and mutual TLS next to the tests' plain one."""
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    plain = f'{module} required user_cdcd="{PASSWORD}" user_none="{PASSWORD}";'
    settings = {
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": plain,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.keystore),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([a-z]+).*$/$1/,DEFAULT",
    }
    with servers.Kafka(settings=settings, listeners=LISTENERS, has_acls=True) as server:
        yield server


def grant(kafka: servers.Kafka, folder: Path, prefix: str, slot: str) -> None:
    """Run `deploy/kafka/acls.sh` for this prefix and slot."""
    kafka_acls.install(folder, kafka.bootstrap)
    names = {"PREFIX": prefix, "SLOT": slot, "PATH": f"{folder}:{os.environ['PATH']}"}
    subprocess.run(["/bin/sh", DEPLOY / "kafka" / "acls.sh"], env={**os.environ, **names}, check=True)


def secured(daemon: Daemon, folder: Path, properties: dict[str, str]) -> Daemon:
    """Add librdkafka's properties, and the password as a file in a secrets directory."""
    secrets = folder / "secrets"
    secrets.mkdir()
    if "sasl.mechanism" in properties:
        (secrets / "sink__librdkafka__sasl.password").write_text(PASSWORD)
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in properties.items())
    text = f'secrets_dir = "{secrets}"\n{daemon.config.read_text()}[sink.librdkafka]\n{lines}'
    daemon.config.write_text(text)
    return daemon


def run(daemon: Daemon, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command(), *arguments, "--config", str(daemon.config)],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip


def dsn_of(server: servers.PostgreSQL, certificates: Certificates, **more: str) -> str:
    names = {"sslrootcert": certificates.ca, "sslcert": certificates.client, "sslkey": certificates.client_key}
    parts = {"sslmode": "verify-full", "sslcertmode": "require"} | {name: str(path) for name, path in names.items()}
    return make_conninfo(server.dsn("shop", user="cdcd"), **{**parts, **more})


def test_the_daemon_runs_with_these_grants_and_acls_over_verified_tls(
    tls_postgres: servers.PostgreSQL, tls_kafka: servers.Kafka, certificates: Certificates, tmp_path: Path
) -> None:
    prefix = f"shop{tls_postgres.version}"
    with StreamFixture(tls_postgres.dsn("shop"), tls_kafka.bootstrap, prefix, tmp_path) as stream:
        grant(tls_kafka, tmp_path, prefix, stream.slot)
        daemon = stream.daemon(
            source={"dsn": dsn_of(tls_postgres, certificates), "create": True},
            sink={"bootstrap_servers": tls_kafka.address("SASL")},
        )
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "cdcd",
        }
        secured(daemon, tmp_path, properties)
        checked = run(daemon, "check")
        assert checked.returncode == 0, checked.stdout
        assert "error" not in checked.stdout
        assert "not verified" not in checked.stdout
        assert "cdcd.requests" not in checked.stdout
        daemon.start().wait_for_log("going on")
        stream.sql(
            "INSERT INTO orders VALUES (1, 'a'), (2, 'b')",
            'INSERT INTO "odd ""name" VALUES (7)',
            "INSERT INTO hidden VALUES (1)",
        )
        daemon.wait_until_confirmed()
        [(roles,)] = stream.sql(
            "SELECT array_agg(DISTINCT s.ssl) FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid) "
            "WHERE a.usename = 'cdcd'"
        )
        assert roles == [True]
        tailed = run(daemon, "schema", "--json")
        assert tailed.returncode == 0, tailed.stderr
        asked = run(daemon, "snapshot", "public.orders", "--no-wait")
        assert asked.returncode == 0, asked.stderr
        daemon.wait_for_log("took a request")
        daemon.wait_for_log("the snapshot is complete")
        page = urllib.request.urlopen(f"http://127.0.0.1:{port_of(daemon)}/", timeout=5).read().decode()
        assert daemon.stop() == 0
        for shown in (daemon.log.read_text(), page, checked.stdout, run(daemon, "config").stdout, tailed.stdout):
            assert shown
            assert PASSWORD not in shown
        assert "not verified" not in daemon.log.read_text()
        stream.check(("public", "orders"), ("public", 'odd "name'), ("public", "hidden"))
        # The role may do no more than that.
        with psycopg.connect(dsn_of(tls_postgres, certificates), autocommit=True) as as_cdcd:
            for statement in (
                "SELECT * FROM private.keys",
                "INSERT INTO orders VALUES (9)",
                "CREATE TABLE x (id int)",
                "SELECT * FROM cdcd.requests",
            ):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    as_cdcd.execute(statement)
        stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')")


def test_mutual_tls_with_kafka(
    database: Database, tls_kafka: servers.Kafka, certificates: Certificates, tmp_path: Path
) -> None:
    with StreamFixture(database.dsn, tls_kafka.bootstrap, "mutual", tmp_path) as stream:
        grant(tls_kafka, tmp_path, "mutual", stream.slot)
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
        daemon = stream.daemon(sink={"bootstrap_servers": tls_kafka.address("MUTUAL")})
        properties = {
            "security.protocol": "SSL",
            "ssl.ca.location": str(certificates.ca),
            "ssl.certificate.location": str(certificates.client),
            "ssl.key.location": str(certificates.client_key),
        }
        secured(daemon, tmp_path, properties)
        daemon.start().wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(("public", "t"))


@pytest.mark.parametrize("wrong", ["ca", "password", "user"])
def test_an_error_of_kafkas_security_names_the_setting_without_the_secret(
    database: Database, tls_kafka: servers.Kafka, certificates: Certificates, tmp_path: Path, wrong: str
) -> None:
    with StreamFixture(database.dsn, tls_kafka.bootstrap, "refused", tmp_path) as stream:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
        daemon = stream.daemon(sink={"bootstrap_servers": tls_kafka.address("SASL")})
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(certificates.other_ca if wrong == "ca" else certificates.ca),
            "sasl.mechanism": "PLAIN",
            "sasl.username": "none" if wrong == "user" else "cdcd",
        }
        secured(daemon, tmp_path, properties)
        secret = tmp_path / "secrets" / "sink__librdkafka__sasl.password"
        if wrong == "password":
            secret.write_text(f"not-{PASSWORD}")
        done = run(daemon, "run")
        assert done.returncode == 1, done.stderr
        last = done.stderr.splitlines()[-1]
        hint = {"ca": "ssl.*", "password": "sasl.*", "user": "kafka-acls.sh --add"}[wrong]
        assert " ERROR cdcd: " in last
        assert hint in last
        assert PASSWORD not in done.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"sslrootcert": "other"}, "certificate verify failed"),
        ({"host": "localhost.localdomain", "hostaddr": "127.0.0.1"}, "does not match host name"),
        ({"sslmode": "disable"}, "pg_hba.conf"),
    ],
)
def test_a_server_with_the_wrong_identity_is_refused(
    tls_postgres: servers.PostgreSQL, broker: str, certificates: Certificates, tmp_path: Path, more: dict[str, str],
    words: str,
) -> None:  # fmt: skip
    more = {name: str(certificates.other_ca) if value == "other" else value for name, value in more.items()}
    if more.get("sslmode") == "disable":
        more |= {"sslcertmode": "disable"}
    with StreamFixture(tls_postgres.dsn("shop"), broker, "refused-too", tmp_path) as stream:
        done = stream.run(source={"dsn": dsn_of(tls_postgres, certificates, **more)}, timeout_s=90)
        assert done.returncode == 1
        assert words in done.stderr.splitlines()[-1]
        assert ("pg_reload_conf" if "sslmode" in more else "source.dsn") in done.stderr.splitlines()[-1]


def test_unverified_tls_gets_a_warning(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon(source={"dsn": make_conninfo(stream.dsn, sslmode="prefer")}).start()
    daemon.wait_for_log("going on")
    eventually(lambda: "sslmode=verify-full" in daemon.log.read_text(), "a warning")
    assert daemon.stop() == 0


def test_no_row_value_is_in_any_log_page_or_metric(stream: StreamFixture) -> None:
    secret = "hunter2-of-a-row"
    stream.sql("CREATE TABLE t (id text PRIMARY KEY, v text)")
    daemon = stream.daemon(log={"level": "debug"}, sink={"on_unpublishable": "park"}).start()
    daemon.wait_for_log("going on")
    page = f"http://127.0.0.1:{port_of(daemon)}/"
    stream.sql(
        f"INSERT INTO t VALUES ('{secret}', '{secret}')",
        f"SELECT pg_logical_emit_message(true, 'p', '{secret}')",
        f"INSERT INTO t SELECT '{secret}2', string_agg('{secret}' || md5(n::text), '') FROM generate_series(1,50000) n",
        f"UPDATE t SET id = id || '{secret}' WHERE v = '{secret}'",
    )
    daemon.wait_until_confirmed()
    shown = [urllib.request.urlopen(page + path, timeout=5).read().decode() for path in ("", "metrics")]
    assert daemon.stop() == 0
    assert "is parked" in daemon.log.read_text()
    for text in (daemon.log.read_text(), *shown):
        assert secret not in text
