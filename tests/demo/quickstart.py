"""Run the quickstart: the servers, the shop, `cdcd run`, `cdcd tail`, and a table of the events.

Before: `tests/quickstart` has installed the packages, and runs this in its environment.
After: `screen.py` shows the events. At the end everything is stopped in order; a process that does not is reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import IO, Self

import psycopg
from confluent_kafka.admin import AdminClient
from servers import Kafka, PostgreSQL
from servers.jars import ServerError
from servers.processes import end_guard, free_port, guard

from cdcd.build_info import build, describe
from demo import shop
from demo.screen import Screen

PREFIX = "shop"
READY_S = 120.0
STOP_S = 15.0

PURE = """\
The hot modules are not compiled: they are about ten times slower. With a C compiler and Python's headers (on Debian:
apt install gcc python3-dev) the quickstart compiles them: tests/quickstart --clean, and start it again.\
"""

CONFIG = """\
# Written by the quickstart at each start. `cdcd config --reference` explains every setting.
[source]
dsn = "{dsn}"
tables = ["public.*"]

[sink]
bootstrap_servers = "{bootstrap}"
prefix = "{prefix}"

[spool]
directory = "{spool}"

[monitoring]
host = "127.0.0.1"
port = {port}
"""


class Ended(Exception):
    """The demonstration cannot go on; the message says why."""


def run(home: Path, servers_home: Path, *, seconds: float | None, spark: bool) -> int:
    """Run everything below `home` until Ctrl-C or SIGTERM, or for `seconds`; return the exit code."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        with alone(home), ExitStack() as stack:
            _run(stack, home, servers_home, seconds, spark=spark)
    except KeyboardInterrupt:
        pass
    except (Ended, ServerError, psycopg.Error) as problem:
        print(f"quickstart: {problem}", file=sys.stderr)
        return 1
    print(f"stopped. The next start goes on from here. To remove {home}: tests/quickstart --clean")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """Hold the directory's lock, which names this process; raises Ended if another quickstart holds it."""
    with (home / "running").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Ended(f"a quickstart runs in {home} already; stop it, or choose another --home") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def _run(stack: ExitStack, home: Path, servers_home: Path, seconds: float | None, *, spark: bool) -> None:
    began = time.monotonic()
    _say(describe())
    if build() == "pure":
        _say(PURE)
    postgres = PostgreSQL(home=servers_home, data=home / "postgresql")
    kafka = Kafka(home=servers_home, data=home / "kafka")
    _say(f"starting PostgreSQL {postgres.version} on port {postgres.port}, Kafka {kafka.version} on port {kafka.port}")
    for server in (postgres, kafka):
        stack.callback(_stop, server)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda server: server.start(), (postgres, kafka)))

    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = 'shop'").fetchone():
            connection.execute("CREATE DATABASE shop")
    dsn = postgres.dsn("shop")
    shop.create(dsn)

    port = free_port()
    config = home / "cdcd.toml"
    config.write_text(CONFIG.format(dsn=dsn, bootstrap=kafka.bootstrap, prefix=PREFIX, spool=home / "spool", port=port))
    topics = [f"{PREFIX}.public.{table}" for table in shop.TABLES]
    tail = Command(
        ["tail", "--config", str(config), "--from-beginning", "--json", *topics], home / "tail.log", read=True
    )
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    topics_exist = set(topics) <= set(admin.list_topics(timeout=10).topics)
    daemon = stack.enter_context(Command(["run", "--config", str(config)], home / "cdcd.log"))
    if topics_exist:  # then `cdcd tail` need not wait for the daemon
        stack.enter_context(tail)
    url = f"http://127.0.0.1:{port}"
    _say(f"starting cdcd run --config {config}, its log: {home / 'cdcd.log'}")
    _wait(lambda: _answers(f"{url}/readyz"), "cdcd is ready", daemon)

    workload = shop.Workload(dsn)
    workload.start()
    stack.callback(workload.stop)
    if not topics_exist:
        _wait(lambda: set(topics) <= set(admin.list_topics(timeout=5).topics), "the topics are there", daemon)
        stack.enter_context(tail)

    footer = [
        f"PostgreSQL   {dsn}",
        f"Kafka        {kafka.bootstrap}   isolation.level=read_committed",
        f"metrics      {url}/metrics   status page: {url}/",
        f"more         {Path(sys.prefix) / 'bin' / 'cdcd'} tail --config {config} {topics[2]}",
        "stop         Ctrl-C",
    ]
    _say("", *footer[:-1], "")
    screen = Screen(sys.stdout, topics)
    until = time.monotonic() + seconds if seconds is not None else None
    first = True
    try:
        while until is None or time.monotonic() < until:
            for line in tail.lines(0.5):
                event = json.loads(line)
                screen.add(event["topic"], event.get("value") or {})
            if first and screen.rows:
                first = False
                footer.append(f"first events {time.monotonic() - began:.1f} s after the start")
                if not sys.stdout.isatty():
                    _say(footer[-1])
            screen.show(footer)
            for command in (daemon, tail):
                command.check()
            if workload.failure is not None:
                raise Ended(f"the shop's workload failed: {workload.failure}")
    finally:
        screen.show(footer, at_once=True)
    if not screen.rows:
        raise Ended(f"no event arrived in {seconds:.0f} s; cdcd's log is {home / 'cdcd.log'}")
    if spark:
        from demo import spark_look

        spark_look.show(kafka.bootstrap, PREFIX, topics[2], servers_home, say=_say)


