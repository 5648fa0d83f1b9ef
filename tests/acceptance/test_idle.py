"""A slot must follow its server even if no published table changes: otherwise WAL piles up."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import psycopg
import pytest
from support.stream import StreamFixture, eventually

INTERVAL_S = 1.0


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_the_slot_follows_a_busy_server_whose_publication_is_idle(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE busy (id int)", "CREATE PUBLICATION cdcd FOR TABLE t"
    )
    with stream.daemon(source={"status_interval_s": INTERVAL_S}).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        done = threading.Event()

        def write() -> None:
            with psycopg.connect(stream.dsn, autocommit=True) as connection:
                while not done.wait(0.01):
                    connection.execute("INSERT INTO busy SELECT generate_series(1, 10)")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            written: list[tuple[float, int]] = []
            late = 0.0
            while not written or time.monotonic() - written[0][0] < 8 * INTERVAL_S:
                written.append((time.monotonic(), stream.written()))
                confirmed = stream.confirmed()
                behind = [at for at, lsn in written if lsn > confirmed]
                late = max(late, time.monotonic() - behind[0]) if behind else late
                time.sleep(0.1)
        finally:
            done.set()
            writer.join()
        assert late < 2 * INTERVAL_S, f"the slot lagged by {late:.2f} s"
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    messages = list(stream.topics.raw(f"{stream.prefix}.progress"))
    idle = [m.timestamp()[1] for m in messages if m.key() == stream.slot.encode() and b'"transactions":0,' in m.value()]
    assert len(idle) >= 5
    # The last record may come sooner, because it ends the stream. Timestamps are the producer's, in milliseconds.
    assert min(later - former for former, later in pairwise(idle[:-1])) >= INTERVAL_S * 1000 - 50, idle


def test_no_slot_record_is_written_while_the_server_rests(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    with stream.daemon(source={"status_interval_s": 0.2}).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        before = eventually(lambda: stream.confirmed() == stream.written() and len(stream.slot_records()), "rest")
        started_at = stream.written()
        time.sleep(2)
        # An idle server still logs its running transactions every 15 s, some dozens of bytes.
        assert len(stream.slot_records()) - before <= (1 if stream.written() > started_at else 0)
        assert daemon.stop() == 0
