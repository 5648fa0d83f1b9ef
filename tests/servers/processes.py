"""A server as a process of ours: started, ended, killed, paused, and never left behind.

Before: `servers.py` says how PostgreSQL and Kafka are started and when they are ready.
After: its classes are these processes; the quickstart guards the daemon's in the same way.
Source: proc(5); PostgreSQL 18 and Kafka end in order on SIGTERM.

A server never outlives its owner. Beside each runs a shell that waits on a pipe whose other end only the owner holds:
the pipe closes when the owner dies, by whatever signal, and the shell ends the server. (PR_SET_PDEATHSIG would not do:
it fires when the *thread* that started the child ends, and it is lost where the child changes its user.)
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

#: The environment of every server: not the owner's, whose PG* and JAVA_* variables would change it.
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}

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
            late = time.monotonic() > deadline
            if late or not self.running:
                why = f"was not ready in {START_S:.0f} s" if late else "ended"
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
        """Stop the server's threads with SIGSTOP and wait until all have: connections stay open and nothing answers.

        (On a busy machine the one thread that takes the signal may have to wait for a processor; the others go on.)
        """
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

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
            env=ENVIRONMENT,
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


def default_home() -> Path:
    """Return the directory that servers are kept in: `CDCD_TEST_HOME`, else the user's cache, else `/var/tmp/cdcd`.

    PostgreSQL refuses to run as root, so root runs it as another user, who must be able to reach it: not below /root.
    """
    if named := os.environ.get("CDCD_TEST_HOME"):
        return Path(named).expanduser().absolute()
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "cdcd"
    return home if os.geteuid() != 0 or reachable(home) else Path("/var/tmp/cdcd")


def reachable(path: Path) -> bool:
    """Whether any user may pass through every directory that `path` lies in, as far as they exist."""
    return all(parent.stat().st_mode & 0o001 for parent in path.absolute().parents if parent.exists())


def guard(
    process: subprocess.Popen[Any], *, how: signal.Signals = signal.SIGKILL, remove: Path | None = None
) -> subprocess.Popen[bytes]:
    """Start the shell that ends `process` when this process is gone; kill the shell before `process` is waited for.

    `how` is SIGQUIT for one that must end its children, else SIGKILL; `remove` is a directory to remove afterwards.
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


def children(pid: int) -> list[int]:
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
