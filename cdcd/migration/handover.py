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
import re
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.kafka_takeover import KafkaTakeover, Purpose
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.daemon.wiring import ServerConnection, StreamResources, assemble
from cdcd.errors import GapError, PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.migration.seam import Seam
from cdcd.migration.topic_tails import TopicTails, read_tails
from cdcd.progress.continuity import Server
from cdcd.progress.snapshot_records import DONE, TableSnapshot
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.publisher import Publisher
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.slot import Slot
from cdcd.source.start_options import start_options

log = logging.getLogger(__name__)

Table = tuple[str, str]

_POLL_S: Final = 0.1
_STATUS_S: Final = 5.0
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

    def __init__(self, settings: Settings, clients: Clients, delimiter: str = ".") -> None:
        """`delimiter`: the connector's topic.delimiter."""
        self._settings = settings
        self._clients = clients
        self._delimiter = delimiter
        self._names = settings.topic_names()
        self._last_status_s = 0.0

    def run(self, captured: Callable[[str, str], bool]) -> TakenOver:
        """Take the slot over. `captured` tells whether the connector captures a table, by schema and name.

        If this raises, nothing is recorded, unless Kafka failed to answer the commit itself. Raises PostgresUnavailable
        while the connector streams, RequestRejected or GapError if something is not as the connector has it, and what a
        start raises.
        """
        clients, settings = self._clients, self._settings
        with ExitStack() as stack:
            session = stack.enter_context(clients.session())
            kafka = clients.kafka()
            stack.callback(kafka.close)
            publication = PublicationSetup(settings.source, session, clients.publication(session))
            tables = publication.tables()
            self._check_tables(tables, captured)
            self._check_names(kafka, tables)
            stream = stack.enter_context(clients.replication_stream())
            slot = SlotSetup(settings, clients, session, publication, kafka, lambda: False)
            held = self._hold(clients.slot(session), slot, stream)
            incarnations = clients.incarnations(session)
            takeover = KafkaTakeover(
                settings, clients, kafka, lambda: None, lambda: False, Fallbacks(), Purpose.MIGRATE
            )
            stack.callback(takeover.close)
            takeover.start(held, tables, lambda: slot.confirmed_lsn(stream))
            kafka_session = self._wait(takeover, stream, held.confirmed_lsn)
            # Only now, because to take over ends what a take-over that was killed has left open.
            topics = [self._names.topic(*each) for each in tables]
            answer = partial(self._answer, stream, held.confirmed_lsn)
            found = read_tails(kafka, topics, held.confirmed_lsn, settings.sink.encoding, answer)
            self._check_copied(found)
            server = ServerConnection(
                stream, session, clients.catalog(session), held.system_id, held.confirmed_lsn, "off", _STATUS_S, 0
            )
            parts = assemble(
                settings, clients, server, kafka_session, stack, lambda: None, lambda: False, lambda _, __: None
            )
            copied = [] if settings.snapshot.mode == "never" else [
                TableSnapshot(
                    settings.source.slot, self._names.topic(*each), *each, DONE, held.confirmed_lsn,
                    incarnation=incarnations.get(each),
                )
                for each in tables
            ]  # fmt: skip
            seam = Seam(found, held.confirmed_lsn, self._names.topic)
            kafka_session.publisher.begin_migration(held.confirmed_lsn, copied, clients.monotonic_s())
            self._publish(parts, seam, held)
            seam.check()
            self._check_quiet(kafka, found, kafka_session.publisher)
            result = kafka_session.publisher.commit()
            log.info("took the slot over", extra={"slot": settings.source.slot, "lsn": format_lsn(result.end_lsn)})
            return TakenOver(result.end_lsn, held.confirmed_lsn, seam.left_out, seam.published, len(tables))

    def _hold(self, seen: Slot, slot: SlotSetup, stream: ReplicationStream) -> Server:
        """Stream from the slot, in text and in whole transactions; return where it stands."""
        source = self._settings.source
        identity = stream.identify()
        history = stream.timeline_history(identity.timeline)
        here = Server(identity.system_id, identity.timeline, history, identity.wal_lsn, 0, stream.standby)
        state = seen.fitting_state()
        if state is not None and state.active:
            raise PostgresUnavailable(
                f"the connector streams from the slot {source.slot}",
                "Stop it: PUT /connectors/NAME/stop of Kafka Connect. It is stopped when pg_replication_slots says so",
                code="slot-active",
            )
        found = slot.found(here)
        if found is None:
            raise GapError(
                f"the slot {source.slot} does not exist, or has lost WAL: the connector's position is lost",
                "Set source.slot to the connector's slot.name. If slot.drop.on.stop dropped it, start the connector "
                "again without that option: it takes a new snapshot",
                code="slot-missing",
            )
        options = start_options(
            source.publication,
            stream.server_version,
            binary=False,
            messages=source.messages,
            streaming="off",
            two_phase=False,
            origin=source.origin,
        )
        slot.start(stream, options, 0)
        return slot.held_by(here, stream)

    def _check_tables(self, tables: Collection[Table], captured: Callable[[str, str], bool]) -> None:
        others = sorted(f"{schema}.{name}" for schema, name in tables if not captured(schema, name))
        if others:
            publication = self._settings.source.publication
            raise RequestRejected(
                f"the publication {publication} has {len(others)} tables that the connector leaves out "
                f"({', '.join(others[:3])}): cdcd would publish them",
                "While the connector runs, make the publication one of its tables, in one transaction: BEGIN; DROP "
                f"PUBLICATION {publication}; CREATE PUBLICATION {publication} FOR TABLE ...; COMMIT. Stop the "
                "connector once the slot's confirmed_flush_lsn has passed that",
                code="connector-differs",
            )

    def _check_names(self, kafka: KafkaCluster, tables: Collection[Table]) -> None:
        prefix = self._settings.sink.prefix
        for schema, name in tables:
            theirs = re.sub("[^A-Za-z0-9._-]", "_", self._delimiter.join((prefix, schema, name)))
            if self._names.topic(schema, name) != theirs:
                raise RequestRejected(
                    f"the table {schema}.{name} has the topic {self._names.topic(schema, name)} in cdcd, and {theirs} "
                    "in Debezium",
                    "Rename the table, take it out of the publication while the connector runs, or let cdcd begin "
                    "under another sink.prefix with a snapshot",
                    code="connector-differs",
                )
        messages = self._delimiter.join((prefix, "message"))
        found = kafka.admin.partitions([messages]) if self._settings.source.messages else {}
        if found and any(kafka.admin.end_offsets(found)[messages]):
            raise RequestRejected(
                f"the connector has published logical messages on {messages}, and cdcd does so on "
                f"{self._names.messages}",
                "Set source.messages = false if nobody reads them; else let their consumers read both topics, and "
                "delete the old one",
                code="connector-differs",
            )

    def _check_copied(self, found: TopicTails) -> None:
        if not found.is_copied and self._settings.snapshot.mode != "never":
            raise RequestRejected(
                "the topics have no change, nor the last row of a snapshot: the connector has not finished its "
                "snapshot",
                "Start the connector again, and stop it once it streams; or drop its slot, and let cdcd begin with a "
                "snapshot under another sink.prefix",
                code="connector-unfinished",
            )

    def _check_quiet(self, kafka: KafkaCluster, found: TopicTails, publisher: Publisher) -> None:
        """Raise RequestRejected if the topics have got records since their ends were read.

        A connector gives the slot back before its producer has written everything.
        """
        publisher.flush()
        assert publisher.open is not None
        partitions = {topic: len(ends) for topic, ends in found.ends.items()}
        grown = found.has_grown(kafka.admin.end_offsets(partitions) if partitions else {}, publisher.open.written)
        if grown:
            raise RequestRejected(
                f"somebody writes to {grown}: the connector has not ended yet",
                "Run the command again once Kafka Connect says that it is stopped",
                code="slot-active",
            )

    def _wait(self, takeover: KafkaTakeover, stream: ReplicationStream, confirmed_lsn: int) -> KafkaSession:
        while not takeover.done:
            self._answer(stream, confirmed_lsn)
            stream.wait(_POLL_S, reading=False)
        kafka = takeover.result()
        assert kafka is not None, "nothing stops it"
        return kafka

    def _answer(self, stream: ReplicationStream, confirmed_lsn: int) -> None:
        """Tell the server that the client lives, and confirm nothing new."""
        now = self._clients.monotonic_s()
        if now - self._last_status_s >= _STATUS_S:
            stream.send_status(confirmed_lsn, confirmed_lsn, confirmed_lsn)
            self._last_status_s = now

    def _publish(self, parts: StreamResources, seam: Seam, held: Server) -> None:
        """Publish what the connector has not, up to the end of the last transaction that it has published in part."""
        stream, assembler, batches, publisher = parts.server.stream, parts.assembler, parts.batches, parts.publisher
        while True:
            self._answer(stream, held.confirmed_lsn)
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
            if is_idle and assembler.last_idle_keepalive_lsn >= held.wal_lsn:
                return
