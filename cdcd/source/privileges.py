"""The role's privileges: to read the published tables, and to make a publication.

Before: the caller has the OIDs, from `published_tables` or from `publication.candidates`.
After: a start refuses to make a slot for a snapshot that would fail; `cdcd check` reports the same in advance.
Source: PostgreSQL, "Access Privilege Inquiry Functions", "Row Security Policies", "Logical Replication: Security".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.query_runner import QueryRunner

NAMES_SHOWN: Final = 20
"""Tables that a hint names."""

# has_any_column_privilege is also true if the role has the privilege on the whole table.
_PRIVILEGES: Final = """
    SELECT n.nspname, c.relname, pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       pg_catalog.has_schema_privilege(n.oid, 'USAGE') AND pg_catalog.has_any_column_privilege(c.oid, 'SELECT'),
       NOT pg_catalog.row_security_active(c.oid),
       ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_catalog.pg_partition_tree(c.oid) t
           JOIN pg_catalog.pg_class l ON l.oid = t.relid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace
           WHERE c.relkind = 'p' AND t.isleaf AND NOT (pg_catalog.has_schema_privilege(m.oid, 'USAGE')
               AND pg_catalog.has_any_column_privilege(l.oid, 'SELECT')) ORDER BY 1)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s::bigint[])
    ORDER BY 1, 2
"""
_MAY_CREATE: Final = "SELECT pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')"


@dataclass(frozen=True)
class TablePrivileges:
    """The role's privileges on one table."""

    schema: str
    name: str
    is_owned: bool = True
    """The role owns it, or is a member of the role that owns it."""
    is_readable: bool = True
    """The role may SELECT from it, as the snapshot does."""
    shows_all_rows: bool = True
    """No row security hides rows from the role."""
    unreadable_partitions: Sequence[Sequence[str]] = ()
    """Schema and name of each partition that the role may not read. A snapshot reads partitions, not their root."""

    @property
    def quoted(self) -> str:
        """The name, quoted for SQL."""
        return identifier(self.schema, self.name)

    @property
    def unreadable(self) -> list[tuple[str, str]]:
        """Schema and name of each table that the snapshot cannot read: this table and its partitions."""
        own = [] if self.is_readable else [(self.schema, self.name)]
        return own + [(schema, name) for schema, name in self.unreadable_partitions]


@dataclass(frozen=True)
class MissingPrivilege:
    """A privilege that a snapshot needs and the role lacks. `hint` has the SQL that grants it."""

    message: str
    hint: str


def table_privileges(runner: QueryRunner, oids: Sequence[int]) -> list[TablePrivileges]:
    """The role's privileges on these tables, in the order of schema and name."""
    return [TablePrivileges(*row) for row in runner.rows(_PRIVILEGES, [list(oids)])]


def may_create_publications(runner: QueryRunner) -> bool:
    """Whether the role may make publications in this database."""
    [(may,)] = runner.rows(_MAY_CREATE)
    return bool(may)


def missing_privileges(role: str, tables: Sequence[TablePrivileges]) -> Iterator[MissingPrivilege]:
    """The privileges that `role` lacks for a snapshot of these tables. The stream needs no privilege on a table."""
    unreadable = [name for table in tables for name in table.unreadable]
    hidden = [table.quoted for table in tables if table.is_readable and not table.shows_all_rows]
    if unreadable:
        names = [identifier(*name) for name in unreadable]
        schemas = ", ".join(sorted({identifier(schema) for schema, _ in unreadable}))
        shown = ", ".join(names[:NAMES_SHOWN]) + (", ..." if len(names) > NAMES_SHOWN else "")
        grants = f"GRANT USAGE ON SCHEMA {schemas} TO {identifier(role)}; GRANT SELECT ON {shown} TO {identifier(role)}"
        yield MissingPrivilege(
            f"The role {role} may not read {_first(names)}: a snapshot needs to read it",
            f'As the owner, run: {grants}. Or set snapshot.mode = "never"',
        )
    if hidden:
        yield MissingPrivilege(
            f"Row security hides rows of {_first(hidden)} from the role {role}: a snapshot would lack them",
            f'As a superuser, run: ALTER ROLE {identifier(role)} BYPASSRLS. Or set snapshot.mode = "never"',
        )


def _first(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
