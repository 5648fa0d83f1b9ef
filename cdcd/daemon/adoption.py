"""Lets a stream go on at another server, in the same topics: `cdcd adopt`.

Before: a person has moved the database: by pg_upgrade, a dump, logical replication, a restore or a failover. No daemon
streams, and `source.dsn` leads to the new server.
After: the next `cdcd run` goes on from the record that this module commits.
Source: PostgreSQL, "pg_upgrade", "Upgrading Data via Logical Replication".

One Kafka transaction records the new server's identity, the position at which the stream goes on, and the base of its
LSNs (`cdcd.lsn`). It is written with the daemon's transactional ids, so a daemon of the old server is fenced. Before
this record nothing has changed, and the old server's daemon can go on. After it, the old server is refused.

The tables at that position must be what the topics have. There are four ways:

1. Compared (the usual one): the tables are compared with the topics as of a snapshot of the new server. They are equal,
   so it does not matter how they came there. The stream goes on at the snapshot's LSN.
2. Said (`drained`): a person says that everything was published, and that nobody had written to the new server before
   its slot was made. The stream goes on where the slot stands. The evidence may still refuse: a server with the system
   id that Kafka knows must have all that was published.
3. Replaced (`resnapshot`): all tables get a new snapshot, and the record declares a gap.
4. Repaired (`repair`): nothing is proven, and the record declares a gap. The daemon compares the tables with the topics
   and publishes what differs, as after a lost slot (`gap_repairs`).

The OIDs and files of the old server's tables mean nothing at this one. So the record comes with those of its tables
(`source.incarnations`). Else the daemon would take each of them for another table.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.adoption_proof import Compare, Proof, Seam, prove
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.kafka_takeover import KafkaTakeover, Purpose
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.errors import GapError, PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.continuity import Server, check_drained
from cdcd.progress.snapshot_records import PublishedTables
from cdcd.reading.slot_progress import progress_store
from cdcd.source.replication_stream import ReplicationStream

log = logging.getLogger(__name__)

POLL_S: Final = 0.1


@dataclass(frozen=True)
class Adopted:
    """The stream goes on at this server."""

    system_id: str
    before: str
    """The system id of the server until now."""
    server_lsn: int
    """Where the stream goes on, as the server knows it."""
    lsn: int
    """The same in Kafka."""
    proof: Proof
    is_new: bool = True
    """It was recorded just now; False: there was nothing to do."""
    snapshots: tuple[str, ...] = ()
    """The topics whose tables get a new snapshot."""
    unpublished: tuple[str, ...] = ()
    """Topics that hold what the slot has published, and to which no table that is published here writes."""


class Adoption:
    """One adoption, for the server and the slot that the settings name."""

    def __init__(
        self, settings: Settings, clients: Clients, compare: Compare, fallbacks: Fallbacks | None = None
    ) -> None:
        """`compare` is called while no daemon can publish. `fallbacks` has the judge of PostgreSQL, as at a start."""
        self._settings = settings
        self._clients = clients
        self._compare = compare
        self._fallbacks = fallbacks or Fallbacks()

    def run(self, proof: Proof) -> Adopted:
        """Adopt the server. If this raises, nothing is recorded, unless Kafka failed to answer the commit itself.

        Raises SlotActive while a daemon streams there; GapError if there is no progress, or if the evidence contradicts
        what is said; RequestRejected if tables differ; and what a start raises.
        """
        clients, source = self._clients, self._settings.source
        with ExitStack() as stack:
            session = stack.enter_context(clients.session())
            kafka = clients.kafka()
            stack.callback(kafka.close)
            publication = PublicationSetup(source, session, clients.publication(session))
            is_judged = self._fallbacks.judgement.judge(session, self._settings)
            publication.ensure(is_judged=is_judged)
            # It does not wait: the transaction of an adoption that was killed may be open.
            last = progress_store(self._settings, kafka).visible_record()
            if last is None:
                raise GapError(
                    f"Kafka has no progress of the slot {source.slot}, so there is nothing to adopt",
                    "Run: cdcd run",
                    code="nothing-to-adopt",
                )
            slot = SlotSetup(self._settings, clients, session, publication, kafka, lambda: False)
            stream = stack.enter_context(clients.replication_stream())
            server = self._server(stream)
            if proof is Proof.SAID:
                found = slot.found(server)
                if found is not None and not check_drained(last, source.slot, found):
                    return Adopted(server.system_id, last.system_id, last.server_lsn, last.lsn, proof, is_new=False)
            slot.ensure_adoptable(stream)
            try:
                found = slot.found(server)
                if found is None:
                    raise PostgresUnavailable(f"the slot {source.slot} disappeared", code="slot-changed-meanwhile")
                tables = publication.tables()
                # Before the comparison: a table that is replaced after this look is copied, which does no harm.
                incarnations = clients.incarnations(session)
                # From this position on, the base makes every LSN higher than those that Kafka has.
                earliest = found.confirmed_lsn if proof is Proof.SAID else found.wal_lsn
                takeover = KafkaTakeover(
                    self._settings, clients, kafka, lambda: None, lambda: False, self._fallbacks, Purpose.ADOPT
                )
                stack.callback(takeover.close)
                takeover.start(replace(found, wal_lsn=earliest), tables, lambda: 0)
                session_of_kafka = self._wait(takeover)
                seam = prove(proof, self._settings, session_of_kafka, tables, earliest, self._compare)
            except BaseException:
                slot.drop_created()
                raise
            # The slot stays from here on: Kafka may have the record, whatever becomes of the answer.
            return self._record(session_of_kafka, found, incarnations, proof, seam)

    @staticmethod
    def _server(stream: ReplicationStream) -> Server:
        identity = stream.identify()
        if stream.standby:
            raise RequestRejected(
                "source.dsn leads to a standby, which may lack what its primary has written",
                "Promote it, or name the primary",
                code="primary-needed",
            )
        history = stream.timeline_history(identity.timeline)
        return Server(identity.system_id, identity.timeline, history, identity.wal_lsn, 0)

    def _wait(self, takeover: KafkaTakeover) -> KafkaSession:
        pause = self._clients.event()
        while not takeover.done:
            pause.wait(POLL_S)
        kafka = takeover.result()
        assert kafka is not None, "nothing stops an adoption"
        return kafka

    def _record(
        self,
        kafka: KafkaSession,
        server: Server,
        tables: PublishedTables,
        proof: Proof,
        seam: Seam,
    ) -> Adopted:
        publisher, lsn = kafka.publisher, seam.server_lsn + kafka.lsn_base
        last = publisher.last
        assert last is not None
        now = self._clients.monotonic_s()
        wanted = publisher.adopt(lsn, sorted(seam.tables), tables, now, seam.gap_lsn, seam.compared)
        log.info(
            "adopted the server",
            extra={
                "system_id": server.system_id,
                "before": last.system_id,
                "lsn": format_lsn(lsn),
                "server_lsn": format_lsn(seam.server_lsn),
                "proof": proof.value,
            },
        )
        names = self._settings.topic_names()
        known = {names.on_broker(*table) for table in tables} | {names.progress, *names.tableless}
        return Adopted(
            server.system_id,
            last.system_id,
            seam.server_lsn,
            lsn,
            proof,
            snapshots=tuple(each.topic for each in wanted if not each.repair),
            unpublished=tuple(sorted(publisher.recorded.keys() - known - set(names.own))),
        )
