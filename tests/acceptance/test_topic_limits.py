"""Topics that take less than by default, or only records of a certain time: clusters with policies have them."""

from __future__ import annotations

import pytest
from acceptance.test_parking import PARK, parked
from confluent_kafka.admin import AdminClient, NewTopic
from support import topics
from support.daemon import cdcd
from support.stream import StreamFixture

ROWS = (
    "INSERT INTO t SELECT n, string_agg(md5(n::text || m), '') "
    "FROM generate_series({0}, {1}) n, generate_series(1, {2}) m GROUP BY n"
)
"""Rows of 32 bytes times the last number, which compression does not make smaller than their half."""


def make_topic(stream: StreamFixture, **config: str) -> str:
    name = f"{stream.prefix}.public.t"
    topic = NewTopic(name, 2, 1, config={key.replace("_", "."): value for key, value in config.items()})
    admin = AdminClient({"bootstrap.servers": stream.broker})
    admin.create_topics([topic])[name].result(30)
    return name


@pytest.mark.in_turns(3)
@pytest.mark.parametrize(("limit", "pieces"), [(100_000, 12), (500_000, 32), (20_000, 12)])
def test_rows_that_fit_pass_whatever_their_batches_would_have_been(
    stream: StreamFixture, limit: int, pieces: int
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", ROWS.format(1, 3000, pieces))
    make_topic(stream, max_message_bytes=str(limit))
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    stream.sql(ROWS.format(3001, 6000, pieces))
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    assert daemon.log.read_text().count("starting again") == 1
    assert f"takes at most {limit:,} bytes in one batch (max.message.bytes)" in daemon.log.read_text()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_limit_that_gets_smaller_while_the_daemon_runs_parks_nothing(stream: StreamFixture, compression: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(sink=PARK | {"librdkafka": {"compression.type": compression}}).start()
    daemon.wait_for_log("going on")
    stream.sql(ROWS.format(1, 3000, 12))
    daemon.wait_until_confirmed()
    topics.set_config(stream.broker, f"{stream.prefix}.public.t", max_message_bytes="60000")
    stream.sql(ROWS.format(3001, 6000, 12))
    daemon.wait_until_confirmed()
    assert "the daemon runs on" not in daemon.log.read_text()
    assert parked(stream) == []
    assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_row_above_a_small_limit_is_parked_with_its_size_and_comes_back(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY, v text)")
    topic = make_topic(stream, max_message_bytes="50000")
    daemon = stream.daemon(sink=PARK).start()
    daemon.wait_for_log("going on")
    stream.sql(ROWS.format(1, 2000, 12), ROWS.format(2001, 2001, 4000), ROWS.format(2002, 4000, 12))
    daemon.wait_until_confirmed()
    [table] = parked(stream)
    assert "a row of 128," in table["reason"]
    assert f"the topic {topic} takes at most 50,000 bytes (max.message.bytes)" in table["reason"]
    assert "stays parked" in cdcd(daemon, "unpark", "public.t", code=1)
    assert "unparked table=" not in daemon.log.read_text()
    topics.set_config(stream.broker, topic, max_message_bytes="200000")
    assert cdcd(daemon, "unpark", "public.t").startswith("unparked public.t")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("public", "t"))


def test_a_topic_that_takes_no_old_records_stops_the_daemon_with_the_clock_as_the_hint(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    make_topic(stream, message_timestamp_before_max_ms="1")
    daemon = stream.daemon(sink=PARK).start()
    daemon.wait_for_log("going on")
    stream.sql(ROWS.format(1, 3000, 12))
    assert daemon.wait(30) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert "clock" in last, last
    assert "cleanup.policy" not in last
