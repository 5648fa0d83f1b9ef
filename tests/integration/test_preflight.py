"""`cdcd check` against a real server and a real broker: what it says is true, and its cures work."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import servers
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from support.fix_postgres import Database

from cdcd.cli.commands import slot as slot_command
from cdcd.cli.commands.check import check
from cdcd.config.settings import Settings
from cdcd.preflight.check import findings
from cdcd.preflight.findings import Level
from cdcd.preflight.postgres import judge
from cdcd.preflight.postgres_facts import gather_for_check
from cdcd.snapshot.table_rules import NO_SNAPSHOT_RULES

pytestmark = pytest.mark.postgres_versions("oldest", "newest")


def settings(dsn: str, broker: str, prefix: str, **source: Any) -> Settings:
    sink = {"bootstrap_servers": broker, "prefix": prefix}
    return Settings(source={"dsn": dsn, **source}, sink=sink, monitoring={"port": 0})


def looked_at(given: Settings) -> dict[str, tuple[str, str, str]]:
    """The worst finding about each thing."""
    order = ("ok", "warning", "error")
    worst: dict[str, tuple[str, str, str]] = {}
    for finding in findings(given):
        new = (finding.level.value, finding.message, finding.hint)
        if finding.about not in worst or order.index(new[0]) > order.index(worst[finding.about][0]):
            worst[finding.about] = new
    return worst


@pytest.fixture
def slot(prefix: str) -> str:
    return prefix.replace("-", "_")


def test_a_ready_server_and_broker_have_no_error_and_nothing_is_changed(
    database: Database, broker: str, prefix: str, slot: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    out = io.StringIO()
    assert check(settings(database.dsn, broker, prefix, slot=slot), out, as_json=True)
    levels = {finding["about"]: finding["level"] for finding in map(json.loads, out.getvalue().splitlines())}
    assert levels["wal_level"] == levels["slot"] == levels["publication"] == levels["transactions"] == "ok"
    assert database.execute("SELECT 1 FROM pg_publication") == []
    assert database.execute(f"SELECT 1 FROM pg_replication_slots WHERE slot_name = '{slot}'") == []
    assert not [
        t for t in AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics if t.startswith(prefix)
    ]


def test_the_cure_for_a_missing_replica_identity_works(database: Database, broker: str, prefix: str) -> None:
    database.execute('CREATE SCHEMA "odd schema"', 'CREATE TABLE "odd schema"."t 1" (a int)')
    given = settings(database.dsn, broker, prefix, tables=("odd schema.*",))
    level, message, hint = looked_at(given)["replica identity"]
    assert (level, '"odd schema"."t 1" has no replica identity' in message) == ("error", True)
    database.execute(hint.removeprefix("Run: ").partition(";")[0])
    assert looked_at(given)["replica identity"][0] == "warning", "it still has no key"


def test_a_partition_that_keeps_less_identity_than_its_published_root_is_an_error_until_the_cure_is_run(
    database: Database, broker: str, prefix: str, slot: str
) -> None:
    for root, identity, leaf in (
        ("whole", "FULL", "DEFAULT"),
        ("keyed", "DEFAULT", "USING INDEX keyed_1_other"),
        ("bare", "DEFAULT", "NOTHING"),
        ("more", "DEFAULT", "FULL"),
        ("same", "DEFAULT", "DEFAULT"),
    ):
        database.execute(
            f"CREATE TABLE {root} (id int PRIMARY KEY, other int NOT NULL) PARTITION BY RANGE (id)",
            f"CREATE TABLE {root}_1 PARTITION OF {root} FOR VALUES FROM (0) TO (10)",
            f"CREATE UNIQUE INDEX {root}_1_other ON {root}_1 (other)",
            f"ALTER TABLE {root} REPLICA IDENTITY {identity}",
            f"ALTER TABLE {root}_1 REPLICA IDENTITY {leaf}",
        )
    tables = "TABLE whole, keyed, bare, more, same"
    database.execute(f"CREATE PUBLICATION {slot} FOR {tables} WITH (publish_via_partition_root = true)")
    given = settings(database.dsn, broker, prefix, slot=slot, publication=slot)
    bare, *told = [finding for finding in findings(given) if finding.about == "replica identity"]
    assert (bare.level, '"public"."bare_1" has no replica identity' in bare.message) == (Level.WARNING, True)
    assert len(told) == 2
    for root, finding in zip(("keyed", "whole"), told, strict=True):
        assert finding.level is Level.ERROR
        assert f'The partition "public"."{root}_1" of "public"."{root}"' in finding.message
    hints = [
        finding.hint.removeprefix("Run: ").partition(". Or ")[0].partition("; or ")[0] for finding in (bare, *told)
    ]
    database.execute(*hints)
    assert looked_at(given)["replica identity"][0] == "ok"


def test_a_table_without_a_key_is_told_before_its_events_are_in_one_partition(
    database: Database, broker: str, prefix: str
) -> None:
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY)", "CREATE TABLE keyless (id int)",
        "ALTER TABLE keyed REPLICA IDENTITY FULL", "ALTER TABLE keyless REPLICA IDENTITY FULL",
    )  # fmt: skip
    told = [each for each in findings(settings(database.dsn, broker, prefix)) if each.about == "replica identity"]
    assert [finding.level for finding in told] == [Level.WARNING, Level.OK]
    assert '"public"."keyless" has no primary key' in told[0].message


def test_the_cures_for_what_is_missing_work_where_nothing_may_be_created(
    database: Database, broker: str, prefix: str, slot: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    given = settings(database.dsn, broker, prefix, slot=slot, create=False)
    level, _, hint = looked_at(given)["publication"]
    assert level == "error"
    database.execute(hint.removeprefix("Run: ").partition(";")[0])
    level, _, hint = looked_at(given)["slot"]
    assert (level, "cdcd slot create" in hint) == ("error", True)
    slot_command.create(given, two_phase=False, failover=False, as_json=False, out=io.StringIO())
    after = looked_at(given)
    assert after["publication"][:2] == ("ok", "The publication cdcd has 1 table")
    assert after["slot"][0] == "ok"
    assert "not in use, confirmed up to " in after["slot"][1]


def test_a_role_without_replication_is_told_what_to_ask_for(
    database: Database, broker: str, prefix: str, slot: str
) -> None:
    role = f"r_{slot}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        given = settings(database.server.dsn(database.name, user=role), broker, prefix)
        level, message, hint = looked_at(given)["server"]
        assert (level, "may not replicate" in message) == ("error", True)
        database.execute(hint.removeprefix("Let a superuser run: "))
        after = looked_at(given)
        assert after["server"][0] == "ok"
        assert after["publication"][0] == "error", "it may replicate, but not make the publication"
    finally:
        database.execute(f"DROP ROLE {role}")


def test_a_slot_of_another_plugin_is_an_error(database: Database, broker: str, prefix: str, slot: str) -> None:
    database.execute(f"SELECT pg_create_logical_replication_slot('{slot}', 'test_decoding')")
    level, message, _ = looked_at(settings(database.dsn, broker, prefix, slot=slot))["slot"]
    assert (level, message) == ("error", f"The slot {slot} is of plugin test_decoding, not pgoutput")


def test_a_physical_slot_of_the_name_is_an_error(database: Database, broker: str, prefix: str, slot: str) -> None:
    database.execute(f"SELECT pg_create_physical_replication_slot('{slot}')")
    try:
        level, message, _ = looked_at(settings(database.dsn, broker, prefix, slot=slot))["slot"]
        assert (level, message) == ("error", f"The slot {slot} is physical, not logical")
    finally:
        database.execute(f"SELECT pg_drop_replication_slot('{slot}')")


def test_tables_are_named_as_run_names_them(database: Database, broker: str, prefix: str) -> None:
    database.execute('CREATE TABLE "Order" (id int PRIMARY KEY)', 'CREATE TABLE "a.b" (id int PRIMARY KEY)')
    given = settings(database.dsn, broker, prefix, tables=('public."Order"', 'pub*."a.b"'))
    level, message, _ = looked_at(given)["publication"]
    assert (level, message) == ("ok", "There is no publication cdcd yet: cdcd run makes it for 2 tables")


def test_an_open_write_transaction_is_a_warning_before_the_slot_is_made(
    database: Database, broker: str, prefix: str
) -> None:
    writer = database.connect(autocommit=False)
    writer.execute("CREATE TABLE t (id int PRIMARY KEY)")
    source = settings(database.dsn, broker, prefix).source
    facts = gather_for_check(source.dsn, source)
    older = replace(facts, writers=[replace(each, age_s=60.0) for each in facts.writers])
    name = f"PostgreSQL's process {writer.info.backend_pid}"
    [finding] = [each for each in judge(older, source, snapshots=NO_SNAPSHOT_RULES) if f" {name}, " in each.message]
    assert (finding.level, finding.about) == (Level.WARNING, "slot")
    database.execute(finding.hint.partition("or end it: ")[2])
    with pytest.raises(psycopg.OperationalError):
        writer.execute("SELECT 1")


@pytest.mark.in_turns(2)
def test_what_cannot_be_reached_is_a_finding_and_the_rest_is_still_looked_at(
    database: Database, broker: str, prefix: str
) -> None:
    nowhere = settings("host=127.0.0.1 port=1", broker, prefix)
    assert looked_at(nowhere)["server"][0] == "error"
    assert looked_at(nowhere)["brokers"][0] == "ok"
    without_kafka = looked_at(settings(database.dsn, "127.0.0.1:1", prefix))
    assert without_kafka["server"][0] == "ok"
    assert without_kafka["brokers"][0] == "error"


@pytest.mark.parametrize(
    ("named", "sink"),
    [
        ("compresion.type", {"librdkafka": {"compresion.type": "lz4"}}),
        ("retention.sm", {"topic_config": {"retention.sm": "1"}}),
    ],
)
def test_what_kafka_or_its_client_would_refuse_is_an_error_and_no_topic_is_made(
    database: Database, broker: str, prefix: str, named: str, sink: dict[str, Any]
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    given = Settings(source={"dsn": database.dsn}, sink={"bootstrap_servers": broker, "prefix": prefix, **sink})
    level, message, _ = looked_at(given)["sink"]
    assert (level, named in message) == ("error", True)
    topics = AdminClient({"bootstrap.servers": broker}).list_topics(timeout=10).topics
    assert [topic for topic in topics if topic.startswith(prefix)] == []


def test_a_topic_of_our_own_that_forgets_is_an_error_until_it_is_compacted(
    database: Database, broker: str, prefix: str
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    admin, topic = AdminClient({"bootstrap.servers": broker}), f"{prefix}.progress"
    week = {"min.compaction.lag.ms": "604800000"}
    admin.create_topics([NewTopic(topic, 1, 1, config=week)])[topic].result()
    given = settings(database.dsn, broker, prefix)
    level, message, hint = looked_at(given)["topics"]
    assert (level, f"{topic} has cleanup.policy=delete" in message) == ("error", True)
    assert f"--entity-name {topic} --add-config cleanup.policy=compact" in hint
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[compact])]
    ).values()
    done.result()
    assert looked_at(given)["topics"][0] == "ok"


def test_a_server_that_is_not_set_up_for_logical_decoding_is_told_how(
    start_postgres: Callable[..., servers.PostgreSQL], broker: str, prefix: str, postgres: servers.PostgreSQL
) -> None:
    server = start_postgres(postgres.version, settings={"wal_level": "replica"})
    level, message, hint = looked_at(settings(server.dsn(), broker, prefix))["wal_level"]
    assert (level, message) == ("error", "wal_level is replica, and must be logical")
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_level = 'logical'")
        assert "ALTER SYSTEM SET wal_level = 'logical'" in hint
