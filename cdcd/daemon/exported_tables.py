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
from cdcd.config.settings import Settings
from cdcd.daemon.publication_setup import LOCK_TIMEOUT_S
from cdcd.errors import RequestRejected, sentence
from cdcd.progress.snapshot_records import Choose, TableSnapshot
from cdcd.snapshot.published_relations import PublishedRelation, published_relations
from cdcd.snapshot.reader import SnapshotConnection, copied_columns, copied_kinds
from cdcd.source.catalog import Catalog
from cdcd.source.exported_snapshot import check_unaltered
from cdcd.source.heaps import Heap, column_numbers
from cdcd.source.privileges import missing_privileges, table_privileges
from cdcd.source.published_incarnations import published_incarnations
from cdcd.source.session import Locked, Session
from cdcd.transaction.column_rules import NO_RULES, ColumnRules
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
        # A row filter may use other columns, too. A role that may not read all of them cannot check them all.
        return {**selected, **numbers} if self.row_filter and heap.in_blocks else selected


class ReadableTables:
    """Leaves the tables out that the role may not read: whoever makes a table must not stop the daemon with it.

    The log names each once, with the grant. Such a table still wants its snapshot, so a later scan finds the grant. One
    object serves all snapshots of a process, in any thread.
    """

    def __init__(self, settings: Settings, rules: ColumnRules = NO_RULES) -> None:
        """A daemon that only takes snapshots leaves no table out. `rules`: of the columns left out or masked."""
        self.rules = rules
        self._publication = settings.source.publication
        self._only_snapshot = settings.snapshot.mode == "only"
        self._said: set[str] = set()

    def among(self, session: Session, wanted: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
        """Schema and name of those that a snapshot can read. `wanted`: OIDs by schema and name.

        Raises RequestRejected for the others if nothing but snapshots is wanted; else what `Session` raises.
        """
        if not wanted:
            return set()
        [(role,)] = session.rows("SELECT current_user")
        try:
            with session.lock_timeout(LOCK_TIMEOUT_S):
                tables = table_privileges(session, self._publication, list(wanted.values()))
        except Locked:
            return set(wanted)  # to read a table that the role may not read ends the snapshot, and not the daemon
        readable = set()
        for table in tables:
            missing = list(missing_privileges(role, [table]))
            if missing and self._only_snapshot:
                raise RequestRejected(missing[0].message, missing[0].hint, code=missing[0].code)
            if not missing:
                readable.add((table.schema, table.name))
                self._said.discard(table.quoted)
            elif table.quoted not in self._said:
                self._said.add(table.quoted)
                message = f"{missing[0].message}. Until it may, the table has no snapshot"
                said = sentence(message, missing[0].hint, missing[0].code)
                log.warning("%s", said, extra={"code": missing[0].code})
        return readable


def exported_tables(
    snapshot: SnapshotConnection,
    session: Session,
    publication: str,
    choose: Choose,
    rules: ColumnRules,
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
        tables.append(
            TableExport(record, relation, own, kinds, each.row_filter, {heap.oid: numbers[heap.oid] for heap in own})
        )
    return tables
