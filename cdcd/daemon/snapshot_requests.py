"""Decides which tables want a snapshot: without one in Kafka, asked for, or replaced. Pure.

Before: `progress.snapshot_records` says at start how far each table's snapshot is; people ask in the stream,
and `recopies` asks for tables that have changed there.
After: the snapshot export asks `choose` for every published table.

A topic has the rows of one table: of one incarnation (`source.incarnations`). The stream tells the OID of the table
whose events come next, in the order of the commits. The catalog tells the rest, as of now. What it says may be later
than what the stream has reached, or a little earlier. Either way the answer is a snapshot, and a snapshot at an LSN is
right for this LSN whatever was before. So only two rules are about order:

- The stream is compared with what the stream has shown before, or with the snapshot whose LSN it has passed.
- Whatever the stream shows before that LSN, the snapshot has it already: it wants no further one.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from typing import Final

from cdcd.daemon.recopies import Recopies, Table
from cdcd.progress.daemon_requests import SNAPSHOT, STOP, Request
from cdcd.progress.repair_records import PendingRepair
from cdcd.progress.snapshot_records import (
    COMPARE,
    DONE,
    ROWS,
    STOPPED,
    WANTED,
    PublishedTables,
    TableSnapshot,
    wanted_snapshot,
)
from cdcd.sink.batches import AnnouncedTable
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.repair_events import RepairOutcome
from cdcd.source.incarnations import Incarnation

UNPUBLISHED: Final = (0,)
"""What publishes a table that the publication does not have."""


class SnapshotRequests:
    """The tables of one slot. Any thread may call `choose`; all else is for the thread that owns the stream."""

    def __init__(
        self,
        slot: str,
        names: TopicNames,
        snapshots: Mapping[str, TableSnapshot],
        *,
        takes: Callable[[str, str], bool] | None,
        parked: Callable[[], Container[Table]] = frozenset,
        recopies: Recopies | None = None,
        is_paused: bool = False,
        are_hours_open: Callable[[str, str], bool] = lambda _, __: True,
    ) -> None:
        """`snapshots`: how far each one in Kafka is, by topic. `takes`: whether a new table (schema and name) gets
        one; None: none does. Unfinished, requested and replaced tables get a snapshot in any case.

        `parked` returns the tables (schema and name) whose events go to the parked topic. Such a table gets no
        snapshot: the parked events would overwrite its rows later. Called in any thread. `is_paused`: as the attribute.
        `are_hours_open`: whether rows of a table (schema and name) may be read at this time of the day. Called in any
        thread, too.
        """
        self.is_paused = is_paused
        """No table gets a snapshot for now: a person has paused them. Read by any thread."""
        self._are_hours_open = are_hours_open
        self._out_of_hours: frozenset[Table] = frozenset()
        """The tables that waited for their hours when they were last looked for."""
        self._slot = slot
        self._names = names
        self._snapshots = dict(snapshots)
        self._takes = takes
        self._parked = parked
        self._recopies = recopies or Recopies(names, {}, {})
        self._requested: set[str] = set()
        """Topics of tables that no snapshot serves yet: one that goes on with earlier rows does not."""
        self._replaced: dict[str, str] = {}
        """The topics of tables that `choose` has found replaced, each with the reason."""
        self._replaced_now: list[tuple[str, str, str]] = []
        """The tables of the running snapshot that were replaced: schema, name and reason."""

    def may_read(self, schema: str, table: str) -> bool:
        """Whether rows of a table may be read now: no person has paused it, and it is the time of the day for it."""
        return not self.is_paused and self._are_hours_open(schema, table)

    @property
    def has_waiting(self) -> bool:
        """Whether a table waits for its hours, as far as it is known. For any thread."""
        return any(not self._are_hours_open(*table) for table in self._out_of_hours)

    @property
    def waiting(self) -> int:
        """How many tables wait for their hours, as far as it is known. For any thread."""
        return sum(not self._are_hours_open(*table) for table in self._out_of_hours)

    def request(self, schema: str, table: str) -> None:
        """Take a request for a new snapshot of a table."""
        topic = self._names.topic(schema, table)
        self._snapshots[topic] = wanted_snapshot(self._slot, topic, schema, table)
        self._requested.add(topic)

    def stop(self, schema: str, table: str) -> str:
        """Take a request to stop the snapshot of a table. Returns its topic; raises ValueError if nothing can stop."""
        topic = self._names.topic(schema, table)
        known = self._snapshots.get(topic)
        if known is None and not self._takes_new(schema, table):
            raise ValueError("the table gets no snapshot")
        if known is not None and known.state == DONE:
            raise ValueError("the snapshot of the table is complete")
        self._snapshots[topic] = (known or wanted_snapshot(self._slot, topic, schema, table)).stopped()
        self._requested.discard(topic)
        self._replaced_now = [each for each in self._replaced_now if each[:2] != (schema, table)]
        return topic

    def is_stopped(self, schema: str, table: str) -> bool:
        """Whether a person has stopped the snapshot of the table."""
        known = self._snapshots.get(self._names.topic(schema, table))
        return known is not None and known.state == STOPPED

    @property
    def stopped(self) -> list[Table]:
        """The tables whose snapshots a person has stopped. For any thread."""
        return sorted((each.schema, each.table) for each in self._snapshots.copy().values() if each.state == STOPPED)

    def announce(self, announced: Iterable[AnnouncedTable]) -> list[Table]:
        """Take the tables whose events come next, in order; return those that get a new snapshot because of it.

        Raises what `Recopies.take` raises.
        """
        tables = self._recopies.take(announced, self)
        for table in tables:
            self.request(*table)
        return tables

    def has_snapshot(self, schema: str, table: str) -> bool:
        """Whether the table's topic has a snapshot, or is to get one."""
        return self._takes_new(schema, table) or self._names.topic(schema, table) in self._snapshots

    def is_wanted(self, schema: str, table: str) -> bool:
        """Whether the rows in Kafka do not count: a new snapshot has not begun, and will have all rows."""
        known = self._snapshots.get(self._names.topic(schema, table))
        return known is not None and (known.wants_all_rows or known.state == STOPPED)

    def choose(self, schema: str, table: str, seen: Incarnation | None = None) -> TableSnapshot | None:
        """Return how far the table's snapshot is in Kafka; None if it wants no snapshot.

        `seen`: the table as the catalog describes it; the result has it. A snapshot of a replaced table begins at the
        start.
        """
        if self.is_paused:
            return None
        found = self._wanted(schema, table, seen)
        if found is None or self._are_hours_open(schema, table):
            return found
        self._out_of_hours |= {(schema, table)}
        return None

    def choose_anew(self) -> None:
        """`choose` will be asked for all published tables: those that wait for their hours are then known."""
        self._out_of_hours = frozenset()

    def note_waiting(self, published: PublishedTables) -> None:
        """Note which of the published tables, which are all, wait for their hours."""
        closed = [(table, seen) for table, seen in published.items() if not self._are_hours_open(*table)]
        self._out_of_hours = frozenset(table for table, seen in closed if self._wanted(*table, seen) is not None)

    def _wanted(self, schema: str, table: str, seen: Incarnation | None) -> TableSnapshot | None:
        """As `choose`, whether snapshots may be read now or not."""
        if (schema, table) in self._parked():
            return None
        topic = self._names.topic(schema, table)
        known = self._snapshots.get(topic)
        if known is not None and known.state == STOPPED:
            return None
        replaced = "" if seen is None else self._recopies.why_replaced(topic, seen)
        if replaced and (known is None or not known.wants_all_rows):
            self._replaced[topic] = replaced
            known = wanted_snapshot(self._slot, topic, schema, table)
        elif known is None and self._takes_new(schema, table):
            known = TableSnapshot(self._slot, topic, schema, table, WANTED, 0)
        return None if known is None or known.state == DONE or known.repair else replace(known, incarnation=seen)

    def compare(self, seen: PublishedTables) -> list[TableSnapshot]:
        """Take what the catalog says of all published tables. Returns the records that change by it.

        The next daemon must know of it. A table that is not published any more may come back.
        """
        news: list[TableSnapshot] = []
        incarnations = self._recopies.incarnations
        for topic, known in self._snapshots.items():
            if known.state != DONE:
                continue
            before, now = incarnations.get(topic), seen.get((known.schema, known.table))
            if now is None:
                now = before and replace(before, published_by=UNPUBLISHED)
            elif before is not None and before.contradiction(now):
                continue
            if now is not None and now != before:
                incarnations.put(topic, now)
                news.append(replace(known, incarnation=now))
        self._snapshots |= {each.topic: each for each in news}
        return news

    @property
    def may_want_tables(self) -> bool:
        """A published table may want a snapshot. A requested table may still be parked."""
        has_unfinished = any(not each.has_ended for each in self._snapshots.copy().values())
        return self._takes is not None or has_unfinished or bool(self._recopies.incarnations.all())

    @property
    def has_requests(self) -> bool:
        """Tables were requested that the running snapshot does not serve."""
        return bool(self._requested)

    def begin(self, chosen: Iterable[TableSnapshot]) -> None:
        """A snapshot reads these tables, as `choose` returned them; the stream comes to its LSN next."""
        self._replaced_now = []
        for each in chosen:
            known, reason = self._snapshots.get(each.topic), self._replaced.pop(each.topic, "")
            if reason and each.state == WANTED and (known is None or not known.wants_all_rows):
                self._replaced_now.append((each.schema, each.table, reason))

    @property
    def stops_here(self) -> bool:
        """The stream is to end where the snapshot is, because a table was replaced."""
        return bool(self._replaced_now) and self._recopies.stops_on_replaced

    def reach(self, begun: Iterable[TableSnapshot]) -> set[str]:
        """The stream is at the consistent point of a snapshot. Requests that come now want another one.

        `begun`: its tables, as their rows begin. Returns the topics of those that have to begin with a truncate event,
        because meanwhile the stream has put events there under another key or of another table, or a request has come.
        Such a table gets all rows, so this serves every request so far. Raises FatalError if the stream is to end
        there.
        """
        for replaced in self._replaced_now:
            self._recopies.follow(*replaced)
        self._replaced_now = []
        anew = set()
        for each in begun:
            is_other = self._recopies.reach(each)
            if not each.done and (is_other or each.topic in self._requested):
                anew.add(each.topic)
            if each.topic not in self._requested - anew:
                self._snapshots[each.topic] = each
        self._requested -= anew
        return anew

    def requested_since(self, records: Iterable[TableSnapshot]) -> list[TableSnapshot]:
        """Return the requests for these tables that wait. The next daemon must know of them."""
        return [self._snapshots[each.topic] for each in records if each.topic in self._requested]

    def to_compare(self) -> Table | None:
        """A table (schema and name) that is to be compared with its topic, because of a gap; None: there is none.

        Events of a parked table are not on its topic, so it waits.
        """
        parked = self._parked()
        waiting = ((each.schema, each.table) for each in self._snapshots.values() if each.repair == COMPARE)
        return next((table for table in waiting if table not in parked), None)

    def is_to_compare(self, schema: str, table: str) -> bool:
        """Whether the table is still to be compared: nobody has asked for a new snapshot of it meanwhile."""
        known = self._snapshots.get(self._names.topic(schema, table))
        return known is not None and known.repair == COMPARE

    def compared(self, schema: str, table: str, lsn: int, *, differs: bool) -> TableSnapshot:
        """The table was compared at `lsn`. Returns the record that says so: complete, or to be repaired."""
        known = self._snapshots[self._names.topic(schema, table)]
        self._snapshots[known.topic] = replace(known, repair=ROWS) if differs else _complete(known, lsn, 0)
        return self._snapshots[known.topic]

    def refused(self, repairs: Iterable[PendingRepair]) -> list[Request]:
        """Rows of tables could not be repaired. Returns the requests for the tables that are repaired because of a gap:
        nobody else makes one.
        """
        tables = {(each.schema, each.table) for each in repairs if self._is_repaired(each.topic)}
        return [self.end_repair(*table) for table in sorted(tables)]

    def end_repair(self, schema: str, table: str) -> Request:
        """The rows of a table cannot be repaired one by one after a gap. Returns the request that records what becomes
        of it: it gets a new snapshot. If the settings forbid that, its topic lacks rows, as after a stopped snapshot.
        """
        if self._recopies.forbids(schema, table):
            self.stop(schema, table)
            return Request(STOP, (schema, table))
        self.request(schema, table)
        return Request(SNAPSHOT, (schema, table))

    def repaired(self, outcomes: Iterable[RepairOutcome], left: Container[str], lsn: int) -> list[TableSnapshot]:
        """Rows were repaired at `lsn`. Returns the records of tables that are repaired because of a gap.

        `left`: the topics with repairs that are left. The others have all rows.
        """
        records: dict[str, TableSnapshot] = {}
        for each in outcomes:
            topic = each.pending.topic
            if self._is_repaired(topic):
                known = self._snapshots[topic]
                records[topic] = self._snapshots[topic] = replace(known, rows=known.rows + each.rows)
        for topic, known in records.items():
            if topic not in left:
                records[topic] = self._snapshots[topic] = _complete(known, lsn, known.rows)
        return list(records.values())

    def _is_repaired(self, topic: str) -> bool:
        known = self._snapshots.get(topic)
        return known is not None and known.repair == ROWS

    def _takes_new(self, schema: str, table: str) -> bool:
        return self._takes is not None and self._takes(schema, table)

    def finish(self, records: Iterable[TableSnapshot]) -> None:
        """Take how far the snapshots of these tables are: some are complete."""
        self._snapshots |= {
            each.topic: each for each in records if each.state == DONE and each.topic not in self._requested
        }


def _complete(known: TableSnapshot, lsn: int, rows: int) -> TableSnapshot:
    """The topic has every row of the table, as of `lsn`."""
    return replace(known, state=DONE, lsn=lsn, rows=rows, starts_with_truncate=False, repair="")
