"""A lost slot with on_slot_lost = "repair": only what differs is published, once, while writers go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from acceptance.test_repair import repairs, verify
from support import topics
from support.daemon import Daemon
from support.stream import StreamFixture, Writer, eventually

from cdcd.snapshot.repair_events import REPAIR_ORIGIN

REPAIR: dict[str, dict[str, Any]] = {"source": {"on_slot_lost": "repair"}, "snapshot": {"mode": "initial"}}


def published(stream: StreamFixture) -> Counter[tuple[str, str]]:
    """How many events of snapshots and truncates, and none of repairs, each topic has, by op."""
    return Counter(
        (event.topic.removeprefix(f"{stream.prefix}."), event.value["op"])
        for event in stream.events()
        if event.value is not None and event.value["op"] in "rt" and event.value["source"]["origin"] != REPAIR_ORIGIN
    )


def drop(stream: StreamFixture) -> None:
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')")


def streamed_once(stream: StreamFixture, *statements: str) -> None:
    """Publish snapshots of the tables that the statements make, and end the daemon."""
    stream.sql(*statements)
    with stream.daemon(**REPAIR).start() as daemon:
        daemon.wait_for_log("the snapshot is complete", 60)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def wait_until_equal(daemon: Daemon) -> None:
    eventually(lambda: verify(daemon.config)[0] == 0, "equal tables and topics", 120)


def check(stream: StreamFixture, *names: str) -> None:
    """Check that every event comes once and in order, and that the events give the server's tables.

    Between the gap and the repair, an event may be of a row that the topic does not have.
    """
    events = stream.events()
    topics.check_exactly_once(events)
    by_table = stream.topics.by_table()
    for name in names:
        own = [event for event in events if event.topic == by_table["public", name]]
        assert topics.fold(own, snapshot=True) == stream.content("public", name), name


def gaps(stream: StreamFixture) -> list[dict[str, object]]:
    return [record for record in stream.slot_records() if "gap_lsn" in record]


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_after_a_dropped_slot_only_what_differs_is_published_under_load(stream: StreamFixture) -> None:
    streamed_once(
        stream,
        "CREATE TABLE items (id int PRIMARY KEY, body text, note text)",
        "ALTER TABLE items ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO items SELECT n, repeat('b', 3000), 'old' FROM generate_series(1, 2000) n",
        "CREATE TABLE same (id int PRIMARY KEY)",
        "INSERT INTO same SELECT generate_series(1, 100)",
        Writer.TABLE,
    )
    before = published(stream)
    with Writer(stream.dsn) as writer:
        drop(stream)
        stream.sql(
            "UPDATE items SET note = 'new' WHERE id <= 5",
            "UPDATE items SET body = repeat('c', 3000) WHERE id = 6",
            "DELETE FROM items WHERE id BETWEEN 11 AND 13",
            "INSERT INTO items VALUES (5000, 'x', ''), (5001, 'y', ''), (5002, 'z', ''), (5003, NULL, NULL)",
            "UPDATE items SET id = 6000 WHERE id = 20",
        )
        eventually(lambda: writer.commits > 300, "commits")
        daemon = stream.daemon(**REPAIR).start()
        daemon.wait_for_log("changes are missing")
        stream.sql("UPDATE items SET note = 'later' WHERE id = 6")  # its body is not in the stream
        daemon.wait_for_log("compared a table after the gap")
        wait_until_equal(daemon)
        commits = writer.commits
        eventually(lambda: writer.commits > commits + 100, "commits")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    check(stream, "items", "same", "t")
    found = repairs(stream)
    assert found["public.items", "r"] == 5 + 1 + 4 + 1
    assert found["public.items", "d"] == 3 + 1
    assert not any(topic == "public.same" for topic, _ in found)
    assert published(stream) == before, "a table was copied"
    [gap] = gaps(stream)
    assert str(gap["gap_lsn"]) < str(gap["lsn"])
    states = [value["snapshot"] for key, value in stream.topics.progress() if "/" in key]
    assert {"lsn": "0/0", "done": False, "rows": 0} in states, "readers were not told that rows are missing"
    assert states[-1]["done"]


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_a_daemon_that_is_killed_at_each_step_repairs_each_row_once(stream: StreamFixture) -> None:
    streamed_once(
        stream,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, repeat('x', 4000) FROM generate_series(1, 6000) n",
    )
    before = published(stream)
    drop(stream)
    stream.sql("UPDATE t SET v = repeat('y', 4000) WHERE id <= 5000", "DELETE FROM t WHERE id % 5 = 0 AND id <= 5000")
    with stream.daemon(**REPAIR) as daemon:
        for said in (
            "made the slot", "changes are missing", "going on", "compared a table after the gap", "took a snapshot",
            "repaired rows", "repairing rows", "took a snapshot",
        ):  # fmt: skip
            daemon.start()
            daemon.until(lambda said=said: said in daemon.log_since_start(), said, 60)  # type: ignore[misc]
            daemon.kill()
        daemon.start()
        wait_until_equal(daemon)
        stream.sql("UPDATE t SET v = 'newest' WHERE id = 1")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert repairs(stream) == {("public.t", "r"): 4000, ("public.t", "d"): 1000}
    assert published(stream) == before
    check(stream, "t")
    assert len(gaps(stream)) == 1


@pytest.mark.postgres_versions("newest")
def test_tables_that_cannot_be_repaired_row_by_row_are_copied(stream: StreamFixture) -> None:
    tables = ("bag", "rekeyed", "replaced", "fresh", "fine")
    streamed_once(
        stream,
        "CREATE TABLE bag (n int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag VALUES (1), (1), (2)",
        *(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("rekeyed", "replaced", "fine")),
        *(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 9) n" for name in ("rekeyed", "replaced", "fine")),
    )
    before = published(stream)
    drop(stream)
    stream.sql(
        "INSERT INTO bag VALUES (3)",
        "ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (v)",
        "DROP TABLE replaced",
        "CREATE TABLE replaced (id int PRIMARY KEY, v int)",
        "INSERT INTO replaced VALUES (1, 1)",
        "CREATE TABLE fresh (id int PRIMARY KEY)",
        "INSERT INTO fresh VALUES (1)",
        "UPDATE fine SET v = 0 WHERE id = 1",
    )
    with stream.daemon(**REPAIR).start() as daemon:
        wait_until_equal(daemon)
        for name in ("bag", "rekeyed"):
            daemon.wait_for_log(f"public.{name} gets a new snapshot after the gap")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    check(stream, *tables)
    assert repairs(stream) == {("public.fine", "r"): 1}
    copied = published(stream) - before
    assert {topic for topic, op in copied if op == "r"} == {f"public.{n}" for n in tables if n != "fine"}


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_an_idle_server_with_many_tables_is_compared_without_waiting_for_its_commits(stream: StreamFixture) -> None:
    names = [f"t{n}" for n in range(8)]
    streamed_once(stream, *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in names))
    drop(stream)
    stream.sql(*(f"INSERT INTO {name} VALUES (1)" for name in names))
    source = {"on_slot_lost": "repair", "status_interval_s": 600}
    with stream.daemon(source=source, snapshot=REPAIR["snapshot"]).start() as daemon:
        wait_until_equal(daemon)
        assert daemon.stop() == 0
    assert repairs(stream) == {(f"public.{name}", "r"): 1 for name in names}


def lost_wal(stream: StreamFixture) -> None:
    stream.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            stream.sql("SELECT pg_logical_emit_message(false, 'x', 'x')", "SELECT pg_switch_wal()")
        lost = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{stream.slot}'"
        eventually(lambda: stream.sql("CHECKPOINT", lost) == [("lost",)], "lost slot")
    finally:
        stream.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def moved(stream: StreamFixture) -> None:
    stream.sql(f"SELECT pg_replication_slot_advance('{stream.slot}', pg_current_wal_lsn())")


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("lose", [lost_wal, moved])
def test_a_slot_that_has_lost_wal_or_was_moved_is_repaired(
    on_restartable_postgres: StreamFixture, lose: Callable[[StreamFixture], None]
) -> None:
    stream = on_restartable_postgres
    streamed_once(
        stream, "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT n FROM generate_series(1, 50) n"
    )
    before = published(stream)
    stream.sql("DELETE FROM t WHERE id <= 3", "UPDATE t SET v = 'new' WHERE id > 48")
    lose(stream)
    with stream.daemon(**REPAIR).start() as daemon:
        daemon.wait_for_log("repaired rows", 60)
        wait_until_equal(daemon)
        assert daemon.stop() == 0
    assert repairs(stream) == {("public.t", "r"): 2, ("public.t", "d"): 3}
    assert published(stream) == before
    assert len(gaps(stream)) == 1
