"""The tables of a publication, as the stream describes them. Only this module asks for them.

Before: a session, or a connection inside a snapshot, runs the query.
After: the daemon and the commands check, verify, schema and snapshot work on these tables.
Source: PostgreSQL, "System Catalogs": pg_publication_tables, pg_attribute, pg_class, pg_index.

The table of requests to the daemon (`requests_table`) is left out.

The result has the partitions of a partitioned table, or its root if the publication has `publish_via_partition_root`.
It leaves out what PostgreSQL publishes in name only: unlogged and foreign partitions, whose rows are not in the WAL.
The query for the tables waits while another transaction alters one. The query for their names reads only the catalog,
and waits for nobody: the other transaction may itself wait for the daemon, its synchronous standby.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.identifiers import identifier
from cdcd.source.query_runner import QueryRunner
from cdcd.source.requests_table import NAME, SCHEMA
from cdcd.source.session import Session

PARTITIONED: Final = "p"
"""The `kind` of a partitioned table."""

LOGGED: Final = "({of}.relkind = 'r' AND {of}.relpersistence = 'p')"
"""An SQL condition on the row `{of}` of pg_class: it has rows, and the WAL has them."""

# The table of requests to the daemon is in the publication, but its rows are not published.
_IS_REQUESTS: Final = f"""
    (c.relname = '{NAME}'
     AND c.relnamespace IS NOT DISTINCT FROM pg_catalog.to_regnamespace('{SCHEMA}')::pg_catalog.oid)
"""
_FIRST_OID: Final = 16_384
"""Objects below it are the system's: FirstNormalObjectId."""
SCHEMAS_VERSION: Final = 150_000
"""PostgreSQL 15 and later have FOR TABLES IN SCHEMA."""
_SENT: Final = f"({LOGGED.format(of='c')} OR c.relkind = 'p') AND NOT {_IS_REQUESTS}"

# PostgreSQL 14 has neither `attnames` nor `rowfilter`: it publishes all rows, and all columns but generated ones. It
# names a partition several times if the publication has its root, too.
_TABLES: Final = f"""
    SELECT c.oid::bigint, p.schemaname::text, p.tablename::text, c.relkind::text, c.relreplident::text,
           columns.names, columns.types, columns.typmods,
           (SELECT pg_catalog.array_agg(k.attname::text) FROM pg_catalog.pg_index i
            CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY part (attnum, position)
            JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = part.attnum
            WHERE i.indrelid = c.oid AND i.indimmediate AND part.position <= i.indnkeyatts
              AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident ELSE false END),
           coalesce(pg_catalog.to_jsonb(p)->>'rowfilter', ''),
           ARRAY(SELECT leaf.oid::bigint FROM pg_catalog.pg_partition_tree(c.oid) t
                 JOIN pg_catalog.pg_class leaf ON leaf.oid = t.relid
                 WHERE c.relkind = 'p' AND t.isleaf AND NOT {LOGGED.format(of="leaf")} ORDER BY 1)
    FROM (SELECT DISTINCT * FROM pg_catalog.pg_publication_tables WHERE pubname = ANY(%s)) p
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
    WHERE {_SENT}
    ORDER BY 2, 3
"""  # noqa: S608 - constants
# As pg_get_publication_tables has them, which opens each table, and so waits for locks.
_COVERED: Final = f"""
    WITH RECURSIVE b AS (SELECT * FROM pg_catalog.pg_publication WHERE pubname = ANY(%s)),
    named (publication, via_root, oid, entry) AS (
        SELECT b.oid, b.pubviaroot, r.prrelid, r.oid FROM b JOIN pg_catalog.pg_publication_rel r ON r.prpubid = b.oid
        UNION SELECT b.oid, b.pubviaroot, c.oid, b.oid FROM b JOIN pg_catalog.pg_class c ON b.puballtables
        {{schemas}}
    ),
    covered AS (
        SELECT * FROM named
        UNION SELECT r.publication, r.via_root, i.inhrelid, r.entry FROM covered r
        JOIN pg_catalog.pg_class c ON c.oid = r.oid AND c.relkind = 'p'
        JOIN pg_catalog.pg_inherits i ON i.inhparent = c.oid
    ),
    published AS (
        SELECT n.nspname::text AS schema, c.relname::text AS name, c.oid, c.relkind, c.relfilenode,
               pg_catalog.array_agg(DISTINCT covered.entry::bigint) AS entries
        FROM covered JOIN pg_catalog.pg_class c USING (oid) JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid >= {_FIRST_OID} AND c.relpersistence = 'p' AND {_SENT}
          AND CASE WHEN via_root
              THEN NOT EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(c.oid) a
                               JOIN named ON named.oid = a.relid AND named.oid <> c.oid
                               WHERE named.publication = covered.publication)
              ELSE c.relkind = 'r' END
        GROUP BY n.nspname, c.relname, c.oid, c.relkind, c.relfilenode
    )
"""  # noqa: S608 - constants
_OF_SCHEMAS: Final = """
        UNION SELECT b.oid, b.pubviaroot, c.oid, s.oid FROM b
        JOIN pg_catalog.pg_publication_namespace s ON s.pnpubid = b.oid
        JOIN pg_catalog.pg_class c ON c.relnamespace = s.pnnspid
"""
_NAMES: Final = "SELECT schema, name, oid::bigint FROM published ORDER BY 1, 2"
_OIDS: Final = f"""
    SELECT DISTINCT c.oid::bigint FROM pg_catalog.pg_publication b
    CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(b.pubname::text) p
    JOIN pg_catalog.pg_class c ON c.oid = p.relid
    WHERE b.pubname = %s AND {_SENT}
"""  # noqa: S608 - constants
_UNSENT: Final = f"""
    SELECT n.nspname, leaf.relname, leaf.relkind = 'f'
    FROM pg_catalog.pg_class leaf JOIN pg_catalog.pg_namespace n ON n.oid = leaf.relnamespace
    WHERE leaf.relispartition AND leaf.relkind IN ('r', 'f') AND NOT {LOGGED.format(of="leaf")}
      AND EXISTS (SELECT FROM pg_catalog.pg_partition_ancestors(leaf.oid) a
                  WHERE a.relid::pg_catalog.oid = ANY(%s::bigint[])
                  OR a.relid IN (SELECT p.relid FROM pg_catalog.pg_publication b
                     CROSS JOIN LATERAL pg_catalog.pg_get_publication_tables(b.pubname::text) p WHERE b.pubname = %s))
    ORDER BY 1, 2
"""  # noqa: S608 - constants


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
    """The SQL condition of the rows that are published; empty if all are. For a root, it leaves out the rows of
    unlogged and foreign partitions."""

    @property
    def expression(self) -> str:
        """The table in FROM and LOCK TABLE: a root with its partitions, else only the table itself.

        The tables that inherit from it are no part of it. The role needs no privileges on the partitions of a root.
        """
        return ("" if self.kind == PARTITIONED else "ONLY ") + identifier(self.schema, self.name)


