"""What `cdcd check` says about a server: each test is a claim about all findings together."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from cdcd.config.settings import SourceSettings
from cdcd.preflight import postgres, replica_identity
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.progress.continuity import Server
from cdcd.snapshot.table_rules import NO_SNAPSHOT_RULES, SnapshotRules
from cdcd.source.privileges import TablePrivileges
from cdcd.source.publication_contents import (
    FoundPublication,
    ListedTable,
    PublicationContents,
    PublishedOperations,
    given,
)
from cdcd.source.published_tables import UnsentPartition
from cdcd.source.replica_identity import TableIdentity
from cdcd.source.server import ServerFacts
from cdcd.source.slot import SlotState
from cdcd.source.standby_slots import StandbySlot
from cdcd.source.table_selection import CandidateTable
from cdcd.source.write_transactions import WriteTransaction

SERVER = ServerFacts(
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
    walsenders=0,
)
TABLE = TableIdentity("public", "orders", "d", has_index=True)
MINE = TablePrivileges("public", "orders")
SLOT = SlotState(
    "cdcd", "pgoutput", "shop", False, False, None, 1050, 1000, "reserved", None, False, False, "", 1100
)  # fmt: skip
ALL = PublishedOperations(updates=True, deletes=True)
FACTS = PostgresFacts(
    server=SERVER,
    slot=None,
    publication=None,
    may_create=True,
    identities=[TABLE],
    privileges=[MINE],
    candidates=[CandidateTable(1, "public", "orders", None, True)],
    here=Server("1", 1, "", 1100, 1050),
)


def writer(name: str, age_s: float | None) -> WriteTransaction:
    kind, _, which = name.partition(" ")
    if kind == "pid":
        return WriteTransaction(int(which), None, age_s, "")
    return WriteTransaction(None, which, age_s, "")


NO_TABLES: dict[str, Any] = {"identities": [], "privileges": [], "candidates": []}


def judged(takes_snapshot: bool = True, **changed: Any) -> list[Finding]:
    """The findings if these facts, of the server, too, and these settings differ from those above."""
    of_server = {field.name for field in fields(ServerFacts)} & changed.keys()
    of_facts = {field.name for field in fields(PostgresFacts)} & changed.keys()
    server = replace(SERVER, **{name: changed[name] for name in of_server})
    facts = replace(FACTS, server=server, **{name: changed[name] for name in of_facts})
    settings = {name: value for name, value in changed.items() if name not in of_server | of_facts}
    source = SourceSettings(**{"dsn": "host=localhost", "slot": "cdcd", "publication": "cdcd", **settings})
    return list(postgres.judge(facts, source, snapshots=SnapshotRules(takes_others=takes_snapshot)))


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def about(subject: str, findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.about == subject]


def test_a_server_that_is_ready_gives_only_ok() -> None:
    assert bad(judged()) == []
    assert bad(judged(slot=SLOT, publication=ALL)) == []


@pytest.mark.parametrize("tables", [["*.*"], ["public.*"]])
def test_tables_that_are_still_to_come_keep_no_daemon_from_running(tables: list[str]) -> None:
    (finding,) = about("publication", judged(tables=tables, **NO_TABLES))
    assert (finding.level, finding.message) == (Level.WARNING, f"No table matches {tables[0]}")


@pytest.mark.parametrize("made_with", [True, False])
def test_a_slot_that_no_standby_keeps_is_named_where_failover_is_wanted(made_with: bool) -> None:
    slot = replace(SLOT, failover=made_with)
    found = about("failover", judged(version=170000, slot=slot, failover=True))
    assert [finding.level for finding in found] == ([] if made_with else [Level.WARNING])
    assert all('ALTER_REPLICATION_SLOT "cdcd" (FAILOVER true)' in finding.hint for finding in found)
    assert not about("failover", judged(version=170000, slot=slot, failover=False))


@pytest.mark.parametrize(
    ("changed", "about", "hint"),
    [
        ({"origin": "none", "version": 150000}, "origin", '"any"'),
        (
            {"parameters": {**SERVER.parameters, "wal_level": "replica"}},
            "wal_level",
            "ALTER SYSTEM SET wal_level = 'logical'",
        ),
        (
            {"parameters": {**SERVER.parameters, "max_replication_slots": "0"}},
            "max_replication_slots",
            "ALTER SYSTEM SET max_replication_slots = 10",
        ),
        ({"slots": 10}, "max_replication_slots", "ALTER SYSTEM SET max_replication_slots = 15"),
        (
            {"create": False, "publication": ALL},
            "slot",
            "cdcd slot create",
        ),
        ({"slot": replace(SLOT, plugin="wal2json")}, "slot", "another source.slot"),
        ({"slot": replace(SLOT, slot_type="physical", plugin="", database="")}, "slot", "another source.slot"),
        ({"slot": replace(SLOT, database="other", is_of_this_database=False)}, "slot", "source.dsn"),
        ({"slot": replace(SLOT, wal_status="lost")}, "slot", 'source.on_slot_lost = "repair"'),
        ({"slot": replace(SLOT, invalidation="wal_removed")}, "slot", 'source.on_slot_lost = "repair"'),
        ({"create": False, "slot": SLOT}, "publication", 'CREATE PUBLICATION "cdcd" FOR TABLE "public"."orders"'),
        ({"version": 140000, **NO_TABLES}, "publication", "source.tables"),
        ({"tables": ["public.o*"], **NO_TABLES}, "publication", "source.tables"),
        ({"may_create": False}, "publication", 'GRANT CREATE ON DATABASE "shop" TO "cdc"'),
        ({"privileges": [replace(MINE, is_owned=False)]}, "publication", "As the owner of the tables"),
        (
            {"identities": [replace(TABLE, has_index=False)]},
            "replica identity",
            'ALTER TABLE "public"."orders" REPLICA IDENTITY FULL',
        ),
        ({"identities": [replace(TABLE, identity="n", has_index=False)]}, "replica identity", "primary key"),
    ],
)
def test_what_keeps_the_daemon_from_running_is_one_error_with_its_hint(
    changed: dict[str, Any], about: str, hint: str
) -> None:
    (finding,) = bad(judged(**changed))
    assert (finding.level, finding.about) == (Level.ERROR, about)
    assert hint in finding.hint


def test_a_right_that_would_not_help_with_tables_of_another_role_is_not_offered() -> None:
    (finding,) = bad(judged(may_create=False, privileges=[replace(MINE, is_owned=False)]))
    assert "As a superuser" in finding.hint
    assert "GRANT" not in finding.hint


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"writers": [writer("pid 12", 90.0)]},
            "transaction of PostgreSQL's process 12, open for 1 min 30 s",
        ),
        ({"writers": [writer("prepared x", None)]}, "waits for the write transaction prepared 'x'"),
        ({"slot": replace(SLOT, wal_status="unreserved")}, "may go at the next checkpoint"),
        ({"slot": replace(SLOT, wal_lsn=(5 << 30) + 1000)}, "keeps 5.0 GiB of WAL"),
        ({"publication": ALL, "identities": [], "privileges": []}, "has no tables"),
        ({"walsenders": 10}, "All 10 walsenders are in use"),
        ({"slot": replace(SLOT, wal_status="lost"), "publication": ALL, "on_slot_lost": "resnapshot"}, "has lost WAL"),
        ({"slot": replace(SLOT, wal_status="lost"), "publication": ALL, "on_slot_lost": "repair"}, "has lost WAL"),
        ({"publication": ALL, "unsent": [UnsentPartition("p", "o_1", False)]}, 'The partition "p"."o_1" is unlogged'),
        ({"publication": ALL, "unsent": [UnsentPartition("p", "o_1", True)]}, 'The partition "p"."o_1" is foreign'),
    ],
)
def test_what_will_hurt_later_is_a_warning_with_its_hint(changed: dict[str, Any], said: str) -> None:
    (finding,) = bad(judged(**changed))
    assert finding.level is Level.WARNING
    assert said in finding.message
    assert finding.hint


def test_short_transactions_and_those_beside_an_existing_slot_are_no_matter() -> None:
    assert bad(judged(writers=[writer("pid 12", 0.1)])) == []
    assert bad(judged(writers=[writer("pid 12", 500.0)], slot=SLOT)) == []
    [finding] = bad(judged(writers=[writer("pid 12", 900.0), writer("prepared x", None)], slot=SLOT))
    assert (
        "keeps all WAL since the start of the write transaction of PostgreSQL's process 12, open for 15 min 0 s"
        in finding.message
    )
    assert "pg_terminate_backend(12)" in finding.hint


def test_full_bounds_do_not_matter_to_a_slot_that_is_in_use() -> None:
    assert bad(judged(slot=replace(SLOT, active=True, active_pid=5), slots=10, walsenders=10)) == []


@pytest.mark.parametrize(("interval_s", "every"), [(10, 10), (60, 20)])
def test_the_status_comes_well_before_the_server_gives_up(interval_s: float, every: float) -> None:
    [finding] = about("wal_sender_timeout", judged(status_interval_s=interval_s))
    assert (finding.level, finding.message.rpartition(" every ")[2]) == (Level.OK, f"{every} s")


def test_replica_identity_full_needs_no_index_and_insert_only_publications_need_none() -> None:
    bare = replace(TABLE, identity="n", has_index=False)
    assert bad(judged(identities=[replace(TABLE, identity="f")])) == []
    [keyless] = bad(judged(identities=[replace(TABLE, identity="f", has_index=False)]))
    assert keyless.level is Level.WARNING
    assert "no primary key: its events are unkeyed, in one partition" in keyless.message
    [finding] = bad(judged(identities=[bare], publication=PublishedOperations(updates=False, deletes=False)))
    assert finding.about == "publication"


def test_a_publication_without_truncate_is_told() -> None:
    [finding] = bad(judged(publication=replace(ALL, truncates=False)))
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
    found = bad(judged(parameters={**SERVER.parameters, parameter: value}))
    assert [finding.level for finding in found] == ([level] if level else [])


@pytest.mark.parametrize(("setting", "version"), [("two_phase", 14), ("failover", 16)])
def test_settings_that_the_server_is_too_old_for_are_errors(setting: str, version: int) -> None:
    [finding] = bad(judged(version=version * 10000, **{setting: True}))
    assert (finding.level, finding.about) == (Level.ERROR, setting)


def test_many_bare_tables_are_counted_not_listed() -> None:
    tables = [TableIdentity("public", f"t{number}", "d", has_index=False) for number in range(50)]
    found = bad(judged(identities=tables))
    assert len(found) == replica_identity.TABLES_SHOWN + 1
    assert "30 more tables" in found[-1].message


def test_partitions_with_less_identity_than_their_root_are_an_error_with_the_statements_for_all_of_them() -> None:
    root = replace(TABLE, is_root=True, lesser_partitions=[("parts", "orders_1"), ("parts", "orders_2")])
    [told] = bad(judged(identities=[root], publication=ALL))
    assert (told.level, told.about) == (Level.ERROR, "replica identity")
    assert 'The partition "parts"."orders_1" and 1 more of "public"."orders"' in told.message
    assert '; ALTER TABLE "parts"."orders_2" REPLICA IDENTITY FULL. Or publish' in told.hint
    assert told.hint.endswith('ALTER PUBLICATION "cdcd" SET (publish_via_partition_root = false)')


def test_a_root_that_announces_no_key_needs_a_whole_old_row_of_itself_and_of_each_partition() -> None:
    root = replace(TABLE, is_root=True, has_index=False, lesser_partitions=[("public", "orders_1")])
    [told] = bad(judged(identities=[root], publication=ALL))
    assert (told.level, told.about) == (Level.ERROR, "replica identity")
    assert "its deletes would not say which row they delete" in told.message
    assert "can be updated" not in told.message, "its partitions have keys: PostgreSQL accepts their updates"
    full = [f'ALTER TABLE "public"."{name}" REPLICA IDENTITY FULL' for name in ("orders", "orders_1")]
    assert told.hint.startswith(f"Run: {'; '.join(full)}. Or")


def test_a_partition_without_identity_is_named_in_place_of_its_root() -> None:
    root = replace(TABLE, is_root=True, bare_partitions=[("parts", "orders_1")])
    [told] = bad(judged(identities=[root], publication=ALL))
    assert (told.level, told.about) == (Level.WARNING, "replica identity")
    assert told.message.startswith('"parts"."orders_1" has no replica identity')


def test_a_table_without_identity_forbids_to_publish_it_but_not_to_stream_what_is_published() -> None:
    bare = replace(TABLE, has_index=False)
    assert [told.level for told in bad(judged(identities=[bare]))] == [Level.ERROR]
    for slot in (None, SLOT):
        assert [told.level for told in bad(judged(identities=[bare], publication=ALL, slot=slot))] == [Level.WARNING]


def test_hints_come_in_an_order_that_does_not_break_the_application() -> None:
    bare = replace(TABLE, has_index=False)
    closed = replace(MINE, is_readable=False)
    hints = " ".join(told.hint for told in bad(judged(identities=[bare], privileges=[closed], create=False)))
    order = ["REPLICA IDENTITY FULL", "GRANT SELECT", "CREATE PUBLICATION", "cdcd slot create"]
    assert sorted(order, key=hints.index) == order


CANDIDATES = [
    CandidateTable(1, "public", "orders", None, True),
    CandidateTable(2, "public", "notes", None, False),
    CandidateTable(3, "public", "days", None, False, is_partitioned=True),
    CandidateTable(4, "public", "days_1", 3, True),
    CandidateTable(5, "public", "days_2", 3, False),
    CandidateTable(6, "public", "base", None, True, has_children=True),
]


@pytest.mark.parametrize(
    ("asked", "message", "hint"),
    [
        (
            "public.ordres",
            "source.tables names public.ordres, and there is no such table",
            "Did you mean public.orders?",
        ),
        ("public.shown", "source.tables names public.shown, which is a view", "Leave it out of source.tables"),
        ("archive.*", "No table matches archive.* in source.tables", "Correct it, or leave it so"),
    ],
)
def test_a_pattern_without_a_table_is_said(asked: str, message: str, hint: str) -> None:
    named: dict[str, Any] = {
        "tables": ("public.orders", asked),
        "candidates": CANDIDATES,
        "other_relations": [("public", "shown", "a view")],
    }
    [told] = bad(judged(**named))
    assert (told.about, told.message.partition(": cdcd")[0], told.hint) == ("tables", message, hint)
    assert told.level is (Level.WARNING if "*" in asked else Level.ERROR), "cdcd would publish the others alone"
    [told] = bad(judged(publication=ALL, slot=SLOT, **named))
    assert (told.level, told.hint) == (Level.WARNING, hint), "DROP TABLE must not keep the daemon from its next start"


def test_what_the_settings_ask_and_the_publication_lacks_is_said_with_statements_in_a_safe_order() -> None:
    asked = ("public.orders", "public.notes", "public.days", "public.base")
    [told] = bad(judged(publication=ALL, tables=asked, candidates=CANDIDATES))
    assert (told.level, told.about) == (Level.WARNING, "tables")
    assert "asks for public.notes and 2 more, which the publication cdcd lacks" in told.message
    assert told.hint.startswith(
        'Run: ALTER TABLE "public"."notes" REPLICA IDENTITY FULL; ALTER TABLE "public"."days_2" REPLICA IDENTITY FULL; '
        'ALTER PUBLICATION "cdcd" ADD TABLE "public"."notes", "public"."days", ONLY "public"."base". '
    )


def test_what_a_person_adds_as_the_check_says_leaves_the_publication_to_cdcd() -> None:
    now = PublicationContents(ALL, False, tables=frozenset([1]))
    found = FoundPublication(now, now.comment("cdcd"), True, False, [ListedTable(1, "public", "orders")], {}, [1])
    notes = replace(CANDIDATES[1], is_owned=False)
    asked: dict[str, Any] = {"publication": ALL, "tables": ("public.orders", "public.notes"), "found": found}
    for candidate in notes, replace(notes, has_identity=True):
        [told] = bad(judged(**asked, candidates=[CANDIDATES[0], candidate]))
        added, _, comment = told.hint.partition('ADD TABLE "public"."notes"; ')
        assert added.endswith('ALTER PUBLICATION "cdcd" ')
        assert ("FULL" in added) is not candidate.has_identity
        assert comment.partition(". ")[0] == given("cdcd", "cdcd")


@pytest.mark.parametrize("published", ["days", "days_1"])
def test_a_partitioned_table_is_there_as_its_root_or_as_its_partitions(published: str) -> None:
    found = judged(
        publication=ALL,
        tables=("public.days",),
        candidates=CANDIDATES,
        privileges=[replace(MINE, name=published)],
    )
    assert bad(found) == []


def test_what_the_publication_has_beyond_the_settings_is_said() -> None:
    [told] = bad(judged(publication=ALL, tables=("public.base", "public.o*"), candidates=CANDIDATES, privileges=[
        MINE, replace(MINE, name="base"), replace(MINE, name="notes")
    ]))  # fmt: skip
    assert (told.level, told.about) == (Level.WARNING, "tables")
    assert "has public.notes, which the settings do not ask for" in told.message


def given_to_cdcd(*listed: int, **more: Any) -> FoundPublication:
    """A publication whose comment gives it to the daemon: with the tables of CANDIDATES that have these OIDs."""
    tables = [ListedTable(each.oid, each.schema, each.name) for each in CANDIDATES if each.oid in listed]
    now = PublicationContents(ALL, False, tables=frozenset(listed))
    found = FoundPublication(now, now.comment("cdcd"), True, False, tables, {"public": 2200}, listed)
    return replace(found, **more)


@pytest.mark.parametrize(
    ("differs", "why", "hint"),
    [
        (
            {"comment": PublicationContents(ALL, False, tables=frozenset([77])).comment("cdcd")},
            "somebody has altered it, or the database was restored from a dump",
            """run: COMMENT ON PUBLICATION "cdcd" IS 'cdcd alters this""",
        ),
        ({"is_owned": False}, "the role cdc does not own it", 'ALTER PUBLICATION "cdcd" OWNER TO "cdc"'),
        (
            {"listed": [ListedTable(1, "public", "orders", is_qualified=True)]},
            "it has a row filter or a list of columns for public.orders",
            "take out the filter",
        ),
    ],
)
def test_why_cdcd_leaves_alone_the_publication_that_its_comment_gives_to_it_is_said(
    differs: dict[str, Any], why: str, hint: str
) -> None:
    facts: dict[str, Any] = {
        "publication": ALL, "tables": ("public.orders", "public.notes"), "candidates": CANDIDATES
    }  # fmt: skip
    assert not about("publication", bad(judged(found=given_to_cdcd(1), **facts))), "the next stream alters it"
    found = given_to_cdcd(1, **differs)
    [told] = about("publication", bad(judged(found=found, **facts)))
    assert (why in told.message, hint in told.hint) == (True, True), told
    assert not about("publication", bad(judged(found=found, **STANDBY, **facts))), "the primary's is judged there"


