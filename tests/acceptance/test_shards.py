"""Shards: several slots with disjoint publications feed one prefix, each with its own daemon.

They share the topics of progress, schemas, snapshots and parked events, and nothing else. A shard must not hold up
another, mislead it, or make it publish twice, whatever is killed when.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter, defaultdict
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from support import topics
from support.background_thread import BackgroundThread
from support.daemon import Daemon, cdcd
from support.stream import StreamFixture

TABLES = {"a": ("a1", "a2"), "b": ("b1", "b2")}
ROUNDS = 9


class Shards:
    """Two slots and two publications of one database, one prefix."""

    def __init__(self, stream: StreamFixture) -> None:
        self.stream = stream
        for name, tables in TABLES.items():
            for table in tables:
                stream.sql(f"CREATE TABLE {table} (id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT 0)")
            stream.publish(f"pub_{name}", *tables)

    def slot(self, name: str) -> str:
        return f"{self.stream.slot}_{name}"

    def daemon(self, name: str, **settings: dict[str, Any]) -> Daemon:
        """The daemon of a shard; `settings` by section."""
        source = {"slot": self.slot(name), "publication": f"pub_{name}", "messages": name == "a"}
        return self.stream.daemon(source=source, **settings)

    def transaction(self, name: str) -> Producer:
        """A producer with the shard's transactional.id and an open transaction, like a daemon that was killed in it."""
        killed = Producer(
            {"bootstrap.servers": self.stream.broker, "transactional.id": f"{self.stream.prefix}-{self.slot(name)}"}
        )
        killed.init_transactions(10)
        killed.begin_transaction()
        return killed

    def last_record(self, name: str) -> dict[str, Any]:
        """The shard's newest slot record, committed or not."""
        progress = self.stream.topics.raw(f"{self.stream.prefix}.progress", isolation="read_uncommitted")
        slot = self.slot(name).encode()
        return [json.loads(message.value()) for message in progress if message.key() == slot][-1]

    def lsn(self) -> str:
        [(lsn,)] = self.stream.sql("SELECT pg_current_wal_lsn()")
        return str(lsn)

    def check(self, name: str) -> list[topics.Event]:
        """Check a shard: events once and in order, tables equal to the folded topics, every cut exact.

        Returns the shard's events.
        """
        by_table = self.stream.topics.by_table()
        events = self.stream.topics.events(*(by_table["public", table] for table in TABLES[name]))
        topics.check_exactly_once(events)
        for table in TABLES[name]:
            folded = topics.fold([event for event in events if event.topic == by_table["public", table]])
            assert folded == self.stream.content("public", table), table
        self._check_cuts(name, events)
        return events

    def _check_cuts(self, name: str, events: list[topics.Event]) -> None:
        slot, ends, cuts = self.slot(name), dict[str, list[int]](), 0
        places = defaultdict(list)
        for event in events:
            places[event.topic, event.partition].append(event)
        for key, record in self.stream.topics.progress():
            if key.startswith(f"{slot}/"):
                ends[record["topic"]] = record["offsets"]
            elif key == slot:
                cuts += 1
                inside: Counter[bool] = Counter()
                for (topic, partition), its_events in places.items():
                    end = ends.get(topic, [0] * 4)[partition]
                    for event in its_events:
                        inside[(event.offset < end) == (event.position[0] < number(record["lsn"]))] += 1
                assert not inside[False], record
        assert cuts


