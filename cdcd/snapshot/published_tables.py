"""What the published tables are, from the catalog: as the server would announce them now, and where their rows lie.

Before: a session, or the connection that reads under a snapshot, answers the queries.
After: `chunks` divides the heaps;
`transaction.relations` resolves the Relation messages, so that copy and stream give a table the same schema.
Source: PostgreSQL, "System Catalogs": pg_publication_tables, pg_attribute, pg_class, `pg_partition_tree`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, LiteralString, Protocol

from cdcd.pgoutput.messages import Column, Relation
from cdcd.transaction.relations import IDENTITY_DEFAULT, IDENTITY_FULL, IDENTITY_INDEX

# A publication's tables with their columns as it sends them. Version 14 has neither column lists nor row filters.
_TABLES: Final = """
    SELECT p.schemaname, p.tablename, c.oid::bigint, c.relreplident::text,
           array_agg(a.attname::text ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL),
           array_agg(a.atttypid::bigint ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL),
           array_agg(a.atttypmod ORDER BY a.attnum) FILTER (WHERE a.attname IS NOT NULL),
           coalesce(pg_catalog.to_jsonb(p)->>'rowfilter', ''),
           (SELECT pg_catalog.array_agg(k.attname::text) FROM pg_catalog.pg_index i
            CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY part (attnum, position)
            JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = part.attnum
            WHERE i.indrelid = c.oid AND i.indimmediate AND part.position <= i.indnkeyatts
              AND CASE c.relreplident WHEN 'd' THEN i.indisprimary ELSE i.indisreplident END)
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
    LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        AND CASE WHEN pg_catalog.to_jsonb(p) ? 'attnames' THEN pg_catalog.to_jsonb(p)->'attnames' ? a.attname
                 ELSE a.attgenerated = '' END
    WHERE p.pubname = %s
    GROUP BY p.*, 1, 2, 3, 4, c.oid, c.relreplident
    ORDER BY 1, 2
"""

# The heaps of a table: itself, or its partitions. The catalog's file node is of the snapshot, the function's of now:
# where they differ the table was rewritten since, and the snapshot does not see its rows.
_HEAPS: Final = """
    SELECT root.oid, c.oid::bigint, n.nspname, c.relname, coalesce(m.amname = 'heap', true), c.relfilenode::bigint,
           coalesce(pg_catalog.pg_relation_filenode(c.oid)::bigint, 0),
           pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint,
           greatest(c.reltuples, 0)::bigint
    FROM pg_catalog.unnest(%s::bigint[]) root (oid)
    CROSS JOIN LATERAL (
        SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(root.oid::oid::pg_catalog.regclass) t WHERE t.isleaf
        UNION SELECT root.oid::oid
    ) part (oid)
    JOIN pg_catalog.pg_class c ON c.oid = part.oid AND c.relkind = 'r'
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
    ORDER BY 1, 2
"""

# Heaps by name, with what COPY finds by the names of columns.
_FORMS: Final = """
    SELECT c.oid::bigint, n.nspname, c.relname,
           (SELECT pg_catalog.array_agg(pg_catalog.concat_ws(' ', attnum, attname, atttypid, atttypmod) ORDER BY attnum)
            FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s::bigint[])
"""


class QueryRunner(Protocol):
    """Whoever can ask the server: a session, or a connection inside a snapshot."""

    def rows(self, query: LiteralString, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""


@dataclass(frozen=True)
class PublishedRelation:
    """One published table: its Relation message as the stream would have it, and its row filter (SQL, or empty)."""

    relation: Relation
    row_filter: str


@dataclass(frozen=True)
class Heap:
    """Where rows of a table lie: the table itself, or one of its partitions."""

    oid: int
    schema: str
    name: str
    file_node: int
    blocks: int
    rows: int
    """As the planner estimates them."""
    in_blocks: bool
    """It is an ordinary heap: rows can be read by block."""
    rewritten: bool
    """It was rewritten after the snapshot, which does not show its rows any more."""


def published(asks: QueryRunner, publication: str) -> list[PublishedRelation]:
    """The publication's tables, by schema and name."""
    tables = []
    for schema, name, oid, identity, columns, types, typmods, row_filter, index in asks.rows(_TABLES, [publication]):
        flagged: Iterable[str] = ()
        if identity == IDENTITY_FULL:
            flagged = columns or ()
        elif identity in (IDENTITY_DEFAULT, IDENTITY_INDEX):
            flagged = index or ()
        described = tuple(
            Column(column in flagged, column, type_oid, typmod)
            for column, type_oid, typmod in zip(columns or (), types or (), typmods or (), strict=True)
        )
        tables.append(PublishedRelation(Relation(0, oid, schema, name, identity, described), row_filter))
    return tables


def heaps(asks: QueryRunner, oids: Sequence[int]) -> dict[int, list[Heap]]:
    """The heaps of each of these tables (OIDs)."""
    found: dict[int, list[Heap]] = {oid: [] for oid in oids}
    for root, oid, schema, name, is_heap, cataloged, current, blocks, rows in asks.rows(_HEAPS, [list(oids)]):
        found[root].append(Heap(oid, schema, name, current, blocks, rows, is_heap, cataloged != current))
    return found


def altered_heaps(snapshot: QueryRunner, now: QueryRunner, found: Sequence[Heap]) -> list[Heap]:
    """Which of these heaps the snapshot can show no more: COPY goes by the names of now. They must be locked."""
    oids = [heap.oid for heap in found]
    seen, current = ({oid: form for oid, *form in asks.rows(_FORMS, [oids])} for asks in (snapshot, now))
    return [heap for heap in found if heap.rewritten or seen.get(heap.oid) != current.get(heap.oid)]