def test_without_create_nothing_alters_the_publication_and_what_it_lacks_is_said() -> None:
    inserts = PublishedOperations(updates=False, deletes=False, truncates=False)
    now = PublicationContents(inserts, False, tables=frozenset([1]))
    found = replace(given_to_cdcd(1), contents=now, comment=now.comment("cdcd"))
    told = bad(judged(publication=inserts, found=found, create=False, tables=("public.orders",), slot=SLOT))
    assert any("leaves out update and delete and truncate" in each.message for each in told)


def test_a_publication_of_all_tables_is_made_anew_in_one_transaction() -> None:
    now = PublicationContents(ALL, False, is_everything=True)
    found = FoundPublication(now, now.comment("cdcd"), True, True, (), {"public": 2200})
    [told] = bad(judged(publication=ALL, found=found, tables=("public.orders",), candidates=CANDIDATES))
    assert (
        'run: BEGIN; DROP PUBLICATION "cdcd"; CREATE PUBLICATION "cdcd" FOR TABLE "public"."orders"; '
        'COMMENT ON PUBLICATION "cdcd" IS '
    ) in told.hint
    assert "; COMMIT. Then run cdcd check" in told.hint, "changes between would have no publication, for ever"


def test_tables_that_cdcd_may_not_add_are_named_also_if_there_is_no_other_one() -> None:
    told = bad(judged(publication=ALL, found=given_to_cdcd(1), tables=("public.notes",), candidates=CANDIDATES))
    assert ["no table that it could add" in each.message for each in told] == [True, False]
    assert 'ALTER TABLE "public"."notes" REPLICA IDENTITY FULL; ALTER PUBLICATION "cdcd" ADD' in told[1].hint


