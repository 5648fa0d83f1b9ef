"""The publication: the tables and operations that the server sends. cdcd uses an existing one, or makes one.

Before: the settings `source.publication` (its name) and `source.tables` (patterns, for a new one).
After: START_REPLICATION names it; `published_tables` lists its tables.
Source: PostgreSQL, "CREATE PUBLICATION", versions 14 to 18.

cdcd makes a publication by the first of these statements that the role may run:

1. `FOR ALL TABLES` for the pattern `*.*`, `FOR TABLES IN SCHEMA` (PostgreSQL 15) for `schema.*`. This needs a
   superuser. The publication then covers tables that are made later.
2. `FOR TABLE a, b, ...`. This needs the owner of the tables. Tables that are made later must be added by hand.

PostgreSQL rejects every UPDATE and DELETE, by any session, of a published table without a replica identity. So a start
refuses to make a publication of such a table (`preflight.replica_identity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from psycopg import sql

from cdcd.errors import RequestRejected
from cdcd.source.identifiers import identifier
from cdcd.source.published_tables import LOGGED, SCHEMAS_VERSION, published_names
from cdcd.source.replica_identity import HAS_IDENTITY
from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE, NAME, SCHEMA, requests_table
from cdcd.source.server_errors import INSUFFICIENT_PRIVILEGE
from cdcd.source.session import Session, SessionClient, StatementRejected
from cdcd.source.table_selection import CandidateTable, TablePattern, select_candidates

Composed: TypeAlias = sql.SQL | sql.Composed

READ_ONLY: Final = "25006"
MADE_ALREADY: Final = frozenset({"42710", "23505"})
"""duplicate_object; or unique_violation, if another session makes it at the same moment."""


@dataclass(frozen=True)
class PublishedOperations:
    """Which operations a publication publishes."""

    updates: bool
    deletes: bool
    inserts: bool = True
    truncates: bool = True


class Publication(SessionClient):
    """A publication, by its name. Raises what `Session` raises."""

    def __init__(self, source: str | Session, name: str) -> None:
        """`source`: a DSN, or a session shared with others."""
        super().__init__(source)
        self.name = name

    def operations(self) -> PublishedOperations | None:
        """The operations that it publishes; None if it does not exist."""
        rows = self.session.rows(_OPERATIONS, [self.name])
        return PublishedOperations(*rows[0]) if rows else None

    def exists(self) -> bool:
        """Whether it exists."""
        return self.operations() is not None

    def tables(self) -> list[tuple[str, str]]:
        """Schema and name of each table that it publishes now, in this order."""
        return published_names(self.session, self.name)

    def all_candidates(self) -> list[CandidateTable]:
        """Every table that can be published."""
        return [CandidateTable(*row) for row in self.session.rows(_CANDIDATES)]

    def other_relations(self) -> list[tuple[str, str, str]]:
        """Schema, name and kind (such as "a view") of each relation that cdcd does not publish."""
        return [(schema, name, _KINDS.get(kind, "no table")) for schema, name, kind in self.session.rows(_OTHERS)]

    def create(self, patterns: Sequence[str]) -> bool:
        """Make it for the tables that match `patterns`; return False if another session makes it at the same moment.

        `preflight.publication` has judged the tables. Raises RequestRejected if the role may not make it, or if no
        table matches. The hint has the SQL to run.
        """
        table_patterns = [TablePattern.parse(pattern) for pattern in patterns]
        tables = select_candidates(table_patterns, self.all_candidates())
        attempts = self._statements(table_patterns, tables)
        if not attempts:
            raise RequestRejected(
                f"no table matches {', '.join(patterns)}",
                f"Make the tables first, or name others in source.tables, or make the publication yourself: "
                f"{creation_statement(self.name, [])}",
                code="tables-missing",
            )
        return self._make(attempts)

    def add_requests_table(self) -> bool:
        """Make the table of requests, and publish it; return False if the role may not, or if it is another role's."""
        try:
            self.session.rows(CREATE_SCHEMA)
            self.session.rows(CREATE_TABLE)
            found = requests_table(self.session, self.name)
            if found is None or not found.is_trusted:
                return False
            if not found.is_published:
                self.session.rows(_ADD_REQUESTS.format(sql.Identifier(self.name)))
        except StatementRejected:
            return False
        return True

    def _make(self, attempts: list[tuple[Composed, bool]]) -> bool:
        denied: StatementRejected | None = None
        for statement, _ in attempts:
            try:
                self.session.rows(statement)
            except StatementRejected as error:
                if error.sqlstate in MADE_ALREADY:
                    return False
                if error.sqlstate == READ_ONLY:
                    raise RequestRejected(
                        f'the publication "{self.name}" cannot be made on this server: {error.message}',
                        f"If it is a standby, run on its primary: {statement.as_string()}",
                        code="publication-not-permitted",
                    ) from error
                if error.sqlstate != INSUFFICIENT_PRIVILEGE:
                    raise
                denied = error
            else:
                return True
        # Only a superuser may publish all tables of a schema or database. The tables' owner may publish listed tables.
        hints = [f"Let a superuser run: {statement.as_string()}" for statement, covers_new in attempts if covers_new]
        hints += [
            f"Let the tables' owner (with CREATE on the database) run: {statement.as_string()}"
            for statement, covers_new in attempts
            if not covers_new
        ]
        raise RequestRejected(
            f'the role may not make the publication "{self.name}": {denied.message if denied else "permission denied"}',
            "; or: ".join(hints),
            code="publication-not-permitted",
        )

    def _statements(
        self, patterns: Sequence[TablePattern], tables: Sequence[CandidateTable]
    ) -> list[tuple[Composed, bool]]:
        """The statements to try, the best one first; with each, whether it covers tables that are made later."""
        attempts: list[tuple[Composed, bool]] = []
        name = sql.Identifier(self.name)
        schemas = {pattern.whole_schema for pattern in patterns} - {None}
        if any(pattern.is_everything for pattern in patterns):
            attempts.append((_CREATE.format(name, sql.SQL("FOR ALL TABLES")), True))
        elif schemas and self.session.server_version >= SCHEMAS_VERSION and self._exist(schemas):
            whole = _list(sql.Identifier(schema) for schema in sorted(filter(None, schemas)))
            parts: list[Composed] = [_IN_SCHEMA.format(whole)]
            if others := [table for table in tables if table.schema not in schemas]:
                parts.append(sql.SQL(listed_tables(others)))
            attempts.append((_CREATE.format(name, sql.SQL("FOR ") + _list(parts)), True))
        if tables:
            attempts.append((_CREATE.format(name, sql.SQL("FOR ") + sql.SQL(listed_tables(tables))), False))
        return attempts

    def _exist(self, schemas: set[str | None]) -> bool:
        [(count,)] = self.session.rows(_SCHEMAS, [sorted(filter(None, schemas))])
        return bool(count == len(schemas))