@dataclass(frozen=True)
class UnsentPartition:
    """A partition of a published table whose rows PostgreSQL does not send: it is foreign, or unlogged."""

    schema: str
    name: str
    is_foreign: bool


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
            _rows_sent(row_filter, unsent),
        )
        for oid, schema, name, kind, identity, columns, types, typmods, index, row_filter, unsent in runner.rows(
            _TABLES, [list(publications)]
        )
    ]


def published_names(session: Session, *publications: str) -> list[tuple[str, str]]:
    """Schema and name of each table of these publications, in this order, each once. No lock of a table hides them."""
    return list(published_oids_by_name(session, *publications))


def published_oids_by_name(session: Session, *publications: str) -> dict[tuple[str, str], int]:
    """The OID of each table of these publications by schema and name, as `published_names` has them."""
    query = published_query(session.server_version) + _NAMES
    return {(schema, name): oid for schema, name, oid in session.rows(query, [list(publications)])}


def published_query(server_version: int) -> str:
    """The beginning of a query on the table expression `published`: each published table with what publishes it.

    The query reads the catalog only, and waits for no lock. Its first value is a list of publications.
    """
    return _COVERED.format(schemas=_OF_SCHEMAS if server_version >= SCHEMAS_VERSION else "")


def published_oids(runner: QueryRunner, publication: str) -> list[int]:
    """The OIDs of the tables of a publication: a tenth of the work of `published_tables`."""
    return [oid for (oid,) in runner.rows(_OIDS, [publication])]


def unsent_partitions(runner: QueryRunner, publication: str, oids: Sequence[int] = ()) -> list[UnsentPartition]:
    """The partitions without WAL among the tables of the publication, and among `oids` and their partitions."""
    return [UnsentPartition(*row) for row in runner.rows(_UNSENT, [list(oids), publication])]


def _rows_sent(row_filter: str, unsent: Sequence[int]) -> str:
    if not unsent:
        return row_filter
    logged = f"tableoid <> ALL ('{{{','.join(map(str, unsent))}}}'::pg_catalog.oid[])"
    return f"({row_filter}) AND {logged}" if row_filter else logged
