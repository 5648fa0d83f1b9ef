"""The tables of one snapshot: locked, and described as the stream would announce them.

Before: `snapshot_export` has connections that see the snapshot.
After: `snapshot_rows` reads the tables, chunk by chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from psycopg import sql

from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.pgoutput.tuples import BINARY, TEXT
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.snapshot.published_relations import PublishedRelation, published_relations
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.source.catalog import Catalog
from cdcd.source.exported_snapshot import lock_tables
from cdcd.source.heaps import Heap
from cdcd.source.session import Session
from cdcd.transaction.relations import Relations, ResolvedRelation

Choose: TypeAlias = "Callable[[str, str], TableSnapshot | None]"
"""By schema and name: what Kafka has of a table that the snapshot is to copy; None if it is not to copy the table."""

_TEXT: Final = "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN NULL ELSE pg_catalog.concat({c}) END"
"""`concat` calls the type's output function, as the stream does. A cast to text may call another function."""


@dataclass(frozen=True)
class TableExport:
    """A table that the snapshot shows."""

    copy: TableSnapshot
    """What Kafka has of it."""
    relation: ResolvedRelation
    heaps: list[Heap]
    kinds: bytes
    """For each column BINARY, or TEXT if COPY is to send it as text."""
    row_filter: str

    def columns(self) -> list[sql.Composable]:
        """What COPY selects."""
        return [
            sql.SQL(_TEXT if kind == TEXT else "{c}").format(c=sql.Identifier(column.name))
            for column, kind in zip(self.relation.columns, self.kinds, strict=True)
        ]


def exported_tables(
    snapshot: SnapshotConnection, session: Session, publication: str, choose: Choose
) -> list[TableExport]:
    """The published tables that `choose` wants copied, as the snapshot shows them. They are locked.

    `session` asks outside the snapshot. Raises SnapshotGone if the snapshot cannot show one of them any more.
    """
    wanted: list[tuple[PublishedRelation, TableSnapshot]] = []
    for each in published_relations(snapshot, publication):
        copy = choose(each.relation.nspname, each.relation.relname)
        if copy is not None:
            wanted.append((each, copy))
    locked = lock_tables(snapshot, session, [each.relation.relation_oid for each, _ in wanted])
    relations, encoding = Relations(Catalog(session)), session.encoding
    return [
        _described(each, copy, relations.resolve(each.relation), locked[each.relation.relation_oid], encoding)
        for each, copy in wanted
    ]


def _described(
    each: PublishedRelation, copy: TableSnapshot, relation: ResolvedRelation, heaps: list[Heap], encoding: str
) -> TableExport:
    kinds = bytes(BINARY if has_known_binary(column.pgtype, encoding) else TEXT for column in relation.columns)
    return TableExport(copy, relation, heaps, kinds, each.row_filter)
