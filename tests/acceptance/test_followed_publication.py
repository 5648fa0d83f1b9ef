"""The publication that cdcd has made follows the settings: what joins is copied and streamed, each row once."""

from __future__ import annotations

import pytest
from support import topics
from support.daemon import cdcd
from support.stream import StreamFixture, Writer

pytestmark = [pytest.mark.postgres_versions("oldest", "newest"), pytest.mark.whole]

T, U = ("public", "t"), ("public", "u")
ALTERED = "altered the publication as the settings ask"


def checked(stream: StreamFixture) -> list[topics.Event]:
    """Every event, once each; folded they are the tables. The stream began before the first snapshot."""
    events, by_table = stream.events(), stream.topics.by_table()
    topics.check_exactly_once(events)
    for table in (T, U):
        folded = topics.fold([event for event in events if event.topic == by_table[table]], snapshot=True)
        assert folded == stream.content(*table)
    return events


def test_an_added_pattern_is_copied_and_streamed_once_although_the_daemon_is_killed(stream: StreamFixture) -> None:
    stream.sql(
        Writer.TABLE,
        "CREATE TABLE u (id int PRIMARY KEY, v int)",
        "INSERT INTO u SELECT n, n FROM generate_series(1, 1000) n",
    )
    with Writer(stream.dsn):
        first = stream.daemon(source={"tables": ["public.t"]}, snapshot={"mode": "initial"}).start()
        first.wait_for_log("the snapshot is complete", 90)
        first.kill()
        asked = {"tables": ["public.*"], "exclude": ["public.w*"]}
        killed = stream.daemon(source=asked, snapshot={"mode": "initial"}).start()
        killed.wait_for_log(ALTERED)
        killed.kill()
        stream.sql("INSERT INTO u VALUES (1001, 0)", "DELETE FROM u WHERE id = 1")
        last = stream.daemon(source=asked, snapshot={"mode": "initial"}).start()
        last.wait_for_log("the snapshot is complete", 90)
        stream.sql("INSERT INTO u VALUES (1002, 0)", "UPDATE u SET v = 0 WHERE id < 10")
    last.wait_until_confirmed()
    assert ALTERED not in last.log_since_start()
    events = checked(stream)
    copied = [event for event in events if event.value["op"] == "r" and event.topic.endswith(".u")]
    assert 1000 <= len(copied) <= 1001, "once"
    assert not [event for event in events if event.value["op"] == "t"], "t keeps its rows"


def test_settings_that_change_while_the_daemon_runs_alter_the_publication(stream: StreamFixture) -> None:
    stream.sql(
        Writer.TABLE,
        "CREATE TABLE u (id int PRIMARY KEY, v int)",
        "INSERT INTO u VALUES (1, 1)",
    )
    daemon = stream.daemon(source={"tables": ["public.t", "public.u"]}, snapshot={"mode": "initial"}).start()
    text = daemon.config.read_text()
    with Writer(stream.dsn):
        daemon.wait_for_log("the snapshot is complete", 90)
        daemon.config.write_text(text.replace('"public.u"', '"public.nosuch"'))
        daemon.wait_for_log(ALTERED)
        stream.sql("INSERT INTO u VALUES (2, 2)")
        daemon.config.write_text(text)
        daemon.until(lambda: daemon.log.read_text().count(ALTERED) == 2, "another change", 60)
        daemon.wait_for_log("was replaced: the publication was without it for a time", 60)
        daemon.until(lambda: daemon.log.read_text().count("the snapshot is complete") == 2, "a copy", 60)
        stream.sql("INSERT INTO u VALUES (3, 3)")
    daemon.wait_until_confirmed()
    checked(stream)
    stream.sql("ALTER PUBLICATION cdcd DROP TABLE u")
    told = cdcd(daemon, "check", code=0)
    assert "cdcd does not alter the publication" in told
    assert 'ADD TABLE "public"."u"' in told
