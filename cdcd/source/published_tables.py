"""The tables of a publication, as the stream describes them. Only this module asks `pg_publication_tables`.

Before: a session, or a connection inside a snapshot, runs the query.
After: the daemon and the commands check, verify, schema and snapshot work on these tables.
Source: PostgreSQL, "System Catalogs": pg_publication_tables, pg_attribute, pg_class, pg_index.

The result has the partitions of a partitioned table, or its root if the publication has `publish_via_partition_root`.
The query waits while another transaction alters a published table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdcd.source.query_runner import QueryRunner

PARTITIONED: Final = "p"
"""The `kind` of a partitioned table."""

# PostgreSQL 14 has neither `attnames` nor `rowfilter`: it publishes all rows, and all columns but generated ones.
_TABLES: Final = """
    SELECT c.oid::bigint, p.schemaname::text, p.tablename::text, c.relkind::text, c.relreplident::text,
           columns.names, columns.types, columns.typmods,
           (SELECT pg_catalog.array_agg(k.attname::text) FROM pg_catalog.pg_index i
            CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY part (attnum, position)
            JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = part.attnum
            WHERE i.indrelid = c.oid AND i.indimmediate AND part.position <= i.indnkeyatts
              AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
           coalesce(pg_catalog.to_jsonb(p)->>'rowfilter', '')
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
    CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(a.attname::text ORDER BY a.attnum) AS names,
               pg_catalog.array_agg(a.atttypid::bigint ORDER BY a.attnum) AS types,
               pg_catalog.array_agg(a.atttypmod ORDER BY a.attnum) AS typmods
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          AND CASE WHEN pg_catalog.to_jsonb(p) ? 'attnames' THEN pg_catalog.to_jsonb(p)->'attnames' ? a.attname
                   ELSE a.attgenerated = '' END
    ) columns
    WHERE p.pubname = ANY(%s)
    ORDER BY 2, 3
"""
_NAMES: Final = """
    SELECT DISTINCT schemaname::text, tablename::text FROM pg_catalog.pg_publication_tables WHERE pubname = ANY(%s)
    ORDER BY 1, 2
"""


@dataclass(frozen=True)
class PublishedColumn:
    """A column that is published."""

    name: str
    type_oid: int
    typmod: int


@dataclass(frozen=True)
class PublishedTable:
    """A table, as the stream describes it."""

    oid: int
    schema: str
    name: str
    kind: str
    """`relkind`: r for an ordinary table, p for a partitioned one."""
    identity: str
    """`relreplident`: d default, f full, i index, n nothing."""
    columns: tuple[PublishedColumn, ...]
    identity_columns: tuple[str, ...]
    """The columns of the index behind `identity` (the primary key or the chosen index); none for f and n."""
    row_filter: str
    """The SQL condition of the rows that are published; empty if all are."""


def published_tables(runner: QueryRunner, *publications: str) -> list[PublishedTable]:
    """The tables of these publications, in the order of schema and name; twice if two publications have a table."""
    return [
        PublishedTable(
            oid,
            schema,
            name,
            kind,
            identity,
            tuple(map(PublishedColumn, columns or (), types or (), typmods or ())),
            tuple(index or ()),
            row_filter,
        )
        for oid, schema, name, kind, identity, columns, types, typmods, index, row_filter in runner.rows(
            _TABLES, [list(publications)]
        )
    ]


def published_names(runner: QueryRunner, *publications: str) -> list[tuple[str, str]]:
    """Schema and name of each table of these publications, in this order, each once."""
    return [(schema, name) for schema, name in runner.rows(_NAMES, [list(publications)])]
