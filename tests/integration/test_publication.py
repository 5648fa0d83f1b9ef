"""Publications are made with what the role may do, and never so that they break the application."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.fix_postgres import Database
from support.pages import blocks

from cdcd.config.settings import SourceSettings
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.errors import RequestRejected
from cdcd.source.publication import Publication
from cdcd.source.publication_contents import AskedPublication, PublishedOperations, given
from cdcd.source.published_incarnations import published_incarnations
from cdcd.source.published_tables import published_tables
from cdcd.source.session import Session

both = pytest.mark.postgres_versions("oldest", "newest")
ODD = 'o"dd. täble'


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        f'CREATE TABLE "{ODD.replace(chr(34), chr(34) * 2)}" ("Id x" int PRIMARY KEY)',
        "CREATE TABLE log (at timestamptz)",
        "ALTER TABLE log REPLICA IDENTITY FULL",
        "CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE scratch (id int PRIMARY KEY)",
        "CREATE VIEW shown AS SELECT * FROM orders",
        "CREATE SCHEMA other",
        "CREATE TABLE other.things (id int PRIMARY KEY)",
    )
    return database


@pytest.fixture
def owner(shop: Database) -> Iterator[str]:
    """The DSN of a role that owns the tables, may make publications, and is no superuser."""
    role = f"owner_{shop.name}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN",
        f"GRANT CREATE ON DATABASE {shop.name} TO {role}",
        f"ALTER TABLE orders OWNER TO {role}",
        f"ALTER TABLE log OWNER TO {role}",
    )
    yield shop.server.dsn(shop.name, user=role)
    shop.execute(f"REASSIGN OWNED BY {role} TO postgres", f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def named(tables: list[tuple[str, str]]) -> list[str]:
    return [".".join(table) for table in tables]


@both
def test_a_schema_is_published_whole_by_a_superuser(shop: Database) -> None:
    with Publication(shop.dsn, 'p "ü"') as publication:
        assert not publication.exists()
        assert publication.create(AskedPublication(["public.*"]))
        assert named(publication.tables()) == ["public.log", f"public.{ODD}", "public.orders", "public.parted_1"]
        assert publication.operations() == PublishedOperations(updates=True, deletes=True)
        [flags] = shop.execute("SELECT puballtables, pubviaroot FROM pg_publication")
        assert flags == (False, False)
        shop.execute("CREATE TABLE later (id int PRIMARY KEY)")
        assert ("public.later" in named(publication.tables())) == (shop.server.version >= 15)


@both
def test_everything_is_published_for_all_tables(shop: Database) -> None:
    with Publication(shop.dsn, "p") as publication:
        assert publication.create(AskedPublication(["*.*"]))
        assert shop.execute("SELECT puballtables FROM pg_publication") == [(True,)]


@both
def test_patterns_choose_tables_and_a_schema_goes_beside_them(shop: Database) -> None:
    with Publication(shop.dsn, "p") as publication:
        publication.create(AskedPublication(["public.ord*", "other.*"]))
        assert named(publication.tables()) == ["other.things", "public.orders"]
    with Publication(shop.dsn, "q") as publication:
        assert publication.create(AskedPublication([f'public."{ODD.replace(chr(34), chr(34) * 2)}"']))
        [table] = published_tables(publication.session, "q")
        assert (table.schema, table.name, table.kind, table.row_filter) == ("public", ODD, "r", "")
        assert ([column.name for column in table.columns], table.identity_columns) == (["Id x"], ("Id x",))


@both
def test_an_owner_gets_an_explicit_list(shop: Database, owner: str) -> None:
    with Publication(owner, "p") as publication:
        assert publication.create(AskedPublication(["public.orders", "public.log"]))
        assert named(publication.tables()) == ["public.log", "public.orders"]


@both
def test_a_role_that_may_not_is_told_the_statement_for_one_who_may(shop: Database, owner: str) -> None:
    with Publication(owner, "p") as publication, pytest.raises(RequestRejected) as caught:
        publication.create(AskedPublication(["public.*"]))
    cures = dict(hint.split(" run: ") for hint in caught.value.hint.split("; or: "))
    by_owner = cures.pop("Let the tables' owner (with CREATE on the database)")
    if shop.server.version >= 15:
        by_superuser = cures.pop("Let a superuser")
        assert "TABLES IN SCHEMA" in by_superuser
        shop.execute(by_superuser, "DROP PUBLICATION p")
    assert not cures
    assert "IN SCHEMA" not in by_owner
    shop.execute(by_owner)
    with Publication(shop.dsn, "p") as publication:
        assert "public.orders" in named(publication.tables())


@both
def test_no_table_that_matches_is_refused(shop: Database) -> None:
    with Publication(shop.dsn, "p") as publication, pytest.raises(RequestRejected, match="no table matches"):
        publication.create(AskedPublication(["public.nosuch*", "nowhere.*"]))


@both
def test_one_that_exists_already_is_left_as_it_is(shop: Database) -> None:
    with Publication(shop.dsn, "p") as publication:
        assert publication.create(AskedPublication(["public.orders"]))
        assert not publication.create(AskedPublication(["public.*"]))
        assert named(publication.tables()) == ["public.orders"]


def follow(dsn: str, *tables: str, **asked: Any) -> bool:
    """What a start of the daemon does about its publication."""
    settings = SourceSettings(dsn=dsn, publication='p "ü"', slot="s", tables=tables, **asked)
    with Session(dsn) as session:
        setup = PublicationSetup(settings, session, Publication(session, settings.publication))
        setup.ensure(is_judged=True)
        return setup.follow()


def published(database: Database) -> list[str]:
    with Publication(database.dsn, 'p "ü"') as publication:
        return named(publication.tables())


@both
def test_a_publication_that_cdcd_has_made_follows_the_settings(shop: Database) -> None:
    assert not follow(shop.dsn, "public.orders")
    assert published(shop) == ["public.orders"]
    assert follow(shop.dsn, "public.*", "other.*", exclude=["public.l*", "public.o?dd*"])
    assert published(shop) == ["other.things", "public.orders", "public.parted_1"]
    assert not follow(shop.dsn, "public.*", "other.*", exclude=["public.l*", "public.o?dd*"])
    shop.execute("DROP TABLE other.things", "ALTER TABLE orders RENAME TO sales")
    assert follow(shop.dsn, "public.*", publish=["insert"], publish_via_partition_root=True)
    assert published(shop) == ["public.log", f"public.{ODD}", "public.parted", "public.sales"]
    with Publication(shop.dsn, 'p "ü"') as publication:
        assert publication.operations() == PublishedOperations(updates=False, deletes=False, truncates=False)
    shop.execute("CREATE TABLE later (id int)")
    follow(shop.dsn, "public.*", publish=["insert"], publish_via_partition_root=True)
    assert "public.later" in published(shop), "by its schema, or by name"
    assert follow(shop.dsn, "public.sales")
    assert published(shop) == ["public.sales"]


@both
def test_an_entry_stays_the_same_when_a_schema_comes_or_goes(shop: Database) -> None:
    follow(shop.dsn, "public.*")
    with Session(shop.dsn) as session:
        before = published_incarnations(session, session.server_version, 'p "ü"')
        assert follow(shop.dsn, "public.*", exclude=["public.log"])
        after = published_incarnations(session, session.server_version, 'p "ü"')
    assert before.keys() - after.keys() == {("public", "log")}
    assert not any(before[table].contradiction(seen) for table, seen in after.items()), "it would be copied again"


@both
@pytest.mark.parametrize(
    "changed",
    [
        'ALTER PUBLICATION "p ""ü""" ADD TABLE log',
        'ALTER PUBLICATION "p ""ü""" SET (publish = \'insert\')',
        'COMMENT ON PUBLICATION "p ""ü""" IS \'ours\'',
    ],
)
def test_what_a_person_changes_stays(shop: Database, changed: str) -> None:
    follow(shop.dsn, "public.orders")
    shop.execute(changed)
    before = published(shop)
    assert not follow(shop.dsn, "other.*")
    assert published(shop) == before


