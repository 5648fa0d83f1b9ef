"""A server as a child process: started, ended, killed, paused, and ended with its owner.

After: `servers/__init__.py` says how PostgreSQL and Kafka are started and when they are ready. The quickstart guards
the daemon in the same way.
Source: proc(5); PostgreSQL 18 and Kafka end in order on SIGTERM.

A server never outlives its owner, the process that started it. A shell (the guard) runs next to each server and reads
from a pipe, whose other end only the owner holds. When the owner dies, by any signal, the pipe closes, and the guard
ends the server. (PR_SET_PDEATHSIG does not work here: it fires when the *thread* that started the child ends, and it is
lost when the child changes its user.)
"""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, ClassVar, Self

from servers.jars import Say, ServerError

START_S = 120.0
"""Seconds that a server may take to become ready; a JVM on a busy machine takes twenty."""

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
"""The environment of every server. The owner's environment may hold PG* and JAVA_* variables, which change a server."""

_GUARD = """
read -r _
if [ "$2" = QUIT ]; then
    kill -QUIT "$1"; i=0
    while kill -0 "$1" && [ $i -lt 50 ]; do sleep 0.1; i=$((i+1)); done
fi 2>/dev/null
kill -KILL "$1" 2>/dev/null
[ -z "$3" ] || { sleep 0.3; rm -rf -- "$3"; }
"""
"""Ends a server whose owner is gone. $1: its process id; $2: QUIT if it has children; $3: a directory to remove."""


class Server:
    """One server process on loopback. It can be ended and started again, with the same port and data.

    Use it as a context manager, or call `start` and finally `close`. Several threads must not use it at the same time.
    """

    QUIT: ClassVar[signal.Signals] = signal.SIGKILL
    """The signal that ends the server and its children at once."""

    def __init__(
        self, name: str, *, home: Path | None, data: Path | None, port: int | None, python: str, say: Say
    ) -> None:
        """Make the server's directory: `data`, or a temporary one below the home, which `close` removes."""
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
        self.environment = dict(ENVIRONMENT)
        """The environment variables of the next start."""
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
        """The server's process id (PostgreSQL: the postmaster's). Raises ServerError if the server does not run."""
        if self._process is None:
            raise ServerError(f"{self.name} does not run")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process exists, paused or not."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start the server, and return when it serves. Raises ServerError with the end of its log if it fails."""
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
            late = time.monotonic() > deadline
            if late or not self.running:
                why = f"was not ready in {START_S:.0f} s" if late else "ended"
                self.kill()
                raise ServerError(f"{self.name} {why} at start, its log ({self.log}) says:\n{self.log_tail(began)}")
            time.sleep(0.02)
        return self

    def stop(self, timeout_s: float = 60.0) -> None:
        """End the server in order, and wait for it. Raises ServerError if it still runs after `timeout_s`."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End the server with SIGKILL, like a power loss; does nothing if it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._forget()

    def restart(self) -> Self:
        """Stop, and start again with the same port and data."""
        self.stop()
        return self.start()

    def pause(self) -> None:
        """Pause the server with SIGSTOP, and wait until all its threads have stopped. Its connections stay open.

        (One thread takes the signal. On a busy machine it may wait for a processor, while the other threads go on.)
        """
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server at once, and remove its data if its directory is temporary."""
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
        """Make the files that the server needs, and return the command that runs it in the foreground."""
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _user(self) -> str | None:
        """Return the user that the server runs as; None for the owner's user."""
        return None

    def _popen(self, command: Sequence[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start a program of the server, as the server's user, in a new session.

        (So the terminal's Ctrl-C reaches only the owner, which then ends the server in order.)
        """
        user = self._user()
        return subprocess.Popen(
            command,
            env=self.environment,
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
        """Forget the ended process, and end its guard: a new process may get the same id."""
        if self._guard is not None:
            end_guard(self._guard)
        self._process = self._guard = None


def default_home() -> Path:
    """Return the home of the servers: `CDCD_TEST_HOME`, or else the user's cache, or for root `/var/tmp/cdcd`.

    PostgreSQL refuses to run as root, so root runs it as another user, which must be able to reach the home. If that
    user cannot reach root's cache, the home is `/var/tmp/cdcd`.
    """
    if named := os.environ.get("CDCD_TEST_HOME"):
        return Path(named).expanduser().absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "cdcd"
    return home if os.geteuid() != 0 or reachable(home) else Path("/var/tmp/cdcd")


def reachable(path: Path) -> bool:
    """Whether every user may pass through all existing parent directories of `path`."""
    return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents if parent.exists())


def guard(
    process: subprocess.Popen[Any], *, how: signal.Signals = signal.SIGKILL, remove: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the shell that ends `process` when this process is gone. Call `end_guard` when `process` has ended.

    `how` is SIGQUIT if `process` must end its children, otherwise SIGKILL. `remove` is a directory to remove, too.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(process.pid), how.name.removeprefix("SIG"), str(remove or "")],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end_guard(guard: subprocess.Popen[bytes]) -> None:
    """End the shell that `guard` started, before it does anything."""
    guard.kill()
    guard.wait()
    if guard.stdin is not None:
        guard.stdin.close()


def free_port() -> int:
    """Return a loopback port that nothing listens on.

    The port is outside the range of outgoing connections, so it stays free while its server is down for a moment.
    """
    while True:
        port = random.randrange(15000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port


def children(pid: int) -> list[int]:
    """Return the process ids of a process's children."""
    return [int(stat.parent.name) for stat in Path("/proc").glob("[0-9]*/stat") if _stat(stat)[1] == str(pid)]


def alive(pid: int) -> bool:
    """Whether the process exists, and is not just a zombie."""
    return _stat(Path(f"/proc/{pid}/stat"))[0] not in ("Z", "X", "")


def _stat(path: Path) -> tuple[str, str]:
    """Return the state and the parent's process id from a /proc/PID/stat, empty if the process is gone."""
    try:
        state, parent, *_ = path.read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    return state, parent
