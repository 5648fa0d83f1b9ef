"""What the server's catalog tells about types, keys and settings: asked when the stream names something new.

Before: `pgoutput`'s Relation messages name types and relations by OID. After: `avro.types` picks codecs by `PgType`.
Source: PostgreSQL, "System Catalogs": pg_type, pg_range, pg_attribute, pg_index, pg_publication_tables.

The catalog is of now, the stream of some time ago: a type that was dropped meanwhile is not found, and one that was
altered is as it is now. `forget` when a relation is announced anew.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from psycopg import sql

from cdcd.lsn import parse_lsn
from cdcd.source.pg_types import PgType
from cdcd.source.session import Session, SessionClient

# A type and all that it is made of: a domain's base, an array's element, a range's subtype, a multirange's range, a
# composite's attributes. Each once, however often it is used (UNION removes what is there already, so this ends).
_TYPES: Final = """
    WITH RECURSIVE wanted (oid) AS (
        SELECT unnest(%s::pg_catalog.oid[])
      UNION
        SELECT part.oid
        FROM wanted JOIN pg_catalog.pg_type t ON t.oid = wanted.oid
        CROSS JOIN LATERAL (
            SELECT t.typbasetype WHERE t.typtype = 'd'
          UNION ALL
            SELECT t.typelem WHERE t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
          UNION ALL
            SELECT rngsubtype FROM pg_catalog.pg_range WHERE rngtypid = t.oid
          UNION ALL
            SELECT rngtypid FROM pg_catalog.pg_range WHERE rngmultitypid = t.oid
          UNION ALL
            SELECT atttypid FROM pg_catalog.pg_attribute
            WHERE t.typtype = 'c' AND attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped
        ) part (oid)
    )
    SELECT t.oid, n.nspname, t.typname, t.typtype::text, t.typdelim::text,
           CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE 0 END,
           t.typtypmod,
           t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc,
           coalesce(r.rngsubtype, m.rngtypid, t.typelem),
           CASE WHEN t.typtype = 'c' THEN (
               SELECT jsonb_agg(jsonb_build_array(attname, atttypid::bigint, atttypmod) ORDER BY attnum)
               FROM pg_catalog.pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND NOT attisdropped) END,
           t.typtype = 'c' AND EXISTS (
               SELECT FROM pg_catalog.pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND attisdropped)
    FROM wanted
    JOIN pg_catalog.pg_type t ON t.oid = wanted.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
    LEFT JOIN pg_catalog.pg_range m ON m.rngmultitypid = t.oid
"""

# INCLUDE columns come after the key columns and are none. A deferrable primary key is no key: two rows may share it for
# a moment (UPDATE t SET id = 3 - id), and the second one's delete would take the first one along.
_INDEX_COLUMNS: Final = sql.SQL("""
    SELECT a.attname
    FROM pg_catalog.pg_index i
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k (attnum, position)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = %s::pg_catalog.oid AND i.{kind} AND i.indimmediate AND k.position <= i.indnkeyatts
    ORDER BY k.position
""")

# Version 14 publishes all columns but generated ones; from 15 on `attnames` tells which.
_PUBLISHED: Final = sql.SQL("""
    SELECT DISTINCT a.atttypid
    FROM pg_catalog.pg_publication_tables p
    JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname
    JOIN pg_catalog.pg_class c ON c.relname = p.tablename AND c.relnamespace = n.oid
    JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND {columns}
    WHERE p.pubname = ANY(%s)
    ORDER BY 1
""")

# Flushed, not only written: what commits is visible to others a moment after.
_POSITION: Final = """
    SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_flush_lsn() END)::text
"""

_TIMEOUT: Final = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"


class Catalog(SessionClient):
    """Answers by OID, remembered until `forget`. One connection, opened when needed; errors as `Session` names them."""

    def __init__(self, source: str | Session) -> None:
        """`source`: a DSN, or a session shared with others."""
        super().__init__(source)
        self._types: dict[int, PgType] = {}
        self._keys: dict[tuple[int, str], tuple[str, ...]] = {}

    def types(self, oids: Iterable[int]) -> dict[int, PgType]:
        """Resolve type OIDs with all they are made of; an OID that the server does not know is left out."""
        wanted = set(oids)
        missing = sorted(wanted - self._types.keys())
        if missing:
            [(position,)] = self.session.rows(_POSITION)
            rows = {row[0]: row for row in self.session.rows(_TYPES, [missing])}
            for oid in rows:
                self._build(oid, rows, parse_lsn(position))
        return {oid: self._types[oid] for oid in wanted if oid in self._types}

    def type(self, oid: int) -> PgType | None:
        """Resolve one type OID; None if the server does not know it."""
        return self.types([oid]).get(oid)

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        """The names of a table's primary key columns in key order; empty if it has none, or is no more."""
        return self._index_columns(relation_oid, "indisprimary")

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        """The names of the columns of the index that is the replica identity, in its order; empty without one."""
        return self._index_columns(relation_oid, "indisreplident")

    def published_types(self, *publications: str) -> list[PgType]:
        """Every type that a published column of these publications has, each once, by OID."""
        columns = "a.attname = ANY(p.attnames)" if self.session.server_version >= 150_000 else "a.attgenerated = ''"
        rows = self.session.rows(_PUBLISHED.format(columns=sql.SQL(columns)), [list(publications)])
        found = self.types(oid for (oid,) in rows)
        return [found[oid] for oid in sorted(found)]

    def wal_sender_timeout_s(self) -> float:
        """After how much silence the server ends a stream, for a connection of this role; 0: never."""
        [(milliseconds,)] = self.session.rows(_TIMEOUT)
        return float(milliseconds) / 1_000

    def encoding(self) -> str:
        """The encoding of the database: UTF8, LATIN1 ...; SQL_ASCII means text of no known encoding."""
        return self.session.encoding

    def forget(self) -> None:
        """Ask the server anew: something was altered."""
        self._types.clear()
        self._keys.clear()

    def _index_columns(self, relation_oid: int, kind: str) -> tuple[str, ...]:
        asked = (relation_oid, kind)
        if asked not in self._keys:
            query = _INDEX_COLUMNS.format(kind=sql.Identifier(kind))
            self._keys[asked] = tuple(name for (name,) in self.session.rows(query, [relation_oid]))
        return self._keys[asked]

    def _build(self, oid: int, rows: dict[int, tuple[Any, ...]], asked_lsn: int) -> PgType:
        if oid in self._types:
            return self._types[oid]
        _, schema, name, kind, delimiter, base, typmod, is_array, part, attributes, dropped = rows[oid]
        has_element = is_array or kind in {"r", "m"}
        self._types[oid] = PgType(
            oid=oid,
            schema=schema,
            name=name,
            kind=kind,
            base=self._build(base, rows, asked_lsn) if base else None,
            base_typmod=typmod,
            element=self._build(part, rows, asked_lsn) if has_element else None,
            is_array=is_array,
            fields=tuple(
                (field, self._build(of, rows, asked_lsn), of_typmod) for field, of, of_typmod in attributes or ()
            ),
            dropped=dropped,
            asked_lsn=asked_lsn,
            delimiter=delimiter,
        )
        return self._types[oid]
