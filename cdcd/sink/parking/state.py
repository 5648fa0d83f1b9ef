"""The parked and the deferred tables of one slot, and how far the replay of each is.

Before: the slot record says which tables are parked or deferred, `PendingParking` which tables the supervisor adds.
After: `publisher` asks for each batch whether its table's events go to the parked topic, writes the state into every
slot record, and publishes the chunks of `next_chunk`.

Two kinds of tables share the parked topic. A *parked* table was refused by Kafka: its events wait there until a person
asks to unpark it. A *deferred* table is fine, but its snapshot runs: from the snapshot's consistent point on its events
wait there, so that other tables need not wait. They are replayed once the snapshot is finished. If the daemon dies
before that, the next daemon replays them at its start, and the rest of the snapshot is taken at a later LSN, after
these events.

The state is part of the slot record, which commits with the events it is about. So a daemon may die at any moment: each
event is on its table's topic, or on the parked topic, or it is being replayed from there; never on both, never lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from cdcd.errors import DecodeError, GapError, Unpublishable
from cdcd.progress.daemon_requests import DISCARD, MESSAGES, UNPARK, Request
from cdcd.progress.records import DeferredTable, ParkedTable, SlotRecord, table_key
from cdcd.progress.snapshot_records import RUNNING, TableSnapshot
from cdcd.sink.batches import TOMBSTONE, Batch, message_bytes
from cdcd.sink.interfaces import ParkedReader
from cdcd.sink.kafka_transaction import Table
from cdcd.sink.parking.wire_format import ParkedChunk, batch_of
from cdcd.sink.table_topics import TableTopics
from cdcd.sink.topics import encode_identifier
from cdcd.source.table_selection import qualified_name, shell_word

Rename: TypeAlias = "Callable[[Table, str, bytes], bytes]"
"""Gives the "key" or "value" of a table's parked record the schema header that readers of its own topic know."""

log = logging.getLogger(__name__)


class PendingParking:
    """The supervisor's decisions about tables since the last slot record. The next slot record holds them."""

    def __init__(self) -> None:
        self.parked: dict[Table, str] = {}
        """Tables to park, with the reasons."""
        self.refused: dict[Table, str] = {}
        """Parked tables whose replay was refused, with the reasons."""
        self.keyless: set[Table] = set()
        """Tables to park whose events lack their key."""
        self._lsn = 0
        """The LSN of the last slot record before these decisions; 0: there was none."""

    def begin(self, lsn: int) -> None:
        """A stream begins behind the slot record of `lsn`; 0: there is none.

        Decisions about an earlier one are out of date: another daemon has streamed meanwhile, and may have parked the
        tables, and replayed their events, too.
        """
        if lsn != self._lsn:
            self.on_commit(lsn)

    def on_commit(self, lsn: int) -> None:
        """The slot record of `lsn` holds all of these decisions now."""
        self.parked.clear()
        self.refused.clear()
        self.keyless.clear()
        self._lsn = lsn


