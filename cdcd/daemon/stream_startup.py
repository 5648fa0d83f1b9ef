"""Starts a stream: everything that must be in place before the first row, in the order that makes it safe.

Before: `supervisor` asks for a stream.
After: `pipeline` runs on what `wiring` has built; `close` gives it back.

The order, and why:

1. The judges of `cdcd check` look at PostgreSQL (`start_judgement`), before anything is made. Publication and slot are
   made if they are missing (`publication_setup`, `slot_setup`). The published types decide between binary and text.
2. START_REPLICATION: a slot has one reader, so this is the lock. A second daemon fails here and stands by. Whoever
   holds the slot alters the publication as the settings ask. A refusal by the judges waits for that: it may be of a
   table that the settings take out now.
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
from dataclasses import replace
from functools import partial

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.gap_declaration import declare_gap
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.kafka_takeover import KafkaTakeover
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.daemon.wiring import ServerConnection, StreamResources, assemble
from cdcd.errors import GapError, PostgresUnavailable, RequestRejected
from cdcd.lsn import format_lsn
from cdcd.progress.continuity import Server
from cdcd.source.replication_stream import status_interval_s
from cdcd.source.start_options import start_options, streaming_mode
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)


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
        self._takeover = KafkaTakeover(settings, clients, kafka, wake.set, stopping, fallbacks)
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
        refused: RequestRejected | None = None
        try:
            self._publication.ensure(is_judged=self._judge())
            may_be_binary = self._judge_columns()
        except RequestRejected as error:
            if not self._publication.is_to_change():
                raise
            refused, may_be_binary = error, False  # the settings may take out what is refused
        binary = self._fallbacks.binary
        if binary is None:
            binary = self._publication.choose_binary(catalog) and may_be_binary
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
        own_pid, self._fallbacks.walsender_pid = self._fallbacks.walsender_pid, 0
        self._slot.start(stream, options, own_pid)
        self._fallbacks.walsender_pid = stream.backend_pid
        if self._publication.follow():
            # What has joined is judged, too. A type or a mask that needs text mode ends the stream at its first event.
            self._judge()
            self._judge_columns()
        elif refused is not None:
            raise refused
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
        self._takeover.start(held, self._publication.tables(), partial(self._slot.confirmed_lsn, stream))
        kafka = self._wait_for_kafka(server)
        if kafka is None:
            return None
        held = held.rebased(kafka.lsn_base)
        server = replace(server, confirmed_lsn=held.confirmed_lsn, lsn_base=kafka.lsn_base)
        stream.lsn_base = kafka.lsn_base
        catalog.rebase(kafka.lsn_base)
        self._slot.check_conflicts(kafka.cluster_id)
        self._slot.check_databases(kafka.slots_of_other_databases)
        if not kafka.is_contiguous:
            kafka = declare_gap(self._settings, kafka, held, self._publication.tables(), self._clients.monotonic_s())
        resources = assemble(
            self._settings,
            self._clients,
            server,
            kafka,
            self._stack,
            self._wake.set,
            self._stopping,
            self._on_schema,
        )
        self._fallbacks.lost = {}
        last = kafka.publisher.last
        extra = {"from": format_lsn(last.lsn if last else held.confirmed_lsn)}
        if kafka.lsn_base:
            extra["lsn_base"] = format_lsn(kafka.lsn_base)
        log.info("going on", extra=extra)
        return resources

    def _judge(self) -> bool:
        return self._fallbacks.judgement.judge(self._session, self._settings)

    def _judge_columns(self) -> bool:
        return self._fallbacks.judgement.judge_columns(self._session, self._settings)

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
                    "PostgreSQL is shutting down, or has ended the session, while the daemon took Kafka over",
                    code="postgres-interrupted",
                )
        if self._stopping():
            return None
        try:
            return self._takeover.result()
        except GapError:
            self._slot.check_holding(stream)
            raise