def test_a_schema_that_publishes_a_root_is_taken_out_for_its_partition_in_another_schema() -> None:
    candidates = [
        CandidateTable(1, "public", "orders", None, True),
        CandidateTable(2, "roots", "days", 2, True, is_partitioned=True),
        CandidateTable(3, "parts", "days_1", 2, True),
    ]
    now = PublicationContents(ALL, False, schemas=frozenset([9]), tables=frozenset([1]))
    found = FoundPublication(now, "", True, True, (), {"public": 2200, "roots": 9, "parts": 10})
    [told] = bad(judged(publication=ALL, found=found, tables=("public.orders",), candidates=candidates, privileges=[
        MINE, replace(MINE, schema="parts", name="days_1")
    ]))  # fmt: skip
    assert 'Run: ALTER PUBLICATION "cdcd" DROP TABLES IN SCHEMA "roots". ' in told.hint


def test_the_default_of_the_settings_says_nothing_about_an_existing_publication() -> None:
    assert bad(judged(publication=ALL, candidates=CANDIDATES)) == []


def test_a_start_judges_the_server_only_before_there_is_a_slot() -> None:
    replica = {**SERVER.parameters, "wal_level": "replica"}
    facts = replace(FACTS, server=replace(SERVER, parameters=replica), publication=ALL)
    source = SourceSettings(dsn="host=localhost")
    [told] = bad(list(postgres.judge(facts, source, snapshots=NO_SNAPSHOT_RULES, is_start=True)))
    assert told.about == "wal_level"
    with_slot = replace(facts, slot=SLOT)
    assert bad(list(postgres.judge(with_slot, source, snapshots=NO_SNAPSHOT_RULES, is_start=True))) == []


