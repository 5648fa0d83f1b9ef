"""Resolves Relation messages: looks up the types of the columns and the key of the events.

Before: `pgoutput.messages.Relation`, which says names, type OIDs, typmods and the replica identity.
After: `avro` builds schemas and encoders from a `ResolvedRelation`.
Source: PostgreSQL, "Logical Replication Message Formats", Relation; `pg_class.relreplident`.

The stream is the truth. The catalog is asked only for what the stream does not say: the structure of types, and the
complete key. (The stream flags the *published* columns of the key, or every column with replica identity FULL, or none
with NOTHING.) A key that is not completely published is no key, because several rows could share it.

The catalog answers as of now, which may be later than the stream. A type or table that was dropped meanwhile is taken
as the stream names it.
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
        """Whether it is part of the key of this table's events."""


class ResolvedRelation:
    """One table in one of its versions."""

    def __init__(self, oid: int, schema: str, name: str, identity: str, columns: list[ResolvedColumn]) -> None:
        self.oid = oid
        self.schema = schema
        self.name = name
        self.identity = identity
        self.columns = columns

    @property
    def has_key(self) -> bool:
        """Whether its events have keys."""
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
"""Logical decoding messages as the rows of a relation. The schema "" is that of no table."""


class TypeCatalog(Protocol):
    """The server's catalog of types and keys; `source.catalog` implements it."""

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        """The types with these OIDs, without the types that no longer exist."""

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the primary key's columns; empty without a primary key, or if the table no longer exists."""

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        """Names of the columns of the index that REPLICA IDENTITY names; empty without such an index."""

    def forget(self) -> None:
        """Ask the server again from now on: something was altered."""


class Relations:
    """Turns Relation messages into ResolvedRelations."""

    def __init__(self, catalog: TypeCatalog) -> None:
        self._catalog = catalog
        self._named: dict[int, PgType] = {}
        self._seen: set[int] = set()

    def name_type(self, message: messages.Type) -> None:
        """Remember a Type message: nothing else describes a type that was dropped meanwhile."""
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
                    types.get(column.type_oid) or self._dropped(column.type_oid),
                    column.typmod,
                    column.name in in_key,
                )
                for column in message.columns
            ],
        )

    def _key(self, message: messages.Relation) -> set[str]:
        flagged = {column.name for column in message.columns if column.is_key}
        if message.replica_identity == IDENTITY_INDEX:
            key = set(self._catalog.identity_index(message.relation_oid))
        else:
            key = set(self._catalog.primary_key(message.relation_oid))
        is_published = key <= {column.name for column in message.columns}
        if message.replica_identity in (IDENTITY_FULL, IDENTITY_NOTHING):
            return key if is_published else set()
        # The same number of columns under other names is the same key, renamed since.
        return flagged if is_published or len(flagged) == len(key) else set()

    def _dropped(self, oid: int) -> PgType:
        return self._named.get(oid) or PgType(oid, "", f"type {oid}")
