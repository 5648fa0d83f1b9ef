"""Makes the slot at a start if it is missing, after a check for everything that would end the stream at once.

Before: `publication_setup` has the publication.
After: `stream_startup` streams from the slot.
Source: PostgreSQL, "Replication Slots"; "CREATE_REPLICATION_SLOT".

A slot without a reader keeps WAL without end. So before it makes a slot, the daemon checks the causes for which the
stream would end at once: the registry, the role's privileges, other slots, the brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.errors import PostgresUnavailable, RequestRejected, SettingsError
from cdcd.lsn import format_lsn
from cdcd.preflight.host import check_writable, spool_parent
from cdcd.progress.continuity import Server, check_first_start, check_lost_slot
from cdcd.reading.slot_progress import progress_store, validate_sink
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.topics import PARTITIONS_HINT, SHARED_TOPIC_HINT, shared_topics, unequal_partitions
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import SlotActive, lost_slot
from cdcd.source.session import Session
from cdcd.source.slot_conflicts import SlotConflicts, check_databases
from cdcd.source.slot_wait import SlotWait

log = logging.getLogger(__name__)


class _Stopped(Exception):
    """The daemon is to stop while the server makes it wait."""


class SlotSetup:
    """One start's view of the slot."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        session: Session,
        publication: PublicationSetup,
        kafka: KafkaCluster,
        stopping: Callable[[], bool],
    ) -> None:
        """`stopping` ends the reading of the progress, and the making of the slot: then no slot is made.

        It is called all the time.
        """
        self._stopping = stopping
        self._settings = settings
        self._clients = clients
        self._session = session
        self._publication = publication
        self._kafka = kafka
        self._slot = clients.slot(session)
        self._clock = clients.monotonic_s
        self._registry = clients.registry
        self._progress = progress_store(settings, kafka, stopping)
        self._names = settings.topic_names()
        self.slot_created = False
        """The slot was missing, and this start has made it."""

    def ensure(self, stream: ReplicationStream, server: Server) -> None:
        """Make the slot over `stream` if it is missing. A slot that has lost WAL is made again if the settings say so.

        `server`: as it is while there is no slot. Raises GapError if Kafka holds changes of a slot that is gone, or if
        `server` cannot be the one that they come from; RequestRejected if something forbids the slot, or if the slot
        that is there is not one for a daemon.
        """
        source = self._settings.source
        accepts_gap = source.accepts_gap
        state = self._slot.fitting_state()
        if state is not None and not (state.lost and accepts_gap):
            return
        if state is not None and not source.create:
            what, _ = lost_slot(state.invalidation)
            raise RequestRejected(
                f"the slot {source.slot} {what}, and source.create is false",
                "Run cdcd slot drop --force and cdcd slot create, which makes it as these settings want it; or set "
                "source.create = true",
                code="slot-lost",
            )
        if state is not None:
            self._drop_lost()
        if not source.create:
            raise RequestRejected(
                f"the slot {source.slot} does not exist, and source.create is false",
                "Run cdcd slot create, which makes it as these settings want it; or set source.create = true",
                code="slot-missing",
            )
        found = self._progress.snapshots_topic()
        tables = self._publication.tables()
        topics = [self._names.topic(*table) for table in tables]
        remains = self._progress.remains(found, topics)
        last = self._progress.last_record()  # after what is committed together with it
        if self._stopping():
            return
        if self._slot.state() is not None:
            return  # another daemon has made it meanwhile, and may have published already
        server = replace(server, database_oid=self._slot.database_oid())
        check_lost_slot(last, source.slot, server, accepts_gap=accepts_gap)
        if last is None:
            check_first_start(source.slot, remains, self._names.progress, accepts_gap=accepts_gap)
        self._check_before_slot_creation(tables)
        self.check_databases(found.slots_of_other_databases(server.system_id, server.database_oid))
        try:
            self._create(stream)
        except _Stopped:
            return
        except RequestRejected:
            if self._slot.state() is None:
                raise
            return  # another daemon was faster by a moment

    def ensure_adoptable(self, stream: ReplicationStream) -> None:
        """For an adoption: make the slot if it is missing or has lost WAL, whatever Kafka holds of another server's.

        Raises SlotActive if somebody streams from it, and as `ensure`.
        """
        state = self._slot.fitting_state()
        if state is not None and state.active:
            raise SlotActive(state.name, state.active_pid, state.used_by)
        if state is not None and state.lost:
            self._drop_lost()
        if state is None or state.lost:
            self._check_before_slot_creation(self._publication.tables())
            self._create(stream)

    def _drop_lost(self) -> None:
        log.warning("dropping the slot, which has lost WAL", extra={"slot": self._settings.source.slot})
        self._slot.drop()

    def _create(self, stream: ReplicationStream) -> None:
        source = self._settings.source
        wait = SlotWait(
            self._session,
            source.primary_login,
            is_standby=stream.standby,
            application_name=source.application_name,
            clock=self._clock,
        )
        with wait:
            created = stream.create_slot(
                source.slot,
                two_phase=source.two_phase,
                failover=source.failover,
                blockers=self._slot.writers,
                meanwhile=partial(self._while_waiting, wait),
            )
        self.slot_created = True
        log.info("made the slot", extra={"slot": source.slot, "lsn": format_lsn(created.consistent_lsn)})

    def drop_created(self) -> None:
        """Drop the slot, if this start has made it and nothing came of it."""
        if self.slot_created:
            self._slot.drop()
            log.info("dropped the slot again: %s", self._settings.source.slot)

    def _while_waiting(self, wait: SlotWait) -> None:
        """Called while the server makes the slot. Raises _Stopped if the daemon is to stop."""
        if self._stopping():
            raise _Stopped
        wait.look()

    def _check_before_slot_creation(self, tables: list[tuple[str, str]]) -> None:
        """Raise the error that would end the stream as soon as it begins, if only a person can remove the cause."""
        check_writable(spool_parent(self._settings.spool.directory))
        self._registry()
        self._kafka.check_own_topics(self._names)
        self.check_conflicts(self._kafka.admin.cluster_id())
        for owner, table in shared_topics(self._names, tables):
            # Later such a table is one that somebody has made meanwhile, and is parked.
            raise SettingsError(
                f"the tables {'.'.join(owner)} and {'.'.join(table)} would share the topic {self._names.topic(*table)}",
                SHARED_TOPIC_HINT,
                code="topics-collide",
            )
        for message in unequal_partitions(self._names, tables, self._settings.sink.partitions):
            raise SettingsError(message, PARTITIONS_HINT, code="topic-partitions-unequal")
        validate_sink(self._settings, self._kafka, tables)

    def check_conflicts(self, cluster_id: str) -> None:
        """Raise RequestRejected if another slot publishes the same to the same topics of the cluster.

        Each row or logical message would be published twice.
        """
        source = self._settings.source
        tables = self._publication.tables()
        chosen = self._names.chosen_topics(tables)
        conflicts = SlotConflicts(self._session, cluster_id, self._names.example, chosen)
        conflicts.announce(source.slot)  # first: then, if two daemons start at once, at least one sees the other
        conflicts.check(source.slot, tables, messages=source.messages)

    def check_databases(self, slots: list[str]) -> None:
        """Raise RequestRejected if one of `slots`, which have published under this prefix, is of another database."""
        check_databases(self._session, slots)

    def found(self, server: Server) -> Server | None:
        """Return `server` with the slot's position and database, and with the end of the WAL now; None without a slot.

        A slot that has found no consistent point counts as none.
        """
        state = self._slot.fitting_state()
        if state is None or state.lost or state.confirmed_flush_lsn is None:
            return None
        return replace(
            server,
            wal_lsn=state.wal_lsn,
            confirmed_lsn=state.confirmed_flush_lsn,
            database_oid=state.database_oid,
            slot_was_synced=state.was_synced,
        )

    def held_by(self, server: Server, stream: ReplicationStream) -> Server:
        """Return `server` with the slot's position and database, and with the end of the WAL now.

        No other client moves the slot once `stream` streams from it. Raises PostgresUnavailable if the slot is gone, or
        if the session does not see that `stream` holds it: then it may be connected to another server.
        """
        state = self._slot.state()
        if state is None or state.confirmed_flush_lsn is None:
            raise PostgresUnavailable(
                f"the slot {self._settings.source.slot} disappeared during the start", code="slot-changed-meanwhile"
            )
        if state.active_pid != stream.backend_pid:
            stream.raise_if_ended()  # its own error says more
            raise PostgresUnavailable(
                f"the slot {self._settings.source.slot} is not held by the connection that streams from it",
                "The daemon tries again. If this lasts, source.dsn leads to several servers: name one, or set "
                "target_session_attrs=read-write in it",
                code="dsn-ambiguous",
            )
        return replace(
            server,
            wal_lsn=state.wal_lsn,
            confirmed_lsn=state.confirmed_flush_lsn,
            database_oid=state.database_oid,
            slot_was_synced=state.was_synced,
        )

    def confirmed_lsn(self, stream: ReplicationStream) -> int:
        """Return the slot's position now. For any thread: it has a session of its own.

        Raises PostgresUnavailable if `stream` does not hold the slot any more: then another daemon may move it.
        """
        with self._clients.session() as session:
            state = self._clients.slot(session).state()
        if state is None or state.confirmed_flush_lsn is None or state.active_pid != stream.backend_pid:
            raise PostgresUnavailable(
                f"lost the slot {self._settings.source.slot} while taking Kafka over", code="slot-changed-meanwhile"
            )
        return state.confirmed_flush_lsn

    def start(self, stream: ReplicationStream, options: Mapping[str, str], own_pid: int) -> None:
        """Stream from the slot. `own_pid`: the walsender of this process's last stream; 0: none can be left.

        If that one still has the slot, the connection is lost, and the server has not noticed: with
        wal_sender_timeout = 0 it never would. Then it is ended, and PostgresUnavailable raised, so that the daemon
        tries again. Raises else as `ReplicationStream.start`.
        """
        try:
            stream.start(self._settings.source.slot, 0, options)
        except SlotActive as error:
            if error.pid != own_pid or error.is_foreign or not self._slot.end_walsender(own_pid):
                raise
            raise PostgresUnavailable(
                "the server had not noticed that the last connection of this daemon is lost: "
                f"the daemon ended PostgreSQL's process {own_pid}",
                code="slot-changed-meanwhile",
            ) from error

    def check_holding(self, stream: ReplicationStream) -> None:
        """Raise PostgresUnavailable if another connection than `stream` has the slot.

        In this case another daemon has published meanwhile, which looks like a gap.
        """
        state = self._slot.state()
        if state is None or state.active_pid != stream.backend_pid:
            raise PostgresUnavailable(
                "another connection took the slot while Kafka was being taken over", code="slot-changed-meanwhile"
            )
