"""The SQL condition for the rows of some keys, and the keys that a COPY of them has found. Pure.

Before: `progress.repair_records` has the keys, as PostgreSQL's text.
After: `repair_reading` reads the rows.

A key is compared by its text, because two values may be equal for PostgreSQL that are two keys for Kafka: the numerics
1.0 and 1.00. Where the type is PostgreSQL's own, the condition also compares the values, so that the index serves. A
type of somebody else gets no such condition: its input function, or the check of a domain, would run with the rights of
the daemon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from librt.strings import read_i32_be
from psycopg import sql

from cdcd.errors import DecodeError
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.source.pg_types import DOMAIN, PgType
from cdcd.transaction.relations import ResolvedRelation

_TEXT: Final = "pg_catalog.concat({c})"
"""`concat` calls the type's output function, as the stream does."""

_INDEXED: Final = frozenset({
    "int2", "int4", "int8", "oid", "text", "varchar", "bpchar", "name", "uuid", "numeric", "date", "timestamp",
    "timestamptz", "bool", "float4", "float8",
})  # fmt: skip
"""PostgreSQL's types whose values an index finds by their text."""


def has_index(relation: ResolvedRelation) -> bool:
    """Whether an index can find rows by the condition, if the key has one."""
    return any(_base(column.pgtype) is not None for column in relation.columns if column.in_key)


def condition(relation: ResolvedRelation, keys: Collection[tuple[str, ...]]) -> str:
    """The SQL condition for the rows that have one of these keys (in the order of `relation.key`)."""
    columns = [column for column in relation.columns if column.in_key]
    each = [
        sql.SQL("({})").format(
            sql.SQL(" AND ").join(
                part
                for column, value in zip(columns, key, strict=True)
                for part in _parts(column.name, column.pgtype, value)
            )
        )
        for key in keys
    ]
    return sql.SQL(" OR ").join(each).as_string()


def key_texts(relation: ResolvedRelation) -> list[sql.Composable]:
    """What COPY selects to tell which keys have rows."""
    return [sql.SQL(_TEXT).format(c=sql.Identifier(name)) for name in relation.key]


def found_keys(messages: Sequence[bytes], columns: int) -> set[tuple[str, ...]]:
    """The keys in the messages of such a COPY. Raises DecodeError (the server's fault) if these are malformed."""
    copy, found = CopyFormat(columns), set[tuple[str, ...]]()
    for message in messages:
        at = copy.row_at(message)
        if at:
            key = []
            for _ in range(columns):
                if len(message) < at + 4:
                    raise DecodeError(f"a key of {len(message)} bytes is cut off at {at}")
                size = int(read_i32_be(message, at))
                key.append(message[at + 4 : at + 4 + max(size, 0)].decode())
                at += 4 + max(size, 0)
            found.add(tuple(key))
    return found


def _parts(name: str, pgtype: PgType, value: str) -> list[sql.Composable]:
    column, text, base = sql.Identifier(name), sql.Literal(value), _base(pgtype)
    same: list[sql.Composable] = []
    if base is not None:
        same.append(
            sql.SQL("{} OPERATOR(pg_catalog.=) {}::pg_catalog.{}").format(column, text, sql.Identifier(base.name))
        )
    compared = sql.SQL(_TEXT).format(c=column)
    same.append(sql.SQL('{} COLLATE pg_catalog."C" OPERATOR(pg_catalog.=) {}').format(compared, text))
    return same


def _base(pgtype: PgType) -> PgType | None:
    """The type of PostgreSQL's own whose values are compared; None if there is none."""
    while pgtype.kind == DOMAIN and pgtype.base is not None:
        pgtype = pgtype.base
    return pgtype if pgtype.schema == "pg_catalog" and pgtype.name in _INDEXED else None
