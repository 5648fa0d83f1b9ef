from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cdcd.errors import SettingsError
from cdcd.preflight import kafka, postgres
from cdcd.preflight.check import as_text
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres import PreflightTable, PublicationFacts
from cdcd.sink.topics import TopicNames

TABLE = PreflightTable("public", "orders", "d", has_index=True, owned=True)

SERVER = postgres.PostgresFacts(
    version=180006,
    database="shop",
    role="cdc",
    parameters={
        "wal_level": "logical",
        "max_replication_slots": "10",
        "max_wal_senders": "10",
        "wal_sender_timeout": "60000",
    },
    slots=0,
    senders=0,
    slot=None,
    publication=None,
    tables=[TABLE],
    may_create=True,
    writers=[],
)

SLOT: dict[str, Any] = {
    "plugin": "pgoutput",
    "database": "shop",
    "active": False,
    "active_pid": None,
    "wal_status": "reserved",
    "confirmed_flush_lsn": "0/15",
    "retained_bytes": 100,
    "unconfirmed_bytes": 50,
}

BROKERS = kafka.KafkaFacts(
    brokers=3,
    topics={"__transaction_state": 50, "cdcd.public.orders": 4},
    config={"transaction.max.timeout.ms": "900000", "transaction.state.log.replication.factor": "3"},
    denied={},
)


def server(create: bool = True, origin: str = "any", interval_s: float = 10, **changed: Any) -> list[Finding]:
    facts = replace(SERVER, **changed)
    return list(postgres.judge(facts, "cdcd", "cdcd", create=create, origin=origin, interval_s=interval_s))


def brokers(
    replication_factor: int = 3, tables: Sequence[str] = ("cdcd.public.orders",), **changed: Any
) -> list[Finding]:
    facts = replace(BROKERS, **changed)
    names = TopicNames("cdcd")
    return list(kafka.judge(facts, names, tables, partitions=4, replication_factor=replication_factor))


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_a_server_and_brokers_that_are_ready_give_only_ok() -> None:
    assert bad(server()) == []
    assert bad(server(slot=SLOT, publication=PublicationFacts(updates=True, deletes=True))) == []
    assert bad(brokers()) == []


@pytest.mark.parametrize("made_with", [True, False])
def test_a_slot_that_no_standby_keeps_is_named_where_failover_is_wanted(made_with: bool) -> None:
    facts = replace(SERVER, version=170000, slot={**SLOT, "failover": made_with})
    judged = partial(postgres.judge, facts, "cdcd", "cdcd", create=True, origin="any", interval_s=10)
    found = [finding for finding in judged(failover=True) if finding.about == "failover"]
    assert [finding.level for finding in found] == ([] if made_with else [Level.WARNING])
    assert all('ALTER_REPLICATION_SLOT "cdcd" (FAILOVER true)' in finding.hint for finding in found)
    assert not [finding for finding in judged(failover=False) if finding.about == "failover"]


@pytest.mark.parametrize(
    ("changed", "about", "hint"),
    [
        ({"version": 130010}, "server", "Upgrade"),
        ({"origin": "none", "version": 150000}, "origin", '"any"'),
        (
            {"parameters": {**SERVER.parameters, "wal_level": "replica"}},
            "wal_level",
            "ALTER SYSTEM SET wal_level = 'logical'",
        ),
        ({"slots": 10}, "max_replication_slots", "ALTER SYSTEM SET max_replication_slots = 15"),
        ({"senders": 10}, "max_wal_senders", "ALTER SYSTEM SET max_wal_senders = 15"),
        (
            {"create": False, "publication": PublicationFacts(True, True)},
            "slot",
            "cdcd slot create",
        ),
        ({"slot": {**SLOT, "plugin": "wal2json"}}, "slot", "another source.slot"),
        ({"slot": {**SLOT, "database": "other"}}, "slot", "source.dsn"),
        ({"slot": {**SLOT, "wal_status": "lost"}}, "slot", "pg_drop_replication_slot('cdcd')"),
        ({"slot": {**SLOT, "invalidation_reason": "wal_removed"}}, "slot", "pg_drop_replication_slot('cdcd')"),
        ({"create": False, "slot": SLOT}, "publication", 'CREATE PUBLICATION "cdcd" FOR TABLE "public"."orders"'),
        ({"tables": []}, "publication", "source.tables"),
        ({"may_create": False}, "publication", 'GRANT CREATE ON DATABASE "shop" TO "cdc"'),
        ({"tables": [replace(TABLE, owned=False)]}, "publication", "As the owner of the tables"),
        (
            {"tables": [replace(TABLE, has_index=False)]},
            "replica identity",
            'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL',
        ),
        ({"tables": [replace(TABLE, identity="n", has_index=False)]}, "replica identity", "primary key"),
    ],
)
def test_what_keeps_the_daemon_from_running_is_one_error_with_its_cure(
    changed: dict[str, Any], about: str, hint: str
) -> None:
    (finding,) = bad(server(**changed))
    assert (finding.level, finding.about) == (Level.ERROR, about)
    assert hint in finding.hint


