"""Starts a stream: everything that must be in place before the first row, in the order that makes it safe.

Before: `supervisor` asks for a stream.
After: `pipeline` runs on what `wiring` has built; `close` gives it back.

The order, and why:

1. The judges of `cdcd check` look at PostgreSQL (`start_judgement`), before anything is made. Publication and slot are
   made if they are missing (`publication_setup`, `slot_setup`). The published types decide between binary and text.
2. START_REPLICATION: a slot has one reader, so this is the lock. A second daemon fails here and stands by.
3. The server must be the one that the progress tells of. Then the producers take over their transactional.ids. This
   fences a zombie, and ends its open Kafka transaction. The progress is final only after this, so the daemon reads it
   once more. All of this lasts as long as Kafka is away. Therefore `kafka_takeover` has a thread of its own, and this
   module answers the server meanwhile.
4. Slot, server and progress must tell one story, else GapError. No other slot may publish the same tables to the same
   topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.kafka_takeover import KafkaTakeover
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.daemon.start_judgement import StartJudgement
from cdcd.daemon.wiring import ServerConnection, StreamResources, assemble
from cdcd.errors import (
    CdcdError,
    FatalError,
    GapError,
    PostgresUnavailable,
    SpoolFull,
    StreamingResumed,
    StreamingUnsupported,
)
from cdcd.lsn import format_lsn
from cdcd.progress.continuity import Server
from cdcd.sink.parking.state import PendingParking
from cdcd.source.replication_stream import status_interval_s
from cdcd.source.start_options import start_options, streaming_mode
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)


@dataclass
class Fallbacks:
    """The features that failed in this process: its next stream does without them."""

    binary: bool | None = None
    """None: the published types decide."""
    streaming_allowed: bool = True
    """The stream may ask for transactions in progress."""
    streaming_resumes_lsn: int = 0
    """If not: they may come again once Kafka has everything before this LSN; 0: not in this process."""
    parking: PendingParking = field(default_factory=PendingParking)
    """Tables to park, in addition to those that the progress names."""
    judgement: StartJudgement = field(default_factory=StartJudgement)
    """It knows the warnings that earlier starts have logged."""

    def note_streaming(self, error: CdcdError) -> None:
        """Note what the error that ended a stream means for transactions in progress.

        Raises FatalError if prepared transactions alone do not fit into the spool: the server sends them again.
        """
        if isinstance(error, SpoolFull) and not self.streaming_allowed and not error.may_pass:
            raise FatalError(f"the prepared transactions do not fit: {error.message}", error.remedy) from error
        if isinstance(error, StreamingUnsupported):
            self.streaming_allowed = False
            self.streaming_resumes_lsn = error.until_lsn
        elif isinstance(error, StreamingResumed):
            self.streaming_allowed = True


class StreamStartup:
    """Starts one stream. `close` ends everything that was opened, also after a start that failed."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        fallbacks: Fallbacks,
        wake: WakeupPipe,
        stopping: Callable[[], bool],
        heartbeat: Callable[[], None] = lambda: None,
        on_schema: Callable[[str, bytes], None] = lambda _, __: None,
    ) -> None:
        """`wake` interrupts a wait, and `stopping` ends it. `heartbeat` is called in every turn of a wait of `open`.

        `on_schema` gets each relation before its events come, with the header that names its schema. Raises
        PostgresUnavailable if the server cannot be reached.
        """
        self._settings = settings
        self._clients = clients
        self._fallbacks = fallbacks
        self._wake = wake
        self._stopping = stopping
        self._heartbeat = heartbeat
        self._on_schema = on_schema
        self._stack = ExitStack()
        self._session = self._stack.enter_context(clients.session())
        kafka = clients.kafka()
        self._stack.callback(kafka.close)
        self._publication = PublicationSetup(settings.source, self._session, clients.publication(self._session))
        self._slot = SlotSetup(settings, clients, self._session, self._publication, kafka, self._is_stopping)
        self._takeover = KafkaTakeover(settings, clients, kafka, wake.set, stopping, fallbacks.parking)
        self._stack.callback(self._takeover.close)

    @property
    def slot_created(self) -> bool:
        """The slot was missing, and this start has made it."""
        return self._slot.slot_created

    def close(self) -> None:
        """End connections, producers and threads. The server sends uncommitted events again."""
        self._stack.close()

    def open(self) -> StreamResources | None:
        """Carry out the start. Returns None if `stopping` turned true meanwhile. Raises what the parts raise."""
        source = self._settings.source
        catalog = self._clients.catalog(self._session)
        takes_snapshot = self._settings.snapshot.mode != "never"
        is_judged = self._fallbacks.judgement.judge(self._session, source, takes_snapshot=takes_snapshot)
        self._publication.ensure(is_judged=is_judged)
        binary = self._fallbacks.binary
        if binary is None:
            binary = self._publication.choose_binary(catalog)
        wal_sender_timeout_s = catalog.wal_sender_timeout_s()
        stream = self._stack.enter_context(self._clients.replication_stream())
        identity = stream.identify()
        history = stream.timeline_history(identity.timeline)
        mode = streaming_mode(source.streaming if self._fallbacks.streaming_allowed else "off", stream.server_version)
        options = start_options(
            source.publication,
            stream.server_version,
            binary=binary,
            messages=source.messages,
            streaming=mode,
            two_phase=source.two_phase,
            origin=source.origin,
        )
        here = Server(identity.system_id, identity.timeline, history, identity.wal_lsn, 0, stream.standby)
        self._slot.ensure(stream, here)
        if self._stopping():
            return None  # the slot may be missing
        stream.enlarge_read_buffer()
        stream.start(source.slot, 0, options)
        held = self._slot.held_by(here, stream)  # only now, because no other client moves the slot any more
        confirmed_lsn = held.confirmed_lsn
        log.info(
            "holding the slot",
            extra={"slot": source.slot, "confirmed": format_lsn(confirmed_lsn), "binary": binary},
        )
        server = ServerConnection(
            stream,
            self._session,
            catalog,
            identity.system_id,
            confirmed_lsn,
            mode,
            status_interval_s(source.status_interval_s, wal_sender_timeout_s),
            wal_sender_timeout_s,
            0 if self._fallbacks.streaming_allowed else self._fallbacks.streaming_resumes_lsn,
        )
        self._takeover.start(held, self._publication.tables())
        kafka = self._wait_for_kafka(server)
        if kafka is None:
            return None
        self._slot.check_conflicts(kafka.cluster_id)
        self._slot.check_databases(kafka.slots_of_other_databases)
        if not kafka.is_contiguous:
            kafka = self._declare_gap(kafka, held)
        resources = assemble(self._settings, self._clients, server, kafka, self._stack, self._wake.set, self._on_schema)
        last = kafka.publisher.last
        log.info("going on", extra={"from": format_lsn(last.lsn if last else confirmed_lsn)})
        return resources

    def _is_stopping(self) -> bool:
        self._heartbeat()
        return self._stopping()

    def _wait_for_kafka(self, server: ServerConnection) -> KafkaSession | None:
        """Answer the server until Kafka is taken over; None if `stopping` turned true. Raises its error."""
        stream, session, confirmed_lsn = server.stream, server.session, server.confirmed_lsn
        last_status_s = 0.0
        turn_within_s = min(server.status_interval_s, self._settings.monitoring.stalled_after_s / 4)
        while not self._takeover.done and not self._stopping():
            self._heartbeat()
            if self._clients.monotonic_s() - last_status_s >= server.status_interval_s:
                stream.send_status(confirmed_lsn, confirmed_lsn, confirmed_lsn)
                last_status_s = self._clients.monotonic_s()
            ready = stream.wait(turn_within_s, self._wake.fd, *session.sockets(), reading=False)
            if self._wake.fd in ready:
                self._wake.clear()
            if session.ended(ready):
                # The daemon cannot acknowledge anything yet. The server would wait for it as long as it waits for
                # Kafka.
                raise PostgresUnavailable(
                    "PostgreSQL is shutting down, or has ended the session, while the daemon took Kafka over"
                )
        if self._stopping():
            return None
        try:
            return self._takeover.result()
        except GapError:
            self._slot.check_holding(stream)
            raise

    def _declare_gap(self, kafka: KafkaSession, server: Server) -> KafkaSession:
        last, tables = kafka.publisher.last, self._publication.tables()
        begin, end = server.confirmed_lsn if last is None else last.lsn, server.confirmed_lsn
        if last is None or end <= last.lsn:
            # Records of the progress are lost. So nothing tells which of the slot's changes Kafka has, and the daemon
            # publishes none of them.
            end = server.wal_lsn
        log.warning(
            "changes are missing: taking a new snapshot of all tables",
            extra={"from": format_lsn(begin), "to": format_lsn(end), "tables": len(tables)},
        )
        wanted = kafka.publisher.declare_gap(begin, end, tables, self._clients.monotonic_s())
        snapshots = {**kafka.snapshots, **{each.topic: each for each in wanted}}
        return replace(kafka, snapshots=snapshots, begins_at=end)
