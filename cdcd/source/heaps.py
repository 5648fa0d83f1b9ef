"""Where the rows of a table lie: in the table itself, or in its partitions.

Before: `published_tables` names the tables.
After: `exported_snapshot` locks the heaps; `snapshot.chunks` divides them.
Source: PostgreSQL, "System Catalogs": pg_class, pg_attribute; `pg_partition_tree`, `pg_relation_filenode`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.published_tables import LOGGED
from cdcd.source.query_runner import QueryRunner

# pg_class has the file node as of the snapshot, pg_relation_filenode() the present one. If they differ, the table was
# rewritten after the snapshot, and the snapshot does not see its rows.
_HEAPS: Final = f"""
    SELECT root.oid, c.oid::bigint, n.nspname, c.relname,
           coalesce(m.amname = 'heap', true) AND pg_catalog.has_table_privilege(c.oid, 'SELECT'), c.relfilenode::bigint,
           coalesce(pg_catalog.pg_relation_filenode(c.oid)::bigint, 0),
           pg_catalog.pg_relation_size(c.oid) / pg_catalog.current_setting('block_size')::bigint,
           greatest(c.reltuples, 0)::bigint
    FROM pg_catalog.unnest(%s::bigint[]) root (oid)
    CROSS JOIN LATERAL (
        SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(root.oid::oid::pg_catalog.regclass) t WHERE t.isleaf
        UNION SELECT root.oid::oid
    ) part (oid)
    JOIN pg_catalog.pg_class c ON c.oid = part.oid AND {LOGGED.format(of="c")}
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    LEFT JOIN pg_catalog.pg_am m ON m.oid = c.relam
    ORDER BY 1, 2
"""  # noqa: S608 - constants

# The name of a heap, and the names and types of its columns: COPY finds both by name.
_FORMS: Final = """
    SELECT c.oid::bigint, n.nspname, c.relname,
           (SELECT pg_catalog.array_agg(pg_catalog.concat_ws(' ', attnum, attname, atttypid, atttypmod) ORDER BY attnum)
            FROM pg_catalog.pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s::bigint[])
"""

_NUMBERS: Final = """
    SELECT attrelid::bigint, attname, attnum FROM pg_catalog.pg_attribute
    WHERE attrelid = ANY(%s::bigint[]) AND attnum > 0 AND NOT attisdropped
"""


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
    """Its rows can be read by block: its access method is `heap`, and the role may read `ctid`, which no privilege on
    some columns allows."""
    rewritten: bool
    """It was rewritten after the snapshot was taken: the snapshot does not show its rows."""


def heaps(runner: QueryRunner, oids: Sequence[int]) -> dict[int, list[Heap]]:
    """The heaps of each of these tables, by the table's OID."""
    by_table: dict[int, list[Heap]] = {oid: [] for oid in oids}
    for root, oid, schema, name, is_heap, cataloged, current, blocks, rows in runner.rows(_HEAPS, [list(oids)]):
        by_table[root].append(Heap(oid, schema, name, current, blocks, rows, is_heap, cataloged != current))
    return by_table


def altered_heaps(snapshot: QueryRunner, now: QueryRunner, locked: Sequence[Heap]) -> list[Heap]:
    """The heaps in `locked` that the snapshot cannot show any more: rewritten, renamed, or with other columns.

    Lock them first: COPY finds tables and columns by their present names.
    """
    oids = [heap.oid for heap in locked]
    seen, current = ({oid: form for oid, *form in runner.rows(_FORMS, [oids])} for runner in (snapshot, now))
    return [heap for heap in locked if heap.rewritten or seen.get(heap.oid) != current.get(heap.oid)]


def column_numbers(runner: QueryRunner, oids: Sequence[int]) -> dict[int, dict[str, int]]:
    """By heap, the number of each column (`attnum`): it stays if the column is renamed, not if it is made again."""
    numbers: dict[int, dict[str, int]] = {oid: {} for oid in oids}
    for oid, name, number in runner.rows(_NUMBERS, [list(oids)]):
        numbers[oid][name] = number
    return numbers
