"""Fixtures of real PostgreSQL servers, started on first use and ended with the session.

Before: `servers` starts the servers.
After: every test that asks for `postgres`, `database` or `start_postgres`.

- `postgres`: the server, of the major version in CDCD_TEST_POSTGRES (default: the newest). A test marked
  `@pytest.mark.postgres_versions("oldest", "newest")` (or with numbers) runs once on each of these versions.
- `database`: a database for one test on that server. It is dropped after the test, with its slots and connections.
- `start_postgres`: starts servers for one test, which may restart, kill or configure them.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
import servers
from psycopg import sql
from servers.jars import NEWEST, OLDEST

VERSIONS = {"oldest": OLDEST, "newest": NEWEST}

_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "postgres_versions(*versions): run on each: a major version, 'oldest', 'newest'")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that has the marker once on each of its versions."""
    marker = metafunc.definition.get_closest_marker("postgres_versions")
    if marker is not None:
        versions = [VERSIONS.get(version, version) for version in marker.args]
        ids = [f"pg{version}" for version in versions]
        metafunc.parametrize("postgres", versions, ids=ids, indirect=True, scope="session")


@dataclass
class Database:
    """A database of one test: its name, its server, its DSN, and connections that end with the test."""

    name: str
    server: servers.PostgreSQL
    _open: list[psycopg.Connection[Any]] = field(default_factory=list)

    @property
    def dsn(self) -> str:
        """The libpq connection string, as the superuser."""
        return self.server.dsn(self.name)

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """Return a new connection, in autocommit unless told otherwise."""
        connection = psycopg.connect(self.dsn, **{"autocommit": True, **more})
        self._open.append(connection)
        return connection

    def execute(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements, each in a transaction of its own, and return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def drop(self) -> None:
        """Drop the database with its connections, walsenders, prepared transactions and slots."""
        for connection in self._open:
            connection.close()
        with psycopg.connect(self.server.dsn(), autocommit=True) as outside:
            prepared = "SELECT gid FROM pg_prepared_xacts WHERE database = %s"
            # psycopg need not know the encoding of the database, so connect to it only if there is a reason.
            if gids := outside.execute(prepared, [self.name]).fetchall():
                with psycopg.connect(self.dsn, autocommit=True) as inside:
                    for (gid,) in gids:
                        inside.execute(sql.SQL("ROLLBACK PREPARED {}").format(gid))
            _drop_slots(outside, self.name)
            outside.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(self.name)))


def _drop_slots(connection: psycopg.Connection[Any], database: str) -> None:
    """Drop the database's replication slots; end the walsenders that stream from them first."""
    deadline = time.monotonic() + 10
    while True:
        connection.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE database = %s AND active",
            [database],
        )
        try:
            connection.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = %s", [database]
            )
        except psycopg.errors.ObjectInUse:  # its walsender has not ended yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


@pytest.fixture(scope="session")
def _postgres_servers() -> Iterator[Callable[[int], servers.PostgreSQL]]:
    started: dict[int, servers.PostgreSQL] = {}
    with ExitStack() as stack:

        def server(version: int) -> servers.PostgreSQL:
            if version not in started:
                # For tests with subscriptions: 14 and 15 start at most one apply worker in this time.
                settings = {"wal_retrieve_retry_interval": "100ms"}
                started[version] = stack.enter_context(servers.PostgreSQL(version, settings=settings, fsync=False))
            return started[version]

        yield server


@pytest.fixture(scope="session")
def postgres(
    request: pytest.FixtureRequest, _postgres_servers: Callable[[int], servers.PostgreSQL]
) -> servers.PostgreSQL:
    """Return the session's PostgreSQL server of the wanted version. Tests must not stop or configure it."""
    wanted = getattr(request, "param", None) or os.environ.get("CDCD_TEST_POSTGRES") or NEWEST
    return _postgres_servers(int(str(wanted).split(".")[0]))


@pytest.fixture
def database(postgres: servers.PostgreSQL) -> Iterator[Database]:
    """Make a new database (UTF8, from template0) and drop it after the test."""
    database = Database(f"test_{os.getpid()}_{next(_numbers)}", postgres)
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        name = sql.Identifier(database.name)
        connection.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(name))
    yield database
    database.drop()


@pytest.fixture
def start_postgres() -> Iterator[Callable[..., servers.PostgreSQL]]:
    """Return a function that starts a server for this test: `start_postgres(version, settings={...})`."""
    with ExitStack() as stack:

        def start(version: int | str | None = None, **more: Any) -> servers.PostgreSQL:
            wanted = version or os.environ.get("CDCD_TEST_POSTGRES") or NEWEST
            return stack.enter_context(servers.PostgreSQL(wanted, **{"fsync": False, **more}))

        yield start
