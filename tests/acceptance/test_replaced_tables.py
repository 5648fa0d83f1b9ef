"""Another table gets the name, a partition comes or goes, all rows are written again: the topic follows the table."""

from __future__ import annotations

import pytest
from support import topics
from support.daemon import Daemon
from support.stream import StreamFixture, Writer, eventually

from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE

pytestmark = pytest.mark.postgres_versions("oldest", 16, "newest")

T = ("public", "t")
TABLE = "CREATE TABLE t (id int PRIMARY KEY, v int)"
ROWS = "INSERT INTO t SELECT n, n FROM generate_series(1, 100) n"
NEW = ["CREATE TABLE n (id int PRIMARY KEY, v int)", "INSERT INTO n SELECT n, -n FROM generate_series(51, 200) n"]
ROOT = "CREATE TABLE t (id int, d int, v int, PRIMARY KEY (id, d)) PARTITION BY RANGE (d)"
LEAVES = [
    "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
    "INSERT INTO t SELECT n, n % 20, n FROM generate_series(1, 100) n",
]
ALONE = [
    "CREATE TABLE t3 (id int NOT NULL, d int NOT NULL, v int, PRIMARY KEY (id, d))",
    "INSERT INTO t3 SELECT n, 20 + n % 10, n FROM generate_series(1, 50) n",
]
ATTACH = "ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (20) TO (30)"

PLAIN: dict[str, list[str]] = {
    "swapped by rename, and written to": [
        *NEW,
        "BEGIN; ALTER TABLE t RENAME TO o; ALTER TABLE n RENAME TO t; COMMIT",
        "INSERT INTO t VALUES (300, 300)",
    ],
    "swapped by rename, and quiet": [*NEW, "BEGIN; ALTER TABLE t RENAME TO o; ALTER TABLE n RENAME TO t; COMMIT"],
    "swapped, written to, and swapped back in one transaction": [
        *NEW,
        (
            "BEGIN; ALTER TABLE t RENAME TO o; ALTER TABLE n RENAME TO t; INSERT INTO t VALUES (300, 300);"
            "ALTER TABLE t RENAME TO n; ALTER TABLE o RENAME TO t; INSERT INTO t VALUES (301, 301); COMMIT"
        ),
    ],
    "dropped and made again": [f"BEGIN; DROP TABLE t; {TABLE}; INSERT INTO t VALUES (1, 7), (300, 300); COMMIT"],
    "moved away, and another table moved in": [
        "CREATE SCHEMA other",
        "CREATE TABLE other.t (id int PRIMARY KEY, v int)",
        "INSERT INTO other.t VALUES (5, 5)",
        "CREATE SCHEMA third",
        "ALTER TABLE t SET SCHEMA third",
        "ALTER TABLE other.t SET SCHEMA public",
        "INSERT INTO t VALUES (6, 6)",
    ],
    "renamed, written to, and renamed back": [
        "ALTER TABLE t RENAME TO o",
        "UPDATE o SET v = -v",
        "ALTER TABLE o RENAME TO t",
        "UPDATE t SET v = v - 1 WHERE id = 1",
    ],
    "a column with other values": ["ALTER TABLE t ALTER v TYPE int USING v * 2"],
    "a column with another type and other values": [
        "ALTER TABLE t ALTER v TYPE text USING 'v' || v",
        "INSERT INTO t VALUES (300, 'later')",
    ],
    "a new column with a value of each row's own": ["ALTER TABLE t ADD r float8 DEFAULT random()"],
    "out of the publication and back": [
        "ALTER PUBLICATION p DROP TABLE t",
        "UPDATE t SET v = -v",
        "ALTER PUBLICATION p ADD TABLE t",
        "INSERT INTO t VALUES (300, 300)",
    ],
}
PARTITIONED: dict[str, list[str]] = {
    "a partition with rows attached": [*ALONE, ATTACH],
    "a partition filled and attached in one transaction": [f"BEGIN; {'; '.join([*ALONE, ATTACH])}; COMMIT"],
    "a partition detached": ["ALTER TABLE t DETACH PARTITION t2"],
    "a partition dropped": ["DROP TABLE t2"],
    "a partition truncated": ["TRUNCATE t2"],
    "a partition detached, changed and attached again": [
        "ALTER TABLE t DETACH PARTITION t2",
        "UPDATE t2 SET v = -v",
        "ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)",
    ],
    "a partition exchanged": [
        *ALONE,
        "UPDATE t3 SET d = d - 10",
        (
            "BEGIN; ALTER TABLE t DETACH PARTITION t2;"
            "ALTER TABLE t ATTACH PARTITION t3 FOR VALUES FROM (10) TO (20); COMMIT"
        ),
    ],
    "a root swapped by rename": [
        "CREATE TABLE n (LIKE t INCLUDING ALL) PARTITION BY RANGE (d)",
        "CREATE TABLE n1 PARTITION OF n FOR VALUES FROM (0) TO (30)",
        "INSERT INTO n SELECT n, n % 30, -n FROM generate_series(50, 150) n",
        "BEGIN; ALTER TABLE t RENAME TO o; ALTER TABLE n RENAME TO t; COMMIT",
        "INSERT INTO o VALUES (900, 1, 1)",
        "INSERT INTO t VALUES (901, 1, 1)",
        "INSERT INTO o VALUES (902, 1, 1)",
    ],
}