def test_a_snapshot_of_tables_that_the_role_may_not_read_is_told_before_it_fails() -> None:
    closed = [replace(MINE, is_readable=False), replace(MINE, name="items", is_readable=False)]
    [told] = bad(judged(privileges=closed))
    assert (told.level, told.about) == (Level.ERROR, "privileges")
    assert 'may not read "public"."orders" and 1 more' in told.message
    assert 'GRANT USAGE ON SCHEMA "public" TO "cdc"; GRANT SELECT ON "public"."orders", "public"."items"' in told.hint
    [told] = bad(judged(privileges=[replace(MINE, shows_all_rows=False)]))
    assert "BYPASSRLS" in told.hint
    [told] = bad(
        judged(privileges=[replace(MINE, unreadable_partitions=[("parts", "orders_1"), ("parts", "orders_2")])])
    )
    assert 'may not read "parts"."orders_1" and 1 more' in told.message
    assert 'ON SCHEMA "parts" TO "cdc"; GRANT SELECT ON "parts"."orders_1", "parts"."orders_2" TO' in told.hint


def test_a_right_to_read_that_may_not_be_needed_any_more_is_no_error() -> None:
    closed = [replace(MINE, is_readable=False)]
    assert [told.level for told in bad(judged(privileges=closed, slot=SLOT, publication=ALL))] == [Level.WARNING]
    assert bad(judged(takes_snapshot=False, privileges=closed)) == []


