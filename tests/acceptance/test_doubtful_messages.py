"""Logical messages of a savepoint. In a stream, the server does not say that a message belongs to the savepoint.

A message of a savepoint that was rolled back must not be published.
"""

from __future__ import annotations

import pytest
from psycopg.conninfo import make_conninfo
from support.stream import StreamFixture, eventually

ROWS = "INSERT INTO t SELECT n, repeat('p', 100) FROM generate_series({}, {}) n"


def streamed(stream: StreamFixture) -> int:
    [(count,)] = stream.sql(f"SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = '{stream.slot}'")
    return int(count)


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("end", ["RELEASE s", "ROLLBACK TO s"], ids=["released", "rolled back"])
def test_a_message_of_a_savepoint_is_published_unless_it_was_rolled_back(stream: StreamFixture, end: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, pad text)")
    source = {"dsn": make_conninfo(stream.dsn, options="-c logical_decoding_work_mem=64kB")}
    daemon = stream.daemon(source=source).start()
    daemon.wait_for_log("going on")
    outside, inside = (f"SELECT pg_logical_emit_message(true, 'p', '{where}')" for where in ("outside", "inside"))
    steps = [
        "BEGIN", ROWS.format(1, 3000), outside, ROWS.format(3001, 3001), "SAVEPOINT s", inside, ROWS.format(3002, 6000),
        end, ROWS.format(6001, 9000), "COMMIT",
    ]  # fmt: skip
    stream.sql("; ".join(steps))
    daemon.wait_until_confirmed()
    if end == "ROLLBACK TO s":
        daemon.wait_for_log("Kafka has the transaction that could not be spooled")
        daemon.until(lambda: daemon.log.read_text().count("going on") == 3, "stream", 30)
        # PostgreSQL 14 counts a moment later.
        before = eventually(lambda: streamed(stream), "count of the transaction that was sent in progress")
        stream.sql(ROWS.format(9001, 12_000))
        daemon.wait_until_confirmed()
        eventually(lambda: streamed(stream) > before, "transaction that is sent in progress again")
    assert daemon.stop() == 0
    messages = [event.value["after"]["content"] for event in stream.topics.events(f"{stream.prefix}.messages")]
    released = end == "RELEASE s"
    assert messages == ([b"outside", b"inside"] if released else [b"outside"])
    stream.check(("public", "t"))
    log = daemon.log.read_text()
    assert ("does not tell whether a logical message" in log) == ("starting again" in log) == (not released)
    assert streamed(stream) > 0
