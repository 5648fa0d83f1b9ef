"""PostgreSQL and Kafka as a company has them: TLS for both, SCRAM, and ACLs.

Before: `servers` runs them, `certificates` signs. After: `world` tells what their user knows, `faults` breaks.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import servers
import trustme
from psycopg.conninfo import make_conninfo
from support import scram
from support.certificates import Certificates
from trials import admin_tools

PASSWORDS = {"postgres": "correct-horse", "app": "shop-counter", "cdcd": "battery-staple", "admin": "kafka-boss"}


class Folder:
    """The files of the user, and the path under which he sees them."""

    def __init__(self, here: Path, seen_as: str) -> None:
        self.here, self.seen_as = here, seen_as
        here.mkdir(parents=True, exist_ok=True)
        tools = here / "tools"
        tools.mkdir(exist_ok=True)
        for name in admin_tools.TOOLS:
            shutil.copyfile(str(admin_tools.__file__), tools / name)
            (tools / name).chmod(0o755)

    def write(self, name: str, text: str | bytes, mode: int = 0o644) -> None:
        """Write a file, with the paths as the user sees them."""
        content = text if isinstance(text, bytes) else text.encode()
        path = self.here / name
        path.touch(mode)
        path.chmod(mode)
        path.write_bytes(content)


class GuardedServers:
    """Both servers, with the users of PASSWORDS; of `cdcd` there is no role, and its user of Kafka may do nothing."""

    def __init__(
        self,
        home: Path,
        folder: Folder,
        stack: ExitStack,
        postgres_port: int,
        kafka_port: int,
        *,
        wants_certificate: bool,
    ) -> None:
        """Start them until the stack ends. With `wants_certificate` the role cdcd needs one besides its password."""
        home.chmod(0o755)
        self.ca = Certificates(home).authority
        self._home, self._folder = home, folder
        files = {"ssl_ca_file": "ca.pem", "ssl_cert_file": "server.pem", "ssl_key_file": "server.key"}
        settings = {"ssl": "on"} | {name: str(home / file) for name, file in files.items()}
        self.postgres = stack.enter_context(servers.PostgreSQL(18, port=postgres_port, settings=settings))
        self.hba = ["hostssl all all 127.0.0.1/32 scram-sha-256", "host all all 0.0.0.0/0 reject"]
        if wants_certificate:
            self.hba.insert(0, "hostssl all cdcd 127.0.0.1/32 scram-sha-256 clientcert=verify-full")
        self._guard_postgres()
        self.kafka = self._start_kafka(stack, kafka_port)
        folder.write("ca.pem", self.ca.cert_pem.bytes())
        folder.write("admin-dsn", self._seen(self.dsn("shop")) + "\n", 0o600)
        login = self.properties("admin")
        self.brokers = login.pop("bootstrap.servers")
        folder.write("brokers", f"{self.brokers}\n")
        self.admin_properties = "".join(f"{name}={value}\n" for name, value in login.items())
        folder.write("kafka-admin.properties", self._seen(self.admin_properties), 0o600)

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Return how this process logs in."""
        parts: dict[str, Any] = {"host": "localhost", "port": self.postgres.port, "sslmode": "verify-full"}
        ca = str(self._home / "ca.pem")
        return make_conninfo("", dbname=database, user=user, password=PASSWORDS[user], sslrootcert=ca, **parts)

    def properties(self, user: str) -> dict[str, str]:
        """Return how this process logs in at Kafka, in librdkafka's names."""
        return {
            "bootstrap.servers": f"localhost:{self.kafka.port_of('SASL')}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._home / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def known(self) -> dict[str, str]:
        """Return what the user knows, by its name in the text for him."""
        ca = f"sslmode=verify-full sslrootcert={self._folder.seen_as}/ca.pem"
        return {
            "admin_dsn": f"host=localhost port={self.postgres.port} dbname=shop user=postgres {ca}",
            "admin_password": PASSWORDS["postgres"],
            "hba": ("\n" + " " * 21).join(self.hba),
            "brokers": self.brokers,
            "kafka_password": PASSWORDS["cdcd"],
        }

    def sign(self, *, is_expired: bool) -> trustme.LeafCert:
        """Return a certificate of the client cdcd."""
        now = datetime.now(UTC)
        until = now - timedelta(days=1) if is_expired else now + timedelta(days=30)
        return self.ca.issue_cert(
            "cdcd@example.org", common_name="cdcd", not_before=now - timedelta(days=90), not_after=until
        )

    def _seen(self, text: str) -> str:
        return text.replace(str(self._home), self._folder.seen_as)

    def _guard_postgres(self) -> None:
        with psycopg.connect(self.postgres.dsn(), autocommit=True) as admin:
            admin.execute(f"ALTER ROLE postgres PASSWORD '{PASSWORDS['postgres']}'".encode())
            admin.execute(f"CREATE ROLE app LOGIN PASSWORD '{PASSWORDS['app']}'".encode())
            admin.execute("CREATE DATABASE shop TEMPLATE template0 OWNER app")
            (self.postgres.data / "pg_hba.conf").write_text("\n".join(self.hba) + "\n")
            admin.execute("SELECT pg_reload_conf()")

    def _start_kafka(self, stack: ExitStack, port: int) -> servers.Kafka:
        settings = scram.broker_settings(self._home / "both.pem")
        kafka = servers.Kafka(settings=settings, listeners={"SASL": "SASL_SSL"}, has_acls=True)
        kafka.listeners = {"SASL": ("SASL_SSL", port)}
        stack.enter_context(kafka)
        scram.add_users(kafka.bootstrap, {name: PASSWORDS[name] for name in ("admin", "cdcd")})
        return kafka
