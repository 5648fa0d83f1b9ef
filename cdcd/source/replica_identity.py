"""Replica identities: which columns of an old row PostgreSQL writes to the WAL, for a table and its partitions.

Before: the caller has the OIDs, from `published_tables` or from `publication.candidates`.
After: `publication` refuses to publish a table without one; `cdcd check` reports partitions with a smaller one.
Source: PostgreSQL, "ALTER TABLE" (REPLICA IDENTITY), "Logical Replication: Publication"; pg_class, pg_index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.query_runner import QueryRunner

HAS_IDENTITY: Final = """
    ({of}.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = {of}.oid AND i.indimmediate
        AND CASE {of}.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END))
"""
"""An SQL condition on the row `{of}` of pg_class: UPDATE and DELETE stay possible while the table is published."""

_IDENTITIES: Final = """
    SELECT n.nspname, c.relname, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
           AND CASE c.relreplident WHEN 'n' THEN false WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),
       ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_catalog.pg_partition_tree(c.oid) t
           JOIN pg_catalog.pg_class l ON l.oid = t.relid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace
           WHERE c.relkind = 'p' AND t.isleaf AND l.relreplident <> 'f'
           -- A column of the root's index that the leaf's index lacks.
           AND (c.relreplident = 'f' OR EXISTS (SELECT FROM pg_catalog.pg_class r
               JOIN pg_catalog.pg_index i ON i.indrelid = r.oid
               JOIN pg_catalog.pg_attribute a
                   ON a.attrelid = r.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
               WHERE r.oid IN (c.oid, l.oid) AND i.indimmediate
               AND CASE r.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END
               GROUP BY a.attname HAVING NOT bool_or(r.oid = l.oid))) ORDER BY 1)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s::bigint[])
    ORDER BY 1, 2
"""


@dataclass(frozen=True)
class TableIdentity:
    """The replica identity of one table."""

    schema: str
    name: str
    identity: str
    """`relreplident`: d default, f full, i index, n nothing."""
    has_index: bool
    """The index exists: for d and f the primary key, for i the chosen index."""
    lesser_partitions: Sequence[Sequence[str]] = ()
    """Schema and name of each partition whose replica identity lacks a column of this table's replica identity."""

    @property
    def quoted(self) -> str:
        """The name, quoted for SQL."""
        return identifier(self.schema, self.name)


def table_identities(runner: QueryRunner, oids: Sequence[int]) -> list[TableIdentity]:
    """The replica identities of these tables, in the order of schema and name."""
    return [TableIdentity(*row) for row in runner.rows(_IDENTITIES, [list(oids)])]
