"""A stream as tests use it: a database, a broker, a prefix of topics, the daemons between them, and questions to all.

Before: `daemon` (the process), `topics` (the independent reader), `workload` (the oracle for a table's content).
After: the acceptance tests, through the fixtures in `acceptance/conftest.py`.
"""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psycopg

from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE
from support import daemon as installed
from support import topics, workload
from support.background_thread import BackgroundThread
from support.daemon import Daemon, environment

Table = tuple[str, str]


class StreamFixture:
    """A stream from a database to topics, with one slot name and one prefix. Ends its daemons when the test ends."""

    def __init__(self, dsn: str, broker: str, prefix: str, folder: Path) -> None:
        self.dsn = dsn
        self.broker = broker
        self.prefix = prefix
        self.slot = "s" + prefix.replace("-", "_")
        self.topics = topics.Topics(broker, prefix)
        self.folder = folder
        self._daemons = 0
        self._stack = ExitStack()

    def daemon(self, **settings: Any) -> Daemon:
        """Make a daemon for this slot and prefix, without starting it; `settings` by section."""
        self._daemons += 1
        folder = self.folder / f"daemon-{self._daemons}"
        folder.mkdir()
        source = {"dsn": self.dsn, **settings.pop("source", {})}
        dsn = str(source.pop("dsn"))
        made = Daemon(folder, dsn, self.broker, self.prefix, source=source, **settings)
        return self._stack.enter_context(made)

    def run(
        self, *arguments: str, timeout_s: float = 60.0, **settings: dict[str, Any]
    ) -> subprocess.CompletedProcess[str]:
        """Run a `cdcd run` that ends by itself, and return its exit code and output."""
        config = self.daemon(**settings).config
        return subprocess.run(
            [*installed.command(), "run", "--config", str(config), *arguments],
            capture_output=True, text=True, timeout=timeout_s, check=False, env=environment(),
        )  # fmt: skip

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in its own transaction, and return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def publish(self, publication: str, *tables: str) -> None:
        """Make a publication of these tables that takes requests, as a person would."""
        self.sql(CREATE_SCHEMA, CREATE_TABLE)
        self.sql(f"CREATE PUBLICATION {publication} FOR TABLE {', '.join((*tables, 'cdcd.requests'))}")

    def confirmed(self) -> int:
        """The slot's `confirmed_flush_lsn`."""
        where = f"FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        return self._number(f"SELECT confirmed_flush_lsn - '0/0' {where}")

    def written(self) -> int:
        """The end of the server's WAL."""
        return self._number("SELECT pg_current_wal_lsn() - '0/0'")

    def walsender(self) -> int | None:
        """The process id of the walsender that streams from the slot; None if there is none."""
        [(pid,)] = self.sql(f"SELECT max(active_pid) FROM pg_replication_slots WHERE slot_name = '{self.slot}'")
        return pid

    def slot_records(self) -> list[dict[str, Any]]:
        """Every slot record, oldest first."""
        return [value for key, value in self.topics.progress() if key == self.slot]

    def events(self) -> list[topics.Event]:
        """Every committed event of every table."""
        return self.topics.events(*self.topics.names())

    def check(self, *tables: Table) -> list[topics.Event]:
        """Check that every event comes once and in order, and that the events give the server's tables.

        Returns the events.
        """
        events = self.events()
        topics.check_exactly_once(events)
        by_table = self.topics.by_table()
        for table in tables:
            folded = topics.fold([event for event in events if event.topic == by_table.get(table)])
            wanted = self.content(*table)
            assert folded - wanted == wanted - folded == Counter(), (
                f"{table}: {sum(folded.values())} rows folded, {sum(wanted.values())} in the server; too many "
                f"{list((folded - wanted).items())[:3]}, missing {list((wanted - folded).items())[:3]}"
            )
        return events

    def content(self, schema: str, table: str) -> Counter[topics.Row]:
        """The rows of a table as the server renders them."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            return workload.content(connection, schema, table)

    def _number(self, query: str) -> int:
        [(number,)] = self.sql(query)
        return int(number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Writer(BackgroundThread):
    """Commits small transactions one after another while a `with` lasts: numbers into a table `t (id, v)`.

    Every third transaction also updates rows and every seventh deletes one, so that a doubled or lost event shows. When
    the server is killed, the writer ignores the error and connects again. The table says which transactions committed.
    """

    TABLE = "CREATE TABLE IF NOT EXISTS t (id bigint PRIMARY KEY, v int NOT NULL DEFAULT 0)"

    def __init__(self, dsn: str, first: int = 1, pause_s: float = 0.002, rows: int = 1, pad: int = 0) -> None:
        super().__init__()
        self._dsn = dsn
        self._number = first
        self._pause_s = pause_s
        self._rows = rows
        self._pad = pad
        self.commits = 0

    def run(self) -> None:
        while not self._done.is_set():
            try:
                with psycopg.connect(self._dsn, autocommit=True, connect_timeout=2) as connection:
                    while not self._done.wait(self._pause_s):
                        self._write(connection)
            except psycopg.OperationalError:
                self._done.wait(0.05)

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        first = self._number
        self._number += self._rows
        with connection.transaction():
            connection.execute("INSERT INTO t SELECT generate_series(%s::bigint, %s)", (first, first + self._rows - 1))
            if first % 3 == 0:
                connection.execute("UPDATE t SET v = v + 1 WHERE id BETWEEN %s AND %s", (first - 5, first - 2))
            if first % 7 == 0:
                connection.execute("DELETE FROM t WHERE id = %s", (first - 6,))
        self.commits += 1


def port_of(daemon: Daemon) -> int:
    """The port of the daemon's HTTP server; waits until the daemon logs it."""
    ports = eventually(lambda: re.findall(r"url=\"?http://\S+:(\d+)/", daemon.log.read_text()), "port", 10)
    return int(ports[-1])


def metric(daemon: Daemon, name: str) -> float:
    """The sum of a metric's samples in `/metrics`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port_of(daemon)}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if re.match(rf"{name}[{{ ]", line))


def eventually(ready: Callable[[], Any], what: str, timeout_s: float = 30.0) -> Any:
    """Wait until `ready()` returns something true, and return that."""
    deadline = time.monotonic() + timeout_s
    while not (found := ready()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.05)
    return found
