"""Two daemons on one slot: one streams, the other stands by, and they never both publish."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import Producer
from support.stream import StreamFixture, Writer, eventually

TAKEOVER_S = 10.0
"""The longest allowed takeover. The server notices a killed daemon at once, so none may take wal_sender_timeout."""

TAKEN = "another producer has taken over this daemon's transactional.id"


def test_the_second_daemon_stands_by_and_takes_over_when_the_first_is_killed(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    first = stream.daemon().start()
    first.wait_for_log("going on")
    second = stream.daemon().start()
    with Writer(stream.dsn):
        second.wait_for_log("standing by")
        first.wait_for_log("published")
        time.sleep(0.5)
        first.kill()
        second.wait_for_log("going on", 10)
        time.sleep(0.5)
    second.wait_until_confirmed()
    assert second.log.read_text().count("standing by") == 1
    assert second.stop() == 0
    stream.check(("public", "t"))


def test_one_of_several_daemons_that_start_together_streams_and_the_others_stand_by(stream: StreamFixture) -> None:
    # Found by chaos: a daemon that tried to make the slot a moment later ended, because it existed. Here all daemons
    # try at the same moment: the server makes a slot only when no transaction is open.
    stream.sql(Writer.TABLE)
    with psycopg.connect(stream.dsn) as writing:
        writing.execute("INSERT INTO t VALUES (1)")
        daemons = [stream.daemon().start() for _ in range(4)]
        time.sleep(3)
    for daemon in daemons:
        eventually(_streams_or_stands_by(daemon.log), "daemon that streams or stands by")
        assert daemon.running()
    assert sum("made the slot" in daemon.log.read_text() for daemon in daemons) == 1
    stream.sql("INSERT INTO t VALUES (2)")
    daemons[0].wait_until_confirmed()
    assert [daemon.stop() for daemon in daemons] == [0] * 4


@pytest.mark.parametrize("kills", [pytest.param(10, marks=pytest.mark.whole), 5])
def test_the_active_daemon_is_killed_again_and_again_under_load(stream: StreamFixture, kills: int) -> None:
    stream.sql(Writer.TABLE)
    active, standby = stream.daemon().start(), stream.daemon()
    active.wait_for_log("going on")
    took = []
    with Writer(stream.dsn, rows=5):
        for _ in range(kills):
            standby.start()
            heard = len(standby.log.read_text())
            eventually(lambda: "standing by" in standby.log.read_text()[heard:], "a standby")  # noqa: B023
            before = stream.confirmed()
            eventually(lambda: stream.confirmed() > before, "progress")  # noqa: B023
            active.kill()
            began, killed_at = time.monotonic(), stream.written()
            eventually(lambda: stream.confirmed() >= killed_at, "a takeover", TAKEOVER_S)  # noqa: B023
            took.append(time.monotonic() - began)
            active, standby = standby, active
    active.wait_until_confirmed()
    assert active.stop() == 0
    events = stream.check(("public", "t"))
    print(
        f"\n{kills} kills, {len(events)} events once and in order; takeover (kill to all of it in Kafka): median "
        f"{statistics.median(took):.2f} s, {min(took):.2f} to {max(took):.2f} s"
    )


def test_a_daemon_that_wakes_up_after_the_takeover_doubles_nothing_and_says_so(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE)
    first = stream.daemon().start()
    first.wait_for_log("going on")
    second = stream.daemon().start()
    with Writer(stream.dsn, rows=5):
        second.wait_for_log("standing by")
        first.wait_for_log("published")
        first.signal(signal.SIGSTOP)
        pid = eventually(stream.walsender, "walsender")
        stream.sql(f"SELECT pg_terminate_backend({pid})")
        second.wait_for_log("published")
        first.signal(signal.SIGCONT)
        # The first daemon notices its lost connection or its lost transactional.id: which one comes first is a race.
        said = first.log.read_text
        eventually(lambda: "standing by" in said() or f"ERROR cdcd: {TAKEN}" in said(), "log line about the takeover")
        time.sleep(1)
    second.wait_until_confirmed()
    assert second.stop() == 0
    if f"ERROR cdcd: {TAKEN}" in said():
        assert first.wait(5) == 1
    else:
        first.wait_until_confirmed()  # the first daemon stood by, and streams now
        assert first.stop() == 0
    stream.check(("public", "t"))


@pytest.mark.parametrize("second", ["", ".2"])
def test_a_daemon_whose_transactional_id_was_taken_ends_with_a_hint(stream: StreamFixture, second: str) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    rival = Producer({"bootstrap.servers": stream.broker, "transactional.id": f"{stream.prefix}-{stream.slot}{second}"})
    rival.init_transactions(10)
    stream.sql("INSERT INTO t VALUES (2)")
    time.sleep(1)  # the daemon has two transactional ids in turn; this row may have used the other one
    stream.sql("INSERT INTO t VALUES (3)")
    assert daemon.wait(15) == 1
    log = daemon.log.read_text()
    assert TAKEN in log
    assert "Let only one cdcd run for this slot and prefix" in log.splitlines()[-1]
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 3


def _streams_or_stands_by(log: Path) -> Callable[[], bool]:
    return lambda: any(word in log.read_text() for word in ("going on", "standing by"))