def test_names_are_quoted_in_the_sql_of_hints() -> None:
    (finding,) = bad(judged(identities=[TableIdentity('odd"schema', "Ta ble", "n", has_index=False)]))
    assert 'ALTER TABLE "odd""schema"."Ta ble"' in finding.hint


def test_a_server_that_gives_no_client_up_is_a_warning() -> None:
    [finding] = bad(judged(publication=ALL, parameters={**SERVER.parameters, "wal_sender_timeout": "0"}))
    assert (finding.about, finding.level) == ("wal_sender_timeout", Level.WARNING)


# A standby, and the standbys of a primary

STANDBY: dict[str, Any] = {
    "is_standby": True,
    "parameters": {**SERVER.parameters, "hot_standby_feedback": "on", "primary_slot_name": "standby"},
}


def test_what_only_a_primary_can_make_has_the_primary_in_its_hint() -> None:
    found = judged(**STANDBY, sender="db1:5432")
    [standby] = about("standby", found)
    assert "a standby of db1:5432" in standby.message
    [publication] = about("publication", found)
    assert publication.level is Level.ERROR
    assert publication.hint.startswith("On the primary: Run: CREATE PUBLICATION")
    unread = TablePrivileges("public", "orders", is_readable=False)
    for finding in bad(judged(**STANDBY, privileges=[unread], identities=[replace(TABLE, has_index=False)])):
        assert finding.hint.startswith("On the primary: "), finding


