"""Takes over the slot, the publication and the topics of a Debezium connector: `cdcd migrate debezium --take-over`.

Before: the connector is stopped. The settings are those of `conversion`.
After: the next `cdcd run` goes on from the record that this module commits.
Source: Debezium 3.7 and Kafka Connect: a connector confirms to the slot what its offsets, and so Kafka, have.

One Kafka transaction holds everything: the events that the connector has not published of those transactions that it
has published in part (`seam`), the record of every table whose rows the topics have, and the slot record behind these
transactions. So a SIGKILL before its commit leaves everything as it was, and the connector can go on; after it, cdcd
can. The slot is not moved: the daemon confirms what the record covers.

To hold the slot is the lock: while the connector streams, PostgreSQL refuses. What must be the connector's (the tables,
the names of the topics, the encoding) is compared first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.kafka_takeover import KafkaTakeover, Purpose
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.wiring import ServerConnection, StreamResources, assemble
from cdcd.lsn import format_lsn
from cdcd.migration.held_slot import STATUS_S, HeldSlot
from cdcd.migration.likeness import (
    Table,
    check_copied,
    check_finished,
    check_messages,
    check_names,
    check_quiet,
    check_tables,
)
from cdcd.migration.published_change import change_reader
from cdcd.migration.seam import Seam
from cdcd.migration.topic_tails import read_tails
from cdcd.migration.transforms import Route
from cdcd.progress.snapshot_records import DONE, PublishedTables, TableSnapshot

log = logging.getLogger(__name__)

_POLL_S: Final = 0.1
_FRAMES_MAX: Final = 5_000
_READ_BYTES_MAX: Final = 2 << 20


@dataclass(frozen=True)
class TakenOver:
    """The stream is cdcd's."""

    lsn: int
    """It goes on there."""
    confirmed_lsn: int
    """Where the connector had confirmed the slot."""
    left_out: int
    """Events behind the confirmed position that the connector had published."""
    published: int
    """Events of the same transactions, and of what came with them, that it had not."""
    tables: int


class Handover:
    """One take-over, for the server, the slot and the topics that the settings name."""

    def __init__(
        self, settings: Settings, clients: Clients, delimiter: str = ".", routes: Sequence[Route] = ()
    ) -> None:
        """`delimiter`: the connector's topic.delimiter. `routes`: what its routers do."""
        self._settings = settings
        self._clients = clients
        self._delimiter = delimiter
        self._routes = routes
        self._names = settings.topic_names()

    def run(self, captured: Callable[[str, str], bool]) -> TakenOver:
        """Take the slot over. `captured` tells whether the connector captures a table, by schema and name.

        If this raises, nothing is recorded, unless Kafka failed to answer the commit itself. Raises PostgresUnavailable
        while the connector streams, RequestRejected or GapError if something is not as the connector has it, and what a
        start raises.
        """
        clients, settings, names = self._clients, self._settings, self._names
        with ExitStack() as stack:
            session = stack.enter_context(clients.session())
            kafka = clients.kafka()
            stack.callback(kafka.close)
            publication = PublicationSetup(settings.source, session, clients.publication(session))
            tables = publication.tables()
            check_tables(settings.source.publication, tables, captured)
            in_keys = settings.debezium.key_enforce_uniqueness
            check_names(names, tables, self._delimiter, self._routes, in_keys=in_keys)
            if settings.source.messages:
                check_messages(kafka, names, self._delimiter, self._routes)
            stream = stack.enter_context(clients.replication_stream())
            held = HeldSlot(settings, clients, session, publication, kafka, stream)
            lsn = held.server.confirmed_lsn
            incarnations = clients.incarnations(session)
            takeover = KafkaTakeover(
                settings, clients, kafka, lambda: None, lambda: False, Fallbacks(), Purpose.MIGRATE
            )
            stack.callback(takeover.close)
            takeover.start(held.server, tables, held.confirmed_lsn)
            while not takeover.done:
                held.wait(_POLL_S)
            taken = takeover.result()
            assert taken is not None, "nothing stops it"
            # Only now, because to take over ends what a take-over that was killed has left open.
            changes = change_reader(settings)
            found = read_tails(
                kafka,
                {names.on_broker(*each) for each in tables},
                lsn,
                changes,
                held.answer,
                has_truncates=settings.debezium.truncates,
                shared={names.shared_topic(*each) for each in tables},
            )
            check_finished(taken.snapshots, tables)
            taking = settings.snapshot_rules()
            if taking.takes_any:
                check_copied(found)
            server = ServerConnection(
                stream, session, clients.catalog(session), held.server.system_id, lsn, "off", STATUS_S, 0
            )
            parts = assemble(settings, clients, server, taken, stack, lambda: None, lambda: False, lambda _, __: None)
            parts.registry_wait.turn = held.wait
            copied = self._copied([each for each in tables if taking.takes(*each)], incarnations, lsn)
            seam = Seam(found, lsn, names.on_broker, changes)
            taken.publisher.begin_migration(lsn, copied, clients.monotonic_s())
            self._publish(parts, seam, held)
            seam.check()
            check_quiet(kafka, found, taken.publisher)
            result = taken.publisher.commit()
            log.info("took the slot over", extra={"slot": settings.source.slot, "lsn": format_lsn(result.end_lsn)})
            return TakenOver(result.end_lsn, lsn, seam.left_out, seam.published, len(tables))

    def _copied(self, tables: Collection[Table], incarnations: PublishedTables, lsn: int) -> list[TableSnapshot]:
        """The records of tables that need no snapshot."""
        slot, topic = self._settings.source.slot, self._names.topic
        return [
            TableSnapshot(slot, topic(*each), *each, DONE, lsn, incarnation=incarnations.get(each)) for each in tables
        ]

    def _publish(self, parts: StreamResources, seam: Seam, held: HeldSlot) -> None:
        """Publish what the connector has not, up to the end of the last transaction that it has published in part."""
        stream, assembler, batches, publisher = held.stream, parts.assembler, parts.batches, parts.publisher
        while True:
            held.answer()
            if assembler.is_busy:
                assembler.proceed()
            else:
                stream.wait(_POLL_S)
                assembler.feed(stream.read(_FRAMES_MAX, _READ_BYTES_MAX))
            batch = batches.build()
            if batch.rows or batch.transactions:
                seam.cut(batch)
                publisher.publish(batch, self._clients.monotonic_s())
                publisher.flush()
            if batch.ends_inside_transaction:
                continue
            if batch.end_lsn and seam.is_over(batch.end_lsn):
                return  # the rest of what was read comes again
            is_idle = not (assembler.in_transaction or assembler.is_busy)
            if is_idle and assembler.last_idle_keepalive_lsn >= held.server.wal_lsn:
                return
