"""Two daemons on one slot: one streams, the other stands by, and at no time do both publish."""

from __future__ import annotations

import signal
import time

from confluent_kafka import Producer
from stream import Stream, Writer, eventually

TAKEN = "another producer has taken over our transactional.id"


def test_the_second_daemon_stands_by_and_takes_over_when_the_first_is_killed(stream: Stream) -> None:
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


def test_a_daemon_that_wakes_up_after_the_takeover_doubles_nothing_and_says_so(stream: Stream) -> None:
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
        # Which it finds first, its lost connection or its lost transactional.id, is a race; both are named.
        said = first.log.read_text
        eventually(lambda: "standing by" in said() or f"ERROR cdcd: {TAKEN}" in said(), "word of the takeover")
        time.sleep(1)
    second.wait_until_confirmed()
    assert second.stop() == 0
    if f"ERROR cdcd: {TAKEN}" in said():
        assert first.wait(5) == 1
    else:
        first.wait_until_confirmed()  # it stood by, and goes on now
        assert first.stop() == 0
    stream.check(("public", "t"))


def test_a_daemon_whose_transactional_id_was_taken_ends_and_names_the_cure(stream: Stream) -> None:
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    rival = Producer({"bootstrap.servers": stream.broker, "transactional.id": f"{stream.prefix}-{stream.slot}"})
    rival.init_transactions(10)
    stream.sql("INSERT INTO t VALUES (2)")
    assert daemon.wait(15) == 1
    log = daemon.log.read_text()
    assert TAKEN in log
    assert "Let only one cdcd run for this slot and prefix" in log.splitlines()[-1]
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 2
