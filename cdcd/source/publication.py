"""The publication: the tables and operations that the server sends. cdcd uses an existing one, or makes one.

Before: the settings `source.publication` (its name) and `source.tables` (patterns, for a new one).
After: START_REPLICATION names it; `published_tables` lists its tables.
Source: PostgreSQL, "CREATE PUBLICATION", versions 14 to 18.

cdcd makes a publication by the first of these statements that the role may run:

1. `FOR ALL TABLES` for the pattern `*.*`, `FOR TABLES IN SCHEMA` (PostgreSQL 15) for `schema.*`. This needs a
   superuser. The publication then covers tables that are made later.
2. `FOR TABLE a, b, ...`. This needs the owner of the tables. Tables that are made later are added at a start.

`publication_contents` says how cdcd knows its own publication, and what it alters there.

PostgreSQL rejects every UPDATE and DELETE, by any session, of a published table without a replica identity. So a start
refuses to make a publication of such a table (`preflight.replica_identity`), and adds none to its publication.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from psycopg import sql

from cdcd.errors import RequestRejected
from cdcd.source.publication_contents import (
    AskedPublication,
    FoundPublication,
    ListedTable,
    PublicationContents,
    PublishedOperations,
    comment_statement,
    created_for,
    creation_statement,
    listed_tables,
    tables_in_schemas,
)
from cdcd.source.published_tables import LOGGED, SCHEMAS_VERSION, published_names
from cdcd.source.replica_identity import HAS_IDENTITY
from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE, NAME, SCHEMA, requests_table
from cdcd.source.server_errors import INSUFFICIENT_PRIVILEGE
from cdcd.source.session import Session, SessionClient, StatementRejected
from cdcd.source.table_selection import CandidateTable

READ_ONLY: Final = "25006"
MADE_ALREADY: Final = frozenset({"42710", "23505"})
"""duplicate_object; or unique_violation, if another session makes it at the same moment."""


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

    def found(self) -> FoundPublication | None:
        """The publication as it is now; None if it does not exist."""
        rows = self.session.rows(_FOUND, [self.name])
        if not rows:
            return None
        *operations, via_root, is_everything, is_owned, is_superuser, comment = rows[0]
        listed = [ListedTable(*row) for row in self.session.rows(_LISTED, [self.name])]
        has_schemas = self.session.server_version >= SCHEMAS_VERSION
        schemas = self.session.rows(_IN_IT, [self.name]) if has_schemas else []
        found = FoundPublication(
            PublicationContents(
                PublishedOperations(*operations),
                via_root,
                is_everything,
                frozenset(oid for (oid,) in schemas),
                frozenset(table.oid for table in listed),
            ),
            comment,
            is_owned,
            is_superuser and has_schemas,
            listed,
            self._schema_oids(),
        )
        return replace(found, existing=[oid for (oid,) in self.session.rows(_EXISTING, [found.commented_tables])])

    def alter(self, statements: Sequence[str]) -> None:
        """Run all of these statements, or none."""
        self.session.rows("; ".join(statements))

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

    def create(self, asked: AskedPublication) -> bool:
        """Make it as asked; return False if another session makes it at the same moment.

        `preflight.publication` has judged the tables. Raises RequestRejected if the role may not make it, or if no
        table matches. The hint has the SQL to run.
        """
        attempts = self._statements(asked, asked.select(self.all_candidates()))
        if not attempts:
            raise RequestRejected(
                f"no table matches {', '.join(asked.tables)}",
                f"Make the tables first, or name others in source.tables, or make the publication yourself: "
                f"{creation_statement(self.name, [], asked)}",
                code="tables-missing",
            )
        return self._make(attempts, asked.slot)

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

    def _make(self, attempts: list[tuple[str, PublicationContents]], slot: str) -> bool:
        denied: StatementRejected | None = None
        for statement, contents in attempts:
            try:
                self.alter([statement, *([comment_statement(self.name, contents.comment(slot))] if slot else [])])
            except StatementRejected as error:
                if error.sqlstate in MADE_ALREADY:
                    return False
                if error.sqlstate == READ_ONLY:
                    raise RequestRejected(
                        f'the publication "{self.name}" cannot be made on this server: {error.message}',
                        f"If it is a standby, run on its primary: {statement}",
                        code="publication-not-permitted",
                    ) from error
                if error.sqlstate != INSUFFICIENT_PRIVILEGE:
                    raise
                denied = error
            else:
                return True
        # Only a superuser may publish all tables of a schema or database. The tables' owner may publish listed tables.
        covering = [statement for statement, contents in attempts if contents.covers_new]
        hints = [f"Let a superuser run: {statement}" for statement in covering]
        hints += [
            f"Let the tables' owner (with CREATE on the database) run: {statement}"
            for statement, _ in attempts
            if statement not in covering
        ]
        raise RequestRejected(
            f'the role may not make the publication "{self.name}": {denied.message if denied else "permission denied"}',
            "; or: ".join(hints),
            code="publication-not-permitted",
        )

    def _statements(
        self, asked: AskedPublication, tables: Sequence[CandidateTable]
    ) -> list[tuple[str, PublicationContents]]:
        """The statements to try, the best one first; with each, what it puts into the publication."""
        attempts: list[tuple[str, PublicationContents]] = []
        listed = PublicationContents(asked.operations, asked.via_root, tables=frozenset(table.oid for table in tables))
        schemas = sorted(asked.whole_schemas)
        oids = self._schema_oids()
        if asked.is_everything:
            statement = created_for(self.name, "ALL TABLES", asked)
            attempts.append((statement, replace(listed, is_everything=True, tables=frozenset())))
        elif schemas and self.session.server_version >= SCHEMAS_VERSION and oids.keys() >= set(schemas):
            parts = [tables_in_schemas(schemas), *([listed_tables(tables)] if tables else [])]
            whole = replace(listed, schemas=frozenset(oids[schema] for schema in schemas))
            attempts.append((created_for(self.name, ", ".join(parts), asked), whole))
        if tables:
            attempts.append((creation_statement(self.name, tables, asked), listed))
        return attempts

    def _schema_oids(self) -> dict[str, int]:
        return dict(self.session.rows(_SCHEMAS))


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
           c.relkind = 'r' AND c.relhassubclass, c.relkind = 'p', pg_catalog.pg_has_role(c.relowner, 'USAGE')
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
_SCHEMAS: Final = "SELECT nspname::text, oid::bigint FROM pg_catalog.pg_namespace"
_ADD_REQUESTS: Final = sql.SQL("ALTER PUBLICATION {} ADD TABLE cdcd.requests")
_FOUND: Final = """
    SELECT pubupdate, pubdelete, pubinsert, pubtruncate, pubviaroot, puballtables,
           pg_catalog.pg_has_role(pubowner, 'USAGE') AND NOT pg_catalog.pg_is_in_recovery(),
           (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user),
           coalesce(pg_catalog.obj_description(oid, 'pg_publication'), '')
    FROM pg_catalog.pg_publication WHERE pubname = %s
