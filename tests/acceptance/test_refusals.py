"""Errors as a user meets them: one sentence and its hint on stderr, the right exit code, no traceback."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from psycopg.conninfo import make_conninfo
from support.daemon import cdcd
from support.stream import StreamFixture, eventually

TABLE = "CREATE TABLE t (id int PRIMARY KEY)"

pytestmark = pytest.mark.in_turns(2)


def _sentence(done: subprocess.CompletedProcess[str], code: int) -> str:
    """Check the form of a failed run's output, and return its only error, which must come last."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "This is a bug" not in done.stderr
    *before, last = done.stderr.splitlines()
    assert not [line for line in before if " ERROR " in line], done.stderr
    match = re.fullmatch(r"cdcd: (.+)|\S+ ERROR cdcd: (.+)", last)
    assert match is not None, done.stderr
    return match[1] or match[2]


def _refused(stream: StreamFixture, *words: str, code: int = 1, **settings: Any) -> None:
    """Check that `cdcd run` fails, and that its error contains these words."""
    said = _sentence(stream.run(**settings), code)
    for word in words:
        assert word in said, f"{word!r} is not in: {said}"


def _streamed_once(stream: StreamFixture) -> None:
    """Make the slot, the publication and the progress, as an earlier run leaves them."""
    stream.sql(TABLE)
    with stream.daemon().start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


# Settings


def test_an_unknown_key_names_the_nearest(stream: StreamFixture) -> None:
    _refused(stream, "source.publikation", "source.publication", code=2, source={"publikation": "x"})


def test_a_value_out_of_bounds_names_the_setting(stream: StreamFixture) -> None:
    _refused(stream, "sink.partitions", code=2, sink={"partitions": 0})


def test_a_missing_file_is_named(tmp_path: Path, stream: StreamFixture) -> None:
    done = stream.run("--config", str(tmp_path / "nowhere.toml"))
    assert "nowhere.toml" in _sentence(done, 2)


def test_a_dsn_that_cannot_be_read_is_a_setting_and_is_not_repeated(stream: StreamFixture) -> None:
    _refused(stream, "source.dsn", code=2, source={"dsn": "host=localhost passwort=verysecret"})
    assert "verysecret" not in stream.run(source={"dsn": "host=localhost passwort=verysecret"}).stderr


