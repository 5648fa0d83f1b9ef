"""Types and keys from the server's catalog. The daemon asks when the stream names a new type or relation.

Before: `pgoutput`'s Relation messages name types and relations by OID.
After: `avro.codecs.lookup` picks codecs by `PgType`.
Source: PostgreSQL, "System Catalogs": pg_type, pg_range, pg_attribute (attmissingval), pg_index.

The catalog shows the present, the stream shows the past. A type that was dropped meanwhile is not found, and a type
that was altered has its present form. So call `forget` when the stream announces a relation again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from psycopg import sql

from cdcd.lsn import parse_lsn
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.published_tables import published_tables
from cdcd.source.requests_table import takes_requests
from cdcd.source.session import Session, SessionClient

# Types with the types of their parts: a domain's base, an array's element, a range's subtype, a multirange's range, a
# composite's attributes. UNION keeps each type once, so the recursion ends.
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
               SELECT FROM pg_catalog.pg_attribute WHERE attrelid = t.typrelid AND attnum > 0 AND attisdropped),
           CASE WHEN t.typtype = 'e' THEN (
               SELECT jsonb_agg(enumlabel ORDER BY enumsortorder) FROM pg_catalog.pg_enum WHERE enumtypid = t.oid
               HAVING pg_catalog.count(*) <= 1000) END
    FROM wanted
    JOIN pg_catalog.pg_type t ON t.oid = wanted.oid
    JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
    LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
    LEFT JOIN pg_catalog.pg_range m ON m.rngmultitypid = t.oid
"""

# PostgreSQL 14 has no column lists, and before 18 no publication has generated columns. A partition has no list of its
# own: with one, the root publishes.
_COLUMNS: Final = """
    WITH asked AS (SELECT %s::pg_catalog.oid AS relation, %s::pg_catalog.text AS publication)
    SELECT a.attname,
           CASE WHEN listed.names IS NOT NULL THEN a.attname = ANY (listed.names)
                ELSE a.attgenerated = '' OR EXISTS (
                    SELECT FROM pg_catalog.pg_publication p
                    WHERE p.pubname = asked.publication AND pg_catalog.to_jsonb(p)->>'pubgencols' = a.attgenerated) END
    FROM asked
    JOIN pg_catalog.pg_attribute a ON a.attrelid = asked.relation
    CROSS JOIN LATERAL (
        SELECT pg_catalog.array_agg(c.attname) AS names
        FROM pg_catalog.pg_publication p
        JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
        JOIN pg_catalog.pg_attribute c ON c.attrelid = r.prrelid AND c.attnum::text = ANY (
            pg_catalog.regexp_split_to_array(pg_catalog.to_jsonb(r)->>'prattrs', '[^0-9]+'))
        WHERE p.pubname = asked.publication AND r.prrelid = asked.relation
    ) listed
    WHERE a.attnum > 0 AND NOT a.attisdropped
"""

# All that is asked of relations in one question: with thousands of them the way to the server counts.
#
# INCLUDE columns follow the key columns and do not belong to the key. A deferrable primary key is no key: two rows may
# share a value for a moment (UPDATE t SET id = 3 - id), and the delete of the second row would delete the first, too.
#
# An expression of DEFAULT names no column. So `pg_get_expr` needs no relation, and takes no lock on it.
_ATTRIBUTES: Final = r"""
    SELECT asked.relation::bigint, a.attname, pg_catalog.array_position(asked.primary_key, a.attnum),
           pg_catalog.array_position(asked.identity_index, a.attnum), a.attnum::int, a.atttypid::bigint, NULL,
           a.attnotnull,
           CASE WHEN pg_catalog.octet_length(given.expression) <= 1000
                AND (pg_catalog.getdatabaseencoding() = 'UTF8' OR given.expression COLLATE "C" ~ '^[\x01-\x7f]*$')
                THEN given.expression ELSE '' END,
           a.atthasmissing OR asked.relkind = 'p'
    FROM (
        SELECT c.oid, c.relkind,
               (SELECT pg_catalog.array_agg(k.attnum ORDER BY k.position)
                FROM pg_catalog.pg_index i, unnest(i.indkey) WITH ORDINALITY k (attnum, position)
                WHERE i.indrelid = c.oid AND i.indisprimary AND i.indimmediate AND k.position <= i.indnkeyatts),
               (SELECT pg_catalog.array_agg(k.attnum ORDER BY k.position)
                FROM pg_catalog.pg_index i, unnest(i.indkey) WITH ORDINALITY k (attnum, position)
                WHERE i.indrelid = c.oid AND i.indisreplident AND i.indimmediate AND k.position <= i.indnkeyatts)
        FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::pg_catalog.oid[])
    ) asked (relation, relkind, primary_key, identity_index)
    JOIN pg_catalog.pg_attribute a ON a.attrelid = asked.relation AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN LATERAL (
        SELECT pg_catalog.pg_get_expr(d.adbin, 0) FROM pg_catalog.pg_attrdef d
        WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''
    ) given (expression) ON true
"""