"""
# PostgreSQL 14 has neither `prqual` nor `prattrs`.
_LISTED: Final = f"""
    SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind = 'r' AND c.relhassubclass, c.relkind = 'p',
           pg_catalog.to_jsonb(r)->>'prqual' IS NOT NULL OR pg_catalog.to_jsonb(r)->>'prattrs' IS NOT NULL
    FROM pg_catalog.pg_publication b JOIN pg_catalog.pg_publication_rel r ON r.prpubid = b.oid
    JOIN pg_catalog.pg_class c ON c.oid = r.prrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE b.pubname = %s AND NOT (n.nspname = '{SCHEMA}' AND c.relname = '{NAME}') ORDER BY 2, 3
"""  # noqa: S608 - constants
_IN_IT: Final = """
    SELECT s.pnnspid::bigint FROM pg_catalog.pg_publication b
    JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = b.oid WHERE b.pubname = %s
"""
_EXISTING: Final = "SELECT oid::bigint FROM pg_catalog.pg_class WHERE oid = ANY(%s::bigint[])"


def may_cover_new_tables(asked: AskedPublication, server_version: int) -> bool:
    """Whether such a publication may cover tables that are made later: of the database, or of schemas."""
    return asked.is_everything or (bool(asked.whole_schemas) and server_version >= SCHEMAS_VERSION)
