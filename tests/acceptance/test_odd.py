"""Legal but rare tables, values and transactions."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, LiteralString

import psycopg
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from psycopg.conninfo import make_conninfo
from support import topics
from support.daemon import Daemon
from support.stream import StreamFixture

MIB = 1024 * 1024


def _rss_max_bytes(daemon: Daemon) -> int:
    match = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.pid}/status").read_text())
    assert match is not None
    return int(match[1]) * 1024


@pytest.mark.postgres_versions("oldest", "newest")
def test_tables_of_every_shape_and_name_are_streamed(stream: StreamFixture) -> None:
    long = "x" * 63
    wide = ", ".join(f"c{n} int" for n in range(2, 1601))
    stream.sql(
        "CREATE TABLE nothing ()",
        f"CREATE TABLE wide (c1 int PRIMARY KEY, {wide})",
        'CREATE SCHEMA "a.b"',
        'CREATE TABLE "a.b".c (id int PRIMARY KEY)',
        "CREATE SCHEMA a",
        'CREATE TABLE a."b.c" (id int PRIMARY KEY)',
        'CREATE TABLE "it\'s ""quoted"" {x} $1 %s" '
        '("a""b" int PRIMARY KEY, "a.b" text, "A B" text, "ab" text, "1st" text)',
        'CREATE TABLE "größe ∑ 漢字 🐘" ("größe" int PRIMARY KEY, "漢字" text, "🐘" text, "🐬" text)',
        f"CREATE TABLE {long} ({long} int PRIMARY KEY, {long[:-1]}y text)",
        "CREATE TABLE keyless (a int, b text)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
        "CREATE TABLE by_index (a int, b text NOT NULL, c text)",
        "CREATE UNIQUE INDEX by_index_b ON by_index (b)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_b",
        "CREATE PUBLICATION cdcd FOR ALL TABLES",
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO nothing DEFAULT VALUES",
        "INSERT INTO nothing DEFAULT VALUES",
        "INSERT INTO wide (c1, c2, c1600) VALUES (1, 2, 1600), (2, NULL, NULL)",
        "UPDATE wide SET c800 = 800",
        'INSERT INTO "a.b".c VALUES (1)',
        'INSERT INTO a."b.c" VALUES (2)',
        "INSERT INTO \"it's \"\"quoted\"\" {x} $1 %s\" VALUES (1, '1', '2', '3', '4')",
        'UPDATE "it\'s ""quoted"" {x} $1 %s" SET "A B" = \'changed\'',
        "INSERT INTO \"größe ∑ 漢字 🐘\" VALUES (1, '漢', '🐘', NULL), (2, '', NULL, '🐬')",
        'DELETE FROM "größe ∑ 漢字 🐘" WHERE "größe" = 2',
        f"INSERT INTO {long} VALUES (1, 'y')",
        "INSERT INTO keyless VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, NULL)",
        "UPDATE keyless SET b = 'b' WHERE a = 2",
        "DELETE FROM keyless WHERE ctid = (SELECT min(ctid) FROM keyless)",
        "INSERT INTO by_index VALUES (1, 'x', 'c'), (1, 'y', 'c')",
        "UPDATE by_index SET b = 'z' WHERE b = 'y'",
        "DELETE FROM by_index WHERE b = 'x'",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    tables = [
        ("public", "nothing"), ("public", "wide"), ("a.b", "c"), ("a", "b.c"), ("public", "it's \"quoted\" {x} $1 %s"),
        ("public", "größe ∑ 漢字 🐘"), ("public", long), ("public", "keyless"), ("public", "by_index"),
    ]  # fmt: skip
    stream.check(*tables)
    assert len(stream.topics.names()) == len(tables)


def test_a_row_of_a_snapshot_has_the_same_key_as_in_the_stream(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE included (id int, v text, PRIMARY KEY (id) INCLUDE (v))",
        "INSERT INTO included VALUES (1, NULL), (2, 'b')",
        # Two rows have the same key for a moment: a reader that uses it as the key would lose one of them.
        "CREATE TABLE deferred (id int PRIMARY KEY DEFERRABLE, v text)",
        "ALTER TABLE deferred REPLICA IDENTITY FULL",
        "INSERT INTO deferred VALUES (1, 'A'), (2, 'B')",
        "CREATE PUBLICATION cdcd FOR ALL TABLES",
    )
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql("UPDATE included SET v = 'c'", "UPDATE deferred SET id = 3 - id")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(("public", "included"), ("public", "deferred"))
    keys = {(each.topic.rpartition(".")[2], each.value["op"], str(each.key)) for each in events}
    assert keys == {
        ("included", "r", "{'id': 1}"), ("included", "r", "{'id': 2}"),
        ("included", "u", "{'id': 1}"), ("included", "u", "{'id': 2}"),
        ("deferred", "t", "None"), ("deferred", "r", "None"), ("deferred", "u", "None"),
    }  # fmt: skip


@pytest.mark.postgres_versions("newest")  # older versions flush a message only with a later commit
def test_a_transaction_that_commits_right_after_a_message_is_published(stream: StreamFixture) -> None:
    # A message's LSN is the end of its WAL record. The next WAL record, the commit's, begins at the same LSN.
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    number, lsn, next_lsn = 0, "", "-"
    with psycopg.connect(stream.dsn) as writer:
        for number in range(1, 21):
            writer.execute("INSERT INTO t VALUES (%s)", [number])
            lsn = _value(writer, "SELECT pg_logical_emit_message(false, 'p', 'x', true)::text")
            daemon.wait_until_confirmed(lsn)
            daemon.kill()
            next_lsn = _value(writer, "SELECT pg_current_wal_insert_lsn()::text")
            writer.commit()
            daemon.start()
            daemon.wait_until_confirmed()
            if next_lsn == lsn:  # otherwise the server has written another record in between
                break
    assert next_lsn == lsn
    assert daemon.stop() == 0
    events = stream.check(("public", "t"))
    assert [event.value["after"]["id"] for event in events] == list(range(1, number + 1))


def test_a_value_of_20_mb_is_published_if_the_topic_allows_it(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text, b bytea)")
    daemon = stream.daemon()
    daemon.config.write_text(daemon.config.read_text() + '[sink.topic_config]\n"max.message.bytes" = "67108864"\n')
    daemon.start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT 1, string_agg(md5(n::text), ''), NULL FROM generate_series(1, 655360) n",
        "INSERT INTO t SELECT 2, NULL, decode(v, 'hex') FROM t",
        "UPDATE t SET id = id + 10",
    )
    daemon.wait_until_confirmed()
    peak = _rss_max_bytes(daemon)
    assert daemon.stop() == 0
    stream.check(("public", "t"))
    assert peak < 600 * MIB
    print(f"\npeak {peak // MIB} MiB")


@pytest.mark.parametrize("streaming", ["auto", "off"])
def test_300_000_rows_in_one_transaction_take_less_than_200_mb(stream: StreamFixture, streaming: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, name text, amount numeric(12,2), at timestamptz)")
    daemon = stream.daemon(source={"streaming": streaming}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 'name ' || n, n / 7.0, now() FROM generate_series(1, 300000) n")
    daemon.wait_until_confirmed(timeout_s=120)
    peak = _rss_max_bytes(daemon)
    assert daemon.stop() == 0
    assert peak < 200 * MIB
    keys = Counter(message.key() for message in stream.topics.raw(f"{stream.prefix}.public.t"))
    assert len(keys) == sum(keys.values()) == 300_000
    [rows] = {record["rows"] for record in stream.slot_records() if record["rows"]}
    assert rows == 300_000, "one PostgreSQL transaction is one Kafka transaction"
    print(f"\npeak {peak // MIB} MiB")


@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("mode", ["binary", "text", "streamed"])
def test_truncate_of_several_tables_empties_each_in_every_partition_and_says_how(
    stream: StreamFixture, mode: str
) -> None:
    stream.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY, other int)" for name in "abc"))
    stream.sql("ALTER TABLE b ADD FOREIGN KEY (other) REFERENCES a")
    source: dict[str, Any] = {"binary": mode != "text"}
    if mode == "streamed":
        source["dsn"] = make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")
    daemon = stream.daemon(source=source).start()
    daemon.wait_for_log("going on")
    stream.sql(
        *(f"INSERT INTO {name} SELECT n, n FROM generate_series(1, 40) n" for name in "abc"),
        "BEGIN; INSERT INTO c SELECT n FROM generate_series(100, 1500) n; DELETE FROM b WHERE id = 1; "
        "TRUNCATE a CASCADE; INSERT INTO a VALUES (7); INSERT INTO b VALUES (8, 7); COMMIT",
        "TRUNCATE c RESTART IDENTITY",
        "BEGIN; TRUNCATE a, b, c; ROLLBACK",
        "INSERT INTO c VALUES (1)",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(("public", "a"), ("public", "b"), ("public", "c"))
    truncates = Counter(
        (event.topic.removeprefix(f"{stream.prefix}.public."), event.partition, *event.value["truncate"].values())
        for event in events
        if event.value["op"] == "t"
    )
    said = {"a": (True, False), "b": (True, False), "c": (False, True)}
    assert truncates == {(name, partition, *said[name]): 1 for name in "abc" for partition in range(4)}
    assert all("truncate" not in event.value for event in events if event.value["op"] != "t")
    [(streamed,)] = stream.sql(f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{stream.slot}'")
    assert (streamed > 0) == (mode == "streamed")


def test_tombstones_follow_deletes_and_only_those(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE keyless (v int)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
    )
    daemon = stream.daemon(sink={"tombstones": True}).start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT n, n FROM generate_series(1, 20) n",
        "UPDATE t SET v = 0 WHERE id <= 10",
        "UPDATE t SET id = id + 100 WHERE id = 20",
        "DELETE FROM t WHERE id <= 5",
        "INSERT INTO keyless VALUES (1)",
        "DELETE FROM keyless",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(("public", "t"), ("public", "keyless"))
    tombstones = [event for event in events if event.value is None]
    assert sorted(event.key["id"] for event in tombstones if event.key) == [1, 2, 3, 4, 5, 20]
    place = {(event.topic, event.partition, event.offset): event for event in events}
    for event in tombstones:
        deleted = place[event.topic, event.partition, event.offset - 1]
        assert (deleted.value["op"], deleted.key) == ("d", event.key)


def test_at_least_once_loses_nothing_when_it_is_killed(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon(sink={"delivery": "at_least_once"}).start()
    daemon.wait_for_log("going on")
    for part in range(4):
        stream.sql(
            *(f"INSERT INTO t VALUES ({n}, 0)" for n in range(part * 50, part * 50 + 50)), "UPDATE t SET v = v + 1"
        )
        if part % 2:
            daemon.kill()
            daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    once = {event.position: event for event in stream.events()}
    assert topics.fold(list(once.values())) == stream.content("public", "t")


def test_a_topic_that_exists_already_keeps_its_partitions(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    admin = AdminClient({"bootstrap.servers": stream.broker})
    name = f"{stream.prefix}.public.t"
    admin.create_topics([NewTopic(name, 7, 1)])[name].result(10)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT n, n FROM generate_series(1, 200) n",
        "UPDATE t SET v = 0",
        "DELETE FROM t WHERE id % 3 = 0",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(("public", "t"))
    assert {event.partition for event in events} == set(range(7))
    [record] = [record for key, record in stream.topics.progress() if key.endswith(name)][-1:]
    assert len(record["offsets"]) == 7


def _value(connection: psycopg.Connection, query: LiteralString) -> Any:
    row = connection.execute(query).fetchone()
    assert row is not None
    return row[0]
