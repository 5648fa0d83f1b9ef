"""Topics that are deleted, made again, cut or expired: the daemon tells what is lost, or takes a new snapshot."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from support import topics
from support.daemon import cdcd
from support.fix_postgres import Database
from support.stream import StreamFixture

RESNAPSHOT = {"sink": {"on_topic_lost": "resnapshot"}}
NOTICED_WITHIN_S = 60.0
ROWS = "INSERT INTO t SELECT n, 'old' FROM generate_series({}, {}) n"


def _published(stream: StreamFixture) -> None:
    """Publish a snapshot of one table and changes of two, and end the daemon."""
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY)")
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t, u", ROWS.format(1, 50))
    with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        stream.sql(*(ROWS.format(begin, begin + 9) for begin in range(51, 501, 10)), "INSERT INTO u VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def _written_bytes(log: Path) -> int:
    """The size of a log, once a broker has written to it the end of the last transaction."""
    size = -1
    while size != (size := log.stat().st_size):
        time.sleep(0.5)
    return size


def _done(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(10)


def _delete(stream: StreamFixture, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": stream.broker})
    _done(admin.delete_topics([topic], operation_timeout=10))


def _make_again(stream: StreamFixture, topic: str) -> None:
    """As a broker does with auto.create.topics.enable, as soon as a client asks for the topic."""
    _delete(stream, topic)
    time.sleep(0.5)
    admin = AdminClient({"bootstrap.servers": stream.broker})
    _done(admin.create_topics([NewTopic(topic, 1, 1)]))


def _set_policy(stream: StreamFixture, topic: str, policy: str) -> None:
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    admin = AdminClient({"bootstrap.servers": stream.broker})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    _done(admin.incremental_alter_configs([resource]))


def _refusal(stream: StreamFixture, *words: str, **settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Check that `cdcd run` and `cdcd check` both refuse this, in the same words."""
    done = stream.run(timeout_s=60.0, **settings)
    assert done.returncode == 1, done.stderr
    checked = cdcd(stream.daemon(**settings), "check", code=1)
    for word in words:
        assert word in done.stderr.splitlines()[-1], done.stderr
        assert word in checked, checked
    return done


def _check(stream: StreamFixture) -> None:
    """Check that the folded topics equal the tables, although events may be lost."""
    by_table = stream.topics.by_table()
    for table in (("public", "t"), ("public", "u")):
        events = stream.topics.events(by_table[table])
        assert topics.fold(events, snapshot=True) == stream.content(*table)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("lose", [_delete, _make_again])
def test_a_topic_that_was_lost_while_no_daemon_ran_is_refused_and_made_good_by_a_new_snapshot(
    stream: StreamFixture, lose: Callable[[StreamFixture, str], None]
) -> None:
    _published(stream)
    topic = f"{stream.prefix}.public.t"
    lose(stream, topic)
    confirmed = stream.confirmed()
    _refusal(stream, topic, "on_topic_lost")
    assert stream.confirmed() == confirmed
    assert stream.prefix in topic
    with stream.daemon(**RESNAPSHOT).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("UPDATE t SET v = 'new' WHERE id = 7")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    _check(stream)
    with stream.daemon().start() as daemon:  # the loss is dealt with
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("lose", [_delete, _make_again])
def test_a_topic_that_is_lost_while_the_daemon_runs_is_noticed_within_a_minute(
    stream: StreamFixture, lose: Callable[[StreamFixture, str], None]
) -> None:
    _published(stream)
    topic = f"{stream.prefix}.public.u"
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        lose(stream, topic)
        assert daemon.wait(NOTICED_WITHIN_S) == 1
        log = daemon.log.read_text()
        assert topic in log.splitlines()[-1], log
        assert "on_topic_lost" in log.splitlines()[-1], log


def test_a_write_to_a_topic_that_was_made_again_is_not_committed(stream: StreamFixture) -> None:
    _published(stream)
    topic = f"{stream.prefix}.public.t"
    with stream.daemon(**RESNAPSHOT).start() as daemon:
        daemon.wait_for_log("going on")
        _make_again(stream, topic)
        stream.sql("INSERT INTO t VALUES (1000, 'new')")
        daemon.wait_for_log("the snapshot is complete", NOTICED_WITHIN_S)
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    _check(stream)


