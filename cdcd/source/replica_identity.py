"""What of an old row PostgreSQL writes to the WAL: a table's replica identity, and that of its partitions.

Before: `published_tables`, or `publication` for tables that are still to be published, gives the OIDs.
After: `publication` refuses to publish a table without one; `cdcd check` judges the rest.
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
"""An SQL condition on the row `{of}` of pg_class: the table can be updated and deleted from while it is published."""

_IDENTITIES: Final = """
    SELECT n.nspname, c.relname, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
           AND CASE c.relreplident WHEN 'n' THEN false WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),
       ARRAY(SELECT ARRAY[m.nspname::text, l.relname] FROM pg_catalog.pg_partition_tree(c.oid) t
           JOIN pg_catalog.pg_class l ON l.oid = t.relid JOIN pg_catalog.pg_namespace m ON m.oid = l.relnamespace
           WHERE c.relkind = 'p' AND t.isleaf AND l.relreplident <> 'f'
           -- A column of the root's index that is none of the leaf's.
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
    """The index exists that `identity` means: the primary key or the chosen one. Beside `full`: a primary key."""
    lesser_partitions: Sequence[Sequence[str]] = ()
    """Schema and name of each partition that keeps less: its replica identity lacks columns of the table's."""

    @property
    def quoted(self) -> str:
        """The name as SQL has it."""
        return identifier(self.schema, self.name)


def table_identities(asks: QueryRunner, oids: Sequence[int]) -> list[TableIdentity]:
    """The replica identities of these tables, by schema and name."""
    return [TableIdentity(*row) for row in asks.rows(_IDENTITIES, [list(oids)])]
