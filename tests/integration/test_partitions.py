"""What PostgreSQL sends of partitions, and of tables that inherit: cdcd copies, reads and judges exactly that."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.fix_postgres import Database

from cdcd.config.settings import SourceSettings
from cdcd.preflight.findings import Finding, Level
from cdcd.preflight.postgres import judge
from cdcd.preflight.postgres_facts import gather
from cdcd.snapshot.table_rules import NO_SNAPSHOT_RULES
from cdcd.source.heaps import heaps
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import AskedPublication, creation_statement
from cdcd.source.published_tables import published_names, published_tables, unsent_partitions
from cdcd.source.session import Session
from cdcd.source.table_selection import TablePattern, qualified_name, select_candidates

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

VIA_ROOT = "WITH (publish_via_partition_root = true)"


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with Session(database.dsn) as session:
        yield session


def told(session: Session, about: str = "replica identity", **source: object) -> list[Finding]:
    """What `cdcd check` and a start say about a subject, without what is good."""
    given = SourceSettings(**{"dsn": "", "publication": "p", **source})
    found = list(judge(gather(session, given, is_start=False), given, snapshots=NO_SNAPSHOT_RULES))
    assert found == list(judge(gather(session, given), given, snapshots=NO_SNAPSHOT_RULES, is_start=True)), (
        "run says the same"
    )
    return [finding for finding in found if finding.about == about and finding.level is not Level.OK]


def run(database: Database, hint: str) -> None:
    """Run the statements of a hint."""
    database.execute(*hint.removeprefix("Run: ").split(". Or ")[0].split("; "))


def names(session: Session) -> list[str]:
    assert published_names(session, "p") == [(table.schema, table.name) for table in published_tables(session, "p")]
    return [name for _, name in published_names(session, "p")]


def test_a_root_without_a_key_over_keyed_partitions_is_refused_and_the_hint_is_enough(
    database: Database, session: Session
) -> None:
    database.execute(
        "CREATE TABLE r (id int, d int, v text) PARTITION BY RANGE (d)",
        "CREATE TABLE r1 PARTITION OF r (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE r2 PARTITION OF r (PRIMARY KEY (id)) FOR VALUES FROM (10) TO (20)",
        f"CREATE PUBLICATION p FOR TABLE r {VIA_ROOT}",
    )
    [finding] = told(session)
    assert finding.level is Level.ERROR
    database.execute("INSERT INTO r VALUES (1, 1), (2, 11)", "UPDATE r SET v = 'x'", "DELETE FROM r")
    run(database, finding.hint)
    [finding] = told(session)
    assert (finding.level, "unkeyed" in finding.message) == (Level.WARNING, True)


def test_the_other_hint_publishes_each_partition_under_its_own_key(database: Database, session: Session) -> None:
    database.execute(
        "CREATE TABLE r (id int, d int) PARTITION BY RANGE (d)",
        "CREATE TABLE r1 PARTITION OF r (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
        f"CREATE PUBLICATION p FOR TABLE r {VIA_ROOT}",
    )
    [finding] = told(session)
    database.execute(finding.hint.rpartition(": ")[2])
    assert told(session) == []
    assert names(session) == ["r1"]


@pytest.mark.parametrize(
    ("root", "leaf"),
    [
        ("FULL", "DEFAULT"),
        ("FULL", "USING INDEX r1_other"),
        ("DEFAULT", "USING INDEX r1_other"),
        ("USING INDEX r_both", "DEFAULT"),
        ("NOTHING", "DEFAULT"),
        ("NOTHING", "FULL"),
    ],
)
def test_a_partition_that_logs_less_than_its_root_announces_is_refused_until_the_hint_is_run(
    database: Database, session: Session, root: str, leaf: str
) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY, other int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)",
        "CREATE UNIQUE INDEX r1_other ON r1 (other)",
        "CREATE UNIQUE INDEX r_both ON r (id, other)",
        f"ALTER TABLE r REPLICA IDENTITY {root}",
        f"ALTER TABLE r1 REPLICA IDENTITY {leaf}",
        f"CREATE PUBLICATION p FOR TABLE r {VIA_ROOT}",
    )
    [finding] = told(session)
    assert finding.level is Level.ERROR
    run(database, finding.hint)
    assert told(session) == []


@pytest.mark.parametrize(
    ("root", "leaf"),
    [("DEFAULT", "DEFAULT"), ("DEFAULT", "FULL"), ("FULL", "FULL"), ("DEFAULT", "USING INDEX r1_id_other_idx")],
)
def test_a_partition_that_logs_at_least_what_its_root_announces_is_followed(
    database: Database, session: Session, root: str, leaf: str
) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY, other int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE mid PARTITION OF r FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF mid FOR VALUES FROM (0) TO (10)",
        "CREATE UNIQUE INDEX ON r1 (id, other)",
        f"ALTER TABLE r REPLICA IDENTITY {root}",
        f"ALTER TABLE r1 REPLICA IDENTITY {leaf}",
        f"CREATE PUBLICATION p FOR TABLE r {VIA_ROOT}",
    )
    assert told(session) == []
    assert names(session) == ["r"]


def test_a_partition_that_is_attached_later_is_judged_at_the_next_start(database: Database, session: Session) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE r REPLICA IDENTITY FULL",
        "ALTER TABLE r1 REPLICA IDENTITY FULL",
        f"CREATE PUBLICATION p FOR TABLE r {VIA_ROOT}",
    )
    assert told(session) == []
    database.execute("CREATE TABLE later (id int PRIMARY KEY, v text)")
    database.execute("ALTER TABLE r ATTACH PARTITION later FOR VALUES FROM (10) TO (20)")
    [finding] = told(session)
    assert (finding.level, '"public"."later" of "public"."r"' in finding.message) == (Level.ERROR, True)
    run(database, finding.hint)
    assert told(session) == []


def test_a_partition_without_identity_under_a_matching_root_is_seen_before_there_is_a_publication(
    database: Database, session: Session
) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE mid PARTITION OF r FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF mid FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE r1 REPLICA IDENTITY NOTHING",
        "CREATE TABLE bare (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE bare1 PARTITION OF bare (PRIMARY KEY (id)) FOR VALUES FROM (0) TO (10)",
    )
    [finding] = told(session)
    assert (finding.level, finding.message.partition(" has ")[0]) == (Level.ERROR, '"public"."r1"')
    run(database, finding.hint.partition("; or ")[0])
    assert [each.level for each in told(session)] in ([], [Level.WARNING])


def test_an_update_is_possible_exactly_where_no_replica_identity_is_missed(
    database: Database, session: Session
) -> None:
    database.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY)",
        "CREATE TABLE late (id int PRIMARY KEY DEFERRABLE)",
        "CREATE TABLE bare (id int)",
        "CREATE TABLE gone (id int NOT NULL UNIQUE)",
        "ALTER TABLE gone REPLICA IDENTITY USING INDEX gone_id_key",
        "ALTER TABLE gone DROP CONSTRAINT gone_id_key",
        "CREATE TABLE whole (id int)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE PUBLICATION p FOR ALL TABLES",
    )
    missed = {finding.message.split('"')[3] for finding in told(session) if "no replica identity" in finding.message}
    refused = set()
    for name in names(session):
        database.execute(f"INSERT INTO {name} VALUES (1)")
        try:
            database.execute(f"UPDATE {name} SET id = 2")
        except psycopg.errors.ObjectNotInPrerequisiteState:
            refused.add(name)
    assert missed == refused == {"late", "bare", "gone"}


@pytest.mark.parametrize("options", [VIA_ROOT, ""])
def test_unlogged_and_foreign_partitions_are_neither_copied_nor_read_and_both_are_named(
    database: Database, session: Session, options: str
) -> None:
    database.execute(
        "CREATE FOREIGN DATA WRAPPER nowhere",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER nowhere",
        "CREATE TABLE r (id int, d int) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE r2 PARTITION OF r FOR VALUES FROM (10) TO (20)",
        "CREATE FOREIGN TABLE r3 PARTITION OF r FOR VALUES FROM (20) TO (30) SERVER elsewhere",
        "ALTER TABLE r REPLICA IDENTITY FULL",
        "ALTER TABLE r1 REPLICA IDENTITY FULL",
        f"CREATE PUBLICATION p FOR TABLE r {options}",
    )
    assert names(session) == (["r"] if options else ["r1"])
    tables = published_tables(session, "p")
    assert [heap.name for own in heaps(session, [table.oid for table in tables]).values() for heap in own] == ["r1"]
    found = told(session, "partitions")
    assert [finding.level for finding in found] == [Level.WARNING, Level.WARNING]
    assert [finding.message.split('"')[3] for finding in found] == ["r2", "r3"]
    database.execute("ALTER TABLE r DETACH PARTITION r3")  # its wrapper reads nothing
    database.execute("INSERT INTO r VALUES (1, 1), (11, 11)")
    [table] = published_tables(session, "p")
    where = f" WHERE {table.row_filter}" if table.row_filter else ""
    assert database.execute(f"SELECT t.id FROM {table.expression} AS t{where}") == [(1,)]
    database.execute(found[0].hint.removeprefix("Run: ").partition(". ")[0])
    assert [each.name for each in unsent_partitions(session, "p")] == []


def test_a_filter_of_a_root_holds_beside_its_unlogged_partitions(database: Database, session: Session) -> None:
    if database.server.version < 15:
        pytest.skip("row filters came with PostgreSQL 15")
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF r FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE r2 PARTITION OF r FOR VALUES FROM (10) TO (20)",
        f"CREATE PUBLICATION p FOR TABLE r WHERE (id <> 2 OR id = 15) {VIA_ROOT}",
        "INSERT INTO r VALUES (1), (2), (15)",
    )
    [table] = published_tables(session, "p")
    assert database.execute(f"SELECT id FROM {table.expression} AS t WHERE {table.row_filter}") == [(1,)]


@pytest.mark.parametrize("options", [VIA_ROOT, ""])
def test_a_partition_in_the_publication_beside_its_root_is_published_once(
    database: Database, session: Session, options: str
) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE mid PARTITION OF r FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF mid FOR VALUES FROM (0) TO (10)",
        f"CREATE PUBLICATION p FOR TABLE r, mid, r1 {options}",
    )
    assert names(session) == (["r"] if options else ["r1"])


def test_a_publication_of_the_middle_of_a_tree_is_published_as_the_middle(database: Database, session: Session) -> None:
    database.execute(
        "CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE mid PARTITION OF r FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE r1 PARTITION OF mid FOR VALUES FROM (0) TO (10)",
        "ALTER TABLE r1 REPLICA IDENTITY NOTHING",
        f"CREATE PUBLICATION p FOR TABLE mid {VIA_ROOT}",
    )
    assert names(session) == ["mid"]
    [finding] = told(session)
    assert (finding.level, finding.message.split('"')[3]) == (Level.WARNING, "r1")


def test_a_table_that_others_inherit_from_is_published_alone(database: Database, session: Session) -> None:
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2)",
    )
    publication = Publication(session, "p")
    selected = select_candidates([TablePattern("public.parent")], publication.all_candidates())
    assert publication.create(AskedPublication(["public.parent"]))
    assert names(session) == ["parent"]
    [table] = published_tables(session, "p")
    assert database.execute(f"SELECT id FROM {table.expression}") == [(1,)]
    assert [heap.name for heap in heaps(session, [table.oid])[table.oid]] == ["parent"]
    database.execute("DROP PUBLICATION p", creation_statement("p", selected))
    assert names(session) == ["parent"], "the statement of the hint does the same"


def test_what_is_no_table_is_named_for_what_it_is(database: Database, session: Session) -> None:
    database.execute(
        "CREATE EXTENSION postgres_fdw",
        "CREATE SERVER elsewhere FOREIGN DATA WRAPPER postgres_fdw",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE VIEW shown AS SELECT * FROM t",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM t",
        "CREATE FOREIGN TABLE far (id int) SERVER elsewhere",
        "CREATE SEQUENCE counted",
        "CREATE UNLOGGED TABLE scratch (id int)",
    )
    kinds = {"shown": "view", "kept": "materialized view", "far": "foreign table", "counted": "sequence",
             "scratch": "unlogged table"}  # fmt: skip
    found = told(session, "tables", tables=("public.t", *(f"public.{name}" for name in kinds)))
    assert [finding.level for finding in found] == [Level.ERROR] * len(kinds)
    for (name, kind), finding in zip(kinds.items(), found, strict=True):
        assert f"public.{name}, which is a" in finding.message
        assert f" {kind}: cdcd does not publish it" in finding.message
    assert told(session, "tables", tables=("public.*",)) == []


def test_what_the_settings_ask_and_the_publication_lacks_is_mended_by_the_hint(
    database: Database, session: Session
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE notes (v text)",
        "CREATE TABLE parted (id int) PARTITION BY RANGE (id)",
        "CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE PUBLICATION p FOR TABLE t",
    )
    [finding] = told(session, "tables", tables=("public.*",))
    assert finding.level is Level.WARNING
    run(database, finding.hint)
    assert names(session) == ["notes", "parted1", "t"]
    assert told(session, "tables", tables=("public.*",)) == []
    [finding] = told(session, "tables", tables=("public.t", "public.parted"))
    assert "has public.notes, which the settings do not ask for" in finding.message
    run(database, finding.hint)
    assert names(session) == ["parted1", "t"]


@pytest.mark.parametrize("published", ["TABLES IN SCHEMA public, TABLE notes", "ALL TABLES"])
def test_the_hint_takes_tables_out_of_a_schema_and_out_of_all_tables(
    database: Database, session: Session, published: str
) -> None:
    if "SCHEMA" in published and database.server.version < 15:
        pytest.skip("PostgreSQL 14 publishes no schemas")
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE notes (id int PRIMARY KEY)",
        "CREATE TABLE late (id int PRIMARY KEY)",
        f"CREATE PUBLICATION p FOR {published}",
    )
    [finding] = told(session, "tables", tables=("public.*",), exclude=("public.notes", "public.l*"))
    run(database, finding.hint)
    assert names(session) == ["t"]
    assert told(session, "tables", tables=("public.*",), exclude=("public.notes", "public.l*")) == []


HOSTILE = [
    'say "hi"',
    "a.b",
    "t[1]",
    "back\\slash",
    "100%s",
    "täble\u2028",
    "it's",
    "{}",
    "x" * 63,
    'odd" ; DROP --',
    "*",
]


def test_hostile_names_are_published_judged_and_listed_as_they_are(database: Database, session: Session) -> None:
    for name in HOSTILE:
        quoted = name.replace('"', '""')
        database.execute(f'CREATE SCHEMA "{quoted}"', f'CREATE TABLE "{quoted}"."{quoted}" ("{quoted}" int)')
    words = tuple(qualified_name(name, name) for name in HOSTILE)
    found = told(session, tables=words)
    assert len(found) == len(HOSTILE)
    for finding in found:
        database.execute(finding.hint.removeprefix("Run: ").rpartition("; or give")[0])
    publication = Publication(session, 'p "%s" {}')
    assert publication.create(AskedPublication(words))
    tables = published_tables(session, publication.name)
    assert sorted((table.schema, table.name) for table in tables) == sorted((name, name) for name in HOSTILE)
    for table in tables:
        assert database.execute(f"SELECT * FROM {table.expression}") == []
