"""The role's privileges: to read the published tables, and to make a publication.

Before: the caller has the OIDs, from `published_tables` or from `publication.candidates`.
After: a start refuses to make a slot for a snapshot that would fail; `cdcd check` reports the same in advance.
Source: PostgreSQL, "Access Privilege Inquiry Functions", "Row Security Policies", "Logical Replication: Security".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.error_codes import Code
from cdcd.source.identifiers import identifier
from cdcd.source.published_tables import published_query
from cdcd.source.query_runner import QueryRunner
from cdcd.source.session import Session

NAMES_SHOWN: Final = 20
"""Tables that a hint names."""

# On the columns of the publication's list (`listed`: a row, null without one), or on the whole table `{of}`.
_READABLE: Final = """
    (pg_catalog.has_schema_privilege({of}.relnamespace, 'USAGE') AND (
        pg_catalog.has_table_privilege({of}.oid, 'SELECT')
        OR pg_catalog.has_any_column_privilege({of}.oid, 'SELECT') AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_attribute a
            WHERE a.attrelid = {of}.oid AND a.attnum > 0 AND NOT a.attisdropped
              AND coalesce(listed.names ? a.attname, a.attgenerated = '')
              AND NOT pg_catalog.has_column_privilege({of}.oid, a.attnum, 'SELECT'))))
"""

# PostgreSQL 14 has no column lists, and its view no `attnames`.
_PRIVILEGES: Final = f"""
    WITH listed AS MATERIALIZED (
        SELECT p.schemaname, p.tablename, pg_catalog.to_jsonb(p)->'attnames' AS names
        FROM pg_catalog.pg_publication_tables p WHERE p.pubname = %s
    )
    SELECT n.nspname, c.relname, pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       {_READABLE.format(of="c")},
       NOT pg_catalog.row_security_active(c.oid) AND NOT EXISTS (
           SELECT FROM pg_catalog.pg_partition_tree(c.oid) t
           WHERE c.relkind = 'p' AND t.isleaf AND pg_catalog.row_security_active(t.relid::pg_catalog.oid)),
       ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_catalog.pg_partition_tree(c.oid) t
           JOIN pg_catalog.pg_class l ON l.oid = t.relid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace
           WHERE c.relkind = 'p' AND t.isleaf AND NOT {_READABLE.format(of="l")} ORDER BY 1),
       CASE WHEN EXISTS (
           SELECT FROM pg_catalog.pg_attribute a
           WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
             AND NOT listed.names ? a.attname)
       THEN ARRAY(SELECT pg_catalog.jsonb_array_elements_text(listed.names)) END
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN listed ON listed.schemaname = n.nspname AND listed.tablename = c.relname
    WHERE c.oid = ANY(%s::bigint[])
    ORDER BY 1, 2
"""  # noqa: S608 - constants
# The schemas that are published whole: what publishes their tables is no row of pg_publication_rel.
_UNREADABLE_LATER: Final = """
    SELECT DISTINCT p.schema, pg_catalog.pg_get_userbyid(c.relowner)::text
    FROM published p JOIN pg_catalog.pg_class c ON c.oid = p.oid
    WHERE EXISTS (SELECT FROM pg_catalog.unnest(p.entries) entry (oid)
                  WHERE NOT EXISTS (SELECT FROM pg_catalog.pg_publication_rel r WHERE r.oid = entry.oid))
      AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') AND NOT pg_catalog.pg_has_role('pg_read_all_data', 'USAGE')
      AND NOT EXISTS (
          SELECT FROM pg_catalog.pg_default_acl d CROSS JOIN LATERAL pg_catalog.aclexplode(d.defaclacl) granted
          WHERE d.defaclrole = c.relowner AND d.defaclobjtype = 'r' AND d.defaclnamespace IN (0, c.relnamespace)
            AND granted.privilege_type = 'SELECT'
            AND (granted.grantee = 0 OR pg_catalog.pg_has_role(granted.grantee, 'USAGE')))
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
    """The role may SELECT the published columns, as the snapshot does."""
    shows_all_rows: bool = True
    """No row security hides rows from the role: neither the table's nor that of one of its partitions."""
    unreadable_partitions: Sequence[Sequence[str]] = ()
    """Schema and name of each partition that the role may not read. A snapshot reads partitions, not their root."""
    columns: Sequence[str] | None = None
    """The columns that are published; None if all are. The role need not see the others."""

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
    code: Code


def table_privileges(runner: QueryRunner, publication: str, oids: Sequence[int]) -> list[TablePrivileges]:
    """The role's privileges on these tables, in the order of schema and name.

    A table that `publication` does not publish (yet) is asked for as a whole.
    """
    return [TablePrivileges(*row) for row in runner.rows(_PRIVILEGES, [publication, list(oids)])]


def unreadable_later(session: Session, publication: str) -> list[tuple[str, str]]:
    """Schema and owner of tables, if the role could not read what this owner makes there later, and it is published."""
    rows = session.rows(published_query(session.server_version) + _UNREADABLE_LATER, [[publication]])
    return [(schema, owner) for schema, owner in rows]


def later_privilege(role: str, schema: str, owner: str) -> MissingPrivilege:
    """The default privilege that `role` lacks for tables to come."""
    grant = f"IN SCHEMA {identifier(schema)} GRANT SELECT ON TABLES TO {identifier(role)}"
    return MissingPrivilege(
        f"A table that {owner} makes later in the schema {schema} is published, and the role {role} may not read it: "
        "its snapshot would fail",
        f"As {owner}, run: ALTER DEFAULT PRIVILEGES FOR ROLE {identifier(owner)} {grant}",
        "select-missing",
    )


def may_create_publications(runner: QueryRunner) -> bool:
    """Whether the role may make publications in this database."""
    [(may,)] = runner.rows(_MAY_CREATE)
    return bool(may)


def missing_privileges(role: str, tables: Sequence[TablePrivileges]) -> Iterator[MissingPrivilege]:
    """The privileges that `role` lacks for a snapshot of these tables. The stream needs no privilege on a table."""
    unreadable = [(name, table.columns) for table in tables for name in table.unreadable]
    hidden = [table.quoted for table in tables if table.is_readable and not table.shows_all_rows]
    if unreadable:
        names = [identifier(*name) for name, _ in unreadable]
        schemas = ", ".join(sorted({identifier(schema) for (schema, _), _ in unreadable}))
        whole = [identifier(*name) for name, columns in unreadable[:NAMES_SHOWN] if columns is None]
        grants = [f"USAGE ON SCHEMA {schemas}"]
        if whole:
            grants.append(f"SELECT ON {', '.join(whole)}")
        for name, columns in unreadable[:NAMES_SHOWN]:
            if columns is not None:
                grants.append(f"SELECT ({', '.join(map(identifier, columns))}) ON {identifier(*name)}")
        statements = "; ".join(f"GRANT {grant} TO {identifier(role)}" for grant in grants)
        more = "; and so on" if len(unreadable) > NAMES_SHOWN else ""
        yield MissingPrivilege(
            f"The role {role} may not read {_first(names)}: a snapshot needs to read it",
            f'As the owner, run: {statements}{more}. Or set snapshot.mode = "never"',
            "select-missing",
        )
    if hidden:
        yield MissingPrivilege(
            f"Row security hides rows of {_first(hidden)} from the role {role}: a snapshot would lack them",
            f'As a superuser, run: ALTER ROLE {identifier(role)} BYPASSRLS. Or set snapshot.mode = "never"',
            "rows-hidden",
        )


def _first(names: Sequence[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