def started(stream: StreamFixture, **settings: dict[str, str]) -> Daemon:
    daemon = stream.daemon(
        source={"publication": "p", "create": True}, snapshot={"mode": "initial"}, **settings
    ).start()
    daemon.wait_for_log("going on")
    return daemon


def follows(stream: StreamFixture, daemon: Daemon) -> None:
    """Wait until the topic gives the table, and see that nothing is doubled."""

    def is_equal() -> bool:
        daemon.wait_until_confirmed()
        events = _of_topic(stream)
        # What is before the last truncate is of tables that had the name before, or of both.
        since = max((event.position for event in events if event.value["op"] == "t"), default=(0, 0))
        try:
            folded = topics.fold([each for each in events if each.position >= since])
        except AssertionError:
            return False  # the truncate has yet to come
        return folded == stream.content(*T)

    eventually(is_equal, "topic that gives the table", 60.0)
    topics.check_exactly_once(stream.events())


def _of_topic(stream: StreamFixture) -> list[topics.Event]:
    topic = stream.topics.by_table()[T]
    return [event for event in stream.events() if event.topic == topic and event.value is not None]


def truncates(stream: StreamFixture) -> int:
    """How many the topic of the table has: each is in every partition."""
    return len({event.position for event in _of_topic(stream) if event.value["op"] == "t"})


def publish(stream: StreamFixture, *tables: str, via_root: bool = False) -> None:
    stream.sql(CREATE_SCHEMA, CREATE_TABLE)
    what = f"FOR TABLE {', '.join((*tables, 'cdcd.requests'))}" if tables else "FOR ALL TABLES"
    stream.sql(f"CREATE PUBLICATION p {what} WITH (publish_via_partition_root = {via_root})")


IN_BOTH = pytest.mark.parametrize("is_down", [False, True], ids=["while the daemon streams", "while it is down"])
OLDER = pytest.mark.postgres_versions("oldest", 16)


def in_turn(scripts: dict[str, list[str]]) -> pytest.MarkDecorator:
    """Of older servers, every other script is run while the daemon is down: versions differ in what they send."""
    turns = [(script, number % 2 == 1) for number, script in enumerate(scripts)]
    return pytest.mark.parametrize(("script", "is_down"), turns, ids=scripts)


@pytest.mark.in_turns(8)
@pytest.mark.postgres_versions("newest")
@IN_BOTH
@pytest.mark.parametrize("script", PLAIN)
def test_the_topic_follows_a_table_that_is_replaced(stream: StreamFixture, script: str, is_down: bool) -> None:
    _follows_table(stream, script, is_down=is_down)


@pytest.mark.in_turns(12)
@OLDER
@in_turn(PLAIN)
def test_the_topic_follows_a_table_of_an_older_server(stream: StreamFixture, script: str, is_down: bool) -> None:
    _follows_table(stream, script, is_down=is_down)


@pytest.mark.in_turns(8)
@pytest.mark.postgres_versions("newest")
@IN_BOTH
@pytest.mark.parametrize("script", PARTITIONED)
def test_the_topic_of_a_root_follows_its_partitions(stream: StreamFixture, script: str, is_down: bool) -> None:
    _follows_root(stream, script, is_down=is_down)


