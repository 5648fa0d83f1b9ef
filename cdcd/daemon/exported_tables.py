"""The tables of one snapshot: those that the role may read, described as the stream would announce them.

Before: `snapshot_export` has connections that see the snapshot.
After: `snapshot_rows` reads the tables, chunk by chunk.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from psycopg import sql

from cdcd.avro.codecs.lookup import TypeOptions, codecs_for, is_converted
from cdcd.progress.snapshot_records import Choose, TableSnapshot
from cdcd.snapshot.published_relations import PublishedRelation, published_relations
from cdcd.snapshot.reader import SnapshotConnection, copied_columns, copied_kinds
from cdcd.snapshot.table_rules import NO_SNAPSHOT_RULES, SnapshotRules
from cdcd.source.catalog import Catalog
from cdcd.source.exported_snapshot import check_unaltered
from cdcd.source.heaps import Heap, column_numbers
from cdcd.source.published_incarnations import published_incarnations
from cdcd.source.session import Session
from cdcd.source.snapshot_conditions import condition
from cdcd.transaction.column_rules import ColumnRules
from cdcd.transaction.relations import Relations, ResolvedRelation

log = logging.getLogger(__name__)


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
    numbers: Mapping[int, Mapping[str, int]]
    """By heap and name, the numbers of its columns: see `heaps.column_numbers`."""
    where: str = ""
    """The condition of [[table]]; empty: all rows are copied."""

    @property
    def condition(self) -> str:
        """The SQL condition of the rows that COPY reads; empty: all."""
        found = [f"({self.row_filter})"] if self.row_filter else []
        return " AND ".join([*found, condition(self.where)] if self.where else found)

    @property
    def is_partitioned(self) -> bool:
        """Whether it is the root of partitions."""
        return any(heap.oid != self.relation.oid for heap in self.heaps)

    def columns(self) -> list[sql.Composable]:
        """The expressions that COPY selects."""
        return copied_columns([column.name for column in self.relation.columns], self.kinds)

    def column_numbers(self, heap: Heap) -> dict[str, int]:
        """By name, the numbers of the columns of a heap that COPY uses."""
        numbers = self.numbers[heap.oid]
        selected = {column.name: numbers[column.name] for column in self.relation.columns}
        # A condition may use other columns, too. A role that may not read all of them cannot check them all.
        return {**selected, **numbers} if self.condition and heap.in_blocks else selected


def exported_tables(
    snapshot: SnapshotConnection,
    session: Session,
    publication: str,
    choose: Choose,
    rules: ColumnRules,
    snapshot_rules: SnapshotRules = NO_SNAPSHOT_RULES,
    *,
    text_as_stored: bool = False,
) -> list[TableExport]:
    """Describe the published tables that `choose` wants as the snapshot shows them.

    `session` is outside the snapshot. `rules`: of columns left out or masked. `text_as_stored`: all columns come as
    text, in the database's encoding. Raises SnapshotGone if the snapshot cannot show one of them any more.
    """
    wanted: list[tuple[PublishedRelation, TableSnapshot]] = []
    incarnations = published_incarnations(snapshot, session.server_version, publication)
    for each in published_relations(snapshot, publication):
        table = each.relation.nspname, each.relation.relname
        record = choose(*table, incarnations.get(table))
        if record is not None:
            wanted.append((each, record))
    wanted.sort(key=lambda each: snapshot_rules.order(each[0].relation.nspname, each[0].relation.relname))
    found = check_unaltered(snapshot, session, [each.relation.relation_oid for each, _ in wanted])
    numbers = column_numbers(snapshot, [heap.oid for own in found.values() for heap in own])
    relations, encoding = (
        Relations(Catalog(session, publication), rules=rules),
        "" if text_as_stored else session.encoding,
    )
    tables = []
    for each, record in wanted:
        relation, own = relations.resolve(each.relation), found[each.relation.relation_oid]
        codecs = codecs_for(relation.types, TypeOptions(converted=is_converted(encoding)))
        kinds = copied_kinds(relation, (bool(encoding) and codec.has_binary for codec in codecs))
        own_numbers = {heap.oid: numbers[heap.oid] for heap in own}
        where = snapshot_rules.where(relation.schema, relation.name)
        tables.append(TableExport(record, relation, own, kinds, each.row_filter, own_numbers, where))
    return tables