_OPERATIONS: Final = """
    SELECT pubupdate, pubdelete, pubinsert, pubtruncate FROM pg_catalog.pg_publication WHERE pubname = %s
"""

# Tables that can be published: ordinary and partitioned, permanent, not of the system, not of an extension.
# A partitioned table has a replica identity if all its partitions have one, because they hold the rows.
_CANDIDATES: Final = f"""
    SELECT c.oid::bigint, n.nspname, c.relname,
           CASE WHEN c.relispartition THEN pg_catalog.pg_partition_root(c.oid)::oid::bigint END,
           CASE WHEN c.relkind = 'r' THEN {HAS_IDENTITY.format(of="c")} ELSE NOT EXISTS (
               SELECT FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class leaf ON leaf.oid = t.relid
               WHERE t.isleaf AND {LOGGED.format(of="leaf")} AND NOT {HAS_IDENTITY.format(of="leaf")}) END,
           c.relkind = 'r' AND c.relhassubclass, c.relkind = 'p'
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p'
      AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
      AND NOT (n.nspname = '{SCHEMA}' AND c.relname = '{NAME}')
      AND NOT EXISTS (SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
                      AND d.objid = c.oid AND d.deptype = 'e')
    ORDER BY 2, 3
"""  # noqa: S608 - constants

_OTHERS: Final = """
    SELECT n.nspname, c.relname, CASE WHEN c.relkind IN ('r', 'p') THEN c.relpersistence::text ELSE c.relkind::text END
    FROM pg_catalog.pg_class c
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE (c.relkind IN ('v', 'm', 'f', 'S') OR c.relkind IN ('r', 'p') AND (c.relpersistence <> 'p' OR EXISTS (
               SELECT FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass
               AND d.objid = c.oid AND d.deptype = 'e')))
      AND n.nspname !~ '^pg_(catalog|toast)' AND n.nspname <> 'information_schema'
    ORDER BY 1, 2
"""
_KINDS: Final = {
    "v": "a view",
    "m": "a materialized view",
    "f": "a foreign table",
    "S": "a sequence",
    "u": "an unlogged table",
    "t": "a temporary table",
    "p": "a table of an extension",
}
_SCHEMAS: Final = "SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = ANY(%s)"
_CREATE: Final = sql.SQL("CREATE PUBLICATION {} {}")
_ADD_REQUESTS: Final = sql.SQL("ALTER PUBLICATION {} ADD TABLE cdcd.requests")
_IN_SCHEMA: Final = sql.SQL("TABLES IN SCHEMA {}")


def may_cover_new_tables(patterns: Sequence[TablePattern], server_version: int) -> bool:
    """Whether a publication for these patterns may cover tables that are made later: of the database, or of schemas."""
    return any(
        pattern.is_everything or (pattern.whole_schema is not None and server_version >= SCHEMAS_VERSION)
        for pattern in patterns
    )


def creation_statement(publication: str, tables: Sequence[CandidateTable]) -> str:
    """The statement that makes the publication for exactly these tables, for their owner."""
    return f"CREATE PUBLICATION {identifier(publication)} FOR {listed_tables(tables) if tables else 'TABLE ...'}"


def listed_tables(tables: Sequence[CandidateTable]) -> str:
    """The tables as CREATE and ALTER PUBLICATION name them.

    Without ONLY, PostgreSQL would publish the tables that inherit from one of these, too.
    """
    names = (f"{'ONLY ' if table.has_children else ''}{identifier(table.schema, table.name)}" for table in tables)
    return f"TABLE {', '.join(names)}"


def _list(parts: Iterable[sql.Composable]) -> sql.Composed:
    joined: sql.Composed = sql.SQL(", ").join(parts)
    return joined