def test_a_progress_that_is_deleted_while_the_daemon_runs_is_named(stream: StreamFixture) -> None:
    _published(stream)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        _delete(stream, f"{stream.prefix}.progress")
        daemon.wait_for_log(f"the topic {stream.prefix}.progress does not exist any more", NOTICED_WITHIN_S)


@pytest.mark.whole
@pytest.mark.slow
def test_a_deleted_topic_is_missed_though_the_broker_makes_topics_by_itself(
    start_kafka: Callable[..., servers.Kafka], database: Database, tmp_path: Path
) -> None:
    """No client of the daemon lets the broker make the topic again, with settings of its own."""
    kafka = start_kafka(settings={"auto.create.topics.enable": "true"})
    with StreamFixture(database.dsn, kafka.bootstrap, "auto", tmp_path) as stream:
        _published(stream)
        topic = "auto.public.t"
        with stream.daemon(sink={"on_topic_lost": "resnapshot"}).start() as daemon:
            daemon.wait_for_log("going on")
            _delete(stream, topic)
            stream.sql("UPDATE t SET v = 'new' WHERE id = 7")
            daemon.wait_for_log("the snapshot is complete", NOTICED_WITHIN_S)
            daemon.wait_until_confirmed()
            assert topic in daemon.log.read_text()
            assert daemon.stop() == 0
        _check(stream)
        assert {event.partition for event in stream.topics.events(topic)} == set(range(4)), "it is as cdcd makes it"


def test_lost_schemas_are_refused(stream: StreamFixture) -> None:
    _published(stream)
    _delete(stream, f"{stream.prefix}.schemas")
    _refusal(stream, f"{stream.prefix}.schemas does not exist any more")


def test_a_topic_of_a_table_that_is_not_published_any_more_may_go(stream: StreamFixture) -> None:
    _published(stream)
    stream.sql("ALTER PUBLICATION cdcd SET TABLE u")
    _delete(stream, f"{stream.prefix}.public.t")
    with stream.daemon().start() as daemon:
        stream.sql("INSERT INTO u VALUES (2)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def test_a_table_that_is_published_again_after_its_topic_was_deleted_gets_a_new_snapshot(
    stream: StreamFixture,
) -> None:
    _published(stream)
    stream.sql("ALTER PUBLICATION cdcd SET TABLE u")
    _delete(stream, f"{stream.prefix}.public.t")
    with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
        with psycopg.connect(stream.dsn) as other:
            other.execute("LOCK TABLE u")  # its holder must not hide what is published
            daemon.wait_for_log("going on")
        stream.sql("ALTER PUBLICATION cdcd ADD TABLE t", "UPDATE t SET v = 'new' WHERE id = 7")
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("UPDATE t SET v = 'new' WHERE id = 8")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    _check(stream)


def test_retention_and_deleted_records_are_no_loss(stream: StreamFixture) -> None:
    _published(stream)
    topic = f"{stream.prefix}.public.t"
    admin = AdminClient({"bootstrap.servers": stream.broker})
    _done(admin.delete_records([TopicPartition(topic, partition, -1) for partition in range(4)]))
    with stream.daemon().start() as daemon:
        stream.sql("INSERT INTO t VALUES (1000, 'new')")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


def test_partitions_that_are_added_and_a_retention_that_passes_while_the_daemon_runs_lose_and_double_nothing(
    stream: StreamFixture,
) -> None:
    _published(stream)
    topic = f"{stream.prefix}.public.t"
    admin = AdminClient({"bootstrap.servers": stream.broker})
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        events = stream.topics.events(topic)
        _done(admin.delete_records([TopicPartition(topic, partition, -1) for partition in range(4)]))
        _done(admin.create_partitions([NewPartitions(topic, 6)]))
        stream.sql("UPDATE t SET v = 'new' WHERE id <= 100")
        daemon.wait_for_log("the topic has more partitions", NOTICED_WITHIN_S)  # it has looked at the ends, too
        stream.sql("UPDATE t SET v = 'newer' WHERE id <= 50")
        daemon.wait_until_confirmed()
        assert "starting again" not in daemon.log.read_text()
        daemon.kill()
        daemon.start()
        stream.sql("DELETE FROM t WHERE id <= 200", "INSERT INTO t SELECT n, 'last' FROM generate_series(1, 200) n")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    events += stream.topics.events(topic)
    assert {event.partition for event in events} == set(range(6))
    topics.check_exactly_once(events)
    assert topics.fold(events, snapshot=True) == stream.content("public", "t")


