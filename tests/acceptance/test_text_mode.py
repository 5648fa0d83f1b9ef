"""Types whose binary form cdcd does not know: the stream switches to text mode by itself, and loses nothing."""

from __future__ import annotations

import time

import pytest
from support.stream import StreamFixture, Writer


@pytest.mark.parametrize(
    ("type_", "value"), [("money", "'$1,234.50'"), ("cube", "'(1,2),(3,4)'"), ("ci[]", "'{\"(1,$2.00)\"}'")]
)
@pytest.mark.postgres_versions("newest")
def test_a_published_column_of_such_a_type_makes_the_stream_run_in_text_mode(
    stream: StreamFixture, type_: str, value: str
) -> None:
    stream.sql("CREATE EXTENSION cube", "CREATE TYPE ci AS (n int, m money)")
    stream.sql(f"CREATE TABLE t (id int PRIMARY KEY, v {type_}, at timestamptz DEFAULT now())")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    assert "streaming in text mode" in daemon.log.read_text()
    stream.sql(f"INSERT INTO t VALUES (1, {value}), (2, NULL)", "UPDATE t SET at = at + '1 us' WHERE id = 1")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert "starting again" not in daemon.log.read_text()
    if type_ == "ci[]":  # the reader cannot render an array of records as PostgreSQL does: look at the value itself
        first = min(stream.events(), key=lambda event: event.position)
        assert first.value["after"]["v"] is not None
    else:
        stream.check(("public", "t"))


@pytest.mark.postgres_versions("oldest", "newest")
def test_such_a_column_that_comes_mid_stream_switches_the_stream_to_text_mode(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    with Writer(stream.dsn):
        daemon.wait_for_log("published")
        assert "binary=True" in daemon.log.read_text()
        stream.sql("CREATE TABLE dear (id int PRIMARY KEY, price money)", "INSERT INTO dear VALUES (1, '12')")
        stream.sql("ALTER TABLE t ADD COLUMN price money", "UPDATE t SET price = '7.25' WHERE id % 2 = 0")
        daemon.wait_for_log("goes on in text mode")
        time.sleep(1)
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert log.count("starting again") == 1, log
    assert "binary=False" in log
    stream.check(("public", "t"), ("public", "dear"))


def test_binary_mode_by_setting_ends_with_a_hint_at_such_a_type(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v money)")
    daemon = stream.daemon(source={"binary": True}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, '1')")
    assert daemon.wait() == 1
    assert 'Set source.binary = "auto"' in daemon.log.read_text().splitlines()[-1]
