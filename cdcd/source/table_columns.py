"""The columns of tables, and the columns of the keys of their events, as the catalog has them now.

Before: the caller has the names of published tables.
After: `preflight.column_rules` judges the settings [[table]] by them.
Source: PostgreSQL, "System Catalogs": pg_attribute, pg_index. The catalog only: no lock of a table hides them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.source.published_tables import published_names
from cdcd.source.query_runner import QueryRunner
from cdcd.source.session import Session

_COLUMNS: Final = """
    SELECT n.nspname::text, c.relname::text,
           ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
           ARRAY(SELECT a.atttypid::bigint FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum),
           ARRAY(SELECT k.attname::text FROM pg_catalog.pg_index i
                 CROSS JOIN LATERAL pg_catalog.unnest(i.indkey) WITH ORDINALITY part (attnum, position)
                 JOIN pg_catalog.pg_attribute k ON k.attrelid = c.oid AND k.attnum = part.attnum
                 WHERE i.indrelid = c.oid AND i.indimmediate AND part.position <= i.indnkeyatts
                   AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END),
           c.relreplident::text,
           ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND NOT a.attnotnull),
           ARRAY(SELECT a.atttypmod FROM pg_catalog.pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum)
    FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) wanted (schema, name)
    JOIN pg_catalog.pg_namespace n ON n.nspname = wanted.schema
    JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
    ORDER BY 1, 2
"""


@dataclass(frozen=True)
class TableColumns:
    """One table."""

    schema: str
    name: str
    columns: tuple[str, ...]
    type_oids: tuple[int, ...]
    key: tuple[str, ...]
    """The columns of the key of its events: of the primary key, or of the index of the replica identity."""
    identity: str = "d"
    """`pg_class.relreplident`."""
    nullable: tuple[str, ...] = ()
    """The columns that may be null."""
    typmods: tuple[int, ...] = ()
    """`pg_attribute.atttypmod` of each column."""

    @property
    def flagged(self) -> tuple[str, ...]:
        """The columns of the replica identity."""
        return {"f": self.columns, "n": ()}.get(self.identity, self.key)


def table_columns(runner: QueryRunner, tables: Sequence[tuple[str, str]]) -> list[TableColumns]:
    """The tables with these names (schema, name) that exist."""
    rows = runner.rows(_COLUMNS, [[schema for schema, _ in tables], [name for _, name in tables]])
    return [
        TableColumns(schema, name, tuple(names), tuple(types), tuple(key), identity, tuple(nullable), tuple(typmods))
        for schema, name, names, types, key, identity, nullable, typmods in rows
    ]


def published_columns(session: Session, publication: str) -> list[TableColumns]:
    """The tables of a publication."""
    return table_columns(session, published_names(session, publication))
