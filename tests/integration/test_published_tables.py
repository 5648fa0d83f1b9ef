"""The names of the published tables are those that PostgreSQL gives, and no lock hides them."""

from __future__ import annotations

import pytest
from support.fix_postgres import Database

from cdcd.source.published_tables import published_names, published_tables
from cdcd.source.session import Session

pytestmark = pytest.mark.postgres_versions("oldest", "newest")

VIA_ROOT = "WITH (publish_via_partition_root = true)"
EXPLICIT = [
    "FOR TABLE plain",
    "FOR TABLE root",
    "FOR TABLE other.leaf, plain",
    "FOR TABLE mid",
    "FOR TABLE root, other.leaf",
    "FOR ALL TABLES",
]
OF_SCHEMAS = ["FOR TABLES IN SCHEMA public", "FOR TABLES IN SCHEMA other", "FOR TABLES IN SCHEMA other, TABLE root"]


@pytest.fixture
def shop(database: Database) -> Database:
    """Tables of all kinds; the root of a partition is in another schema."""
    database.execute(
        "CREATE SCHEMA other",
        "CREATE TABLE plain (id int PRIMARY KEY)",
        "CREATE TABLE child () INHERITS (plain)",
        "CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)",
        "CREATE VIEW shown AS SELECT * FROM plain",
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE mid PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
        "CREATE TABLE other.leaf PARTITION OF mid FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE scratch_leaf PARTITION OF root FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE other.empty (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    )
    return database


@pytest.mark.parametrize("options", ["", VIA_ROOT])
def test_the_names_are_those_of_the_tables_that_postgresql_publishes(shop: Database, options: str) -> None:
    with Session(shop.dsn) as session:
        for tables in [*EXPLICIT, *(OF_SCHEMAS if session.server_version >= 150_000 else [])]:
            shop.execute(f"CREATE PUBLICATION p {tables} {options}")
            wanted = [(table.schema, table.name) for table in published_tables(session, "p")]
            assert published_names(session, "p") == wanted, tables
            assert published_names(session, "p", "p") == wanted
            shop.execute("DROP PUBLICATION p")
        assert published_names(session, "p") == []


def test_no_lock_hides_the_names(shop: Database) -> None:
    shop.execute("CREATE PUBLICATION p FOR ALL TABLES")
    with Session(shop.dsn) as session, shop.connect(autocommit=False) as other:
        names = published_names(session, "p")
        other.execute("LOCK TABLE plain, root IN ACCESS EXCLUSIVE MODE")
        other.execute("ALTER TABLE plain ADD COLUMN v text")
        other.execute("DROP TABLE other.leaf")
        with session.lock_timeout(0.1):
            assert published_names(session, "p") == names
