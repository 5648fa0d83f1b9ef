"""Kafka forgets producers that rest for a week: transactional ids, producer ids, or both. Rows come once after it."""

from __future__ import annotations

import os
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import servers
from support import kafka_requests
from support.daemon import Daemon
from support.fix_postgres import Database
from support.kafka_cluster import TRANSACTION_STATE
from support.stream import StreamFixture, Writer, eventually
from support.topics import Topics

pytestmark = pytest.mark.whole

FORGOTTEN_AFTER_S = 3.0
"""For a week, by the broker's settings."""
NEVER = str(7 * 24 * 3600 * 1000)
TABLE = ("public", "t")


class ForgetfulKafka(servers.Kafka):
    """A broker that soon forgets what rests: the owner of a transactional id, or who has written to a partition."""

    def __init__(self, what: str) -> None:
        soon = f"{FORGOTTEN_AFTER_S * 1000:.0f}"
        expiration = {"transactional.id.expiration.ms": NEVER, "producer.id.expiration.ms": NEVER}
        checks = {
            "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
            "producer.id.expiration.check.interval.ms": "100",
        }
        forgets = {f"{kind}.expiration.ms": soon for kind in what.split(" and ")}
        super().__init__(settings=expiration | checks | forgets)
        self.forgets = set(forgets)

    def remembered(self, stream: StreamFixture) -> set[str]:
        """Which of the slot's transactional ids, and which of its topics' producers, the broker knows."""
        found = set()
        if "transactional.id.expiration.ms" in self.forgets:
            found |= self._transactional_ids(f"{stream.prefix}-{stream.slot}")
        if "producer.id.expiration.ms" in self.forgets:
            for name in ("progress", "public.t"):
                topic = f"{stream.prefix}.{name}"
                found |= {topic for partition in range(4 if name == "public.t" else 1)
                          if kafka_requests.active_producers(self.bootstrap, topic, partition)}  # fmt: skip
        return found

    def _transactional_ids(self, prefix: str) -> set[str]:
        """The last record of each one in the coordinators' own topic is no tombstone."""
        found: dict[str, bool] = {}
        for message in Topics(self.bootstrap, "").raw(TRANSACTION_STATE, isolation="read_uncommitted"):
            _, size = struct.unpack_from(">hh", message.key())
            found[message.key()[4 : 4 + size].decode()] = message.value() is not None
        return {each for each, is_known in found.items() if is_known and each.startswith(prefix)}


@pytest.fixture(scope="module")
def forgetful_kafka(request: pytest.FixtureRequest) -> Iterator[ForgetfulKafka]:
    with ForgetfulKafka(getattr(request, "param", "transactional.id and producer.id")) as kafka:
        yield kafka


@pytest.fixture
def stream(database: Database, forgetful_kafka: ForgetfulKafka, tmp_path: Path) -> Iterator[StreamFixture]:
    """Give a stream to the broker that forgets."""
    with StreamFixture(database.dsn, forgetful_kafka.bootstrap, database.name.replace("_", "-"), tmp_path) as stream:
        stream.sql(Writer.TABLE)
        yield stream


def started(stream: StreamFixture) -> Daemon:
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on", 60)
    return daemon


def forgotten(kafka: ForgetfulKafka, stream: StreamFixture) -> Callable[[], bool]:
    return lambda: not kafka.remembered(stream)


def restarts(daemon: Daemon) -> int:
    """How often this daemon, which no fault but the one of the test meets, has begun a new stream."""
    return daemon.log.read_text().count("starting again")


