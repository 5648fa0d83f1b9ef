"""Decides which tables want a snapshot: those without one in Kafka, and those that a person asked for. Pure.

Before: `progress.snapshot_records` says at start how far each table's snapshot is; requests come in the stream.
After: the snapshot export asks `choose` for every published table.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

from cdcd.progress.snapshot_records import DONE, WANTED, TableSnapshot, wanted_snapshot
from cdcd.sink.topics import TopicNames


class SnapshotRequests:
    """The tables of one slot. Any thread may call `choose`; all else is for the thread that owns the stream."""

    def __init__(
        self,
        slot: str,
        names: TopicNames,
        snapshots: Mapping[str, TableSnapshot],
        *,
        takes_new_tables: bool,
        parked: Callable[[], Container[tuple[str, str]]] = frozenset,
    ) -> None:
        """`snapshots`: how far each one in Kafka is, by topic. Without `takes_new_tables` only unfinished and requested
        tables get a snapshot.

        `parked` returns the tables (schema and name) whose events go to the parked topic. Such a table gets no
        snapshot: the parked events would overwrite its rows later. Called in any thread.
        """
        self._slot = slot
        self._names = names
        self._snapshots = dict(snapshots)
        self._takes_new_tables = takes_new_tables
        self._parked = parked
        self._requested: set[str] = set()
        """Topics of tables that were requested after the running snapshot had chosen its tables."""

    def request(self, schema: str, table: str) -> None:
        """Take a request for a new snapshot of a table."""
        topic = self._names.topic(schema, table)
        self._snapshots[topic] = wanted_snapshot(self._slot, topic, schema, table)
        self._requested.add(topic)

    def choose(self, schema: str, table: str) -> TableSnapshot | None:
        """Return how far the table's snapshot is in Kafka; None if it wants no snapshot."""
        if (schema, table) in self._parked():
            return None
        topic = self._names.topic(schema, table)
        known = self._snapshots.get(topic)
        if known is None and self._takes_new_tables:
            known = TableSnapshot(self._slot, topic, schema, table, WANTED, 0)
        return None if known is None or known.state == DONE else known

    @property
    def may_want_tables(self) -> bool:
        """A published table may want a snapshot. A requested table may still be parked."""
        return self._takes_new_tables or any(each.state != DONE for each in self._snapshots.values())

    @property
    def has_requests(self) -> bool:
        """Tables were requested after the running snapshot had chosen its tables."""
        return bool(self._requested)

    def begin(self, chosen: Iterable[TableSnapshot]) -> None:
        """A snapshot serves these tables, as `choose` returned them. Later requests want another snapshot."""
        self._requested.difference_update(each.topic for each in chosen if self._snapshots.get(each.topic) is each)

    def requested_since(self, records: Iterable[TableSnapshot]) -> list[TableSnapshot]:
        """Return the requests for these tables that came after `begin`. The next daemon must know of them."""
        return [self._snapshots[each.topic] for each in records if each.topic in self._requested]

    def finish(self, records: Iterable[TableSnapshot]) -> None:
        """The snapshots of these tables are complete."""
        self._snapshots |= {each.topic: each for each in records if each.topic not in self._requested}
