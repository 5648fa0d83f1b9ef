"""What a role may read, as the server tells it: and the hint lets it read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.fix_postgres import Database

from cdcd.source.privileges import (
    MissingPrivilege,
    TablePrivileges,
    may_create_publications,
    missing_privileges,
    table_privileges,
)
from cdcd.source.published_tables import published_tables
from cdcd.source.session import Session

pytestmark = pytest.mark.postgres_versions("oldest", "newest")


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    role = f"reader_{database.name}"
    database.execute(
        f"CREATE ROLE {role} LOGIN",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        'CREATE TABLE "part 1" PARTITION OF parted FOR VALUES FROM (0) TO (10)',
        "CREATE PUBLICATION p FOR TABLE t, parted WITH (publish_via_partition_root = true)",
        f"GRANT SELECT ON parted TO {role}",
    )
    yield role
    database.execute(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_what_a_role_may_not_read_is_named_and_the_hint_grants_it(database: Database, role: str) -> None:
    with Session(database.server.dsn(database.name, user=role)) as session:
        oids = [table.oid for table in published_tables(session, "p")]
        assert table_privileges(session, "p", oids) == [
            TablePrivileges("public", "parted", is_owned=False, unreadable_partitions=[["public", "part 1"]]),
            TablePrivileges("public", "t", is_owned=False, is_readable=False, unreadable_partitions=[]),
        ]
        assert not may_create_publications(session)
        [missing] = missing_privileges(role, table_privileges(session, "p", oids))
        assert 'may not read "public"."part 1" and 1 more' in missing.message
        database.execute(missing.hint.removeprefix("As the owner, run: ").split(". Or ")[0])
        assert not list(missing_privileges(role, table_privileges(session, "p", oids)))


def test_row_security_hides_rows_until_the_hint_is_run(database: Database, role: str) -> None:
    database.execute(
        f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {role}", "ALTER TABLE t ENABLE ROW LEVEL SECURITY"
    )
    with Session(database.server.dsn(database.name, user=role)) as session:
        oids = [table.oid for table in published_tables(session, "p")]
        [missing] = missing_privileges(role, table_privileges(session, "p", oids))
        assert "Row security hides rows" in missing.message
        database.execute(missing.hint.removeprefix("As a superuser, run: ").split(". Or ")[0])
        assert not list(missing_privileges(role, table_privileges(session, "p", oids)))


def test_an_owner_lacks_nothing(database: Database, role: str) -> None:
    with Session(database.dsn) as session:
        oids = [table.oid for table in published_tables(session, "p")]
        privileges = table_privileges(session, "p", oids)
        assert [(table.quoted, table.is_owned) for table in privileges] == [
            ('"public"."parted"', True),
            ('"public"."t"', True),
        ]
        assert list(missing_privileges("postgres", privileges)) == []


@pytest.mark.postgres_versions(15, "newest")
def test_a_role_needs_only_the_columns_that_are_published(database: Database, role: str) -> None:
    database.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, v text, hidden text)",
        'CREATE TABLE split (id int PRIMARY KEY, "a v" text, hidden text) PARTITION BY RANGE (id)',
        'CREATE TABLE split_1 (hidden text, "a v" text, id int NOT NULL PRIMARY KEY)',
        "ALTER TABLE split ATTACH PARTITION split_1 FOR VALUES FROM (0) TO (10)",
        'CREATE PUBLICATION q FOR TABLE wide (id, v), split (id, "a v") WITH (publish_via_partition_root = true)',
        f"GRANT SELECT (id) ON wide TO {role}",
    )
    with Session(database.server.dsn(database.name, user=role)) as session:
        oids = [table.oid for table in published_tables(session, "q")]

        def lacking() -> list[MissingPrivilege]:
            return list(missing_privileges(role, table_privileges(session, "q", oids)))

        [missing] = lacking()
        assert 'may not read "public"."split" and 2 more' in missing.message
        database.execute(*missing.hint.removeprefix("As the owner, run: ").split(". Or ")[0].split("; "))
        assert not lacking()
        assert [table.columns for table in table_privileges(session, "q", oids)] == [["id", "a v"], ["id", "v"]]
        assert session.rows("SELECT has_column_privilege('public.wide', 'hidden', 'SELECT')") == [(False,)]
        database.execute(f"REVOKE SELECT (v) ON wide FROM {role}")
        [missing] = lacking()
        assert 'may not read "public"."wide"' in missing.message
