"""A lost slot with on_slot_lost = "resnapshot": a slot record has the gap, and a snapshot makes the topics right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import servers
from support import topics
from support.daemon import cdcd
from support.stream import StreamFixture, eventually

RESNAPSHOT = {"source": {"on_slot_lost": "resnapshot"}}


def streamed_once(stream: StreamFixture) -> None:
    """Stream rows of a keyed and of a keyless table, and end the daemon: it will not see the next changes."""
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE k (id int)")
    stream.sql("ALTER TABLE k REPLICA IDENTITY FULL")
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 100) n", "INSERT INTO k VALUES (1), (1), (2)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def changed(stream: StreamFixture) -> None:
    stream.sql("DELETE FROM t WHERE id <= 10", "UPDATE t SET v = 'new' WHERE id > 50", "INSERT INTO t VALUES (999, '')")
    stream.sql("DELETE FROM k WHERE id = 2", "INSERT INTO k VALUES (3)")


def drop(stream: StreamFixture) -> None:
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')")


def advance(stream: StreamFixture) -> None:
    stream.sql(f"SELECT pg_replication_slot_advance('{stream.slot}', pg_current_wal_lsn())")


def check(stream: StreamFixture) -> list[topics.Event]:
    """Check that the folded topics equal the tables, events come once and in order, and one slot record has the gap."""
    reader = topics.Topics(stream.broker, stream.prefix)
    events = [event for topic in reader.names() for event in reader.events(topic)]
    topics.check_exactly_once(events)
    by_table = reader.by_table()
    for table in (("public", "t"), ("public", "k")):
        own = [event for event in events if event.topic == by_table[table]]
        assert topics.fold(own, snapshot=True) == stream.content(*table)
    [gap] = [record for record in stream.slot_records() if "gap_lsn" in record]
    assert gap["gap_lsn"] < gap["lsn"]
    return events


@pytest.mark.parametrize("lose", [drop, advance])
def test_changes_without_a_slot_are_in_the_topics(stream: StreamFixture, lose: object) -> None:
    assert callable(lose)
    streamed_once(stream)
    changed(stream)
    lose(stream)
    stream.sql("INSERT INTO t VALUES (2000, 'newer')")
    with stream.daemon(**RESNAPSHOT).start() as daemon:
        daemon.wait_for_log("changes are missing")
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("UPDATE t SET v = 'newest' WHERE id = 2000")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    events = check(stream)
    assert len({event.topic for event in events if event.value is not None and event.value["op"] == "t"}) == 2


def test_a_daemon_killed_right_after_a_loss_still_makes_the_topics_right(stream: StreamFixture) -> None:
    streamed_once(stream)
    changed(stream)
    drop(stream)
    with stream.daemon(**RESNAPSHOT, snapshot={"mode": "never"}) as daemon:
        for said in ("made the slot", "going on", "took a snapshot"):
            daemon.start().wait_for_log(said)
            daemon.kill()
        daemon.start().wait_for_log("the snapshot is complete")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    check(stream)


def test_a_slot_that_has_lost_wal_is_made_again(on_restartable_postgres: StreamFixture) -> None:
    stream = on_restartable_postgres
    streamed_once(stream)
    stream.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        changed(stream)
        for number in range(4):
            stream.sql(f"INSERT INTO t VALUES ({5000 + number})", "SELECT pg_switch_wal()")
        lost = f"SELECT wal_status FROM pg_replication_slots WHERE slot_name = '{stream.slot}'"
        eventually(lambda: stream.sql("CHECKPOINT", lost) == [("lost",)], "lost slot")
    finally:
        stream.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")
    with stream.daemon(**RESNAPSHOT).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    check(stream)


def test_a_slot_that_no_client_used_for_too_long_is_named_and_replaced(
    start_postgres: Callable[..., servers.PostgreSQL], broker: str, prefix: str, tmp_path: Path
) -> None:
    server = start_postgres(18, settings={"idle_replication_slot_timeout": "1s"})
    with StreamFixture(server.dsn(), broker, prefix, tmp_path) as stream:
        streamed_once(stream)
        changed(stream)
        reason = f"SELECT invalidation_reason FROM pg_replication_slots WHERE slot_name = '{stream.slot}'"
        eventually(lambda: stream.sql("CHECKPOINT", reason) == [("idle_timeout",)], "invalidated slot")
        checked = cdcd(stream.daemon(), "check", code=1)
        assert "idle_replication_slot_timeout invalidates a slot that no client uses for" in checked
        run = stream.run()
        for said in (checked, run.stderr):
            assert "because no client used it for longer than idle_replication_slot_timeout" in said
        refused = stream.run(source={**RESNAPSHOT["source"], "create": False})
        assert "idle_replication_slot_timeout, and source.create is false" in refused.stderr
        assert stream.sql(reason) == [("idle_timeout",)], "a start that refuses drops nothing"
        with stream.daemon(**RESNAPSHOT).start() as daemon:
            daemon.wait_for_log("the snapshot is complete")
            daemon.wait_until_confirmed()
            assert daemon.stop() == 0
        check(stream)


@pytest.mark.whole
def test_verify_waits_for_the_snapshot_that_follows_the_end_of_a_parking(stream: StreamFixture) -> None:
    park = {"on_unpublishable": "park"}
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with stream.daemon(sink=park).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t SELECT n, 'old' FROM generate_series(1, 100) n")
        daemon.wait_until_confirmed()
        stream.sql("INSERT INTO t SELECT 101, string_agg(md5(n::text), '') FROM generate_series(1, 60000) n")
        daemon.wait_for_log("the table public.t is parked")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    stream.sql("UPDATE t SET v = 'new' WHERE id > 50")
    drop(stream)
    with stream.daemon(**RESNAPSHOT, sink=park).start() as daemon:
        daemon.wait_for_log("changes are missing")
        daemon.wait_for_log("going on")
        topics.set_config(stream.broker, f"{stream.prefix}.public.t", max_message_bytes=str(8 << 20))
        said = cdcd(daemon, "unpark", "public.t")
        assert said.startswith("unparked public.t; a new snapshot of it follows by itself. To wait for it: ")
        said = cdcd(daemon, *said.partition("To wait for it: cdcd ")[2].split())
        assert "changed" not in said
        assert daemon.stop() == 0
