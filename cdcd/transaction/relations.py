"""What the tables are at this point of the stream: relations by OID, from Relation messages.

Before: `pgoutput.messages.Relation`, which says names, type OIDs, typmods and the replica identity.
After: `avro` builds schemas and encoders from a `ResolvedRelation`.
Source: PostgreSQL, "Logical Replication Message Formats", Relation; `pg_class.relreplident`.

The stream is the truth. The catalog is asked only for what the stream does not say: the structure of a type, and the
whole of the key: the stream flags its *published* columns only, every column (FULL), or none (NOTHING). A key that is
not wholly published is no key, because rows would share it. The catalog answers as of now, which may be later than
the stream: a type or table that is gone by now is taken as the stream names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from cdcd.pgoutput import messages
from cdcd.source.pg_types import PgType

IDENTITY_DEFAULT: Final = "d"
IDENTITY_FULL: Final = "f"
IDENTITY_INDEX: Final = "i"
IDENTITY_NOTHING: Final = "n"


class ResolvedColumn:
    """One published column, in the order of the stream's tuples."""

    def __init__(self, name: str, pgtype: PgType, typmod: int, in_key: bool) -> None:
        self.name = name
        self.pgtype = pgtype
        self.typmod = typmod
        self.in_key = in_key
        """It is part of the key of this table's events."""


class ResolvedRelation:
    """One table in one of its versions."""

    def __init__(self, oid: int, schema: str, name: str, identity: str, columns: list[ResolvedColumn]) -> None:
        self.oid = oid
        self.schema = schema
        self.name = name
        self.identity = identity
        self.columns = columns

    @property
    def keyed(self) -> bool:
        """Its events have keys."""
        return any(column.in_key for column in self.columns)


MESSAGES: Final = ResolvedRelation(
    0,
    "",
    "messages",
    "n",
    [
        ResolvedColumn("transactional", PgType(16, "pg_catalog", "bool"), -1, False),
        ResolvedColumn("prefix", PgType(25, "pg_catalog", "text"), -1, False),
        ResolvedColumn("content", PgType(17, "pg_catalog", "bytea"), -1, False),
    ],
)
"""Logical decoding messages, as the rows of a relation of ours; no table has the schema ""."""


class TypeCatalog(Protocol):
    """What the server's catalog says of types and primary keys; `source.catalog` asks it."""

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        """The types of these OIDs; those that no longer exist are left out."""

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the primary key's columns; empty without one, or when the table is gone."""

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the columns of the index that REPLICA IDENTITY names; empty without one."""

    def forget(self) -> None:
        """Ask the server anew from now on: something was altered."""


class Relations:
    """Turns Relation messages into relations."""

    def __init__(self, catalog: TypeCatalog) -> None:
        self._catalog = catalog
        self._named: dict[int, PgType] = {}
        self._seen: set[int] = set()

    def name_type(self, message: messages.Type) -> None:
        """Remember a Type message: it is all there is to know of a type that was dropped meanwhile."""
        self._named[message.type_oid] = PgType(message.type_oid, message.nspname or "pg_catalog", message.typname)

    def resolve(self, message: messages.Relation) -> ResolvedRelation:
        """The relation that `message` announces, with its types and the key of its events."""
        if message.relation_oid in self._seen:
            self._catalog.forget()
        self._seen.add(message.relation_oid)
        types = self._catalog.types({column.type_oid for column in message.columns})
        identity = message.replica_identity
        in_key = self._key(message)
        return ResolvedRelation(
            message.relation_oid,
            message.nspname or "pg_catalog",
            message.relname,
            identity,
            [
                ResolvedColumn(
                    column.name,
                    types.get(column.type_oid) or self._gone(column.type_oid),
                    column.typmod,
                    column.name in in_key,
                )
                for column in message.columns
            ],
        )

    def _key(self, message: messages.Relation) -> set[str]:
        flagged = {column.name for column in message.columns if column.is_key}
        if message.replica_identity == IDENTITY_INDEX:
            whole = set(self._catalog.identity_index(message.relation_oid))
        else:
            whole = set(self._catalog.primary_key(message.relation_oid))
        published = whole <= {column.name for column in message.columns}
        if message.replica_identity in (IDENTITY_FULL, IDENTITY_NOTHING):
            return whole if published else set()
        # As many columns by other names are the same key, renamed since.
        return flagged if published or len(flagged) == len(whole) else set()

    def _gone(self, oid: int) -> PgType:
        return self._named.get(oid) or PgType(oid, "", f"type {oid}")
