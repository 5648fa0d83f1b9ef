"""Which tables are parked, and how far the replay of one has come: what `publisher` asks for each batch.

Before: the slot record says what is parked, the supervisor (`parking.Parking`) what is to be besides.
After: `publisher` sends a parked table's batch to the parked topic, writes the state into every slot record, and
publishes the pieces that `piece` brings back.

The state is part of the slot record that commits with the events it is about. So whatever is killed when: an event is
on its table's topic or on the parked one, or on its way from this to that; never on both, never on neither.

The same serves tables that are being copied, so that the others need not wait: from the snapshot's consistent point on
their events are set aside, and replayed as soon as the copy is whole, or at the next start if it was broken off. (Its
rest is then copied as of a later LSN, behind these events.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias

from cdcd.errors import DecodeError, GapError, Unpublishable
from cdcd.progress.daemon_requests import DISCARD, UNPARK, table_of
from cdcd.progress.records import ParkedTable, SlotRecord
from cdcd.progress.snapshot_records import COPYING, DONE, TableSnapshot
from cdcd.sink.batches import Batch
from cdcd.sink.interfaces import ParkedReader
from cdcd.sink.kafka_transaction import Table
from cdcd.sink.parking.wire_format import ParkedPiece, PendingParking, batch_of

Rename: TypeAlias = "Callable[[Table, str, bytes], bytes]"
"""Gives a parked record (of a table; "key" or "value") the header that its own topic's readers know."""

log = logging.getLogger(__name__)

_COPYING: Final = "its snapshot is being copied"


