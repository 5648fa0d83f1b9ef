"""The repairs of single rows that are asked for, and what was done of them. Pure.

Before: the records in Kafka say at start which repairs are left; requests come in the stream.
After: the snapshot export reads the rows of what `choose` returns. `finish` gives the records that go to Kafka with
these rows, in one transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable

from cdcd.errors import sentence
from cdcd.lsn import format_lsn
from cdcd.progress.repair_records import PendingRepair, RepairKeys, TableRepairs, pending_repair
from cdcd.sink.topics import TopicNames
from cdcd.snapshot.repair_events import RepairOutcome, RepairRows

log = logging.getLogger(__name__)


class RepairRequests:
    """The repairs of one slot. Any thread may call `choose`; all else is for the thread that owns the stream."""

    def __init__(
        self,
        slot: str,
        names: TopicNames,
        found: Iterable[PendingRepair | TableRepairs] = (),
        parked: Callable[[], Container[tuple[str, str]]] = frozenset,
    ) -> None:
        """`found`: the records in Kafka. `parked`: as SnapshotRequests. A parked table is not repaired."""
        self._slot = slot
        self._names = names
        self._parked = parked
        self._pending: dict[bytes, PendingRepair] = {}
        self._done: dict[str, TableRepairs] = {}
        self._requested: set[bytes] = set()
        """Repairs that were requested after the running snapshot had chosen its rows."""
        for each in found:
            if isinstance(each, PendingRepair):
                self._pending[each.key()] = each
            else:
                self._done[each.topic] = each

    def request(self, schema: str, table: str, keys: RepairKeys) -> None:
        """Take a request for the repair of some rows."""
        pending = pending_repair(self._slot, self._names.topic(schema, table), schema, table, keys)
        self._pending[pending.key()] = pending
        self._requested.add(pending.key())

    def choose(self) -> list[PendingRepair]:
        """Return the repairs that can be done now."""
        parked = self._parked()
        return [each for each in self._pending.copy().values() if (each.schema, each.table) not in parked]

    @property
    def has_any(self) -> bool:
        """Repairs are left. Their table may be parked."""
        return bool(self._pending)

    def topics_left(self) -> set[str]:
        """The topics with repairs that are left."""
        return {each.topic for each in self._pending.values()}

    @property
    def has_requests(self) -> bool:
        """Repairs were requested after the running snapshot had chosen its rows."""
        return bool(self._requested)

    def begin(self, chosen: Iterable[RepairRows]) -> None:
        """A snapshot has read these repairs. Later requests want another snapshot."""
        keys = {each.pending.key() for each in chosen if self._pending.get(each.pending.key()) is each.pending}
        self._requested -= keys

    def is_wanted(self, chosen: PendingRepair) -> bool:
        """Whether a repair that was read is to be published: not if it was requested again, for a later snapshot."""
        return self._pending.get(chosen.key()) is chosen

    def finish(self, outcomes: Iterable[RepairOutcome], lsn: int) -> list[tuple[bytes, bytes | None]]:
        """Take what a snapshot at `lsn` has repaired, of what is wanted.

        Returns the records to write with its rows: keys and values.
        """
        records: dict[bytes, bytes | None] = {}
        for each in outcomes:
            key, topic = each.pending.key(), each.pending.topic
            if each.left and not each.refused:
                self._pending[key] = each.pending.with_keys(each.left)
                self._requested.add(key)
                records[key] = self._pending[key].value()
            else:
                del self._pending[key]
                records[key] = None
            named = {"table": f"{each.pending.schema}.{each.pending.table}"}
            if each.refused:
                code = "request-passed-over"
                said = sentence(f"passed over a repair: {each.refused}", "", code)
                log.warning("%s", said, extra={**named, "code": code})
                continue
            before = self._done.get(topic) or TableRepairs(self._slot, topic, lsn, 0, 0)
            done = TableRepairs(self._slot, topic, lsn, before.rows + each.rows, before.deletes + each.deletes)
            self._done[topic] = done
            records[done.key()] = done.value()
            fields = {"lsn": format_lsn(lsn), "rows": each.rows, "deletes": each.deletes}
            log.info("repairing rows", extra=named | fields)
        return list(records.items())
