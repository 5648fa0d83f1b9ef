"""The SQL of `cdcd init` and deploy/postgres, on real servers: as a superuser, and as the owner of the tables."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from support.fix_postgres import Database

from cdcd.source.privileges import later_privilege, missing_privileges, table_privileges, unreadable_later
from cdcd.source.publication import Publication
from cdcd.source.published_tables import published_names, published_oids
from cdcd.source.requests_table import requests_problem
from cdcd.source.session import Session
from cdcd.source.setup_sql import Selection, selection, steps

pytestmark = pytest.mark.postgres_versions("oldest", "newest")


class World:
    """A database with an owner of its tables, and a role for the daemon that does not exist yet."""

    def __init__(self, database: Database) -> None:
        self.dsn = database.dsn
        self.owner, self.role = f"owner_{database.name}", f"cdcd_{database.name}"
        with self.connect() as admin:
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(self.owner)))
            for grant in (f"CREATE ON DATABASE {database.name}", "ALL ON SCHEMA public"):
                admin.execute(f'GRANT {grant} TO "{self.owner}"'.encode())
            self.version = admin.info.server_version

    def connect(self, user: str | None = None) -> psycopg.Connection[tuple[object, ...]]:
        return psycopg.connect(make_conninfo(self.dsn, **({"user": user} if user else {})), autocommit=True)

    def run(self, tables: Selection, user: str | None = None) -> None:
        with self.connect(user) as connection:
            for step in steps(self.role, "cdcd", tables):
                for statement in step.statements:
                    connection.execute(statement.encode())

    def make_role(self) -> None:
        with self.connect() as admin:
            admin.execute(steps(self.role, "cdcd", Selection())[0].statements[0].encode())

    def owner_runs(self, *statements: str) -> None:
        with self.connect(self.owner) as owner:
            for statement in statements:
                owner.execute(statement.encode())

    def published(self) -> set[tuple[str, str]]:
        with Session(self.dsn) as session:
            return set(published_names(session, "cdcd"))

    def hindrances(self) -> list[str]:
        """Why the role could not copy the published tables, or ask for something."""
        with Session(make_conninfo(self.dsn, user=self.role)) as session:
            oids = published_oids(session, "cdcd")
            missing = missing_privileges(self.role, table_privileges(session, "cdcd", oids))
            problem = requests_problem(session, "cdcd", of_repair=True)
            return [*(each.message for each in missing), *([problem.message] if problem else [])]

    def warnings_of_later_tables(self) -> list[str]:
        with Session(make_conninfo(self.dsn, user=self.role)) as session:
            return [later_privilege(self.role, *each).hint for each in unreadable_later(session, "cdcd")]

    def drop(self) -> None:
        with self.connect() as admin:
            for name in (self.owner, self.role):
                if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [name]).fetchone():
                    admin.execute(f'DROP OWNED BY "{name}" CASCADE'.encode())
                    admin.execute(f'DROP ROLE "{name}"'.encode())


@pytest.fixture
def world(database: Database) -> Iterator[World]:
    made = World(database)
    yield made
    made.drop()


def test_a_superuser_runs_it_again_and_again_and_later_tables_stream_and_can_be_copied(world: World) -> None:
    world.owner_runs("CREATE TABLE orders (id int PRIMARY KEY)")
    for _ in range(3):
        world.run(Selection(("public",)))
        assert world.published() == {("public", "orders")}
        assert world.hindrances() == []
    world.owner_runs("CREATE TABLE later (id int PRIMARY KEY)")
    if world.version < 150_000:
        world.run(Selection(("public",)))
    assert world.published() == {("public", "orders"), ("public", "later")}
    assert world.hindrances() == []


def test_the_owner_of_the_tables_runs_it_once_somebody_has_made_the_role(world: World) -> None:
    world.make_role()
    world.owner_runs("CREATE TABLE orders (id int PRIMARY KEY)")
    for _ in range(2):
        world.run(Selection(("public",)), user=world.owner)
        assert world.hindrances() == []
    world.owner_runs("CREATE TABLE later (id int PRIMARY KEY)")
    assert world.published() == {("public", "orders")}
    world.run(Selection(("public",)), user=world.owner)
    assert world.published() == {("public", "orders"), ("public", "later")}
    assert world.hindrances() == []


def test_it_takes_nothing_away_from_a_role_that_is_there(world: World) -> None:
    with world.connect() as admin:
        admin.execute(f'CREATE ROLE "{world.role}" BYPASSRLS CREATEDB'.encode())
    world.make_role()
    with world.connect() as admin:
        query = "SELECT rolbypassrls, rolcreatedb, rolcanlogin, rolreplication FROM pg_roles WHERE rolname = %s"
        assert admin.execute(query, [world.role]).fetchone() == (True, True, True, True)


def test_no_table_without_a_replica_identity_is_published(world: World) -> None:
    world.owner_runs("CREATE TABLE notes (v text)", "CREATE TABLE orders (id int PRIMARY KEY)")
    with pytest.raises(psycopg.errors.RaiseException) as refused:
        world.run(Selection(("public",)))
    assert "ALTER TABLE public.notes REPLICA IDENTITY FULL" in str(refused.value.diag.message_hint)
    with Session(world.dsn) as session:
        assert not Publication(session, "cdcd").exists()
    world.owner_runs("INSERT INTO notes VALUES ('a')", "UPDATE notes SET v = 'b'")  # the application still may
    world.owner_runs("ALTER TABLE public.notes REPLICA IDENTITY FULL")
    world.run(Selection(("public",)))
    assert world.published() == {("public", "orders"), ("public", "notes")}


@pytest.mark.parametrize("is_owner", [True, False], ids=["owner", "superuser"])
def test_single_tables_whatever_their_names_and_partitions(world: World, is_owner: bool) -> None:
    world.make_role()
    odd = '"$cdcd$ ""q"" \'s\' %I\nx\\"'
    world.owner_runs(
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.log (id int, at date, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)",
        "CREATE TABLE sales.log_1 PARTITION OF sales.log FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        f"CREATE TABLE {odd} (id int PRIMARY KEY)",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE private (id int PRIMARY KEY)",
    )
    with Session(world.dsn) as session:
        candidates = Publication(session, "cdcd").all_candidates()
    tables = selection(["sales.log", "public.parent", "public.$*"], candidates)
    for _ in range(2):
        world.run(tables, user=world.owner if is_owner else None)
    name = "$cdcd$ \"q\" 's' %I\nx\\"
    assert world.published() == {("sales", "log_1"), ("public", name), ("public", "parent")}
    assert world.hindrances() == []
    with world.connect(world.role) as role, pytest.raises(psycopg.errors.InsufficientPrivilege):
        role.execute("SELECT * FROM private")


def test_everything_with_the_schemas_to_come(world: World) -> None:
    world.owner_runs("CREATE TABLE orders (id int PRIMARY KEY)")
    for _ in range(2):
        world.run(Selection(is_everything=True))
    world.owner_runs("CREATE SCHEMA later", "CREATE TABLE later.t (id int PRIMARY KEY)")
    assert world.published() == {("public", "orders"), ("later", "t")}
    assert world.hindrances() == []


def test_a_schema_and_a_table_of_another(world: World) -> None:
    world.owner_runs("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE SCHEMA sales")
    world.owner_runs("CREATE TABLE sales.leads (id int PRIMARY KEY)", "CREATE TABLE sales.private (id int PRIMARY KEY)")
    for _ in range(2):
        world.run(Selection(("public",), (("sales", "leads"),)))
    assert world.published() == {("public", "orders"), ("sales", "leads")}
    assert world.hindrances() == []


def test_a_default_privilege_that_lacks_is_named_and_the_hint_grants_it(world: World) -> None:
    world.owner_runs("CREATE TABLE orders (id int PRIMARY KEY)")
    world.run(Selection(("public",)))
    assert world.warnings_of_later_tables() == []
    revoke = f"ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE SELECT ON TABLES FROM {world.role}"
    world.owner_runs(revoke)
    hints = world.warnings_of_later_tables()
    if world.version < 150_000:  # it publishes no table that is made later
        assert hints == []
        return
    [hint] = hints
    assert hint.startswith(f"As {world.owner}, run: ")
    world.owner_runs(hint.partition("run: ")[2])
    assert world.warnings_of_later_tables() == []
    world.owner_runs("CREATE TABLE later (id int PRIMARY KEY)")
    assert world.hindrances() == []


def test_where_a_role_stands_for_replication_its_membership_is_given(world: World) -> None:
    """As on Amazon RDS, which itself was not there to be asked."""
    dba = f"dba_{world.owner}"
    with world.connect() as admin:
        for statement in (
            "CREATE ROLE rds_replication",
            f'CREATE ROLE "{dba}" LOGIN CREATEROLE',
            f'GRANT rds_replication TO "{dba}" WITH ADMIN OPTION',
        ):
            admin.execute(statement.encode())
    try:
        with world.connect(dba) as connection:
            for _ in range(2):
                connection.execute(steps(world.role, "cdcd", Selection())[0].statements[0].encode())
        with world.connect() as admin:
            query = "SELECT rolreplication, rolcanlogin, pg_has_role(oid, 'rds_replication', 'MEMBER') FROM pg_roles "
            assert admin.execute(f"{query} WHERE rolname = '{world.role}'".encode()).fetchone() == (False, True, True)
    finally:
        with world.connect() as admin:
            admin.execute(f'DROP OWNED BY "{world.role}"'.encode())
            for name in (world.role, "rds_replication"):
                admin.execute(f'DROP ROLE "{name}"'.encode())
            admin.execute(f'DROP OWNED BY "{dba}"'.encode())
            admin.execute(f'DROP ROLE "{dba}"'.encode())
