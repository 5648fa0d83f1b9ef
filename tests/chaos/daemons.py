"""The installed daemon as Kubernetes would run it: restarted when it ends, killed when its liveness probe fails.

Before: `run` makes two of them; one streams, the other stands by. After: `faults` kills, stops and starves them.
"""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from pathlib import Path
from typing import IO, Any, Self

from servers.processes import end_guard, free_port, guard
from support.daemon import Daemon, command, environment

START_AGAIN_S = 0.7
PROBE_S = 2.0
PROBES_MAX = 8
"""Liveness probes that may fail in a row, as in deploy's manifests. After the last one the daemon is killed."""

NOT_A_BUG = (
    "another producer has taken over this daemon's transactional.id",  # a zombie that woke up: it must end
    "no stream started within 60 s",  # the servers were away for that long: Kubernetes starts it again
)


class RestartedDaemon:
    """One replica of the daemon, restarted until `stop`. Its folder, spool and log carry `name`."""

    def __init__(self, name: str, folder: Path, dsn: str, broker: str, prefix: str, **settings: dict[str, Any]) -> None:
        self.name = name
        folder = folder / name
        folder.mkdir(parents=True)
        self._port = free_port()
        self.spool = folder / "spool"
        spool = {"directory": str(self.spool), **settings.pop("spool", {})}
        monitoring = {"host": "127.0.0.1", "port": self._port}
        daemon = Daemon(folder, dsn, broker, prefix, spool=spool, monitoring=monitoring, **settings)
        self.slot = daemon.slot
        self.config = daemon.config
        self.log = daemon.log
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep, daemon=True),
            threading.Thread(target=self._probe, daemon=True),
        ]
        self.suspended = threading.Event()
        self.holds_slot = False
        self.exits: Counter[str] = Counter()
        self.restarts: Counter[str] = Counter()
        self.bugs: list[str] = []
        self.peak_rss_kb = 0
        self._last_error = ""
        self._expected = ""

    @property
    def pid(self) -> int | None:
        """The daemon's process id; None while it does not run."""
        process = self._process
        return None if process is None or process.poll() is not None else process.pid

    def signal(self, number: signal.Signals) -> None:
        """Send the daemon a signal, if it runs."""
        process = self._process
        if process is not None and process.poll() is None:
            self._expected = number.name
            process.send_signal(number)

    def change_settings(self, section: str, line: str) -> None:
        """Replace the settings file by one that has this line in the section, and let the daemon read it."""
        name, head = line.partition(" ")[0], f"[{section}]\n"
        text = re.sub(rf"(?m)^{name} = .*\n", "", self.config.read_text())
        fresh = self.config.with_suffix(".new")
        fresh.write_text(text.replace(head, f"{head}{line}\n"))
        fresh.replace(self.config)
        if self.holds_slot:  # before that it may not handle signals yet
            self.signal(signal.SIGHUP)

    def limit_files(self, size_bytes: int) -> None:
        """Let the daemon write no file larger than this, as on a full disk; -1 takes the limit away."""
        pid = self.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):  # it ends at this moment
                hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))

    def last_words(self) -> list[str]:
        """The last lines of its log, without the lines about what it published."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [f"{self.name}: {line}" for line in lines if "stream_report: published" not in line][-6:]

    def stop(self) -> int | None:
        """End it with SIGTERM, and return its exit code; None if it was never started."""
        self._closing.set()
        process = self._process
        if process is None:
            return None
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return code

    def _keep(self) -> None:
        while not self._closing.is_set():
            self.holds_slot = False
            self._expected = self._last_error = ""
            self._process = process = subprocess.Popen(
                [*command(), "run", "--config", str(self.config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment(),
            )
            self._guard = guard(process)
            assert process.stdout is not None
            self._follow(process.stdout)
            code = process.wait()
            end_guard(self._guard)
            self._note_exit(code)
            self._closing.wait(START_AGAIN_S)

    def _follow(self, output: IO[bytes]) -> None:
        with self.log.open("ab") as log:
            for line in output:
                log.write(line)
                log.flush()
                text = line.decode(errors="replace").rstrip()
                if "holding the slot" in text:
                    self.holds_slot = True
                elif "standing by" in text:
                    self.holds_slot = False
                if " WARNING " in text and (reason := re.search(r"starting again in [\d.]+ s: (.*)", text)):
                    self.holds_slot = False
                    self.restarts[_shape(reason[1])] += 1
                elif " ERROR " in text:
                    self._last_error = text
                elif "Traceback" in text or "This is a bug" in text:
                    self.bugs.append(text)

    def _note_exit(self, code: int) -> None:
        self.holds_slot = False
        if code < 0:
            self.exits[signal.Signals(-code).name] += 1
            if signal.Signals(-code).name not in (self._expected, "SIGKILL"):
                self.bugs.append(f"{self.name} ended by {signal.Signals(-code).name}")
        elif code == 0:
            self.exits["in order"] += 1
        else:
            why = self._last_error.partition(" cdcd: ")[2] or f"exit code {code}"
            self.exits[_shape(why)] += 1
            if not any(known in why for known in NOT_A_BUG):
                self.bugs.append(f"{self.name} ended with {code}: {self._last_error}")

    def _probe(self) -> None:
        failed = 0
        while not self._closing.wait(PROBE_S):
            pid = self.pid
            if pid is None or self.suspended.is_set():
                failed = 0
                continue
            self.peak_rss_kb = max(self.peak_rss_kb, peak_rss_kb(pid))
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/healthz", timeout=2):
                    failed = 0
            except OSError:
                failed += 1
            if failed >= PROBES_MAX:
                failed = 0
                self.exits["liveness probe"] += 1
                self.signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        if (process := self._process) is not None:
            process.kill()
        for thread in self._threads:
            thread.join(10)


def peak_rss_kb(pid: int) -> int:
    """The peak resident memory of the process, in KiB; 0 if the process is gone."""
    try:
        [found] = re.findall(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except (OSError, ValueError):
        return 0
    return int(found)


def _shape(sentence: str) -> str:
    """The first sentence of an error, with every position and number replaced, so that equal errors count together."""
    sentence = sentence.partition(". ")[0]
    sentence = re.sub(r"[0-9A-F]+/[0-9A-F]+|\d[\d.,]*", "N", sentence)
    return sentence[:90]


def wait_for(ready: Any, what: str, timeout_s: float) -> None:
    """Wait until `ready()` is true; raises TimeoutError with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {timeout_s:.0f} s")
        time.sleep(0.05)