# The same with missing values, which few tables have. A table that is the root of partitions keeps no values of its
# own: those of its partitions count, if they agree. They are found without pg_partition_tree, which locks them. Whoever
# alters tables chooses the values. So those are left out that are large, or that this session may not be able to
# convert. `attmissingval` is an array of one value: text[] reads it where its delimiter is a comma.
_WITH_MISSING_VALUES: Final = sql.SQL(
    r"""
    WITH RECURSIVE heap (relation, oid) AS (
        SELECT asked, asked FROM unnest(%s::pg_catalog.oid[]) asked
      UNION
        SELECT heap.relation, i.inhrelid
        FROM heap JOIN pg_catalog.pg_class c ON c.oid = heap.oid AND c.relkind = 'p'
        JOIN pg_catalog.pg_inherits i ON i.inhparent = heap.oid
    ), missing (relation, name, type, value) AS (
        SELECT heap.relation, a.attname, a.atttypid,
               CASE WHEN t.typdelim = ',' THEN (a.attmissingval::pg_catalog.text::pg_catalog.text[])[1]
                    WHEN a.attmissingval::pg_catalog.text !~ '["\\]'
                    THEN pg_catalog.btrim(a.attmissingval::pg_catalog.text, '{{}}') END
        FROM heap JOIN pg_catalog.pg_attribute a ON a.attrelid = heap.oid
        JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
        WHERE a.attnum > 0 AND NOT a.attisdropped AND a.atthasmissing
    )
    SELECT of_now.relation, of_now.attname, of_now.primary_key, of_now.identity_index, of_now.attnum, of_now.atttypid,
           (SELECT CASE WHEN pg_catalog.count(DISTINCT m.value COLLATE "C") = 1 THEN pg_catalog.min(m.value) END
            FROM missing m
            WHERE m.relation = of_now.relation::pg_catalog.oid
            AND m.name = of_now.attname AND m.type = of_now.atttypid::pg_catalog.oid
            AND pg_catalog.octet_length(m.value) <= 1000
            AND (pg_catalog.getdatabaseencoding() = 'UTF8' OR m.value COLLATE "C" ~ '^[\x01-\x7f]*$')),
           of_now.attnotnull, of_now.expression, of_now.may_miss
    FROM ({attributes})
        of_now (relation, attname, primary_key, identity_index, attnum, atttypid, missing, attnotnull, expression,
                may_miss)
"""
).format(attributes=sql.SQL(_ATTRIBUTES))

# A commit may be visible before it is flushed (synchronous_commit = off), but not before it is inserted.
_BEHIND: Final = """
    SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_insert_lsn() END)::text
"""

# The flushed position, not the written one: other sessions see a commit only after it is flushed.
_POSITION: Final = """
    SELECT (CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn()
                 ELSE pg_catalog.pg_current_wal_flush_lsn() END)::text
"""

_TIMEOUT: Final = "SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'"


_ASKED_AT_ONCE_MAX: Final = 200
"""Relations of one question: each may have 1,600 columns."""


class _Relation:
    """What the catalog says of a relation; nothing of one that was dropped."""

    def __init__(self, rows: list[tuple[Any, ...]]) -> None:
        """`rows` of _ATTRIBUTES, of this relation."""
        self.attributes = {name: Attribute(*facts) for _, name, _, _, *facts, _ in rows}
        """By name."""
        self.primary_key = tuple(name for _, name in sorted((row[2], row[1]) for row in rows if row[2]))
        self.identity_index = tuple(name for _, name in sorted((row[3], row[1]) for row in rows if row[3]))