def test_a_right_that_would_not_help_with_tables_of_another_role_is_not_offered() -> None:
    (finding,) = bad(server(may_create=False, tables=[replace(TABLE, owned=False)]))
    assert "As a superuser" in finding.hint
    assert "GRANT" not in finding.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"writers": [("pid 12", 90.0)]}, "waits for a transaction that writes for 1 min 30 s: pid 12"),
        ({"writers": [("prepared 'x'", None)]}, "waits for a transaction that writes: prepared 'x'"),
        ({"slot": {**SLOT, "wal_status": "unreserved"}}, "may go at the next checkpoint"),
        ({"slot": {**SLOT, "retained_bytes": 5 << 30}}, "keeps 5.0 GiB of WAL"),
        ({"publication": PublicationFacts(True, True), "tables": []}, "has no tables"),
    ],
)
def test_what_will_hurt_later_is_a_warning_with_its_cure(changed: dict[str, Any], said: str) -> None:
    (finding,) = bad(server(**changed))
    assert finding.level is Level.WARNING
    assert said in finding.message
    assert finding.hint


def test_short_transactions_and_those_beside_an_existing_slot_are_no_matter() -> None:
    assert bad(server(writers=[("pid 12", 0.1)])) == []
    assert bad(server(writers=[("pid 12", 500.0)], slot=SLOT)) == []
    [finding] = bad(server(writers=[("pid 12", 900.0), ("prepared 'x'", None)], slot=SLOT))
    assert "for 15 min 0 s holds back all WAL since: pid 12" in finding.message
    assert "pg_terminate_backend(12)" in finding.hint


def test_full_bounds_do_not_matter_to_a_slot_that_is_in_use() -> None:
    assert bad(server(slot={**SLOT, "active": True, "active_pid": 5}, slots=10, senders=10)) == []


@pytest.mark.parametrize(("interval_s", "every"), [(10, 10), (60, 20)])
def test_the_status_comes_well_before_the_server_gives_up(interval_s: float, every: float) -> None:
    given = postgres.judge(SERVER, "cdcd", "cdcd", create=True, origin="any", interval_s=interval_s)
    [finding] = [finding for finding in given if finding.about == "wal_sender_timeout"]
    assert (finding.level, finding.message.rpartition(" every ")[2]) == (Level.OK, f"{every} s")


def test_replica_identity_full_needs_no_index_and_insert_only_publications_need_none() -> None:
    bare = replace(TABLE, identity="n", has_index=False)
    assert bad(server(tables=[replace(TABLE, identity="f")])) == []
    [keyless] = bad(server(tables=[replace(TABLE, identity="f", has_index=False)]))
    assert keyless.level is Level.WARNING
    assert "no primary key: its events are unkeyed, in one partition" in keyless.message
    [finding] = bad(server(tables=[bare], publication=PublicationFacts(updates=False, deletes=False)))
    assert finding.about == "publication"


def test_a_publication_without_truncate_is_told() -> None:
    [finding] = bad(server(publication=PublicationFacts(updates=True, deletes=True, truncates=False)))
    assert finding.level is Level.WARNING
    assert "leaves out truncate" in finding.message
    assert "ALTER PUBLICATION" in finding.hint


@pytest.mark.parametrize(
    ("parameter", "value", "level"),
    [
        ("max_slot_wal_keep_size", "-1", None),
        ("max_slot_wal_keep_size", "51200", None),
        ("max_slot_wal_keep_size", "64", Level.WARNING),
        ("idle_replication_slot_timeout", "3600", Level.WARNING),
    ],
)
def test_what_can_lose_a_slot_is_told(parameter: str, value: str, level: Level | None) -> None:
    found = bad(server(parameters={**SERVER.parameters, parameter: value}))
    assert [finding.level for finding in found] == ([level] if level else [])


@pytest.mark.parametrize(("setting", "version"), [("two_phase", 14), ("failover", 16)])
def test_settings_that_the_server_is_too_old_for_are_errors(setting: str, version: int) -> None:
    facts = replace(SERVER, version=version * 10000)
    given: dict[str, Any] = {"create": True, "origin": "any", "interval_s": 10, setting: True}
    [finding] = bad(list(postgres.judge(facts, "cdcd", "cdcd", **given)))
    assert (finding.level, finding.about) == (Level.ERROR, setting)


@pytest.mark.parametrize(("largest", "level"), [("1048588", Level.OK), ("100000", Level.WARNING)])
def test_the_size_that_brokers_take_is_told(largest: str, level: Level) -> None:
    found = brokers(config={**BROKERS.config, "message.max.bytes": largest})
    assert [finding.level for finding in found if finding.about == "sizes"] == [level]


def test_many_bare_tables_are_counted_not_listed() -> None:
    tables = [PreflightTable("public", f"t{number}", "d", has_index=False, owned=True) for number in range(50)]
    found = bad(server(tables=tables))
    assert len(found) == postgres.TABLES_SHOWN + 1
    assert "30 more tables" in found[-1].message


