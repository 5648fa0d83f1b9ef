"""A physical standby as the source: what it cannot do is named with its primary as the place, and nothing is lost."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from servers.jars import NEWEST
from support import topics
from support.daemon import Daemon, cdcd
from support.pair import Pair
from support.stream import StreamFixture, Writer, eventually

from cdcd.lsn import parse_lsn

pytestmark = pytest.mark.whole

VERSION = max(16, int(os.environ.get("CDCD_TEST_POSTGRES", NEWEST)))
"""PostgreSQL 16 is the first version that decodes on a standby."""


@pytest.fixture
def start(broker: str, prefix: str, tmp_path: Path) -> Iterator[Callable[..., tuple[Pair, StreamFixture]]]:
    """Return a function that starts a pair, whose primary has the table t, and a stream from its standby."""
    opened: list[Pair | StreamFixture] = []

    def start(version: int = VERSION, standby: dict[str, str] | None = None) -> tuple[Pair, StreamFixture]:
        pair = Pair(version, standby=standby)
        opened.append(pair)
        stream = StreamFixture(pair.standby.dsn("shop"), broker, prefix, tmp_path)
        opened.append(stream)
        pair.on_primary(Writer.TABLE)
        pair.replayed()
        return pair, stream

    yield start
    for each in reversed(opened):
        each.__exit__(None, None, None)


Starts = Callable[..., tuple[Pair, StreamFixture]]


def following(pair: Pair, stream: StreamFixture, **settings: dict[str, object]) -> Daemon:
    """A daemon that streams from the standby, and asks its primary for what a slot waits for."""
    source = {"primary_dsn": pair.primary.dsn("shop"), **settings.pop("source", {})}
    daemon = stream.daemon(source=source, **settings).start()
    daemon.wait_for_log("going on")
    return daemon


def caught_up(pair: Pair, daemon: Daemon) -> None:
    [(lsn,)] = pair.on_primary("SELECT pg_current_wal_lsn()")
    daemon.wait_until_confirmed(lsn, 150.0)  # longer than the longest status interval here


def test_what_a_standby_cannot_make_is_refused_with_the_statement_for_its_primary(start: Starts) -> None:
    pair, stream = start()
    daemon = stream.daemon(source={"tables": ["public.*"]})
    checked = cdcd(daemon, "check", code=1)
    assert "This is a standby of 127.0.0.1:" in checked
    run = stream.run(source={"tables": ["public.*"]})
    assert run.returncode == 1
    refusal = re.compile(r"a standby cannot make it\. On the primary: Run: (CREATE PUBLICATION .*) \[")
    [statement] = {*refusal.findall(checked), *refusal.findall(run.stderr)}
    pair.on_primary(statement)
    pair.replayed()
    assert "cannot make it" not in cdcd(daemon, "check")


def test_a_request_is_made_on_the_primary(start: Starts) -> None:
    pair, stream = start()
    with StreamFixture(pair.primary.dsn("shop"), stream.broker, stream.prefix, Path(os.devnull)) as on_primary:
        on_primary.publish("cdcd", "t")
    pair.on_primary("INSERT INTO t SELECT generate_series(1, 100)")
    pair.replayed()
    daemon = following(pair, stream, snapshot={"mode": "initial"})
    daemon.wait_for_log("the snapshot is complete")
    alone = stream.daemon()
    assert "it is a standby. Set source.primary_dsn" in cdcd(alone, "snapshot", "public.t", code=1)
    assert "done public.t (100 rows)" in cdcd(daemon, "snapshot", "public.t")
    assert "100 rows, equal" in cdcd(daemon, "verify")
    assert daemon.stop() == 0
    stream.check(("public", "t"))


@pytest.mark.parametrize("version", sorted({16, VERSION}))
def test_a_slot_that_waits_for_the_primary_says_so_and_the_primary_is_asked(start: Starts, version: int) -> None:
    pair, stream = start(version)
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t", "CHECKPOINT", "SELECT pg_log_standby_snapshot()")
    pair.replayed()
    waiting = stream.daemon().start()
    waiting.wait_for_log("Run there: SELECT pg_log_standby_snapshot()", 30)
    assert waiting.stop() == 0
    assert stream.sql("SELECT * FROM pg_replication_slots") == []
    daemon = following(pair, stream, snapshot={"mode": "initial"})
    daemon.wait_for_log("the snapshot is complete", 30)
    assert "waits" not in daemon.log.read_text()
    assert daemon.stop() == 0


def test_a_primary_that_refuses_the_record_is_told_with_the_grant(start: Starts) -> None:
    pair, stream = start()
    pair.on_primary(
        "CREATE PUBLICATION cdcd FOR TABLE t", "CREATE ROLE plain LOGIN REPLICATION", "GRANT SELECT ON t TO plain"
    )
    pair.replayed()
    primary = pair.primary.dsn("shop", user="plain")
    standby = make_conninfo(stream.dsn, user="plain")
    daemon = stream.daemon(source={"dsn": standby, "primary_dsn": primary}).start()
    daemon.wait_for_log("permission denied for function pg_log_standby_snapshot")
    found = re.search(r"Run on the primary: (GRANT .*) \[", daemon.log.read_text(), re.MULTILINE)
    assert found is not None
    pair.on_primary(found[1])
    daemon.stop()
    daemon.start().wait_for_log("going on")
    assert daemon.stop() == 0


@pytest.mark.parametrize("version", sorted({16, VERSION}))
def test_a_slot_whose_rows_the_primary_removed_is_named_with_what_prevents_it(start: Starts, version: int) -> None:
    pair, stream = start(version, standby={"hot_standby_feedback": "off"})
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    pair.replayed()
    daemon = following(pair, stream)
    assert "hot_standby_feedback is off" in cdcd(daemon, "check")
    pair.on_primary("INSERT INTO t VALUES (1)")
    caught_up(pair, daemon)
    assert daemon.stop() == 0
    pair.on_primary("CREATE TABLE gone (a int)", "DROP TABLE gone", "VACUUM pg_class", "INSERT INTO t VALUES (2)")
    lost = "SELECT wal_status FROM pg_replication_slots"
    eventually(lambda: pair.on_standby(lost) == [("lost",)], "an invalidated slot")
    run = stream.run()
    assert run.returncode == 1
    said = run.stderr.splitlines()[-1]
    assert "the primary removed rows of its catalog" in said
    assert "has lost WAL" not in said
    found = re.search(r"run on the standby: (ALTER [^;]*; SELECT [^;]*);", said)
    assert found is not None, said
    del pair.standby.settings["hot_standby_feedback"]
    pair.standby.restart()
    pair.on_standby(*found[1].split("; "))
    assert "hot_standby_feedback is off" not in cdcd(daemon, "check", code=1)
    again = following(pair, stream, source={"on_slot_lost": "resnapshot"}, snapshot={"mode": "initial"})
    again.wait_for_log("the snapshot is complete")
    caught_up(pair, again)
    assert again.stop() == 0
    stream.check(("public", "t"))


@pytest.mark.parametrize("version", sorted({16, VERSION}))
def test_a_primary_that_lowers_its_wal_level_is_named(start: Starts, version: int) -> None:
    pair, stream = start(version)
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    pair.replayed()
    daemon = following(pair, stream)
    pair.primary.settings["wal_level"] = "replica"
    pair.primary.restart()
    assert daemon.wait(60) == 1
    said = daemon.log.read_text().splitlines()[-1]
    assert "wal_level" in said
    assert "primary" in said
    other = stream.run(source={"slot": "other"}, sink={"prefix": f"{stream.prefix}-other"})
    assert other.returncode == 1
    assert "on the primary of this standby: ALTER SYSTEM SET wal_level = logical" in other.stderr.splitlines()[-1]


def test_a_copy_that_conflicts_with_the_recovery_is_tried_again_and_named(start: Starts) -> None:
    pair, stream = start(standby={"hot_standby_feedback": "off", "max_standby_streaming_delay": "0"})
    pair.on_primary(
        "CREATE PUBLICATION cdcd FOR TABLE t", "INSERT INTO t SELECT generate_series(1, 100000)", "VACUUM t"
    )
    pair.replayed()
    # So many queries take longer than the conflict needs to come.
    daemon = following(pair, stream, snapshot={"mode": "initial", "workers": 1, "chunk_bytes": 8192})
    daemon.wait_for_log("took a snapshot")
    conflict = "conflict with recovery. The standby ended it, to go on with its recovery. Run there: ALTER SYSTEM SET"

    def is_cancelled() -> bool:
        pair.on_primary("UPDATE t SET v = v + 1 WHERE id % 100 = 0", "VACUUM t")
        return conflict in daemon.log.read_text()

    eventually(is_cancelled, "a copy that was cancelled", 60)
    daemon.wait_for_log("the snapshot is complete", 60)
    caught_up(pair, daemon)
    assert daemon.stop() == 0
    # The changes that a cancelled copy deferred are published before the next copy reads their rows.
    assert topics.fold(stream.events(), snapshot=True) == stream.content("public", "t")


@pytest.mark.skipif(VERSION < 17, reason="PostgreSQL 17 is the first version with failover slots")
def test_a_slot_that_the_standby_keeps_in_sync_is_refused_there(start: Starts) -> None:
    pair, stream = start()
    pair.on_primary(
        "CREATE PUBLICATION cdcd FOR TABLE t",
        f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput', false, false, true)",
    )
    there = f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'"
    eventually(lambda: pair.on_standby(there), "the slot on the standby", 60)
    daemon = stream.daemon()
    assert "keeps in sync" in cdcd(daemon, "check", code=1)
    run = stream.run()
    assert run.returncode == 1
    assert "keeps in sync for a failover" in run.stderr
    assert "target_session_attrs=read-write chooses it" in run.stderr
    assert "kept in sync" in cdcd(daemon, "slot", "status")
    assert "Drop it on the primary" in cdcd(daemon, "slot", "drop", "--force", code=1)


@pytest.mark.skipif(VERSION < 17, reason="PostgreSQL 17 is the first version with failover slots")
def test_a_standby_that_is_away_holds_a_failover_slot_up_and_is_named(start: Starts) -> None:
    pair, stream = start()
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    given = {"source": {"dsn": pair.primary.dsn("shop"), "failover": True}}
    with StreamFixture(pair.primary.dsn("shop"), stream.broker, stream.prefix, daemon_folder(stream)) as on_primary:
        daemon = on_primary.daemon(source=given["source"]).start()
        daemon.wait_for_log("going on")
        assert "The standby of the slot standby is " in cdcd(daemon, "check")
        pair.standby.stop()
        on_primary.sql("INSERT INTO t VALUES (1)")
        daemon.wait_for_log("PostgreSQL sends nothing, because it waits for a standby", 30)
        assert "waits for a standby" in cdcd(daemon, "slot", "status")
        checked = cdcd(daemon, "check")
        assert "The slot standby of synchronized_standby_slots is not used by its standby now" in checked
        assert on_primary.events() == []
        # The server ends the stream of such a slot with an error when it is shut down.
        pair.primary.restart()
        daemon.wait_for_log("starting again")
        pair.standby.start()
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        assert len(on_primary.check(("public", "t"))) == 1


def daemon_folder(stream: StreamFixture) -> Path:
    folder = stream.daemon().folder / "primary"
    folder.mkdir()
    return folder


def test_a_copy_from_a_standby_goes_on_while_the_primary_writes(start: Starts) -> None:
    pair, stream = start()
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t", "INSERT INTO t SELECT -generate_series(1, 20000)")
    pair.replayed()
    with Writer(pair.primary.dsn("shop")):
        daemon = following(pair, stream, snapshot={"mode": "initial"})
        daemon.wait_for_log("the snapshot is complete", 60)
        daemon.kill()
        daemon.start()
        daemon.wait_for_log("published")
    caught_up(pair, daemon)
    assert daemon.stop() == 0
    topics.check_exactly_once(stream.events())
    assert topics.fold(stream.events(), snapshot=True) == stream.content("public", "t")


def test_a_standby_of_an_older_version_is_refused(start: Starts) -> None:
    pair, stream = start(15)
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    pair.replayed()
    for said in (cdcd(stream.daemon(), "check", code=1), stream.run().stderr):
        assert "logical decoding on a standby needs PostgreSQL 16" in said


def test_a_standby_that_is_promoted_under_load_goes_on_exactly_once(start: Starts) -> None:
    pair, stream = start()
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    pair.replayed()
    daemon = following(pair, stream, source={"status_interval_s": 0.5})
    with Writer(pair.dsn, rows=2) as writer:
        daemon.wait_for_log("published")
        before = writer.commits
        pair.fail_over()
        eventually(lambda: writer.commits > before + 50, "commits at the new primary", 60)
        daemon.wait_for_log("the standby was promoted")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    with psycopg.connect(stream.dsn) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    assert stream.slot_records()[-1]["timeline"] == 2
    stream.check(("public", "t"))


def test_a_promotion_that_the_daemon_did_not_notice_before_it_and_the_server_died_is_accepted(start: Starts) -> None:
    """The rows of the new timeline are in Kafka under the old one's number, and the slot stands further back.

    The start was refused, though the server has everything.
    """
    pair, stream = start(standby={"wal_sender_timeout": "0"})
    pair.on_primary("CREATE PUBLICATION cdcd FOR TABLE t")
    pair.replayed()
    daemon = following(pair, stream, source={"status_interval_s": 60})
    pair.on_primary("INSERT INTO t VALUES (-1)")
    eventually(lambda: len(stream.events()) == 1, "the row of the old primary")
    pair.on_primary("CREATE TABLE unpublished ()")
    caught_up(pair, daemon)  # before the next slot record without rows it would ask whether the server is a standby
    pair.fail_over()
    eventually(lambda: pair.on_standby("SELECT pg_is_in_recovery()") == [(False,)], "the promotion")
    pair.on_standby("CHECKPOINT")  # it saves where the slot stands
    with Writer(stream.dsn, rows=2) as writer:
        eventually(lambda: writer.commits > 50, "commits at the new primary")
    eventually(lambda: len(stream.events()) >= writer.commits * 2, "the rows of the new primary")
    daemon.kill()
    pair.standby.kill()
    pair.standby.start()
    last = stream.slot_records()[-1]
    [(confirmed,)] = pair.on_standby("SELECT confirmed_flush_lsn::text FROM pg_replication_slots")
    assert last["timeline"] == 1
    assert parse_lsn(confirmed) < parse_lsn(last["commit_lsn"])
    daemon.start().wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (-2)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert stream.slot_records()[-1]["timeline"] == 2
    stream.check(("public", "t"))
