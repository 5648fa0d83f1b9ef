"""PostgreSQL, Kafka and the settings do not tell one story: the start is refused, and nothing is made or fenced."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from confluent_kafka.admin import AdminClient
from support.daemon import cdcd
from support.fix_postgres import Database
from support.stream import StreamFixture
from support.volume_copy import VolumeCopy

TABLE = "CREATE TABLE t (id int PRIMARY KEY, v text)"
RESNAPSHOT = {"source": {"on_slot_lost": "resnapshot"}}


@pytest.fixture
def server(start_postgres: Callable[..., servers.PostgreSQL]) -> servers.PostgreSQL:
    return start_postgres(fsync=True)


@pytest.fixture
def own(server: servers.PostgreSQL, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    """A stream on a server of its own."""
    with StreamFixture(server.dsn(), broker, prefix, tmp_path) as stream:
        yield stream


def rows(stream: StreamFixture, first: int, end: int) -> None:
    stream.sql(*(f"INSERT INTO t VALUES ({number})" for number in range(first, end)))


def refusal(stream: StreamFixture, **settings: Any) -> str:
    """What `cdcd run` says when it refuses to start."""
    done = stream.run(**settings)
    assert done.returncode == 1, done.stderr
    return done.stderr.splitlines()[-1]


def published(stream: StreamFixture, first: int, end: int) -> None:
    """Stream these rows, and end the daemon in order."""
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        rows(stream, first, end)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def delete(stream: StreamFixture, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": stream.broker})
    for deleted in admin.delete_topics([f"{stream.prefix}.{name}" for name in names]).values():
        deleted.result(10)


# Progress that is lost


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("lost", [["progress"], ["progress", "snapshots"]], ids=" and ".join)
def test_a_lost_progress_topic_is_refused_and_a_new_snapshot_replaces_it(
    own: StreamFixture, server: servers.PostgreSQL, lost: list[str]
) -> None:
    own.sql(TABLE, "CHECKPOINT")
    with own.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        rows(own, 0, 100)
        daemon.wait_until_confirmed()
        daemon.kill()
    server.kill()  # what was acknowledged since the checkpoint is gone
    server.start()
    delete(own, *lost)
    for _ in range(2):
        assert f"Kafka has no progress of the slot {own.slot}" in refusal(own)
    assert "Kafka has no progress of the slot" in cdcd(own.daemon(), "check", code=1)
    own.sql("DELETE FROM t WHERE id < 10")
    with own.daemon(**RESNAPSHOT).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        rows(own, 200, 210)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    own.check(("public", "t"))
    published(own, 300, 310)
    own.check(("public", "t"))


def test_without_slot_and_progress_rows_in_a_topic_keep_a_slot_from_being_made(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    published(stream, 0, 10)
    delete(stream, "progress", "snapshots")
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')")
    assert f"there are rows on {stream.prefix}.public.t" in refusal(stream)
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'") == []


# A data directory that is put back without a new timeline


def fill(stream: StreamFixture, beyond: int) -> None:
    """Write WAL of a table that is not published, beyond a position."""
    stream.sql("CREATE TABLE IF NOT EXISTS filler (v text)")
    while stream.written() < beyond:
        stream.sql("INSERT INTO filler SELECT repeat('x', 1000) FROM generate_series(1, 100)")


def test_a_server_that_was_put_back_and_has_written_on_is_refused(
    own: StreamFixture, server: servers.PostgreSQL, tmp_path: Path
) -> None:
    own.sql(TABLE, "CREATE PUBLICATION cdcd FOR TABLE t")
    published(own, 0, 50)
    copy = VolumeCopy(server, tmp_path)
    published(own, 50, 70)
    end = own.written()
    copy.put_back()
    rows(own, 1000, 1100)
    fill(own, end + 1)
    rows(own, 1100, 1110)
    for _ in range(2):
        said = refusal(own)
        assert "the last transaction in Kafka committed at" in said
        assert "the server does not have it" in said
    assert len(own.check()) == 70


def test_rows_of_a_server_that_was_put_back_are_not_dropped_where_it_had_written_nothing_to_publish(
    own: StreamFixture, server: servers.PostgreSQL, tmp_path: Path
) -> None:
    own.sql(TABLE, "CREATE PUBLICATION cdcd FOR TABLE t", "CREATE TABLE filler (v text)")
    published(own, 0, 50)
    copy = VolumeCopy(server, tmp_path)
    with own.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        fill(own, own.written() + (1 << 20))
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    end = own.written()
    copy.put_back()
    rows(own, 1000, 1010)
    fill(own, end + 1)
    said = refusal(own)
    assert "the server has a transaction with events that commits at" in said
    assert len(own.check()) == 50


def test_the_same_server_goes_on_after_any_crash(own: StreamFixture, server: servers.PostgreSQL) -> None:
    own.sql(TABLE)
    with own.daemon() as daemon:
        for turn in range(4):
            daemon.start().wait_for_log("going on")
            rows(own, turn * 100, turn * 100 + 30)
            daemon.wait_until_confirmed()
            daemon.kill()
            rows(own, turn * 100 + 30, turn * 100 + 40)
            server.kill()
            server.start()
        daemon.start().wait_until_confirmed()
        assert daemon.stop() == 0
    own.check(("public", "t"))


# Two databases, two servers


def test_two_databases_of_one_server_do_not_share_a_prefix(stream: StreamFixture, postgres: servers.PostgreSQL) -> None:
    name = f"{stream.prefix.replace('-', '_')}_other"
    with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0".encode())
    other = {"source": {"dsn": postgres.dsn(name), "slot": f"{stream.slot}_other"}}
    try:
        with psycopg.connect(postgres.dsn(name), autocommit=True) as connection:
            connection.execute(TABLE)
        stream.sql(TABLE)
        with stream.daemon().start() as daemon:
            daemon.wait_for_log("going on")
            assert f"the slot {stream.slot} of the database" in refusal(stream, **other)  # nothing is published yet
            rows(stream, 0, 3)
            daemon.wait_until_confirmed()
            assert "publishes to the same topics" in refusal(stream, **other)
            assert "publishes to the same topics" in cdcd(stream.daemon(**other), "check", code=1)
            assert daemon.stop() == 0
        assert "publishes to the same topics" in refusal(stream, **other)
        assert "publishes to the same topics" in cdcd(stream.daemon(**other), "check", code=1)
        assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}_other'") == []
        published(stream, 3, 6)
        assert len(stream.check(("public", "t"))) == 6
    finally:
        Database(name, postgres).drop()


@pytest.mark.parametrize("has_slot", [True, False])
def test_a_daemon_that_is_led_to_another_server_fences_nobody_and_makes_no_slot(
    stream: StreamFixture, own: StreamFixture, has_slot: bool
) -> None:
    stream.sql(TABLE)
    own.sql(TABLE)
    if has_slot:
        own.sql(f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput')")
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        rows(stream, 0, 3)
        daemon.wait_until_confirmed()
        assert "this is another PostgreSQL cluster" in refusal(stream, source={"dsn": own.dsn})
        assert len(own.sql("SELECT 1 FROM pg_replication_slots")) == has_slot
        rows(stream, 3, 6)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        assert "starting again" not in daemon.log.read_text()
    assert len(stream.check(("public", "t"))) == 6
