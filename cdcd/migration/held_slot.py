"""Holds a connector's slot while it is taken over: streams from it, and confirms nothing.

Before: the connector is stopped.
After: `handover` reads the stream. Once that is closed, the slot is as it was.
Source: PostgreSQL, "Streaming Replication Protocol" (START_REPLICATION).
"""

from __future__ import annotations

from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.publication_setup import PublicationSetup
from cdcd.daemon.slot_setup import SlotSetup
from cdcd.errors import GapError, PostgresUnavailable
from cdcd.progress.continuity import Server
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.session import Session
from cdcd.source.start_options import start_options

STATUS_S: Final = 5.0

_WAIT_S: Final = 0.1


class HeldSlot:
    """The slot, streamed in text and in whole transactions."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        session: Session,
        publication: PublicationSetup,
        kafka: KafkaCluster,
        stream: ReplicationStream,
    ) -> None:
        """Begin to stream. Raises PostgresUnavailable while another client does, GapError without a slot."""
        self.stream = stream
        self._clock = clients.monotonic_s
        self._last_status_s = 0.0
        self._setup = SlotSetup(settings, clients, session, publication, kafka, lambda: False)
        source = settings.source
        state = clients.slot(session).fitting_state()
        if state is not None and state.active:
            raise PostgresUnavailable(
                f"the connector streams from the slot {source.slot}",
                "Stop it: PUT /connectors/NAME/stop of Kafka Connect. It is stopped when pg_replication_slots says so",
                code="slot-active",
            )
        identity = stream.identify()
        history = stream.timeline_history(identity.timeline)
        here = Server(identity.system_id, identity.timeline, history, identity.wal_lsn, 0, stream.standby)
        if self._setup.found(here) is None:
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
        self._setup.start(stream, options, 0)
        self.server = self._setup.held_by(here, stream)
        """The server, and where the slot stands."""

    def confirmed_lsn(self) -> int:
        """Where the slot stands now, for another thread. Raises PostgresUnavailable if it is lost meanwhile."""
        return self._setup.confirmed_lsn(self.stream)

    def answer(self) -> None:
        """Tell the server that the client lives, and confirm nothing new."""
        now = self._clock()
        if now - self._last_status_s >= STATUS_S:
            lsn = self.server.confirmed_lsn
            self.stream.send_status(lsn, lsn, lsn)
            self._last_status_s = now

    def wait(self, seconds: float) -> None:
        """Wait for so long at most, and answer the server."""
        self.answer()
        self.stream.wait(min(seconds, _WAIT_S), reading=False)