class BothWriter(BackgroundThread):
    """Commits transactions that change every table of both shards, sometimes a large one, while a `with` lasts."""

    LARGE = 6_000

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self._dsn = dsn
        self.commits = 0

    def run(self) -> None:
        first = 1
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            while not self._done.wait(0.005):
                rows = self.LARGE if self.commits % 300 == 150 else 3
                with connection.transaction():
                    for table in (table for tables in TABLES.values() for table in tables):
                        connection.execute(f"INSERT INTO {table} SELECT generate_series({first}, {first + rows - 1})")
                        connection.execute(f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {first - 4} AND {first}")
                        connection.execute(f"DELETE FROM {table} WHERE id = {first - 7}")
                first += rows
                self.commits += 1


def number(lsn: str) -> int:
    high, low = lsn.split("/")
    return int(high, 16) << 32 | int(low, 16)


@pytest.fixture
def shards(stream: StreamFixture) -> Shards:
    return Shards(stream)


def test_two_shards_of_one_prefix_publish_each_change_once_while_both_are_killed(shards: Shards) -> None:
    chance = random.Random(4711)
    daemons = [shards.daemon(name).start() for name in TABLES]  # at the same time: both make the shared topics
    for daemon in daemons:
        daemon.wait_for_log("going on")
    with BothWriter(shards.stream.dsn) as writer:
        for turn in range(ROUNDS):
            time.sleep(chance.uniform(0.1, 1.0))
            chance.shuffle(daemons)
            victim, other = daemons
            if turn % 3 == 0:  # both at once
                victim.kill()
                other.kill()
                other.start()
            elif turn % 3 == 1:  # one restarts while the other is paused, maybe inside a Kafka transaction
                other.signal(signal.SIGSTOP)
                victim.kill()
            else:
                victim.kill()
            victim.start()
            if turn % 3 == 1:
                time.sleep(1.5)
                other.signal(signal.SIGCONT)
    for daemon in daemons:
        daemon.wait_until_confirmed()
    assert [daemon.stop() for daemon in daemons] == [0, 0]
    a, b = shards.check("a"), shards.check("b")
    assert {event.position[0] for event in a} == {event.position[0] for event in b}
    assert len({event.position[0] for event in a}) == writer.commits
    print(f"\n{writer.commits} transactions in both shards, {len(a) + len(b)} events once and in order")


def test_an_open_transaction_of_another_shard_makes_no_uncommitted_record_count(shards: Shards) -> None:
    # Shard a dies after it wrote its progress, before it committed. So consumers see no later record of the progress
    # topic for a while. Shard b goes on, is acknowledged, and dies in the same place: only the first of its last two
    # records is committed.
    b = shards.daemon("b").start()
    b.wait_for_log("going on")
    shards.stream.sql("INSERT INTO b1 VALUES (1)")
    b.wait_until_confirmed()
    progress = f"{shards.stream.prefix}.progress"
    held = shards.transaction("a")
    held.produce(progress, key=shards.slot("a"), value=json.dumps(shards.last_record("b") | {"slot": shards.slot("a")}))
    held.flush()
    shards.stream.sql("INSERT INTO b1 VALUES (2)")
    b.wait_until_confirmed()
    b.kill()
    shards.stream.sql("INSERT INTO b1 VALUES (3)")
    record = shards.last_record("b") | {"lsn": shards.lsn()}
    uncommitted = shards.transaction("b")
    uncommitted.produce(progress, key=shards.slot("b"), value=json.dumps(record))
    uncommitted.flush()
    b.start()
    time.sleep(4)  # the daemon watches undecided records for a second
    held.abort_transaction(10)
    b.wait_until_confirmed()
    assert b.stop() == 0
    assert len(shards.stream.check(("public", "b1"))) == 3


def test_an_open_transaction_on_another_shards_tables_holds_up_no_shard(shards: Shards) -> None:
    a, b = (shards.daemon(name).start() for name in TABLES)
    for daemon in (a, b):
        daemon.wait_for_log("going on")
    shards.stream.sql("INSERT INTO a1 VALUES (1)", "INSERT INTO b1 VALUES (1)")
    a.wait_until_confirmed()
    b.wait_until_confirmed()
    a.kill()
    b.kill()
    prefix = shards.stream.prefix
    held = shards.transaction("a")
    for topic in (f"{prefix}.public.a1", f"{prefix}.schemas"):
        held.produce(topic, key=b"k", value=b"v", partition=0)
    held.flush()
    shards.stream.sql("INSERT INTO b1 VALUES (2)")
    b.start()
    b.wait_until_confirmed(timeout_s=20)
    assert b.stop() == 0
    written = [m.key() for m in shards.stream.topics.raw(f"{prefix}.public.a1", isolation="read_uncommitted")]
    assert len(written) == 2, "the other shard wrote there"
    held.abort_transaction(10)
    a.start()
    a.wait_until_confirmed()
    assert a.stop() == 0
    assert len(shards.stream.check(("public", "a1"), ("public", "b1"))) == 3


def test_one_of_two_new_slots_with_a_common_table_that_start_together_is_refused(shards: Shards) -> None:
    shards.stream.sql("CREATE PUBLICATION pub_c FOR TABLE a2, b2")
    daemons = [shards.daemon(name).start() for name in ("a", "c")]
    deadline = time.monotonic() + 30
    while all(daemon.running() for daemon in daemons):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    [refused, *_] = [daemon for daemon in daemons if not daemon.running()]
    assert refused.wait() == 1
    assert "publishes public.a2 to the same topics" in refused.log.read_text().splitlines()[-1]


def test_one_slot_of_a_prefix_publishes_logical_messages(shards: Shards) -> None:
    a = shards.daemon("a").start()
    a.wait_for_log("going on")
    both = {"slot": shards.slot("b"), "publication": "pub_b"}
    b = shards.stream.daemon(source=both).start()
    assert b.wait() == 1
    refusal = f"the slot {shards.slot('a')} publishes logical messages to the same topic"
    assert refusal in b.log.read_text().splitlines()[-1]
    assert f"error    {refusal}" in cdcd(b, "check", code=1)
    b = shards.daemon("b").start()
    b.wait_for_log("going on")
    shards.stream.sql("SELECT pg_logical_emit_message(true, 'test', 'once')", "INSERT INTO b1 VALUES (1)")
    for daemon in (a, b):
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert len(list(shards.stream.topics.raw(f"{shards.stream.prefix}.messages"))) == 1


def test_a_table_that_another_slot_publishes_to_the_same_topic_is_refused(shards: Shards) -> None:
    a, b = (shards.daemon(name).start() for name in TABLES)
    for daemon in (a, b):
        daemon.wait_for_log("going on")
    sql = shards.stream.sql
    sql("INSERT INTO a2 VALUES (1)", "INSERT INTO b1 VALUES (1)")
    a.wait_until_confirmed()
    b.wait_until_confirmed()
    sql("CREATE TABLE c1 (id int PRIMARY KEY)", "CREATE PUBLICATION pub_c FOR TABLE a2, c1")
    c = shards.daemon("c").start()
    assert c.wait() == 1
    said = c.log.read_text().splitlines()[-1]
    refusal = f"the slot {shards.slot('a')} publishes public.a2 to the same topics"
    assert refusal in said
    slots = "SELECT 1 FROM pg_replication_slots WHERE slot_name = "
    assert sql(f"{slots}'{shards.slot('c')}'") == [], "a slot without a daemon would keep WAL"
    # `cdcd check` says the same, even if the publication does not exist yet.
    unmade = shards.stream.daemon(source={"slot": shards.slot("c"), "publication": "p", "tables": ["public.a2"]})
    for daemon in (c, unmade):
        assert f"error    {refusal}" in cdcd(daemon, "check", code=1)
    assert refusal not in cdcd(a, "check")
    # Another prefix has other topics.
    elsewhere = shards.daemon("c", sink={"prefix": f"{shards.stream.prefix}.elsewhere"}).start()
    elsewhere.wait_for_log("going on")
    assert elsewhere.stop() == 0
    # A table may move from one publication to the other while both daemons run.
    sql("ALTER PUBLICATION pub_a DROP TABLE a2", "INSERT INTO c1 VALUES (1)", "INSERT INTO a2 VALUES (2)")
    c.start()
    sql("INSERT INTO a2 VALUES (3)")
    c.wait_until_confirmed()
    # The later daemon is refused. A slot that no daemon streams from blocks no one.
    sql("ALTER PUBLICATION pub_b ADD TABLE a1")
    b.kill()
    b.start()
    assert b.wait() == 1
    assert a.stop() == 0
    b.start()
    sql("INSERT INTO a1 VALUES (1)")
    b.wait_until_confirmed()
    assert (b.stop(), c.stop()) == (0, 0)


def test_a_request_to_a_shard_reaches_no_other_shard(shards: Shards) -> None:
    shards.stream.sql("INSERT INTO a1 VALUES (1)")
    a, b = (shards.daemon(name, snapshot={"mode": "initial"}).start() for name in TABLES)
    for daemon in (a, b):
        daemon.wait_for_log("going on")
        daemon.wait_until_confirmed()
    cdcd(a, "snapshot", "public.a1")
    for daemon in (a, b):
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    feeds = {key for key, _ in shards.stream.topics.progress()}
    topic = f"{shards.stream.prefix}.public.a1"
    assert f"{shards.slot('a')}/{topic}" in feeds
    assert f"{shards.slot('b')}/{topic}" not in feeds
