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
"""Takes schema and name. Returns how far the table's snapshot is in Kafka; None if the snapshot leaves the table
out."""

_TEXT: Final = "CASE WHEN {c} IS NOT DISTINCT FROM NULL THEN NULL ELSE pg_catalog.concat({c}) END"
"""`concat` calls the type's output function, as the stream does. A cast to text may call another function."""


@dataclass(frozen=True)
class TableExport:
    """A table that the snapshot shows."""

    record: TableSnapshot
    """How far it is in Kafka."""
    relation: ResolvedRelation
    heaps: list[Heap]
    kinds: bytes
    """For each column BINARY, or TEXT if COPY is to send it as text."""
    row_filter: str

    def columns(self) -> list[sql.Composable]:
        """The expressions that COPY selects."""
        return [
            sql.SQL(_TEXT if kind == TEXT else "{c}").format(c=sql.Identifier(column.name))
            for column, kind in zip(self.relation.columns, self.kinds, strict=True)
        ]


def exported_tables(
    snapshot: SnapshotConnection, session: Session, publication: str, choose: Choose, *, text_as_stored: bool = False
) -> list[TableExport]:
    """Lock the published tables that `choose` wants, and describe them as the snapshot shows them.

    `session` is outside the snapshot. `text_as_stored`: all columns come as text, in the database's encoding. Raises
    SnapshotGone if the snapshot cannot show one of them any more.
    """
    wanted: list[tuple[PublishedRelation, TableSnapshot]] = []
    for each in published_relations(snapshot, publication):
        record = choose(each.relation.nspname, each.relation.relname)
        if record is not None:
            wanted.append((each, record))
    locked = lock_tables(snapshot, session, [each.relation.relation_oid for each, _ in wanted])
    relations, encoding = Relations(Catalog(session, publication)), "" if text_as_stored else session.encoding
    return [
        _described(each, record, relations.resolve(each.relation), locked[each.relation.relation_oid], encoding)
        for each, record in wanted
    ]


def _described(
    each: PublishedRelation, record: TableSnapshot, relation: ResolvedRelation, heaps: list[Heap], encoding: str
) -> TableExport:
    is_binary = [bool(encoding) and has_known_binary(column.pgtype, encoding) for column in relation.columns]
    kinds = bytes(BINARY if each else TEXT for each in is_binary)
    return TableExport(record, relation, heaps, kinds, each.row_filter)
