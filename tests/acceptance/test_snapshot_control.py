"""A person slows, pauses and resumes snapshots while the daemon streams: no row is lost, and the stream goes on."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from support import topics
from support.daemon import Daemon, cdcd
from support.stream import StreamFixture, eventually, metric, port_of

from cdcd.daemon.snapshot_pump import OUT_OF_HOURS

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

ROWS = 30_000
STALLED_AFTER_S = 5


def copied(daemon: Daemon) -> int:
    """The rows of `t` that Kafka has from a snapshot, since the daemon started."""
    return int(metric(daemon, r'cdcd_rows_total\{op="r",relation="public\.t"\}'))


def start(stream: StreamFixture, rows_per_second: int) -> Daemon:
    """Start a daemon on a table that it copies in many chunks."""
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"INSERT INTO t SELECT i, repeat('v', 200) FROM generate_series(1, {ROWS}) i",
    )
    return stream.daemon(
        source={"create": True, "tables": ["*.*"]},
        snapshot={"mode": "initial", "chunk_bytes": 8192, "rows_per_second": rows_per_second},
        monitoring={"host": "127.0.0.1", "port": 0, "stalled_after_s": STALLED_AFTER_S},
    ).start()


def limit(daemon: Daemon, rows_per_second: int) -> None:
    """Give the running daemon another limit."""
    text = re.sub(r"rows_per_second = \d+", f"rows_per_second = {rows_per_second}", daemon.config.read_text())
    daemon.config.write_text(text)
    daemon.signal(signal.SIGHUP)
    daemon.wait_for_log("and are in force: snapshot.rows_per_second")


@pytest.mark.in_turns(2)
def test_a_limited_snapshot_is_as_fast_as_it_may_be_and_the_stream_is_not_slowed(stream: StreamFixture) -> None:
    daemon = start(stream, rows_per_second=1_000)
    daemon.wait_for_log("took a snapshot")
    began_s = time.monotonic()
    eventually(lambda: metric(daemon, "cdcd_snapshot_tables"), "snapshot that is read")
    for number in range(30):
        stream.sql(f"INSERT INTO other VALUES ({number})")
        rows, passed_s = copied(daemon), time.monotonic() - began_s
        assert rows <= 1_000 * (passed_s + 1), f"{rows} rows after {passed_s:.2f} s"
        time.sleep(0.1)
    eventually(lambda: copied(daemon) >= 2_000, "rows, in two seconds of reading")
    eventually(lambda: metric(daemon, "cdcd_lag_seconds") < 1, "stream that does not lag")
    assert metric(daemon, "cdcd_snapshot_tables"), "the snapshot is read still"
    limit(daemon, 0)
    daemon.wait_for_log("the snapshot is complete")
    assert time.monotonic() - began_s < ROWS / 1_000, "the new limit holds at once, for the snapshot that is read"
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert daemon.log.read_text().count("going on") <= 1, "a new limit needs no new stream"
    stream.check(("public", "t"), ("public", "other"))


@pytest.mark.postgres_versions("newest")
def test_a_stopped_snapshot_leaves_the_changes_in_order_and_says_what_the_topic_lacks(stream: StreamFixture) -> None:
    daemon = start(stream, rows_per_second=2_000)
    eventually(lambda: copied(daemon) > 1_000, "rows that were copied")
    stream.sql("UPDATE t SET v = 'w' WHERE id % 10 = 0")
    assert re.fullmatch(r"stopped public\.t \([\d,]+ rows\)\n", cdcd(daemon, "snapshot", "--stop", "public.t"))
    stream.sql("DELETE FROM t WHERE id % 20 = 0", "INSERT INTO other VALUES (1)")
    daemon.wait_until_confirmed()
    eventually(lambda: metric(daemon, "cdcd_snapshot_tables") == 0, "end of the copy")
    rows = copied(daemon)
    assert rows < ROWS, "it was stopped before the end"
    assert "passed over" in cdcd(daemon, "snapshot", "--stop", "public.other", code=1), "its snapshot is complete"
    document = json.loads(cdcd(daemon, "status", "--json", "--url", f"http://127.0.0.1:{port_of(daemon)}/"))
    assert [each["code"] for each in document["next"]] == ["snapshot-stopped"]
    assert "snapshot-stopped" in cdcd(daemon, "check")
    assert "snapshot-stopped" in cdcd(daemon, "verify", "public.t", code=1)
    daemon.kill()
    daemon.start().wait_until_streaming()
    stream.sql("UPDATE t SET v = 'x' WHERE id % 3 = 0")
    daemon.wait_until_confirmed()
    assert copied(daemon) == 0, "no start takes up a snapshot that was stopped"
    limit(daemon, 0)
    assert "done public.t" in cdcd(daemon, "snapshot", "public.t")
    assert daemon.stop() == 0
    events = stream.events()
    topics.check_exactly_once(events)
    topic = stream.topics.by_table()["public", "t"]
    assert topics.fold([each for each in events if each.topic == topic], snapshot=True) == stream.content("public", "t")


@pytest.mark.postgres_versions("newest")
def test_a_table_is_copied_as_its_entry_says_and_a_broken_condition_is_its_own_trouble(stream: StreamFixture) -> None:
    names = ("large", "later", "part", "unknown", "failing", "lost")
    for name in names:
        stream.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY) PARTITION BY RANGE (id)"
            if name == "part"
            else f"CREATE TABLE {name} (id int PRIMARY KEY)"
        )
    stream.sql(
        "CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE part_2 PARTITION OF part DEFAULT",
        *(f"INSERT INTO {name} SELECT generate_series(1, 100)" for name in names),
        "CREATE FUNCTION is_wanted(int) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RETURN EXISTS (TABLE gone); END'",
        "CREATE PUBLICATION cdcd FOR ALL TABLES WITH (publish_via_partition_root)",
    )
    entries: list[dict[str, object]] = [
        {"match": "public.large", "snapshot": "never"},
        {"match": "public.later", "order": 1},
        {"match": "public.part", "where": "copied.id % 10 = 0 -- every tenth"},
        {"match": "public.unknown", "where": "nobody = 1"},
        {"match": "public.failing", "where": "100 / (id - 50) < 1000"},
        {"match": "public.lost", "where": "public.is_wanted(id)"},
    ]
    settings = {
        "source": {"create": True, "tables": ["*.*"]},
        "snapshot": {"mode": "initial", "chunk_bytes": 8192},
        "monitoring": {"host": "127.0.0.1", "port": 0, "stalled_after_s": STALLED_AFTER_S},
    }
    daemon = stream.daemon(**settings, table=entries).start()
    daemon.wait_for_log("a row could not be read under its condition")
    daemon.wait_for_log("the snapshot is complete")
    for name in names:
        stream.sql(f"INSERT INTO {name} VALUES (101)", f"DELETE FROM {name} WHERE id = 1")
    daemon.wait_until_confirmed()
    said = cdcd(daemon, "check", code=1)
    assert said.count("condition-broken") == 1, "a row fails only when it is read"
    assert "nobody" in said
    assert "public.part" not in cdcd(daemon, "verify", "public.later")
    assert "snapshot-partial" in cdcd(daemon, "verify", "public.part", code=1)
    copies = [each for each in stream.events() if each.value["op"] == "r"]
    found = {name: sorted(e.value["after"]["id"] for e in copies if e.topic.endswith(f".{name}")) for name in names}
    assert found["later"] == list(range(1, 101))
    assert found["part"] == list(range(10, 101, 10))
    assert found["large"] == found["unknown"] == found["lost"] == []
    text = daemon.config.read_text()
    daemon.config.write_text(text.replace("nobody = 1", "id < 3").replace("id - 50", "id - 500"))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: copied_of(daemon, "unknown") == 1 and copied_of(daemon, "failing") == 100, "their copies", 60)
    assert daemon.stop() == 0


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_a_snapshot_waits_for_its_hours(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t SELECT generate_series(1, 100)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO other SELECT generate_series(1, 10)",
    )
    now = datetime.now(UTC)
    later, end = (f"{now + timedelta(hours=hours):%H:%M}" for hours in (2, 4))
    daemon = stream.daemon(
        snapshot={"mode": "initial", "hours": f"{later}-{end}"},
        table=[{"match": "public.other", "hours": f"{end}-{later}"}],
    ).start()
    daemon.wait_for_log("the snapshot is complete", 60)
    daemon.wait_for_log(OUT_OF_HOURS)
    daemon.wait_until_streaming()
    stream.sql("INSERT INTO t VALUES (101)")
    daemon.wait_until_confirmed()
    events = stream.events()
    assert [each.value["op"] for each in events if each.topic.endswith(".t")] == ["c"], "the stream does not wait"
    assert len(events) == 11, "the other table has open hours of its own"
    daemon.config.write_text(daemon.config.read_text().replace(f"{later}-{end}", f"{end}-{later}"))
    daemon.signal(signal.SIGHUP)
    eventually(lambda: copied_of(daemon, "t") == 101, "the copy in the evening", 60)
    assert daemon.stop() == 0
    topics.check_exactly_once(stream.events())
    of_t = [each for each in stream.events() if each.topic.endswith(".t")]
    assert topics.fold(of_t, snapshot=True) == stream.content("public", "t")


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_a_table_with_a_rate_of_its_own_does_not_slow_the_others(stream: StreamFixture) -> None:
    for name, rows in (("slow", 300), ("fast", 20_000)):
        stream.sql(
            f"CREATE TABLE {name} (id int PRIMARY KEY)",
            f"INSERT INTO {name} SELECT generate_series(1, {rows})",
        )
    began = time.monotonic()
    daemon = stream.daemon(
        snapshot={"mode": "initial"}, table=[{"match": "public.slow", "rows_per_second": 50, "order": -1}]
    ).start()
    eventually(lambda: copied_of(daemon, "fast") == 20_000, "the copy of the other table", 60)
    assert copied_of(daemon, "slow") < 300
    daemon.wait_for_log("the snapshot is complete", 60)
    assert time.monotonic() - began > 300 / 50 - 1, "one second is saved up"
    assert daemon.stop() == 0
    for name in ("slow", "fast"):
        stream.check(("public", name))


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
@pytest.mark.parametrize("reaction", ["resnapshot", "repair"])
def test_a_table_that_is_never_copied_is_not_copied_after_a_gap_and_readers_can_tell(
    stream: StreamFixture, reaction: str
) -> None:
    for name in ("large", "small"):
        stream.sql(f"CREATE TABLE {name} (id int PRIMARY KEY)", f"INSERT INTO {name} SELECT generate_series(1, 10)")
    daemon = stream.daemon(
        source={"on_slot_lost": reaction},
        sink={"on_topic_lost": "resnapshot"},
        snapshot={"mode": "initial"},
        table=[{"match": "public.large", "snapshot": "never"}],
    )
    daemon.start().wait_for_log("the snapshot is complete")
    stream.sql("INSERT INTO large VALUES (11)", "INSERT INTO small VALUES (11)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')", "INSERT INTO small VALUES (12)")
    daemon.start().wait_for_log('lacking_rows="1 (public.large)"')
    small = stream.topics.by_table()["public", "small"]
    ids = lambda: {e.value["after"]["id"] for e in stream.events() if e.topic == small and e.value["after"]}  # noqa: E731
    eventually(lambda: 12 in ids(), "the row of the gap", 40)
    daemon.kill()
    daemon.start().wait_until_streaming()
    stream.sql("INSERT INTO large VALUES (12)")
    daemon.wait_until_confirmed()
    assert "snapshot-stopped" in cdcd(daemon, "check")
    assert "snapshot-stopped" in cdcd(daemon, "verify", "public.large", code=1)
    topic = stream.topics.by_table()["public", "large"]
    assert sorted(event.value["after"]["id"] for event in stream.events() if event.topic == topic) == [11, 12]
    assert "done public.large" in cdcd(daemon, "snapshot", "public.large")
    assert daemon.stop() == 0


def copied_of(daemon: Daemon, name: str) -> int:
    """The rows of a table that Kafka has from a snapshot, since the daemon started."""
    return int(metric(daemon, rf'cdcd_rows_total\{{op="r",relation="public\.{name}"\}}'))


@pytest.mark.in_turns(2)
def test_a_pause_holds_over_a_kill_until_somebody_resumes_the_snapshots(stream: StreamFixture) -> None:
    daemon = start(stream, rows_per_second=2_000)
    eventually(lambda: copied(daemon) > 1_000, "rows that were copied")
    assert cdcd(daemon, "snapshot", "--pause") == "paused\n"
    daemon.wait_for_log("the snapshots are paused")
    time.sleep(1)
    rows = copied(daemon)
    assert rows < ROWS, "the pause came before the end"
    stream.sql("UPDATE t SET v = 'w' WHERE id % 10 = 0", "INSERT INTO other VALUES (1)")
    daemon.wait_until_confirmed()
    with psycopg.connect(stream.dsn) as other:
        other.execute("SET lock_timeout = '2s'")
        other.execute("LOCK TABLE t")  # as ALTER TABLE does
    time.sleep(STALLED_AFTER_S + 1)
    assert copied(daemon) == rows
    with urllib.request.urlopen(f"http://127.0.0.1:{port_of(daemon)}/healthz", timeout=5) as answer:
        assert answer.status == 200, "a pause is no hang"
    assert metric(daemon, "cdcd_snapshots_paused") == 1
    document = json.loads(cdcd(daemon, "status", "--json", "--url", f"http://127.0.0.1:{port_of(daemon)}/"))
    assert document["snapshot"]["is_paused"]
    assert [each["code"] for each in document["next"]] == ["snapshots-paused"]
    assert "snapshots-paused" in cdcd(daemon, "check")
    assert "snapshots-paused" in cdcd(daemon, "snapshot", "public.other", code=1)
    assert "takes no table" in cdcd(daemon, "snapshot", "--pause", "public.t", code=2)
    assert "needs a table" in cdcd(daemon, "snapshot", code=2)

    daemon.kill()
    daemon.start().wait_until_streaming()
    eventually(lambda: metric(daemon, "cdcd_snapshots_paused") == 1, "pause after the restart")
    time.sleep(2)
    assert "took a snapshot" not in daemon.log_since_start()
    assert copied(daemon) == 0
    assert cdcd(daemon, "snapshot", "--resume") == "resumed\n"
    limit(daemon, 0)
    eventually(lambda: "the snapshot is complete" in daemon.log_since_start(), "complete snapshot", 60)
    assert metric(daemon, "cdcd_snapshots_paused") == 0
    assert copied(daemon) < ROWS, "what Kafka had before was not copied again"
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.events()
    topics.check_exactly_once(events)
    topic = stream.topics.by_table()["public", "t"]
    # An update came before the row that it changes: the rest of the snapshot was taken after it.
    assert topics.fold([each for each in events if each.topic == topic], snapshot=True) == stream.content("public", "t")