class Command:
    """A `cdcd` command as a child process, which ends with this process; its standard error goes to a log."""

    def __init__(self, arguments: list[str], log: Path, *, read: bool = False) -> None:
        """Take the arguments and the log. With `read`, `lines` gives the lines of its standard output."""
        self._name = f"cdcd {arguments[0]}"
        self._command = [str(Path(sys.prefix) / "bin" / "cdcd"), *arguments]
        self._log = log
        self._read = read
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            output = subprocess.PIPE if self._read else log
            self._process = subprocess.Popen(
                self._command,
                env={name: value for name, value in os.environ.items() if not name.startswith("CDCD_")},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                start_new_session=True,
            )
        self._guard = guard(self._process)
        if self._process.stdout is not None:
            threading.Thread(target=self._collect, args=[self._process.stdout], daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the command by SIGTERM, and print a line if it does not end cleanly."""
        running = self._process.poll() is None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            _say(f"{self._name} did not end within {STOP_S:.0f} s after SIGTERM, so it was killed")
        else:
            if running and code not in (0, -signal.SIGTERM):
                _say(f"{self._name} ended with exit code {code}: {self.last_words()}")
        end_guard(self._guard)

    def _collect(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._lines.put(line)

    def lines(self, seconds: float) -> Iterator[bytes]:
        """Yield the lines that the command prints, for `seconds`."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            try:
                yield self._lines.get(timeout=left)
            except queue.Empty:
                return

    def check(self) -> None:
        """Raise Ended, with the end of the log, if the command has ended."""
        code = self._process.poll()
        if code is not None:
            raise Ended(f"{self._name} ended with exit code {code}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of its log."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-10:]) or f"{self._log} is empty"


def _wait(happened: Callable[[], bool], what: str, daemon: Command) -> None:
    deadline = time.monotonic() + READY_S
    while not happened():
        daemon.check()
        if time.monotonic() > deadline:
            raise Ended(f"waited {READY_S:.0f} s until {what}: {daemon.last_words()}")
        time.sleep(0.05)


def _answers(url: str) -> bool:
    """Whether the URL answers with 200."""
    try:
        with urllib.request.urlopen(url, timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def _stop(server: PostgreSQL | Kafka) -> None:
    try:
        server.stop(STOP_S)
    except ServerError:
        server.close()


def _say(*lines: str) -> None:
    for line in lines:
        sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
