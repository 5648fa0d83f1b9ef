"""The installed daemon as a process: a test starts it from a settings file, watches it from outside, and ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from signal import Signals
from typing import Any, Self

import psycopg


class Daemon:
    """`cdcd run` with one settings file; it may be started again after it ended."""

    def __init__(self, folder: Path, dsn: str, broker: str, prefix: str, **more: Any) -> None:
        """Write the settings file. `more`: further settings by section, such as `sink={"partitions": 2}`.

        `table`: the entries of [[table]].
        """
        entries = more.pop("table", [])
        self.folder = folder
        self.dsn = dsn
        self.slot = str(more.get("source", {}).get("slot", "s" + prefix.replace("-", "_")))
        self.log = folder / "cdcd.log"
        self.config = folder / "cdcd.toml"
        sections: dict[str, dict[str, Any]] = {
            "source": {"dsn": dsn, "slot": self.slot, "publication": "cdcd", "tables": ["*.*"], "status_interval_s": 1},
            "snapshot": {"mode": "never"},
            "sink": {"bootstrap_servers": broker, "prefix": prefix},
            "monitoring": {"host": "127.0.0.1", "port": 0},
            "spool": {"directory": str(folder / "spool")},
        }
        for section, values in more.items():
            sections.setdefault(section, {}).update(values)
        texts = [f"[{name}]\n{_toml(values)}\n" for name, values in sections.items()]
        self.config.write_text("".join([*texts, *(f"[[table]]\n{_toml(entry)}\n" for entry in entries)]))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start the process; does not wait until it streams."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._logged = log.tell()
            self._process = subprocess.Popen(
                [*command(), "run", "--config", str(self.config)], stdout=log, stderr=log, env=environment()
            )
        return self

    def kill(self) -> None:
        """End the process by SIGKILL."""
        self._end(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self, timeout_s: float = 10.0) -> int:
        """End the process by SIGTERM, and return its exit code; fails if this takes longer than `timeout_s`.

        Waits first until the process handles signals: before that, SIGTERM would kill it.
        """
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline and self.running() and "url=" not in self.log_since_start():
            time.sleep(0.02)
        time.sleep(0.05)
        return self._end(signal.SIGTERM, timeout_s)

    def wait(self, timeout_s: float = 30.0) -> int:
        """Wait until the process ends by itself; returns its exit code."""
        assert self._process is not None
        code = self._process.wait(timeout_s)
        self._process = None
        return code

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def log_since_start(self) -> str:
        """The log of the process that runs now."""
        with self.log.open("rb") as log:
            log.seek(self._logged)
            return log.read().decode(errors="replace")

    def running(self) -> bool:
        """Whether the process has not ended."""
        return self._process is not None and self._process.poll() is None

    def wait_for_log(self, text: str, timeout_s: float = 30.0) -> None:
        """Wait until the log holds `text`."""
        self.until(lambda: text in self.log.read_text(), f"{text!r} in the log", timeout_s)

    def wait_until_streaming(self, timeout_s: float = 30.0) -> None:
        """Wait until the slot is in use."""
        with psycopg.connect(self.dsn, autocommit=True) as sql:
            query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            self.until(
                lambda: (sql.execute(query, (self.slot,)).fetchone() or (False,))[0], "an active slot", timeout_s
            )

    def wait_until_confirmed(self, lsn: str | None = None, timeout_s: float = 60.0) -> None:
        """Wait until the slot's confirmed_flush_lsn reaches `lsn` (default: the end of the WAL now)."""
        with psycopg.connect(self.dsn, autocommit=True) as sql:
            target = lsn or sql.execute("SELECT pg_current_wal_lsn()").fetchone()[0]  # type: ignore[index]
            query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
            self.until(
                lambda: (sql.execute(query, (target, self.slot)).fetchone() or (False,))[0],
                f"confirmation of {target}",
                timeout_s,
            )

    def until(self, ready: Callable[[], Any], what: str, timeout_s: float) -> None:
        """Wait until `ready()` is true; fails with the log's tail if the daemon ends or the time is over."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            ended = self._process is None or self._process.poll() is not None
            if ended or time.monotonic() > deadline:
                how = f"ended with {self._process.returncode}" if ended and self._process else f"waited {timeout_s} s"
                tail = self.log.read_text()[-3000:] if self.log.exists() else ""
                raise AssertionError(f"no {what}: {how}\n{tail}")
            time.sleep(0.02)

    def _end(self, how: Signals, timeout_s: float = 10.0) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(
                f"still alive {timeout_s} s after {how.name}\n{self.log.read_text()[-3000:]}"
            ) from None
        self._process = None
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def cdcd(daemon: Daemon, *arguments: str, code: int = 0) -> str:
    """Run a command with the daemon's settings; returns its standard output, or its standard error if that is empty."""
    done = subprocess.run(
        [*command(), *arguments, "--config", str(daemon.config)],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout or done.stderr


def command() -> list[str]:
    """The command line that runs this interpreter's installed cdcd, not the cdcd in the working directory."""
    return [sys.executable, "-P", "-m", "cdcd"]


def _toml(values: dict[str, Any]) -> str:
    return "".join(f"{name} = {_toml_value(value)}\n" for name, value in values.items())


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_toml_value(each) for each in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml_value(name)} = {_toml_value(each)}" for name, each in value.items()) + "}"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value)


def environment() -> dict[str, str]:
    """The environment without cdcd's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CDCD_")}
