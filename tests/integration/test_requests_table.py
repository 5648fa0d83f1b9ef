"""Only a table that a trusted role owns takes requests, and what is missing is told with the SQL that helps."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from support.fix_postgres import Database

from cdcd.source.catalog import Catalog
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import AskedPublication
from cdcd.source.published_tables import published_names, published_tables
from cdcd.source.requests_table import requests_problem, requests_table
from cdcd.source.session import Session

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

REQUEST = "INSERT INTO cdcd.requests (slot, action, table_schema, table_name) VALUES ('s', 'snapshot', 'public', 't')"


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    return database


@pytest.fixture
def role(shop: Database) -> Iterator[str]:
    """A role that may connect and make schemas, and no more."""
    role = f"asker_{shop.name}"
    shop.execute(f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE {shop.name} TO {role}")
    yield role
    shop.execute(f"DROP OWNED BY {role} CASCADE", f"DROP ROLE {role}")


def run_hint(database: Database, hint: str) -> None:
    """Run the SQL of a hint, as a superuser."""
    database.execute(*hint.partition("run: ")[2].split("; "))


def problem(database: Database, role: str = "postgres") -> tuple[str, str]:
    with Session(database.server.dsn(database.name, user=role)) as session:
        found = requests_problem(session, "p")
        return ("", "") if found is None else (found.message, found.hint)


@pytest.mark.parametrize("pattern", ["*.*", "public.*", "public.t", "cdcd.*"])
def test_a_new_publication_has_the_table_of_requests_and_no_command_shows_it_as_data(
    shop: Database, pattern: str
) -> None:
    shop.execute("CREATE SCHEMA cdcd", "CREATE TABLE cdcd.data (id int PRIMARY KEY)")
    with Publication(shop.dsn, "p") as publication:
        assert publication.create(AskedPublication([pattern]))
        assert publication.add_requests_table()
        assert publication.add_requests_table(), "again, as after a kill"
        assert ("cdcd", "requests") in shop.execute(
            "SELECT schemaname::text, tablename::text FROM pg_publication_tables WHERE pubname = 'p'"
        )
        assert ("cdcd", "requests") not in publication.tables()
    with Session(shop.dsn) as session:
        assert ("cdcd", "requests") not in published_names(session, "p")
        assert ("cdcd", "requests") not in [(table.schema, table.name) for table in published_tables(session, "p")]
    assert problem(shop) == ("", "")
    shop.execute(REQUEST)
    assert shop.execute("SELECT requested_by FROM cdcd.requests") == [("postgres",)]


def test_a_role_that_may_make_no_table_makes_a_publication_without_it(shop: Database, role: str) -> None:
    shop.execute(f"ALTER TABLE t OWNER TO {role}")
    with Publication(shop.server.dsn(shop.name, user=role), "p") as publication:
        assert publication.create(AskedPublication(["public.t"]))
        shop.execute(f"REVOKE CREATE ON DATABASE {shop.name} FROM {role}")
        assert not publication.add_requests_table()
        assert publication.tables() == [("public", "t")]
    message, hint = problem(shop, role)
    assert "no table cdcd.requests" in message
    run_hint(shop, hint)
    message, hint = problem(shop, role)
    assert f"{role} may not insert" in message
    run_hint(shop, hint)
    assert problem(shop, role) == ("", "")
    with psycopg.connect(shop.server.dsn(shop.name, user=role)) as asker:
        asker.execute(REQUEST)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            asker.execute(REQUEST.replace("slot,", "requested_by, slot,").replace("('s'", "('king', 's'"))


def test_a_strangers_table_of_that_name_takes_no_requests_and_does_no_harm(shop: Database, role: str) -> None:
    with psycopg.connect(shop.server.dsn(shop.name, user=role)) as stranger:
        stranger.execute("CREATE SCHEMA cdcd")
        stranger.execute("CREATE TABLE cdcd.requests (slot text PRIMARY KEY, action text, table_schema text, n int)")
    with Publication(shop.dsn, "p") as publication:
        assert publication.create(AskedPublication(["*.*"]))
        assert not publication.add_requests_table()
    [(oid,)] = shop.execute("SELECT 'cdcd.requests'::regclass::oid::bigint")
    with Session(shop.dsn) as session:
        assert not Catalog(session, "p").takes_requests(oid)
        assert ("cdcd", "requests") not in published_names(session, "p")
    message, hint = problem(shop)
    assert f"because {role} owns it" in message
    assert "RENAME TO" in hint
    shop.execute("ALTER TABLE cdcd.requests RENAME TO requests_of_another")
    with Publication(shop.dsn, "p") as publication:
        assert publication.add_requests_table(), "in the stranger's schema, but its own"
    assert problem(shop) == ("", "")


def test_the_owner_of_this_publication_is_trusted_and_the_owner_of_another_is_not(shop: Database, role: str) -> None:
    with psycopg.connect(shop.server.dsn(shop.name, user=role)) as owner:
        owner.execute("CREATE SCHEMA cdcd")
        owner.execute("CREATE TABLE cdcd.requests (slot text PRIMARY KEY)")
        owner.execute("CREATE PUBLICATION theirs FOR TABLE cdcd.requests")
    shop.execute("CREATE PUBLICATION p FOR TABLE t, cdcd.requests")
    [(oid,)] = shop.execute("SELECT 'cdcd.requests'::regclass::oid::bigint")
    with Session(shop.dsn) as session:
        assert not Catalog(session, "p").takes_requests(oid)
        assert Catalog(session, "theirs").takes_requests(oid)
        assert not Catalog(session).takes_requests(oid)
        assert not Catalog(session, "p").takes_requests(1), "dropped meanwhile"
    with Session(shop.server.dsn(shop.name, user=role)) as session:
        assert Catalog(session, "p").takes_requests(oid), "the role of the daemon itself"


def test_a_partitioned_table_or_a_view_takes_no_requests(shop: Database) -> None:
    shop.execute(
        "CREATE SCHEMA cdcd",
        "CREATE TABLE cdcd.requests (slot text) PARTITION BY LIST (slot)",
        "CREATE PUBLICATION p FOR TABLE t, cdcd.requests WITH (publish_via_partition_root = true)",
    )
    with Session(shop.dsn) as session:
        found = requests_table(session, "p")
        assert found is not None
        assert not found.is_trusted


def test_a_publication_that_leaves_requests_out_is_told_with_the_sql_that_helps(shop: Database) -> None:
    with Publication(shop.dsn, "p") as publication:
        publication.create(AskedPublication(["public.t"]))
        publication.add_requests_table()
    changes = ["DROP TABLE cdcd.requests", "SET (publish = 'update')"]
    if shop.server.version >= 15:
        changes += ["SET TABLE t, cdcd.requests WHERE (id > 5)", "SET TABLE t, cdcd.requests (id, slot)"]
    for change in changes:
        shop.execute(f"ALTER PUBLICATION p {change}")
        message, hint = problem(shop)
        assert "The publication p " in message, change
        run_hint(shop, hint)
        assert problem(shop) == ("", ""), change


@pytest.mark.parametrize("tables", ["FOR ALL TABLES", "FOR TABLE t"])
def test_a_database_without_the_table_is_told_with_the_sql_that_makes_it(shop: Database, tables: str) -> None:
    shop.execute(f"CREATE PUBLICATION p {tables}")
    message, hint = problem(shop)
    assert "no table cdcd.requests" in message
    run_hint(shop, hint)
    assert problem(shop) == ("", "")
