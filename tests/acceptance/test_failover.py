"""The stream follows a failover exactly once, and a new primary that lost published changes is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from servers.jars import NEWEST
from support.daemon import cdcd
from support.pair import Pair
from support.stream import StreamFixture, Writer, eventually

from cdcd.config.settings import Settings, SinkSettings, SourceSettings
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.daemon.snapshot_export import SnapshotExport
from cdcd.progress.snapshot_records import WANTED, TableSnapshot

VERSION = max(17, int(os.environ.get("CDCD_TEST_POSTGRES", NEWEST)))
"""PostgreSQL 17 is the first version with failover slots."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair(VERSION)
    yield pair
    pair.close()


@pytest.fixture
def careless() -> Iterator[Pair]:
    """Give a primary that lets its logical slots run ahead of the standby."""
    pair = Pair(VERSION, synchronized_standby_slots="")
    yield pair
    pair.close()


def test_the_stream_goes_on_at_the_promoted_standby_exactly_once(
    pair: Pair, broker: str, prefix: str, tmp_path: Path
) -> None:
    with StreamFixture(pair.dsn, broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        daemon = stream.daemon(source={"failover": True}).start()
        daemon.wait_for_log("going on")
        with Writer(pair.dsn, rows=2) as writer:
            daemon.wait_for_log("published")
            eventually(lambda: pair.synced(stream.slot), "the slot on the standby", 60)
            before = writer.commits
            pair.primary.kill()
            # The daemon waits for a primary as long as the only server is a standby.
            eventually(lambda: "read-only" in daemon.log.read_text(), "a log line about the standby")
            assert daemon.running()
            pair.on_standby("SELECT pg_promote()")
            eventually(lambda: writer.commits > before + 50, "commits at the new primary", 60)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        assert stream.slot_records()[-1]["timeline"] == 2
        # A row that the old primary committed, but the standby never received, must not be published.
        events = stream.check(("public", "t"))
        assert len(events) > 100


@pytest.mark.whole
def test_a_new_primary_that_lost_published_changes_is_refused_with_a_hint(
    careless: Pair, broker: str, prefix: str, tmp_path: Path
) -> None:
    pair = careless
    with StreamFixture(pair.dsn, broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        daemon = stream.daemon(source={"failover": True}).start()
        daemon.wait_for_log("going on")
        with Writer(pair.dsn):
            eventually(lambda: pair.synced(stream.slot), "the slot on the standby", 60)
        pair.on_standby("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        pair.standby.settings.pop("primary_conninfo")
        pair.standby.restart()  # its command line had the setting, too
        stream.sql("INSERT INTO t VALUES (1000000)")
        daemon.wait_until_confirmed()
        published = len(stream.events())
        pair.fail_over()
        assert daemon.wait(60) == 1
        last = daemon.log.read_text().splitlines()[-1]
        assert "it does not have all that was published" in last
        assert "timeline 2 left it at" in last
        assert "start over under another sink.prefix" in last
        assert stream.sql("SELECT count(*) FROM t WHERE id = 1000000") == [(0,)]
        assert len(stream.events()) == published


def test_a_promoted_standby_that_lacks_the_last_second_is_adopted_with_new_snapshots(
    careless: Pair, broker: str, prefix: str, tmp_path: Path
) -> None:
    pair = careless
    with StreamFixture(pair.dsn, broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        settings: dict[str, Any] = {"source": {"failover": True}, "snapshot": {"mode": "initial"}}
        daemon = stream.daemon(**settings).start()
        daemon.wait_for_log("going on")
        with Writer(pair.dsn) as writer:
            eventually(lambda: pair.synced(stream.slot), "the slot on the standby", 60)
            pair.on_standby("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
            pair.standby.settings.pop("primary_conninfo")
            pair.standby.restart()  # its command line had the setting, too
            before = writer.commits
            eventually(lambda: writer.commits > before + 100, "commits that the standby lacks")
        daemon.wait_until_confirmed()
        pair.fail_over()
        assert daemon.wait(60) == 1
        with Writer(pair.dsn, first=500_000) as writer:
            eventually(lambda: writer.commits > 100, "commits at the new primary")
        assert "rows are not those that Kafka has" in cdcd(daemon, "adopt", code=1)
        cdcd(daemon, "adopt", "--resnapshot")
        daemon = stream.daemon(**settings).start()
        with Writer(pair.dsn, first=1_000_000) as writer:
            daemon.wait_for_log("the snapshot is complete", 60)
            eventually(lambda: writer.commits > 100, "more commits")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        stream.check(("public", "t"))


def test_failover_slots_need_postgresql_17(database: Any, broker: str, prefix: str, tmp_path: Path) -> None:
    if database.server.version >= 17:
        pytest.skip("this server has failover slots")
    with StreamFixture(database.dsn, broker, prefix, tmp_path) as stream:
        stream.sql(Writer.TABLE)
        done = stream.run(source={"failover": True})
        assert done.returncode == 1
        assert "failover slots need PostgreSQL 17" in done.stderr.splitlines()[-1]


@pytest.mark.parametrize("status_interval_s", [0.2, 60], ids=["noticed", "unnoticed"])
def test_a_stream_from_a_standby_goes_on_after_its_promotion_and_a_restart(
    pair: Pair, broker: str, prefix: str, tmp_path: Path, status_interval_s: float
) -> None:
    with (
        StreamFixture(pair.standby.dsn("shop"), broker, prefix, tmp_path) as stream,
        psycopg.connect(pair.primary.dsn("shop"), autocommit=True) as primary,
    ):
        primary.execute(Writer.TABLE.encode())
        primary.execute("CREATE PUBLICATION cdcd FOR TABLE t")
        eventually(lambda: stream.sql("SELECT pubname FROM pg_publication_tables"), "the publication on the standby")
        source = {"status_interval_s": status_interval_s}
        daemon = stream.daemon(source=source, snapshot={"mode": "never"}).start()

        def goes_on() -> bool:
            primary.execute("SELECT pg_log_standby_snapshot()")  # a slot on a standby waits for it
            return "going on" in daemon.log.read_text()

        eventually(goes_on, "a stream from the standby")
        primary.execute("INSERT INTO t VALUES (1)")
        eventually(lambda: len(stream.events()) == 1, "the row of the old primary")
        pair.fail_over()
        eventually(lambda: pair.on_standby("SELECT pg_is_in_recovery()") == [(False,)], "the promotion")
        stream.sql("INSERT INTO t VALUES (2)")
        daemon.wait_until_confirmed()
        if status_interval_s < 1:
            daemon.wait_for_log("the standby was promoted")
        else:
            assert daemon.stop() == 0
            daemon.start()
        stream.sql("INSERT INTO t VALUES (3)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        assert stream.slot_records()[-1]["timeline"] == 2
        assert len(stream.check(("public", "t"))) == 3


def test_while_a_standby_makes_a_snapshot_the_stream_may_come_to_where_the_standby_was(pair: Pair) -> None:
    """It waits for a transaction of its primary, perhaps for hours, and nothing there tells how far the stream may go.

    The stream stood still meanwhile.
    """
    primary = pair.primary.dsn("shop")
    source = SourceSettings(dsn=pair.standby.dsn("shop"), publication="cdcd")
    settings = Settings(source=source, sink=SinkSettings(bootstrap_servers="unused:9092"))
    with psycopg.connect(primary, autocommit=True) as session, psycopg.connect(primary) as writer:
        for statement in ("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION cdcd FOR TABLE t"):
            session.execute(statement)
        writer.execute("INSERT INTO t VALUES (1)")
        [(written,)] = session.execute("SELECT pg_current_wal_flush_lsn() - '0/0'")
        replayed = "SELECT pg_last_wal_replay_lsn() - '0/0'"
        eventually(lambda: pair.on_standby(replayed)[0][0] >= written, "the standby")
        wanted = TableSnapshot("s", "p.public.t", "public", "t", WANTED, 0)
        export = SnapshotExport(settings, lambda *_: wanted, ReadableTables(settings), lambda: None)
        with closing(export):
            eventually(lambda: export.needs_pause, "request for a pause")
            assert export.safe_stream_lsn == 0
            export.confirm_stream_paused()
            eventually(lambda: export.safe_stream_lsn, "position up to which the stream may go")
            assert export.safe_stream_lsn >= written
            assert not export.done
            writer.commit()

            def is_done() -> bool:
                session.execute("SELECT pg_log_standby_snapshot()")
                return export.done

            eventually(is_done, "snapshot")
            found = export.result()
            assert found is not None
            assert found.lsn > export.safe_stream_lsn