class ParkedTables:
    """The parked tables of one slot. For one thread, `tables` excepted."""

    def __init__(
        self,
        last: SlotRecord | None,
        parking: PendingParking,
        reader: ParkedReader | None,
        rename: Rename | None,
        key_of: Callable[[Table], bytes],
        end_offset: Callable[[], int],
    ) -> None:
        """`reader` and `rename` serve the replay; without `rename` the records are what they were.

        `key_of` gives the key of a table's records on the parked topic; `end_offset` makes the topic if it is missing,
        and says where its next record would go.
        """
        self._parking = parking
        self._reader = reader
        self._rename = rename
        self._key_of = key_of
        self.replaying: Table | None = None
        """The table whose events are on their way to its own topic, in this very moment."""
        self.renamed = False
        """A table is no longer parked whose records were named otherwise while it was: only a new stream names them
        right."""
        self._tables = {(each.schema, each.table): each for each in (last.parked if last is not None else ())}
        self._unsettled = False
        """A replay was refused, and whoever asked for it waits to hear that."""
        self._spared: set[Table] = set()
        """Set aside by us, and nothing of theirs is on the parked topic yet."""
        for table, parked in self._tables.items():
            if parked.copying:
                self._tables[table] = replace(parked, unparking=True)
        for table, reason in parking.refused.items():
            if table in self._tables:
                self._tables[table] = replace(self._tables[table], reason=reason, unparking=False, copying=False)
                self._unsettled = True
        self._end_offset = end_offset
        self._park(parking.parked, last.lsn if last is not None else 0)

    def _park(self, reasons: Mapping[Table, str], lsn: int, *, copying: bool = False) -> None:
        offset: int | None = None
        for (schema, name), reason in reasons.items():
            known = self._tables.get((schema, name))
            if known is None:
                if offset is None:
                    offset = self._end_offset()  # asked for before the first record of ours
                self._tables[schema, name] = ParkedTable(schema, name, reason, lsn, offset, copying=copying)
                self._spared.add((schema, name))
            elif known.copying and not copying:
                self._tables[schema, name] = replace(known, reason=reason, unparking=False, copying=False)

    @property
    def tables(self) -> Mapping[Table, ParkedTable]:
        """All of them, as of now. For any thread."""
        return self._tables.copy()

    @property
    def unparking(self) -> bool:
        """Parked events are to be replayed, or it is to be told that they were not: `piece` has what to publish."""
        return self._unsettled or any(parked.unparking for parked in self._tables.values())

    def get(self, table: Table, *, copied: bool = False) -> ParkedTable | None:
        """The table, if its events go to the parked topic now; `copied`: those of its snapshot."""
        parked = self._tables.get(table)
        if parked is None or self.replaying is not None or (copied and parked.copying):
            return None
        return parked

    def begins(self, table: Table) -> None:
        """Something of it goes to the parked topic."""
        self._spared.discard(table)

    def passed(self, offset: int) -> None:
        """The parked topic reaches to `offset` now: of whom nothing is there, none of it need be read."""
        for table in self._spared:
            self._tables[table] = replace(self._tables[table], offset=offset)

    def copied(self, copies: Collection[TableSnapshot], lsn: int) -> None:
        """Set aside, from here on (`lsn`), the events of tables that are being copied; replay those that are whole.

        The rows of the snapshot, and how far it has come, are published with this.
        """
        names = [(copy.schema, copy.table) for copy in copies if copy.state == COPYING]
        begun = [name for name in names if name not in self._tables]
        self._park(dict.fromkeys(begun, _COPYING), lsn, copying=True)
        for copy in copies:
            parked = self._tables.get((copy.schema, copy.table))
            if copy.state == DONE and parked is not None and parked.copying:
                self._tables[copy.schema, copy.table] = replace(parked, unparking=True)

    def key_of(self, table: Table) -> bytes:
        """The key of its records on the parked topic."""
        return self._key_of(table)

    def request(self, content: bytes) -> None:
        """Take what the daemon is asked for into the next slot record: then it is neither lost nor taken twice."""
        unwanted = table_of(DISCARD, content)
        table = unwanted or table_of(UNPARK, content)
        if table is None:
            return
        parked = self._tables.get(table)
        if parked is None or parked.copying:
            log.info("not parked, so there is nothing to unpark", extra={"table": ".".join(table)})
            return
        # What is given up is passed over: the replay begins behind it.
        offset = parked.offset if unwanted is None else self._end_offset()
        self._tables[table] = replace(parked, unparking=True, offset=offset)

    def piece(self, lsn: int) -> Batch:
        """The next parked events of a table that is `unparking`, as a batch up to `lsn`, which is durable already.

        The state is the one after it: publish it and commit, or throw all of this away. Empty if all there is to tell
        is that a replay was refused.
        """
        batch = Batch()
        batch.end_lsn = lsn
        if self._unsettled:
            return batch
        passed = 0
        for table, parked in [each for each in self._tables.items() if each[1].unparking]:
            try:
                passed += self._replay(batch, table, parked)
            except (GapError, DecodeError) as error:
                raise Unpublishable(error.message, error.hint, table=table, gone=True) from error
            if batch.rows or (self._reader is not None and passed >= self._reader.scanned_max):
                break  # but what has nothing to replay, as most that was copied, is told of together
        return batch

    def _replay(self, batch: Batch, table: Table, parked: ParkedTable) -> int:
        """Returns how many offsets of the parked topic that has passed."""
        assert self._reader is not None
        self.replaying = table
        rename = None if parked.copying else self._rename
        if table in self._spared:
            piece = ParkedPiece([], parked.offset, True)
        else:
            piece = self._reader.read(self._key_of(table), parked.offset)
        if piece.end:
            del self._tables[table]
            self._spared.discard(table)
            self.renamed |= rename is not None
        else:
            self._tables[table] = replace(parked, offset=piece.offset)
        said = "publishing what changed during the copy"
        if not parked.copying:
            said = "unparked" if piece.end else "unparking"
        if piece.events or not parked.copying:
            log.info(said, extra={"table": ".".join(table), "events": len(piece.events)})
        passed = piece.offset - parked.offset
        if not piece.events:
            return passed
        replayed = batch_of(parked, piece.events)
        if rename is not None:
            for message in replayed.messages:
                for subject, data in message.items():
                    if data is not None:
                        message[subject] = rename(table, subject, data)
        batch.rows = len(piece.events)
        batch.tables = [replayed]
        return passed

    def settled(self) -> None:
        """A slot record with this state is committed."""
        self.replaying = None
        self._unsettled = False
        self._parking.settled()

    @contextmanager
    def naming(self, table_of: Callable[[str], Table | None]) -> Iterator[None]:
        """The producer knows topics only: an Unpublishable that leaves here has the table, and whether it is old."""
        try:
            yield
        except Unpublishable as error:
            error.table = error.table or table_of(error.topic)
            error.unparking = self.replaying is not None
            if error.topic and error.topic not in error.message:
                error.message = f"the topic {error.topic} does not take a row: {error.message}"
            raise