def test_partitions_with_less_identity_than_their_root_matter_only_to_a_publication() -> None:
    lesser = [replace(TABLE, lesser_partitions=[("parts", "orders_1"), ("parts", "orders_2")])]
    assert bad(server(tables=lesser)) == []
    [told] = bad(server(tables=lesser, publication=PublicationFacts(updates=True, deletes=True)))
    assert (told.level, told.about) == (Level.ERROR, "replica identity")
    assert 'The partition "parts"."orders_1" and 1 more of "public"."orders"' in told.message
    assert told.hint.endswith('; ALTER TABLE "parts"."orders_2" REPLICA IDENTITY FULL')


def test_a_snapshot_of_tables_that_the_role_may_not_read_is_told_before_it_fails() -> None:
    closed = [replace(TABLE, readable=False), replace(TABLE, name="items", readable=False)]
    [told] = bad(server(tables=closed))
    assert (told.level, told.about) == (Level.ERROR, "rights")
    assert 'may not read "public"."orders" and 1 more' in told.message
    assert 'GRANT USAGE ON SCHEMA "public" TO "cdc"; GRANT SELECT ON "public"."orders", "public"."items"' in told.hint
    [told] = bad(server(tables=[replace(TABLE, all_rows=False)]))
    assert "BYPASSRLS" in told.hint
    [told] = bad(server(tables=[replace(TABLE, closed_partitions=[("parts", "orders_1"), ("parts", "orders_2")])]))
    assert 'may not read "parts"."orders_1" and 1 more' in told.message
    assert 'ON SCHEMA "parts" TO "cdc"; GRANT SELECT ON "parts"."orders_1", "parts"."orders_2" TO' in told.hint


def test_a_right_to_read_that_may_not_be_needed_any_more_is_no_error() -> None:
    closed = [replace(TABLE, readable=False)]
    published = PublicationFacts(updates=True, deletes=True)
    assert [told.level for told in bad(server(tables=closed, slot=SLOT, publication=published))] == [Level.WARNING]
    facts = replace(SERVER, tables=closed)
    only_changes = postgres.judge(facts, "cdcd", "cdcd", create=True, origin="any", interval_s=10, copies=False)
    assert bad(list(only_changes)) == []


def test_a_property_that_kafkas_client_does_not_know_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"security\.protocl"):
        kafka.gather("127.0.0.1:1", {"security.protocl": "SSL"}, [])


def test_topics_are_not_counted_where_the_tables_are_not_known() -> None:
    assert [told for told in brokers(tables=[]) if told.about == "topics"] == []


def test_names_are_quoted_in_the_sql_of_cures() -> None:
    (finding,) = bad(server(tables=[PreflightTable('odd"schema', "Ta ble", "n", has_index=False, owned=True)]))
    assert 'ALTER TABLE "odd""schema"."Ta ble"' in finding.hint


@pytest.mark.parametrize(
    ("changed", "level", "said"),
    [
        ({"replication_factor": 4}, Level.ERROR, "sink.replication_factor is 4, more than the cluster has brokers (3)"),
        ({"replication_factor": 1}, Level.WARNING, "a lost broker takes topics with it"),
        ({"config": {}}, Level.WARNING, "transactions not checked"),
        ({"config": {"transaction.max.timeout.ms": "5000"}}, Level.WARNING, "allow a transaction 5 s"),
        ({"topics": {"cdcd.progress": 3}}, Level.ERROR, "cdcd.progress has 3 partitions"),
        (
            {"policies": {"cdcd.progress": "delete", "cdcd.schemas": "compact"}},
            Level.ERROR,
            "cdcd.progress has cleanup.policy=delete",
        ),
        ({"policies": {"cdcd.snapshots": "compact,delete"}}, Level.ERROR, "cleanup.policy=compact,delete"),
        (
            {"denied": {"cdcd.public.orders": frozenset({"WRITE"})}},
            Level.ERROR,
            "may not write the topic cdcd.public.orders",
        ),
    ],
)
def test_what_is_wrong_with_kafka_is_said_with_its_cure(changed: dict[str, Any], level: Level, said: str) -> None:
    (finding,) = bad(brokers(**changed))
    assert finding.level is level
    assert said in finding.message
    assert finding.hint


def test_transactions_that_no_broker_could_hold_are_an_error() -> None:
    found = bad(brokers(brokers=1, replication_factor=1, topics={}))
    assert [finding.about for finding in found] == ["transactions"]
    assert "transaction.state.log.replication.factor is 3, more than there are brokers (1)" in found[0].message


def test_a_finding_is_one_line_that_opens_with_its_level() -> None:
    finding = Finding(Level.ERROR, "wal_level", "wal_level is replica", "Run: ALTER SYSTEM")
    assert as_text(finding, colour=False) == "error    wal_level is replica. Run: ALTER SYSTEM"
    assert as_text(finding, colour=True).startswith("\x1b[31merror")