@pytest.mark.in_turns(2)
@pytest.mark.parametrize(
    "forgetful_kafka", ["transactional.id", "producer.id", "transactional.id and producer.id"], indirect=True
)
def test_a_row_after_a_rest_comes_once_and_costs_one_new_stream_at_most(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    daemon = started(stream)
    for number in range(4):
        stream.sql(f"INSERT INTO t VALUES ({-number})")
        daemon.wait_until_confirmed(timeout_s=20)
        assert restarts(daemon) <= number
        eventually(forgotten(forgetful_kafka, stream), "producers that are forgotten")
    with Writer(stream.dsn):
        time.sleep(2)
    daemon.wait_until_confirmed()
    assert restarts(daemon) <= 4, "a stream that runs is not forgotten"
    assert daemon.stop() == 0
    stream.check(TABLE)


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_daemon_that_starts_after_a_rest_goes_on_where_the_last_one_ended(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka, end: signal.Signals
) -> None:
    daemon = started(stream)
    with Writer(stream.dsn):
        time.sleep(1)
        daemon.stop() if end == signal.SIGTERM else daemon.kill()
    # An open transaction is not forgotten: the coordinator ends it after its timeout, or for the next daemon.
    if end == signal.SIGTERM:
        eventually(forgotten(forgetful_kafka, stream), "producers that are forgotten")
    else:
        time.sleep(2 * FORGOTTEN_AFTER_S)
    daemon = started(stream)
    stream.sql("INSERT INTO t VALUES (-1)")
    daemon.wait_until_confirmed()
    assert restarts(daemon) == 0
    assert daemon.stop() == 0
    stream.check(TABLE)


def test_one_of_the_two_producers_may_be_forgotten_while_the_other_is_known(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    daemon = started(stream)
    number, known = 0, set[str]()

    def write() -> None:
        nonlocal number
        number += 1
        stream.sql(f"INSERT INTO t VALUES ({number})")
        daemon.wait_until_confirmed(timeout_s=20)

    for turn in range(4):
        for _ in range(1 + turn % 2):
            write()
        time.sleep(FORGOTTEN_AFTER_S / 2)  # between them: the first is forgotten so much earlier
        write()
        known |= eventually(lambda: _only_id(forgetful_kafka, stream), "one that is forgotten")
        write()
        write()
    assert len(known) == 2, "each of them was the one that is known"
    assert restarts(daemon) <= 8, "one a rest, for each producer"
    assert daemon.running()
    assert daemon.stop() == 0
    stream.check(TABLE)


def _only_id(kafka: ForgetfulKafka, stream: StreamFixture) -> set[str]:
    ids = {each for each in kafka.remembered(stream) if each.startswith(f"{stream.prefix}-")}
    return ids if len(ids) == 1 else set()


def test_a_transaction_that_stays_open_longer_than_the_producers_are_known_comes_once(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    daemon = started(stream)
    stream.sql("INSERT INTO t VALUES (0)")
    daemon.wait_until_confirmed()
    with psycopg.connect(stream.dsn) as connection:
        connection.execute("INSERT INTO t SELECT generate_series(1, 20000)")
        eventually(forgotten(forgetful_kafka, stream), "producers that are forgotten")
        connection.execute("UPDATE t SET v = 1 WHERE id < 100")
    daemon.wait_until_confirmed()
    assert restarts(daemon) <= 1
    assert daemon.stop() == 0
    stream.check(TABLE)


def test_producers_that_are_forgotten_while_postgresql_sends_nothing_cost_one_new_stream(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    daemon = started(stream)
    with Writer(stream.dsn):
        time.sleep(1)
        walsender = stream.walsender()
        assert walsender is not None
        os.kill(walsender, signal.SIGSTOP)
        try:
            eventually(forgotten(forgetful_kafka, stream), "producers that are forgotten")
        finally:
            os.kill(walsender, signal.SIGCONT)
        time.sleep(1)
    daemon.wait_until_confirmed()
    assert restarts(daemon) <= 1
    assert daemon.stop() == 0
    stream.check(TABLE)


def test_producers_whose_time_is_over_while_the_broker_hangs_lose_no_row(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    daemon = started(stream)
    with Writer(stream.dsn):
        for _ in range(2):
            time.sleep(1)
            forgetful_kafka.pause()
            time.sleep(FORGOTTEN_AFTER_S + 1)
            forgetful_kafka.resume()
            daemon.wait_until_confirmed()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(TABLE)


def test_a_daemon_that_was_frozen_until_kafka_had_forgotten_it_writes_nothing_beside_its_heir(
    stream: StreamFixture, forgetful_kafka: ForgetfulKafka
) -> None:
    # Its heir's producers are new ones to Kafka: nothing fences the old ones.
    frozen = started(stream)
    stream.sql("INSERT INTO t VALUES (-1)")
    frozen.wait_until_confirmed()
    frozen.signal(signal.SIGSTOP)
    try:
        stream.sql("INSERT INTO t SELECT generate_series(-1000, -2)")  # they wait in the socket of the frozen daemon
        eventually(forgotten(forgetful_kafka, stream), "producers that are forgotten")
        eventually(lambda: stream.sql(f"SELECT pg_terminate_backend({stream.walsender()})") and True, "end")
        heir = started(stream)
        with Writer(stream.dsn):
            heir.wait_until_confirmed()
            frozen.signal(signal.SIGCONT)
            frozen.wait_for_log("another daemon", 60)
            time.sleep(1)
        heir.wait_until_confirmed()
        assert restarts(heir) == 0
        assert heir.stop() == 0
    finally:
        frozen.signal(signal.SIGCONT)
    assert frozen.running()
    assert frozen.stop() == 0
    stream.check(TABLE)