class ParkedTables:
    """The state. For one thread, `parked` excepted."""

    def __init__(
        self,
        topics: TableTopics,
        slot: str,
        last: SlotRecord | None,
        pending: PendingParking | None = None,
        reader: ParkedReader | None = None,
        rename: Rename | None = None,
    ) -> None:
        """`last` is the slot record to go on from; `pending` holds tables to park, and refused replays.

        `reader` reads the parked topic for replays; without `rename` a replay leaves the records as they are.
        """
        self._topics = topics
        self._slot = slot
        self._pending = pending or PendingParking()
        self._reader = reader
        self._rename = rename
        self.replaying: Table | None = None
        """The table whose events are on their way to its own topic at this moment."""
        self._replayed: list[tuple[str, str, int]] = []
        """Message, table and number of events, to log when they are committed."""
        self.needs_new_stream = False
        """A table was unparked. Only a new stream writes the right schema headers for it."""
        self._refusal_unreported = False
        """A replay was refused, and no slot record says so yet. A person may be waiting for it."""
        self._nothing_parked: set[Table] = set()
        """Tables deferred or parked by this process that have no record on the parked topic yet."""
        self._tables: dict[Table, ParkedTable | DeferredTable] = {}
        if last is not None:
            self._tables = {(each.schema, each.table): each for each in last.parked}
            self._tables |= {(each.schema, each.table): replace(each, is_replaying=True) for each in last.deferred}
        if self._tables:
            self._topics.ensure_parked()  # from now on it must not lose a record
        for table, reason in self._pending.refused.items():
            known = self._tables.get(table)
            if known is not None:
                self._tables[table] = _parked(known, reason)
                self._refusal_unreported = True
        self._keep_what_fits_no_more()
        self._park(self._pending.parked, last.lsn if last is not None else 0)

    def _keep_what_fits_no_more(self) -> None:
        """Replay nothing for a table that shares its topic now and did not before, or the other way.

        Keys and events name their table on a shared topic only.
        """
        for table, known in self._tables.items():
            shares = self._topics.names.shares_topic(*table)
            if known.shares_topic == shares or (isinstance(known, ParkedTable) and known.is_keyless):
                continue
            kinds = ("that tables share", "of its own")
            now, before = kinds if shares else kinds[::-1]
            reason = f"the settings give it a topic {now}, and its parked events are for one {before}"
            self._tables[table] = replace(_parked(known, reason), is_keyless=True)
            log.warning(
                "the table %s is parked: %s. Run: cdcd unpark --discard %s, which also takes a new snapshot "
                "[key-unknown]",
                qualified_name(*table),
                reason,
                shell_word(qualified_name(*table)),
                extra={"code": "key-unknown"},
            )

    def _park(self, reasons: Mapping[Table, str], lsn: int) -> None:
        new = [table for table in reasons if table not in self._tables]
        for table, offset in self._offsets(new):
            is_keyless = table in self._pending.keyless
            shares = self._topics.names.shares_topic(*table)
            self._tables[table] = ParkedTable(
                *table, reasons[table], lsn, offset, is_keyless=is_keyless, shares_topic=shares
            )
        for table, reason in reasons.items():
            known = self._tables[table]
            if isinstance(known, DeferredTable):
                self._tables[table] = replace(_parked(known, reason), is_keyless=table in self._pending.keyless)

    def _defer(self, tables: Iterable[Table], lsn: int) -> None:
        new = [table for table in tables if table not in self._tables]
        for table, offset in self._offsets(new):
            shares = self._topics.names.shares_topic(*table)
            self._tables[table] = DeferredTable(*table, lsn, offset, shares_topic=shares)

    def _offsets(self, new: Collection[Table]) -> Iterator[tuple[Table, int]]:
        """Yield each table with the offset from which on its records can be on the parked topic."""
        if new:
            if not self._tables:
                self._topics.forget_parked()
            offset = self._topics.parked_end()  # asked before their first record
            for table in new:
                self._nothing_parked.add(table)
                yield table, offset

    @property
    def parked(self) -> Mapping[Table, ParkedTable]:
        """The parked tables by name. For any thread."""
        return {table: each for table, each in self._tables.copy().items() if isinstance(each, ParkedTable)}

    @property
    def deferred(self) -> tuple[DeferredTable, ...]:
        """The deferred tables."""
        return tuple(each for each in self._tables.values() if isinstance(each, DeferredTable))

    @property
    def has_events(self) -> bool:
        """The parked topic may have events that are nowhere else. For any thread."""
        return bool(self._tables)

    @property
    def has_replay(self) -> bool:
        """Parked events are to be replayed, or a slot record must report a refused replay: call `next_chunk`."""
        return self._refusal_unreported or any(each.is_replaying for each in self._tables.values())

    def complete_lsn(self, table: Table) -> int | None:
        """Return the LSN up to which the table's own topic is complete, if it is parked or deferred; else None."""
        known = self._tables.get(table)
        return None if known is None else known.lsn

    def get(self, table: Table, *, is_snapshot: bool = False) -> ParkedTable | DeferredTable | None:
        """Return the table if its events go to the parked topic now; `is_snapshot`: they are its snapshot's rows."""
        known = self._tables.get(table)
        if known is None or self.replaying is not None or (is_snapshot and isinstance(known, DeferredTable)):
            return None
        return known

    def begin_records(self, table: Table) -> bytes:
        """Note that records of this table go to the parked topic now; returns their key."""
        self._nothing_parked.discard(table)
        return self._key_of(table)

    def on_parked_end(self, offset: int) -> None:
        """Note that the parked topic reaches to `offset` now.

        Tables with nothing on the parked topic up to `offset` can start their replay here.
        """
        for table in self._nothing_parked:
            self._tables[table] = replace(self._tables[table], offset=offset)

    def on_snapshots(self, records: Collection[TableSnapshot], lsn: int) -> None:
        """Defer, from `lsn` on, the tables whose snapshots run; replay the events of those that have ended.

        `records` are published in the same Kafka transaction.
        """
        self._defer([(each.schema, each.table) for each in records if each.state == RUNNING], lsn)
        for each in records:
            known = self._tables.get((each.schema, each.table))
            if each.has_ended and isinstance(known, DeferredTable):
                self._tables[each.schema, each.table] = replace(known, is_replaying=True)

    def request(self, request: Request) -> None:
        """Take a request to the daemon into the next slot record, so that it is neither lost nor taken twice."""
        if request.action not in (UNPARK, DISCARD):
            return
        table = request.table
        known = self._tables.get(table)
        if not isinstance(known, ParkedTable):
            log.info("not parked, so there is nothing to unpark", extra={"table": ".".join(table)})
            return
        if known.is_keyless and request.action != DISCARD:
            log.warning(
                "the parked events lack their key, so they are not replayed. Run: cdcd unpark --discard %s "
                "[key-unknown]",
                shell_word(qualified_name(*table)),
                extra={"table": ".".join(table), "code": "key-unknown"},
            )
            return
        # The replay of a discarded table starts after its events.
        offset = self._topics.parked_end() if request.action == DISCARD else known.offset
        self._tables[table] = replace(known, is_replaying=True, offset=offset)

    def next_chunk(self, lsn: int) -> Batch:
        """Return the next events to replay, as a batch up to `lsn`, which is durable already.

        The state is then the one after the batch: commit the batch, or throw this object away. The batch is empty if it
        only reports that a replay was refused.
        """
        batch = Batch()
        batch.end_lsn = lsn
        if self._refusal_unreported:
            return batch
        assert self._reader is not None
        scanned_offsets = 0
        for table, known in [each for each in self._tables.items() if each[1].is_replaying]:
            try:
                scanned_offsets += self._replay(batch, table, known)
            except (GapError, DecodeError) as error:
                raise Unpublishable(error.message, error.hint, table=table, gone=True, code=error.code) from error
            if batch.tables or scanned_offsets >= self._reader.scanned_max:
                break  # tables without events, as most deferred ones are, share one Kafka transaction
        return batch

    def _replay(self, batch: Batch, table: Table, known: ParkedTable | DeferredTable) -> int:
        """Put the table's next events into the batch; returns how many offsets of the parked topic were read."""
        assert self._reader is not None
        self.replaying = table
        is_parked = isinstance(known, ParkedTable)
        if table in self._nothing_parked:
            chunk = ParkedChunk([], known.offset, is_last=True)
        else:
            chunk = self._reader.read(self._key_of(table), known.offset)
        rename = self._rename if is_parked else None
        if chunk.is_last:
            del self._tables[table]
            self._nothing_parked.discard(table)
            self.needs_new_stream |= rename is not None
        else:
            self._tables[table] = replace(known, offset=chunk.offset)
        events = sum(event.op != TOMBSTONE for event in chunk.events)
        if chunk.events or is_parked:
            message = "publishing the changes made during the snapshot"
            if is_parked:
                message = "unparked" if chunk.is_last else "unparking"
            self._replayed.append((message, ".".join(table), events))
        if chunk.events:
            replayed = batch_of(*table, chunk.events)
            if rename is not None:
                for record in replayed.messages:
                    if "key" in record:
                        record["key"] = rename(table, "key", record["key"])
                    if record["value"] is not None:
                        record["value"] = rename(table, "value", record["value"])
            batch.rows = events
            # So the size of a row that is refused again is known: it is the reason from then on.
            batch.bytes = sum(map(message_bytes, replayed.messages))
            batch.tables = [replayed]
        return chunk.offset - known.offset

    def on_commit(self, lsn: int) -> None:
        """The slot record of `lsn`, with this state, is committed."""
        for message, table, events in self._replayed:
            log.info(message, extra={"table": table, "events": events})
        self._replayed.clear()
        self.replaying = None
        self._refusal_unreported = False
        self._pending.on_commit(lsn)

    @contextmanager
    def naming_table(self, tables_of: Callable[[Unpublishable], Sequence[Table]]) -> Iterator[None]:
        """Complete an Unpublishable that leaves the block: the producer knows only its topic.

        The error gets the table, and whether it was about a replayed event.
        """
        try:
            yield
        except Unpublishable as error:
            if error.table is None:
                refused = [self.replaying] if self.replaying is not None else tables_of(error)
                error.table, error.others = next(iter(refused), None), list(refused[1:])
            error.unparking = self.replaying is not None
            if error.table == MESSAGES:
                error.hint = f"{error.hint.rstrip('.')}. If nobody needs logical messages, set source.messages = false"
            if error.topic and error.topic not in error.message:
                error.message = f"the topic {error.topic} does not take a row: {error.message}"
            raise

    def _key_of(self, table: Table) -> bytes:
        """Return the key of the table's records on the parked topic. No other table has it, even at the same topic."""
        return table_key(self._slot, ".".join(map(encode_identifier, table)))


def _parked(known: ParkedTable | DeferredTable, reason: str) -> ParkedTable:
    return ParkedTable(known.schema, known.table, reason, known.lsn, known.offset, shares_topic=known.shares_topic)
