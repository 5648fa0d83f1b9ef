"""A table that cannot be published is parked, complete and in order, and the other tables go on.

Covers rows that are too large for a topic, schemas that a registry refuses, kills at every stage, and replays, also
refused ones.
"""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient
from support import topics
from support.daemon import Daemon, cdcd
from support.registry import Registry
from support.stream import StreamFixture, eventually, metric

PARK = {"on_unpublishable": "park"}
LARGE = "INSERT INTO t SELECT {id}, string_agg(md5(n::text), '') FROM generate_series(1, 60000) n"
"""A row of two megabytes, which compression does not make small enough."""

TABLES = "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE u (id int PRIMARY KEY, v text);"


def parked(stream: StreamFixture) -> list[dict[str, Any]]:
    return stream.slot_records()[-1].get("parked", [])


def ids(stream: StreamFixture, table: str) -> list[int]:
    events = sorted(stream.topics.events(f"{stream.prefix}.public.{table}"), key=lambda event: event.position)
    return [event.value["after"]["id"] for event in events]


def test_a_table_with_a_row_too_large_is_parked_and_comes_back_complete(stream: StreamFixture) -> None:
    stream.sql(*TABLES.split(";")[:2])
    daemon = stream.daemon(sink=PARK).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'a')", "INSERT INTO u VALUES (1, 'a')")
    daemon.wait_until_confirmed()
    # One transaction changes both tables; the large row is in its middle.
    stream.sql(
        "DO $$ BEGIN INSERT INTO u VALUES (2, 'b'); INSERT INTO t VALUES (2, 'b'); "
        f"{LARGE.format(id=3)}; INSERT INTO t VALUES (4, 'd'); INSERT INTO u VALUES (3, 'c'); END $$"
    )
    daemon.wait_until_confirmed()
    assert (ids(stream, "t"), ids(stream, "u")) == ([1], [1, 2, 3])
    [table] = parked(stream)
    assert (table["schema"], table["table"], table["replaying"]) == ("public", "t", False)
    assert re.search(r"a row of 1,92\d,\d+ bytes: the topic \S+\.t takes at most 1,048,588 bytes", table["reason"])
    assert "the table public.t is parked" in daemon.log.read_text()
    stream.sql("INSERT INTO t VALUES (5, 'e')", "UPDATE t SET v = 'A' WHERE id = 1", "INSERT INTO u VALUES (4, 'd')")
    daemon.wait_until_confirmed()
    daemon.kill()
    daemon.start()
    daemon.wait_for_log("going on")
    stream.sql("DELETE FROM t WHERE id = 2", "INSERT INTO u VALUES (5, 'e')")
    daemon.wait_until_confirmed()
    assert (ids(stream, "t"), ids(stream, "u")) == ([1], [1, 2, 3, 4, 5])
    assert metric(daemon, "cdcd_parked_tables") == 1
    assert metric(daemon, "cdcd_parked_rows_total") == 1
    assert cdcd(daemon, "unpark").startswith("public.t parked, its topic ends at ")
    assert "the table public.u is not parked" in cdcd(daemon, "unpark", "public.u", code=1)
    assert "warning  The table public.t is parked" in cdcd(daemon, "check")
    assert "public.t is parked, so the daemon takes no snapshot of it" in cdcd(daemon, "snapshot", "public.t", code=1)
    assert "the topic of public.t is not complete since" in cdcd(daemon, "verify", code=1)
    # The cause is not fixed yet: the table stays parked, the command says so, and the attempt publishes nothing twice.
    said = cdcd(daemon, "unpark", "public.*", code=1)
    assert "public.t stays parked" in said
    assert "takes at most 1,048,588 bytes (max.message.bytes)" in said
    topics.set_config(stream.broker, f"{stream.prefix}.public.t", max_message_bytes=str(8 << 20))
    said = cdcd(daemon, "unpark", "public.t", "--json")  # the snapshot that was asked for above
    assert said == '{"table": "public.t", "state": "unparked", "snapshot_follows": true}\n'
    assert parked(stream) == []
    assert "no table is parked" in cdcd(daemon, "unpark")
    stream.sql("INSERT INTO t VALUES (6, 'f')", "TRUNCATE u", "INSERT INTO u VALUES (6, 'f')")
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    assert metric(daemon, "cdcd_parked_tables") == 0
    assert daemon.stop() == 0
    stream.check(("public", "t"), ("public", "u"))