@pytest.mark.in_turns(12)
@OLDER
@in_turn(PARTITIONED)
def test_the_topic_of_a_root_follows_its_partitions_in_an_older_server(
    stream: StreamFixture, script: str, is_down: bool
) -> None:
    _follows_root(stream, script, is_down=is_down)


def _follows_table(stream: StreamFixture, script: str, *, is_down: bool) -> None:
    stream.sql(TABLE, ROWS)
    publish(stream, *(["t"] if "publication" in script else []))
    _play(stream, PLAIN[script], is_down=is_down)


def _follows_root(stream: StreamFixture, script: str, *, is_down: bool) -> None:
    stream.sql(ROOT, *LEAVES)
    publish(stream, via_root=True)
    _play(stream, PARTITIONED[script], is_down=is_down)


def _play(stream: StreamFixture, statements: list[str], *, is_down: bool) -> None:
    daemon = started(stream)
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    if is_down:
        assert daemon.stop() == 0
    stream.sql(*statements)
    if is_down:
        daemon = started(stream)
    follows(stream, daemon)
    assert daemon.stop() == 0
    # Once is enough: a start, which reads old WAL again, notices nothing a second time.
    before = truncates(stream)
    daemon = started(stream)
    follows(stream, daemon)
    assert daemon.stop() == 0
    assert truncates(stream) == before
    assert before <= (2 if "LIKE t" in statements[0] else 1)


def wait_for_commits(writer: Writer, commits: int) -> None:
    eventually(lambda: writer.commits >= commits, "commit of the writer")


@pytest.mark.in_turns(3)
def test_a_table_swapped_twenty_times_under_load_is_equal_in_the_end(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    publish(stream)
    daemon = started(stream)
    with Writer(stream.dsn) as writer:
        for number in range(20):
            stream.sql(
                f"BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE; CREATE TABLE n{number} (LIKE t INCLUDING ALL);"
                f"INSERT INTO n{number} SELECT id, v + 1 FROM t WHERE id % 7 <> {number % 7};"
                f"ALTER TABLE t RENAME TO o{number}; ALTER TABLE n{number} RENAME TO t; COMMIT"
            )
            if number % 5 == 4:
                daemon.kill()
                daemon = started(stream)
            else:
                wait_for_commits(writer, writer.commits + 3)
    follows(stream, daemon)
    assert daemon.stop() == 0


@pytest.mark.in_turns(3)
def test_told_to_stop_the_daemon_ends_before_the_first_event_of_another_table(stream: StreamFixture) -> None:
    stream.sql(TABLE, ROWS)
    publish(stream)
    daemon = started(stream, tables={"on_replaced": "stop"})
    daemon.wait_for_log("the snapshot is complete")
    stream.sql(
        "UPDATE t SET v = 0 WHERE id = 1",
        f"BEGIN; DROP TABLE t; {TABLE}; INSERT INTO t VALUES (300, 300); COMMIT",
    )
    assert daemon.wait() == 1
    assert "public.t was replaced: another table has its name now. Set tables.on_replaced" in daemon.log.read_text()
    assert started_again(stream, "stop").wait() == 1
    assert 300 not in [event.key["id"] for event in _of_topic(stream) if event.key]
    follows(stream, started_again(stream, "copy"))


@pytest.mark.in_turns(3)
def test_told_to_stop_the_daemon_ends_where_it_has_seen_that_all_rows_were_written_again(
    stream: StreamFixture,
) -> None:
    stream.sql(TABLE, ROWS)
    publish(stream)
    daemon = started(stream, tables={"on_replaced": "stop"})
    daemon.wait_for_log("the snapshot is complete")
    assert daemon.stop() == 0
    stream.sql("ALTER TABLE t ALTER v TYPE int USING v * 2", "INSERT INTO t VALUES (300, 300)")
    assert started_again(stream, "stop").wait() == 1
    assert 300 in [event.key["id"] for event in _of_topic(stream) if event.key], "what came before is published"
    follows(stream, started_again(stream, "copy"))


def started_again(stream: StreamFixture, on_replaced: str) -> Daemon:
    return stream.daemon(
        source={"publication": "p"}, snapshot={"mode": "initial"}, tables={"on_replaced": on_replaced}
    ).start()
