"""Fixtures of the acceptance tests: streams on the session's servers, and servers that a test may stop, kill or pause.

All tests share `restartable_postgres` and `restartable_kafka`. A test that stops one of them starts it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
import servers
from support.fix_postgres import Database
from support.page_reader import Open, PageReader
from support.stream import StreamFixture

_numbers = itertools.count(1)


@pytest.fixture
def stream(database: Database, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    """Give a stream of a new database and new topics on the session's servers."""
    with StreamFixture(database.dsn, broker, prefix, tmp_path) as stream:
        yield stream


@pytest.fixture
def open_page(request: pytest.FixtureRequest, stream: StreamFixture, tmp_path: Path) -> Open:
    """Give a function that opens a page of the manual, for somebody who does on this stream what the page says."""

    def open_page(page: str, others: Mapping[str, str] | None = None) -> PageReader:
        test = f"acceptance/{request.path.name}::{request.node.originalname}"
        return PageReader(page, test, stream, tmp_path, others or {})

    return open_page


@pytest.fixture(scope="session")
def restartable_postgres() -> Iterator[servers.PostgreSQL]:
    """Start a PostgreSQL that tests may stop and kill. Its fsync stays on, so that a crash loses nothing."""
    with servers.PostgreSQL(settings={"wal_keep_size": "0"}) as server:
        yield server


@pytest.fixture(scope="session")
def restartable_kafka() -> Iterator[servers.Kafka]:
    """Start a broker that tests may stop, kill and pause: another cluster than that of the session."""
    with servers.Kafka(cluster_id="cdcd-test-cluster-0002") as server:
        yield server


def _fresh(server: servers.PostgreSQL, broker: str, folder: Path) -> Iterator[StreamFixture]:
    name = f"restartable_{next(_numbers)}"
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    with StreamFixture(server.dsn(name), broker, name.replace("_", "-"), folder) as stream:
        yield stream
    Database(name, server).drop()


@pytest.fixture
def on_restartable_postgres(
    restartable_postgres: servers.PostgreSQL, broker: str, tmp_path: Path
) -> Iterator[StreamFixture]:
    """Give a stream whose PostgreSQL the test may stop, kill or pause."""
    yield from _fresh(restartable_postgres, broker, tmp_path)


@pytest.fixture
def on_restartable_servers(
    restartable_postgres: servers.PostgreSQL, restartable_kafka: servers.Kafka, tmp_path: Path
) -> Iterator[StreamFixture]:
    """Give a stream whose PostgreSQL and broker the test may stop, kill or pause."""
    yield from _fresh(restartable_postgres, restartable_kafka.bootstrap, tmp_path)


@pytest.fixture
def on_restartable_kafka(
    postgres: servers.PostgreSQL, restartable_kafka: servers.Kafka, tmp_path: Path
) -> Iterator[StreamFixture]:
    """Give a stream whose broker the test may stop, kill or pause."""
    yield from _fresh(postgres, restartable_kafka.bootstrap, tmp_path)