def test_kills_while_a_table_is_parked_and_replayed_lose_and_double_nothing(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE k (id int)")
    stream.sql("ALTER TABLE k REPLICA IDENTITY FULL")
    daemon = stream.daemon(sink={**PARK, "tombstones": True}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 100) n", LARGE.format(id=0), "TRUNCATE k, t")
    for number in range(4):
        first = 1 + number * 20_000
        stream.sql(f"INSERT INTO t SELECT n, 'y' FROM generate_series({first}, {first + 19_999}) n")
        stream.sql(f"DELETE FROM t WHERE id % 100 = {number}", f"INSERT INTO k VALUES ({number})")
        time.sleep(0.3)
        daemon.kill()
        daemon.start()
    daemon.wait_until_confirmed()
    assert len(parked(stream)) == 1
    topics.set_config(stream.broker, f"{stream.prefix}.public.t", max_message_bytes=str(8 << 20))
    cdcd(daemon, "unpark", "public.t", "--no-wait")
    offsets: set[int] = set()
    for _ in range(20):
        if not parked(stream):
            break
        said = len(daemon.log.read_text())
        eventually(_unparks_or_is_done(stream, daemon, said), "a piece")
        offsets.update(table["offset"] for table in parked(stream))
        daemon.kill()
        daemon.start()
    daemon.wait_until_confirmed()
    assert parked(stream) == []
    assert len(offsets) > 1, "the table was replayed in one piece, so this tests little"
    daemon.wait_until_streaming()
    assert daemon.stop() == 0
    events = stream.check(("public", "t"), ("public", "k"))
    assert sum(event.value is None for event in events) == sum(
        event.value is not None and event.value["op"] == "d" and event.topic.endswith(".t") for event in events
    )


def test_parked_events_that_are_gone_stop_no_other_table_and_are_replaced_by_a_snapshot(stream: StreamFixture) -> None:
    stream.sql(*TABLES.split(";")[:2])
    daemon = stream.daemon(sink=PARK).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')", "INSERT INTO u VALUES (1, 'a')")
    daemon.wait_until_confirmed()
    stream.sql(LARGE.format(id=3), "INSERT INTO t VALUES (4, 'd')", "DELETE FROM t WHERE id IN (1, 3)")
    daemon.wait_until_confirmed()
    assert len(parked(stream)) == 1
    admin = AdminClient({"bootstrap.servers": stream.broker})
    for done in admin.delete_records([TopicPartition(f"{stream.prefix}.parked", 0, OFFSET_END)]).values():
        done.result(30)
    # No row of the table is too large any more. But its parked events are gone, also those for rows in its topic.
    said = cdcd(daemon, "unpark", "public.t", code=1)
    assert "public.t stays parked" in said
    assert "they were removed" in said
    assert "run: cdcd unpark --discard public.t." in said
    stream.sql("INSERT INTO u VALUES (2, 'b')", "INSERT INTO t VALUES (5, 'e')")
    daemon.wait_until_confirmed()
    assert ids(stream, "u") == [1, 2]
    said = cdcd(daemon, "unpark", "--discard", "public.t")
    # The daemon may be done with the snapshot before the command looks.
    assert said == "discarded public.t\n" or said.startswith("discarded public.t; a new snapshot")
    stream.sql("INSERT INTO t VALUES (6, 'f')")
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"), ("public", "u"))


def test_with_the_setting_stop_the_daemon_stops_and_says_what_to_do(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(sink={"on_unpublishable": "stop"}).start()
    daemon.wait_for_log("going on")
    # The large row is not the last one: librdkafka gives no delivery report for the rows before the last.
    stream.sql(f"DO $$ BEGIN {LARGE.format(id=3)}; INSERT INTO t SELECT n FROM generate_series(10, 5000) n; END $$")
    assert daemon.wait(20) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert "takes at most 1,048,588 bytes" in last
    assert "max.message.bytes" in last


def test_a_schema_that_the_registry_refuses_parks_its_table(stream: StreamFixture) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE u (id int PRIMARY KEY)")
    with Registry() as registry:
        daemon = stream.daemon(sink=PARK, avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (1)")
        daemon.wait_until_confirmed()
        registry.frozen.add(f"{stream.prefix}.public.t-value")
        stream.sql("ALTER TABLE t ALTER v TYPE text", "INSERT INTO t VALUES (2, 'two')", "INSERT INTO u VALUES (2)")
        daemon.wait_until_confirmed()
        [table] = parked(stream)
        assert "incompatible with version 1" in table["reason"]
        assert "stays parked" in cdcd(daemon, "unpark", "public.t", code=1)
        stream.sql("INSERT INTO t VALUES (3, 'three')", "INSERT INTO u VALUES (3)")
        daemon.wait_until_confirmed()
        raw = {name: list(stream.topics.raw(f"{stream.prefix}.public.{name}")) for name in ("t", "u")}
        assert (len(raw["t"]), len(raw["u"])) == (1, 3)
        registry.frozen.clear()
        cdcd(daemon, "unpark", "public.t")
        stream.sql("INSERT INTO t VALUES (4, 'four')")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        found = [registry.decode(message.value()) for message in stream.topics.raw(f"{stream.prefix}.public.t")]
        found.sort(key=lambda value: value["source"]["commit_lsn"])
        assert [value["after"] for value in found] == [
            {"id": 1, "v": 1}, {"id": 2, "v": "two"}, {"id": 3, "v": "three"}, {"id": 4, "v": "four"}
        ]  # fmt: skip
        positions = Counter((value["source"]["commit_lsn"], value["source"]["seq"]) for value in found)
        assert set(positions.values()) == {1}


def test_the_parked_topic_is_json_that_says_whose_event_it_is_and_why(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(sink=PARK).start()
    daemon.wait_for_log("going on")
    stream.sql(LARGE.format(id=1))
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    messages = list(stream.topics.raw(f"{stream.prefix}.parked"))
    documents = [json.loads(message.value()) for message in messages]
    assert {message.key().decode() for message in messages} == {f"{stream.slot}/public.t"}
    assert [document["part"] for document in documents] == list(range(1, len(documents) + 1))
    assert len(documents) == documents[0]["parts"] > 2
    assert {document["table"] for document in documents} == {"t"}
    assert all("takes at most 1,048,588 bytes" in document["reason"] for document in documents)
    topics.check_exactly_once(stream.events())


def _unparks_or_is_done(stream: StreamFixture, daemon: Daemon, said: int) -> Callable[[], bool]:
    return lambda: "unpark" in daemon.log.read_text()[said:] or not parked(stream)