@pytest.mark.postgres_versions("newest")
def test_row_filters_and_column_lists_stay(shop: Database) -> None:
    follow(shop.dsn, "public.orders")
    for listed in ("orders WHERE (id > 5)", "orders (id)"):
        shop.execute(f'ALTER PUBLICATION "p ""ü""" SET TABLE {listed}')
        assert not follow(shop.dsn, "public.*")
        assert published(shop) == ["public.orders"]


@both
def test_a_role_that_may_not_alter_it_goes_on_with_it_as_it_is(
    shop: Database, owner: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not follow(owner, "public.orders")
    assert follow(owner, "public.*"), "log; the role does not own the others"
    assert published(shop) == ["public.log", "public.orders"]
    shop.execute('ALTER PUBLICATION "p ""ü""" OWNER TO postgres')
    assert not follow(owner, "public.orders")
    shop.execute(f'ALTER PUBLICATION "p ""ü""" OWNER TO owner_{shop.name}', "BEGIN; LOCK TABLE other.things; COMMIT")
    holder = Session(shop.dsn)
    shop.execute(f"ALTER TABLE parted OWNER TO owner_{shop.name}")
    with holder:
        holder.rows("BEGIN")
        holder.rows("LOCK TABLE public.parted")
        assert not follow(owner, "public.*")
        holder.rows("ROLLBACK")
    assert "stays as it is" in caplog.text
    assert published(shop) == ["public.log", "public.orders"]
    assert follow(owner, "public.*")


@pytest.mark.postgres_versions("newest")
def test_the_statement_of_the_page_gives_it_to_cdcd(shop: Database) -> None:
    [statement] = [block.text for block in blocks("tables") if "COMMENT ON PUBLICATION" in block.text]
    shop.execute("CREATE PUBLICATION cdcd FOR TABLE orders", statement)
    with Publication(shop.dsn, "cdcd") as publication:
        found = publication.found()
    assert found is not None
    assert found.is_followed_by("cdcd")


@both
def test_the_statement_of_the_hint_gives_it_back_to_cdcd(shop: Database) -> None:
    shop.execute('CREATE PUBLICATION "p ""ü""" FOR TABLE orders')
    assert not follow(shop.dsn, "public.log")
    shop.execute(given('p "ü"', "s"))
    assert follow(shop.dsn, "public.log")
    assert published(shop) == ["public.log"]


@pytest.mark.postgres_versions("newest")
def test_column_lists_and_row_filters_are_shown(shop: Database) -> None:
    shop.execute("CREATE PUBLICATION p FOR TABLE orders (id) WHERE (id > 5)")
    with Session(shop.dsn) as session:
        [table] = published_tables(session, "p")
        assert ([column.name for column in table.columns], table.row_filter) == (["id"], "(id > 5)")


@both
def test_a_published_root_is_told_from_its_partitions(shop: Database) -> None:
    shop.execute(
        "CREATE PUBLICATION p FOR TABLE parted",
        "CREATE PUBLICATION q FOR TABLE parted WITH (publish_via_partition_root = true)",
    )
    with Session(shop.dsn) as session:
        [leaf], [root] = published_tables(session, "p"), published_tables(session, "q")
        assert (leaf.name, leaf.kind, leaf.identity_columns) == ("parted_1", "r", ("id",))
        assert (root.name, root.kind, root.identity_columns) == ("parted", "p", ("id",))