class Catalog(SessionClient):
    """Answers by OID, and remembers each answer until `forget`. Raises what `Session` raises."""

    def __init__(self, source: str | Session, publication: str = "") -> None:
        """`source`: a DSN, or a session shared with others.

        `publication`: `columns` looks at its column lists, and its owner may own the table of requests.
        """
        super().__init__(source)
        self._publication = publication
        self._lsn_base = 0
        self._types: dict[int, PgType] = {}
        self._columns: dict[int, dict[str, bool]] = {}
        self._relations: dict[int, _Relation] = {}

    def types(self, oids: Iterable[int]) -> dict[int, PgType]:
        """Types by OID, each with the types of its parts. An OID that the server does not know is left out."""
        requested = set(oids)
        missing = sorted(requested - self._types.keys())
        if missing:
            [(position,)] = self.session.rows(_POSITION)
            rows = {row[0]: row for row in self.session.rows(_TYPES, [missing])}
            for oid in rows:
                self._build(oid, rows, parse_lsn(position) + self._lsn_base)
        return {oid: self._types[oid] for oid in requested if oid in self._types}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        """The names of a table's primary key columns in key order; empty if it has no key, or was dropped."""
        return self._relation(relation_oid).primary_key

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        """The names of the columns of the replica identity's index, in its order; empty if no index is chosen."""
        return self._relation(relation_oid).identity_index

    def columns(self, relation_oid: int) -> dict[str, bool]:
        """The columns of a table, and whether the publication has each of them; empty if the table was dropped."""
        if relation_oid not in self._columns:
            found = self.session.rows(_COLUMNS, [relation_oid, self._publication])
            self._columns[relation_oid] = {name: bool(is_published) for name, is_published in found}
        return self._columns[relation_oid]

    def attributes(self, relation_oid: int) -> dict[str, Attribute]:
        """The columns of a table, by name; empty if the table was dropped."""
        return self._relation(relation_oid).attributes

    def expect(self, relation_oids: Iterable[int]) -> None:
        """Ask now for what `primary_key`, `identity_index` and `attributes` will tell of these tables: all at once."""
        wanted = sorted(set(relation_oids) - self._relations.keys())
        for first in range(0, len(wanted), _ASKED_AT_ONCE_MAX):
            self._ask(wanted[first : first + _ASKED_AT_ONCE_MAX])

    def position(self) -> int:
        """A WAL position behind every commit that an earlier answer may have shown."""
        [(position,)] = self.session.rows(_BEHIND)
        return parse_lsn(position) + self._lsn_base

    def rebase(self, lsn_base: int) -> None:
        """Add `lsn_base` to all positions from now on: see `cdcd.lsn`."""
        if lsn_base != self._lsn_base:
            self._lsn_base = lsn_base
            self.forget()  # the types have positions

    def takes_requests(self, relation_oid: int) -> bool:
        """Whether the rows of this table, which has the name of the table of requests, are requests."""
        return takes_requests(self.session, relation_oid, self._publication)

    def published_types(self, *publications: str) -> list[PgType]:
        """The types of all columns that these publications publish, each once, in the order of their OIDs."""
        tables = published_tables(self.session, *publications)
        by_oid = self.types(column.type_oid for table in tables for column in table.columns)
        return [by_oid[oid] for oid in sorted(by_oid)]

    def wal_sender_timeout_s(self) -> float:
        """`wal_sender_timeout` for this role: the server ends a stream after so many seconds of silence; 0: never."""
        [(milliseconds,)] = self.session.rows(_TIMEOUT)
        return float(milliseconds) / 1_000

    def forget(self) -> None:
        """Drop all answers, because something was altered: the next question goes to the server."""
        self._types.clear()
        self._columns.clear()
        self._relations.clear()

    def _relation(self, oid: int) -> _Relation:
        if oid not in self._relations:
            self._ask([oid])
        return self._relations[oid]

    def _ask(self, oids: list[int]) -> None:
        rows = self.session.rows(_ATTRIBUTES, [oids], prepare=True)
        missing = sorted({oid for oid, *_, may_miss in rows if may_miss})
        if missing:
            rows = [row for row in rows if row[0] not in missing]
            rows += self.session.rows(_WITH_MISSING_VALUES, [missing, missing])
        by_oid: dict[int, list[tuple[Any, ...]]] = {oid: [] for oid in oids}
        for row in rows:
            by_oid[row[0]].append(row)
        self._relations |= {oid: _Relation(found) for oid, found in by_oid.items()}

    def _build(self, wanted: int, rows: dict[int, tuple[Any, ...]], asked_lsn: int) -> None:
        """Make a type, its parts first. Not by recursion: whoever makes types decides how deep they are nested."""
        waiting = [wanted]
        while waiting:
            oid = waiting[-1]
            missing = [part for part in _parts(rows[oid]) if part not in self._types]
            if missing:
                waiting += dict.fromkeys(missing)  # PostgreSQL takes no type that contains itself
                continue
            waiting.pop()
            if oid not in self._types:
                self._types[oid] = self._made(rows[oid], asked_lsn)

    def _made(self, row: tuple[Any, ...], asked_lsn: int) -> PgType:
        oid, schema, name, kind, delimiter, base, typmod, is_array, element, attributes, dropped, labels = row
        return PgType(
            oid=oid,
            schema=schema,
            name=name,
            kind=kind,
            base=self._types[base] if base else None,
            base_typmod=typmod,
            element=self._types[element] if _has_element(kind, is_array=is_array) else None,
            is_array=is_array,
            fields=tuple(
                (field, self._types[type_oid], field_typmod) for field, type_oid, field_typmod in attributes or ()
            ),
            dropped=dropped,
            asked_lsn=asked_lsn,
            delimiter=delimiter,
            labels=tuple(labels or ()),
        )


def _has_element(kind: str, *, is_array: bool) -> bool:
    return is_array or kind in {"r", "m"}


def _parts(row: tuple[Any, ...]) -> list[int]:
    """The types that a type is made of, by its row of _TYPES."""
    _, _, _, kind, _, base, _, is_array, element, attributes, _, _ = row
    own = [base] if base else []
    own += [element] if _has_element(kind, is_array=is_array) else []
    return own + [oid for _, oid, _ in attributes or ()]