def test_a_standby_that_its_primary_may_run_away_from_is_a_warning() -> None:
    published = {"publication": ALL, **STANDBY}
    assert bad(judged(**published)) == []
    for changed in ({"hot_standby_feedback": "off"}, {"primary_slot_name": ""}):
        [finding] = bad(judged(**published | {"parameters": {**STANDBY["parameters"], **changed}}))
        assert (finding.about, finding.level) == ("hot_standby_feedback", Level.WARNING)


def test_a_standby_makes_no_failover_slot_and_an_old_one_makes_none() -> None:
    published = {"publication": ALL, **STANDBY}
    assert [each.about for each in bad(judged(**published, failover=True))] == ["failover"]
    assert "standby" in {each.about for each in bad(judged(**published, version=150000))}


def test_a_slot_that_a_standby_keeps_in_sync_is_an_error() -> None:
    [finding] = bad(judged(**STANDBY, publication=ALL, slot=replace(SLOT, is_synced=True)))
    assert finding.level is Level.ERROR
    assert "target_session_attrs" in finding.hint


@pytest.mark.parametrize(
    ("slots", "said"),
    [
        ([], "synchronized_standby_slots is empty"),
        ([StandbySlot("a", "", 1 << 20), StandbySlot("b", "does not exist", 0)], "The slot b"),
        ([StandbySlot("a", "", 1 << 20)], ""),
    ],
)
def test_the_standbys_that_a_failover_slot_waits_for_are_judged(slots: list[StandbySlot], said: str) -> None:
    found = judged(publication=ALL, slot=replace(SLOT, failover=True), standby_slots=slots)
    assert [said in each.message for each in bad(found)] == [True] * bool(said)
    if slots:
        assert "1.0 MiB behind" in about("synchronized_standby_slots", found)[0].message
    assert about("synchronized_standby_slots", judged(publication=ALL, slot=SLOT)) == []
