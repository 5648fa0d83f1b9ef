"""Asks the catalog which table each published name has now, and in which files its rows are.

Before: `published_tables` knows what is published.
After: the daemon compares each incarnation with the one whose rows the topic has (`incarnations`).
Source: PostgreSQL, "System Catalogs": pg_class, pg_inherits, pg_attribute; ATExecAttachPartition in tablecmds.c.

ATTACH PARTITION updates each row of pg_attribute that belongs to a column of the partition. So a partition was never
attached if one of these rows is from the command that has made the table. The rows of the system columns tell which
command that was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from zlib import crc32

from cdcd.source.incarnations import Incarnation, Leaf
from cdcd.source.published_tables import LOGGED, published_query
from cdcd.source.query_runner import QueryRunner

_MADE_AS_PARTITION: Final = """
    EXISTS (SELECT FROM pg_catalog.pg_attribute system JOIN pg_catalog.pg_attribute a USING (attrelid)
            WHERE system.attrelid = i.inhrelid AND system.attnum = -1 AND a.attnum > 0 AND NOT a.attisdropped
              AND a.xmin = system.xmin AND a.cmin = system.cmin)
"""
_INCARNATIONS: Final = f"""
    , tree AS (
        SELECT oid AS root, oid, '' AS attached, true AS made FROM published WHERE relkind = 'p'
        UNION ALL SELECT tree.root, i.inhrelid, tree.attached || ' ' || i.xmin, tree.made AND {_MADE_AS_PARTITION}
        FROM tree JOIN pg_catalog.pg_inherits i ON i.inhparent = tree.oid AND NOT i.inhdetachpending
    )
    SELECT published.schema, published.name, published.oid::bigint, published.entries, relfilenode::bigint,
           CASE WHEN relkind = 'r' THEN
               (SELECT pg_catalog.array_agg(a.xmin::text || ' ' || a.cmin ORDER BY a.attnum)
                FROM pg_catalog.pg_attribute a WHERE a.attrelid = published.oid AND a.attnum > 0)
           END,
           CASE WHEN relkind = 'p' THEN ARRAY(
               SELECT pg_catalog.concat_ws(',', leaf.oid, leaf.relfilenode, tree.made::int, tree.attached)
               FROM tree JOIN pg_catalog.pg_class leaf ON leaf.oid = tree.oid AND {LOGGED.format(of="leaf")}
               WHERE tree.root = published.oid ORDER BY leaf.oid)
           END
    FROM published
"""  # noqa: S608 - constants


def published_incarnations(
    runner: QueryRunner, server_version: int, publication: str
) -> dict[tuple[str, str], Incarnation]:
    """The incarnation of each published table, by schema and name. No lock of a table hides them."""
    query = published_query(server_version) + _INCARNATIONS
    return {
        (schema, name): _incarnation(oid, entries, file_node, columns, leaves)
        for schema, name, oid, entries, file_node, columns, leaves in runner.rows(query, [[publication]])
    }


def _incarnation(
    oid: int, entries: Sequence[int], file_node: int, columns: Sequence[str] | None, leaves: Sequence[str] | None
) -> Incarnation:
    published_by = tuple(sorted(entries))
    if leaves is None:
        return Incarnation(oid, published_by, file_node, crc32(",".join(columns or ()).encode()))
    found: list[Leaf] = []
    made: set[int] = set()
    for each in leaves:
        leaf, node, is_made, attached = each.split(",")
        found.append(Leaf(int(leaf), int(node), crc32(attached.encode())))
        if is_made == "1" and leaf == node:
            made.add(int(leaf))
    return Incarnation(oid, published_by, leaves=tuple(sorted(found)), made_as_partitions=frozenset(made))
