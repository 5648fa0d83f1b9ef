"""Replica identities: which columns of an old row PostgreSQL writes to the WAL, for a table and its partitions.

Before: the caller has the OIDs, from `published_tables` or from `publication.candidates`.
After: `publication` refuses to publish a table without one; `preflight.replica_identity` judges them.
Source: PostgreSQL, "ALTER TABLE" (REPLICA IDENTITY), "Logical Replication: Publication"; pg_class, pg_index;
CheckCmdReplicaIdentity, logicalrep_write_attrs and pgoutput_change of its sources.

A partition that is published as its root has two replica identities. Its own decides whether PostgreSQL accepts an
UPDATE or DELETE, and which columns of the old row are in the WAL. The one of the root is announced: it says which
columns identify a row, and whether the old row is whole. PostgreSQL does not compare the two. REPLICA IDENTITY does not
pass from a root to its partitions, but a primary key does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.published_tables import LOGGED
from cdcd.source.query_runner import QueryRunner

_OF_INDEX: Final = (
    "i.indimmediate AND CASE {of}.relreplident\n            "
    "WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END"
)
HAS_IDENTITY: Final = f"""
    ({{of}}.relreplident = 'f' OR EXISTS (
        SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = {{of}}.oid AND {_OF_INDEX}))
"""
"""An SQL condition on the row `{of}` of pg_class: UPDATE and DELETE stay possible while the table is published."""

_IDENTITIES: Final = """
    SELECT c.oid::bigint, n.nspname, c.relname, c.relreplident::text,
       EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid = c.oid AND i.indimmediate
           AND CASE c.relreplident WHEN 'n' THEN false WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),
       c.relkind = 'p'
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = ANY(%s::bigint[])
    ORDER BY 2, 3
"""

_LEAVES: Final = f"""
    SELECT leaf.oid::bigint FROM pg_catalog.pg_class leaf WHERE {LOGGED.format(of="leaf")} AND leaf.oid IN (
        SELECT given.oid::pg_catalog.oid FROM pg_catalog.unnest(%s::bigint[]) given (oid)
        UNION ALL
        SELECT t.relid::pg_catalog.oid FROM pg_catalog.unnest(%s::bigint[]) given (oid)
        CROSS JOIN LATERAL pg_catalog.pg_partition_tree(given.oid::pg_catalog.oid) t WHERE t.isleaf)
"""  # noqa: S608 - constants

# The partitions that have no replica identity, or a smaller one than their root. Asked for roots only: to plan it takes
# ten times as long as to plan the other queries, and the planner thinks that it is worth a compilation.
_PARTITIONS: Final = f"""
    SELECT c.oid::bigint, n.nspname, l.relname, NOT {HAS_IDENTITY.format(of="l")}
    FROM pg_catalog.pg_class c
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(c.oid) t
    JOIN pg_catalog.pg_class l ON l.oid = t.relid AND t.isleaf AND {LOGGED.format(of="l")}
    JOIN pg_catalog.pg_namespace n ON n.oid = l.relnamespace
    WHERE c.oid = ANY(%s::bigint[]) AND l.relreplident <> 'f' AND (
        NOT {HAS_IDENTITY.format(of="l")} OR NOT {HAS_IDENTITY.format(of="c")} OR c.relreplident = 'f'
        -- A column of the root's index that the partition's index lacks.
        OR EXISTS (SELECT FROM pg_catalog.pg_class r
            JOIN pg_catalog.pg_index i ON i.indrelid = r.oid
            JOIN pg_catalog.pg_attribute a
                ON a.attrelid = r.oid AND a.attnum = ANY ((i.indkey::int2[])[0:i.indnkeyatts - 1])
            WHERE r.oid IN (c.oid, l.oid) AND {_OF_INDEX.format(of="r")}
            GROUP BY a.attname HAVING NOT bool_or(r.oid = l.oid)))
    ORDER BY 2, 3
"""  # noqa: S608 - constants


@dataclass(frozen=True)
class TableIdentity:
    """The replica identity of one table."""

    schema: str
    name: str
    identity: str
    """`relreplident`: d default, f full, i index, n nothing."""
    has_index: bool
    """The index exists: for d and f the primary key, for i the chosen index."""
    is_root: bool = False
    """It is a partitioned table, published as such: its rows lie in its partitions."""
    bare_partitions: Sequence[tuple[str, str]] = ()
    """Schema and name of each partition without a replica identity."""
    lesser_partitions: Sequence[tuple[str, str]] = ()
    """Schema and name of each partition whose replica identity lacks a column of the root's. If the root has none: of
    each partition whose replica identity is not FULL."""
    has_chosen_key: bool = False
    """The settings have a key for its events."""

    @property
    def quoted(self) -> str:
        """The name, quoted for SQL."""
        return identifier(self.schema, self.name)

    @property
    def is_bare(self) -> bool:
        """It has no replica identity of its own."""
        return self.identity != "f" and not self.has_index

    @property
    def is_keyless(self) -> bool:
        """Its events have no key."""
        return not (self.has_index or self.has_chosen_key)


def table_identities(runner: QueryRunner, oids: Sequence[int], *, as_partitions: bool = False) -> list[TableIdentity]:
    """The replica identities of these tables, in the order of schema and name.

    `as_partitions`: of the partitions of a partitioned table, in place of it.
    """
    if as_partitions:
        oids = [oid for (oid,) in runner.rows(_LEAVES, [list(oids), list(oids)])]
    rows = runner.rows(_IDENTITIES, [list(oids)])
    bare: dict[int, list[tuple[str, str]]] = {oid: [] for oid, *_, is_root in rows if is_root}
    lesser: dict[int, list[tuple[str, str]]] = {oid: [] for oid in bare}
    for root, schema, name, is_bare in runner.rows(_PARTITIONS, [list(bare)]) if bare else ():
        (bare if is_bare else lesser)[root].append((schema, name))
    return [
        TableIdentity(schema, name, identity, has_index, is_root, bare.get(oid, ()), lesser.get(oid, ()))
        for oid, schema, name, identity, has_index, is_root in rows
    ]
