"""Leaves the tables out of snapshots that PostgreSQL would not let the daemon read, or not under their conditions.

Before: `new_table_scan` has the tables that want a snapshot.
After: a snapshot reads the others; a later scan finds the grant, or the settings have another condition.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from cdcd.config.settings import Settings
from cdcd.daemon.publication_setup import LOCK_TIMEOUT_S
from cdcd.errors import RequestRejected, sentence
from cdcd.progress.snapshot_records import PublishedTables
from cdcd.source.incarnations import Incarnation
from cdcd.source.privileges import MissingPrivilege, TablePrivileges, missing_privileges, table_privileges
from cdcd.source.published_incarnations import published_incarnations
from cdcd.source.server_errors import SnapshotGone
from cdcd.source.session import Locked, Session
from cdcd.source.snapshot_conditions import broken_condition, unfit_condition
from cdcd.transaction.column_rules import NO_RULES, ColumnRules

log = logging.getLogger(__name__)


class ReadableTables:
    """Leaves the tables out that the role may not read: whoever makes a table must not stop the daemon with it.

    So it does with tables whose condition cannot be used.

    The log names each once, with the grant. Such a table still wants its snapshot, so a later scan finds the grant. One
    object serves all snapshots of a process, in any thread.
    """

    def __init__(self, settings: Settings, rules: ColumnRules = NO_RULES) -> None:
        """A daemon that only takes snapshots leaves no table out. `rules`: of the columns left out or masked."""
        self.rules = rules
        self.snapshot_rules = settings.snapshot_rules()
        self._publication = settings.source.publication
        self._only_snapshot = settings.snapshot.mode == "only"
        self._said: set[str] = set()
        self._refused: dict[tuple[str, str], str] = {}
        """By schema and name, why the condition of a table failed on a row."""

    def wanted(
        self, session: Session, wants: Callable[[str, str, Incarnation], bool]
    ) -> tuple[PublishedTables, set[tuple[str, str]]]:
        """The published tables by schema and name, and those that want a snapshot and that it can read.

        `wants` takes schema and name, and the table as the catalog describes it. Raises as `among`.
        """
        published = published_incarnations(session, session.server_version, self._publication)
        return published, self.among(
            session, {table: seen.oid for table, seen in published.items() if wants(*table, seen)}
        )

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
            missing = list(missing_privileges(role, [table])) or self._unfit(session, table)
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

    def refuse(self, table: tuple[str, str], error: RequestRejected) -> None:
        """A row of a table (schema, name) with a condition could not be read: leave the table out from now on.

        Raises SnapshotGone: the next snapshot reads the other tables.
        """
        self._refused[table] = error.message
        raise SnapshotGone(f"a row could not be read under its condition: {error.message}") from error

    def _unfit(self, session: Session, table: TablePrivileges) -> list[MissingPrivilege]:
        """What keeps the condition of the table's rows from being used."""
        where, name = self.snapshot_rules.where(table.schema, table.name), (table.schema, table.name)
        why = broken_condition(session, *name, where) or self._refused.get(name, "") if where else ""
        return [unfit_condition(table.quoted, why)] if why else []