def test_own_topics_that_somebody_else_has_made_with_several_partitions_keep_what_a_start_needs(
    stream: StreamFixture,
) -> None:
    admin = AdminClient({"bootstrap.servers": stream.broker})
    compacted = {"cleanup.policy": "compact"}
    made = [NewTopic(f"{stream.prefix}.{own}", 3, 1, config=compacted) for own in ("snapshots", "schemas")]
    _done(admin.create_topics([*made, NewTopic(f"{stream.prefix}.parked", 3, 1, config={"retention.ms": "-1"})]))
    _published(stream)
    before = len(stream.events())
    with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO u VALUES (2)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert len(stream.events()) == before + 1, "no table is copied a second time"
    _check(stream)


@pytest.mark.whole
def test_a_log_that_a_broker_has_cut_is_refused(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    stream = on_restartable_kafka
    _published(stream)
    topic = f"{stream.prefix}.public.t"
    restartable_kafka.kill()
    for log in restartable_kafka.data.glob(f"{topic}-*/*.log"):
        with log.open("r+b") as file:
            file.truncate(log.stat().st_size // 2)
    restartable_kafka.start()
    _refusal(stream, f"the topic {topic} ends at offset", "but the daemon has written up to")


@pytest.mark.whole
def test_a_progress_whose_last_records_are_lost_is_refused_and_a_new_snapshot_replaces_them(
    on_restartable_kafka: StreamFixture, restartable_kafka: servers.Kafka
) -> None:
    """A crash of both: the broker loses what it had not flushed, and the slot is back at its last checkpoint."""
    stream = on_restartable_kafka
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (id int PRIMARY KEY)")
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t, u")
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql(ROWS.format(1, 50))
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        [log] = restartable_kafka.data.glob(f"{stream.prefix}.progress-*/*.log")
        flushed_bytes = _written_bytes(log)
        copy = "SELECT pg_copy_logical_replication_slot('{}', '{}')"
        stream.sql(copy.format(stream.slot, f"{stream.slot}_saved"))
        daemon.start()
        stream.sql(*(ROWS.format(begin, begin + 9) for begin in range(51, 501, 10)), "DELETE FROM t WHERE id < 100")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')", copy.format(f"{stream.slot}_saved", stream.slot))
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}_saved')")
    restartable_kafka.kill()
    os.truncate(log, flushed_bytes)
    restartable_kafka.start()
    _refusal(stream, f"the last records of {stream.prefix}.progress are lost", "on_slot_lost")
    with stream.daemon(source={"on_slot_lost": "resnapshot"}).start() as daemon:
        daemon.wait_for_log("the snapshot is complete")
        stream.sql("UPDATE t SET v = 'new' WHERE id = 200", "INSERT INTO u VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    _check(stream)
    topics.check_exactly_once(stream.events())


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("own", ["progress", "schemas", "snapshots"])
def test_cdcds_own_topic_that_would_expire_is_refused(stream: StreamFixture, own: str) -> None:
    _published(stream)
    topic = f"{stream.prefix}.{own}"
    _set_policy(stream, topic, "delete")
    _refusal(stream, f"{topic} has cleanup.policy=delete", "--add-config cleanup.policy=compact")
    _set_policy(stream, topic, "compact")
    with stream.daemon().start() as daemon:
        daemon.wait_until_streaming()
        assert daemon.stop() == 0


def test_a_progress_topic_with_partitions_is_refused_before_the_slot_is_made(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    admin = AdminClient({"bootstrap.servers": stream.broker})
    _done(admin.create_topics([NewTopic(f"{stream.prefix}.progress", 3, 1)]))
    _refusal(stream, f"{stream.prefix}.progress has 3 partitions")
    assert stream.sql("SELECT slot_name FROM pg_replication_slots WHERE slot_name = '" + stream.slot + "'") == []