def test_a_property_that_librdkafka_does_not_know_is_a_setting(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    config = stream.daemon().config
    config.write_text(config.read_text() + '[sink.librdkafka]\n"compresion.type" = "lz4"\n')
    assert "compresion.type" in _sentence(stream.run("--config", str(config)), 2)
    assert _slots(stream) == []


@pytest.mark.parametrize(
    ("named", "sink"),
    [("retention.sm", {"topic_config": {"retention.sm": "1"}}), ("replication_factor", {"replication_factor": 5})],
)
def test_topics_that_kafka_will_not_make_are_refused_before_the_slot_is_made(
    stream: StreamFixture, named: str, sink: dict[str, Any]
) -> None:
    stream.sql(TABLE)
    _refused(stream, named, sink=sink)
    assert _slots(stream) == []


# PostgreSQL


def test_an_unknown_database_is_named(stream: StreamFixture) -> None:
    _refused(
        stream,
        'database "nowhere" does not exist',
        "source.dsn",
        source={"dsn": make_conninfo(stream.dsn, dbname="nowhere")},
    )


@pytest.fixture
def password_needed(restartable_postgres: servers.PostgreSQL) -> Iterator[None]:
    hba = restartable_postgres.data / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(restartable_postgres.dsn(), autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN REPLICATION PASSWORD 'right'")
        hba.write_text(
            "host all guarded 127.0.0.1/32 scram-sha-256\nhost replication guarded 127.0.0.1/32 scram-sha-256\n"
            + before
        )
        connection.execute("SELECT pg_reload_conf()")
        time.sleep(0.3)
        yield
        hba.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP ROLE guarded")


def test_a_wrong_password_is_reported_without_the_password(
    on_restartable_postgres: StreamFixture, password_needed: None
) -> None:
    stream = on_restartable_postgres
    dsn = make_conninfo(stream.dsn, user="guarded", password="wrong-one")
    done = stream.run(source={"dsn": dsn})
    said = _sentence(done, 1)
    assert "password" in said
    assert "source.dsn" in said
    assert "~/.pgpass or the file that PGPASSFILE names" in said
    assert "wrong-one" not in done.stderr


@pytest.mark.postgres_versions("oldest", "newest")
def test_a_role_that_may_not_replicate_gets_the_statement_to_run(stream: StreamFixture) -> None:
    stream.sql(TABLE, "CREATE PUBLICATION cdcd FOR ALL TABLES", "DROP ROLE IF EXISTS plain", "CREATE ROLE plain LOGIN")
    try:
        _refused(stream, 'ALTER ROLE "plain" REPLICATION', source={"dsn": make_conninfo(stream.dsn, user="plain")})
    finally:
        stream.sql("DROP ROLE plain")


@pytest.mark.postgres_versions("oldest", "newest")
def test_a_server_without_logical_decoding_gets_the_statement_to_run(
    postgres: servers.PostgreSQL, start_postgres: Any, broker: str, prefix: str, tmp_path: Path
) -> None:
    server = start_postgres(postgres.version, settings={"wal_level": "replica"})
    with StreamFixture(server.dsn(), broker, prefix, tmp_path) as stream:
        stream.sql(TABLE)
        _refused(stream, "wal_level is replica", "ALTER SYSTEM SET wal_level = 'logical'")


def test_a_missing_publication_gets_the_statement_to_run(stream: StreamFixture) -> None:
    _refused(stream, "There is no publication cdcd", "CREATE PUBLICATION", source={"create": False})


def test_a_missing_slot_gets_the_command_to_run(stream: StreamFixture) -> None:
    stream.sql(TABLE, "CREATE PUBLICATION cdcd FOR ALL TABLES")
    _refused(stream, stream.slot, "cdcd slot create", source={"create": False})


def test_patterns_that_match_no_table_are_named(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    _refused(stream, "No table matches public.u*", "source.tables", source={"tables": ["public.u*"]})


def test_a_table_without_identity_is_not_published_unasked(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE blind (id int)")
    said = '"public"."blind" has no replica identity'
    _refused(stream, said, "REPLICA IDENTITY FULL", source={"tables": ["public.*"]})
    assert stream.sql("SELECT 1 FROM pg_publication") == []


def test_a_traceback_comes_with_log_level_debug_only(stream: StreamFixture) -> None:
    done = stream.run("--log-level", "debug", source={"create": False})
    assert done.returncode == 1
    assert "Traceback" in done.stderr


# A slot keeps WAL, so a start that fails must not leave a new slot unmentioned


def _slots(stream: StreamFixture) -> list[tuple[Any, ...]]:
    return stream.sql(f"SELECT slot_name FROM pg_replication_slots WHERE slot_name = '{stream.slot}'")


def test_an_invalid_registry_url_is_refused_before_the_slot_is_made(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    _refused(stream, "avro.registry_url", code=2, avro={"registry_url": "localhost:8081"})
    assert _slots(stream) == []


@pytest.mark.postgres_versions("oldest", "newest")
def test_a_table_that_the_role_may_not_read_is_refused_before_the_slot_is_made(stream: StreamFixture) -> None:
    stream.sql(
        TABLE,
        "CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE part PARTITION OF whole DEFAULT",
        "CREATE PUBLICATION cdcd FOR TABLE t, whole WITH (publish_via_partition_root = true)",
        "DROP ROLE IF EXISTS blind",
    )
    stream.sql("CREATE ROLE blind LOGIN REPLICATION", "GRANT SELECT ON whole TO blind")
    blind = make_conninfo(stream.dsn, user="blind")
    given: dict[str, Any] = {"source": {"dsn": blind}, "snapshot": {"mode": "initial"}}
    try:
        both = 'GRANT SELECT ON "public"."t", "public"."part" TO "blind"'
        _refused(stream, 'may not read "public"."t" and 1 more', both, **given)
        assert _slots(stream) == []
        stream.sql("GRANT SELECT ON t TO blind")
        _refused(stream, 'may not read "public"."part"', 'GRANT SELECT ON "public"."part" TO "blind"', **given)
        assert _slots(stream) == []
        stream.sql("GRANT SELECT ON part TO blind")
        with stream.daemon(**given).start() as daemon:
            daemon.wait_for_log("going on")
            assert daemon.stop() == 0
    finally:
        stream.sql("DROP OWNED BY blind", "DROP ROLE blind")


def test_a_spool_that_cannot_be_made_is_refused_before_the_slot_is_made(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    given: dict[str, Any] = {"spool": {"directory": "/dev/null"}}
    _refused(stream, "The spool cannot be made in /dev/null", "spool.directory", code=2, **given)
    assert _slots(stream) == []
    found = map(json.loads, cdcd(stream.daemon(**given), "check", "--json", code=1).splitlines())
    [finding] = [each for each in found if each["about"] == "spool"]
    assert finding["level"] == "error"
    assert "/dev/null" in finding["message"]


def test_check_sees_a_monitoring_port_that_is_taken(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        daemon = stream.daemon(monitoring={"port": port})
        assert f"cannot listen on 127.0.0.1:{port}" in cdcd(daemon, "check", code=1)


def test_a_start_that_fails_after_it_made_its_slot_drops_it_again(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    # /proc looks writable to root, and takes no directory: the start finds that out after it has taken Kafka over.
    done = stream.run(spool={"directory": "/proc/cdcd"})
    assert "spool directory" in _sentence(done, 1)
    assert "made the slot" in done.stderr
    assert "dropped the slot again" in done.stderr
    assert "cdcd slot drop" not in done.stderr
    assert _slots(stream) == []
    # A slot whose changes were published must not be dropped.
    daemon = stream.daemon()
    daemon.start().wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    stream.sql("DROP PUBLICATION cdcd", "INSERT INTO t VALUES (2)")
    assert daemon.wait(15) == 1
    assert "slot drop" not in daemon.log.read_text()
    assert _slots(stream) == [(stream.slot,)]


@pytest.mark.postgres_versions(15, "newest")
def test_a_role_that_may_read_the_published_columns_only_copies_them(stream: StreamFixture) -> None:
    role = f"columns_{stream.slot}"
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, hidden text)",
        "INSERT INTO t SELECT g, 'v', 'secret' FROM generate_series(1, 1000) g",
        "CREATE PUBLICATION cdcd FOR TABLE t (id, v)",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT (id) ON t TO {role}",
    )
    given: dict[str, Any] = {"source": {"dsn": make_conninfo(stream.dsn, user=role)}, "snapshot": {"mode": "initial"}}
    try:
        hint = f'GRANT SELECT ("id", "v") ON "public"."t" TO "{role}"'
        _refused(stream, hint, **given)
        assert hint in cdcd(stream.daemon(**given), "check", code=1)
        stream.sql(hint)
        daemon = stream.daemon(**given)
        cdcd(daemon, "check")
        with daemon.start():
            daemon.wait_for_log("the snapshot is complete", timeout_s=30)
            assert "differ" not in cdcd(daemon, "verify")
            assert daemon.stop() == 0
    finally:
        stream.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


# Streams that cannot go on without a gap


def test_a_slot_that_has_lost_wal_is_a_gap(on_restartable_postgres: StreamFixture) -> None:
    stream = on_restartable_postgres
    _streamed_once(stream)
    stream.sql("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(4):
            stream.sql("INSERT INTO t SELECT coalesce(max(id), 0) + 1 FROM t", "SELECT pg_switch_wal()")
        lost = "SELECT wal_status FROM pg_replication_slots WHERE slot_name = "
        eventually(lambda: stream.sql("CHECKPOINT", f"{lost}'{stream.slot}'") == [("lost",)], "lost slot")
        _refused(stream, "has lost WAL", 'source.on_slot_lost = "repair"', "new snapshot")
    finally:
        stream.sql("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


def test_a_slot_that_was_advanced_past_the_progress_is_a_gap(stream: StreamFixture) -> None:
    _streamed_once(stream)
    stream.sql("INSERT INTO t VALUES (2)", f"SELECT pg_replication_slot_advance('{stream.slot}', pg_current_wal_lsn())")
    _refused(stream, "is confirmed up to", "but Kafka holds changes only up to", "sink.prefix")


def test_a_slot_that_was_made_again_is_a_gap(stream: StreamFixture) -> None:
    _streamed_once(stream)
    stream.sql(
        f"SELECT pg_drop_replication_slot('{stream.slot}')",
        "INSERT INTO t VALUES (2)",
        f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput')",
    )
    _refused(stream, "is confirmed up to", "but Kafka holds changes only up to")


def test_a_slot_that_is_gone_is_a_gap_and_is_not_silently_made_again(stream: StreamFixture) -> None:
    _streamed_once(stream)
    stream.sql(f"SELECT pg_drop_replication_slot('{stream.slot}')", "INSERT INTO t VALUES (2)")
    _refused(stream, "does not exist any more", "Kafka holds its changes up to", "on_slot_lost")
    assert stream.sql(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{stream.slot}'") == []


def test_another_cluster_under_the_same_names_is_a_gap(
    stream: StreamFixture, restartable_postgres: servers.PostgreSQL
) -> None:
    _streamed_once(stream)
    with psycopg.connect(restartable_postgres.dsn(), autocommit=True) as other:
        other.execute("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)")
        other.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [stream.slot])
        try:
            _refused(stream, "another PostgreSQL cluster", "source.dsn", source={"dsn": restartable_postgres.dsn()})
        finally:
            other.execute("SELECT pg_drop_replication_slot(%s)", [stream.slot])
            other.execute("DROP TABLE t")
            other.execute("DROP PUBLICATION IF EXISTS cdcd")


@pytest.mark.postgres_versions(14, 17, 18)
def test_a_publication_that_is_dropped_ends_the_stream(stream: StreamFixture) -> None:
    stream.sql(TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    confirmed = stream.confirmed()
    stream.sql("DROP PUBLICATION cdcd", "INSERT INTO t VALUES (2)")
    assert daemon.wait(15) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert " ERROR cdcd: " in last
    assert "pg_replication_slot_advance" in last
    # Creating it again does not help: it did not exist when row 2 was written, so the row would be skipped.
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t", "INSERT INTO t VALUES (3)")
    daemon.start()
    assert daemon.wait(15) == 1
    assert stream.confirmed() >= confirmed
    assert len(stream.check()) == 1


@pytest.mark.postgres_versions(15, "newest")
def test_the_hint_for_a_prepared_transaction_that_the_server_cannot_decode_loses_nothing(
    stream: StreamFixture,
) -> None:
    stream.sql(TABLE)
    with stream.daemon(source={"two_phase": True}).start() as daemon:
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    stream.sql(
        "INSERT INTO t VALUES (2)",
        "BEGIN; SAVEPOINT s; CREATE TABLE made (id int); INSERT INTO made VALUES (3); PREPARE TRANSACTION 'g'",
        "ROLLBACK PREPARED 'g'",
        "VACUUM pg_class",  # removes the table's dead row; a stream without lag would have decoded it before
        "INSERT INTO t VALUES (4)",
    )
    said = _sentence(stream.run(source={"two_phase": True}), 1)
    assert "set source.two_phase = false" in said
    stream.sql(*re.findall(r"SELECT pg_[^;]*", said))
    with stream.daemon().start() as daemon:
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    assert len(stream.check(("public", "t"))) == 3


# Kafka


def test_the_error_for_a_row_too_large_for_its_topic_names_the_property_to_raise(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(sink={"topic": "{prefix}.of-{table}", "on_unpublishable": "stop"}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT 1, string_agg(md5(n::text), '') FROM generate_series(1, 100000) n")
    assert daemon.wait(20) == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert "max.message.bytes" in last
    assert "the table public.t cannot be published: Kafka refuses a row of 3,200,0" in last
    assert f"the topic {stream.prefix}.of-t takes at most 1,048,588 bytes" in last
    assert " ERROR cdcd: " in last
