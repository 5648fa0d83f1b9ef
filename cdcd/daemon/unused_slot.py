"""Drops a slot again that a start has made and could not use: a slot that nobody reads keeps WAL without end.

Before: `supervisor` ends, and no stream came about.
After: the next start makes a new slot.

Only the progress in Kafka can tell that a slot is unused: another daemon may have streamed from it meanwhile. If Kafka
does not answer, the slot stays. If another daemon begins to stream between the answer and the drop, PostgreSQL refuses
the drop. If that daemon even publishes and dies in between, the progress shows the next start that changes are missing.

Another replica may have taken the slot, and may be refused for the same reason. It has not made the slot, so it cannot
know that it may drop it. So this daemon waits a while for the end of the other one, or for its progress.
"""

from __future__ import annotations

import logging
from contextlib import closing
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.errors import CdcdError
from cdcd.reading.slot_progress import progress_store
from cdcd.source.server_errors import SlotActive

log = logging.getLogger(__name__)

RELEASE_S: Final = 10.0
"""How long to wait for the walsender of this start, or for another daemon, to let the slot go."""

POLL_S: Final = 0.2


def drop_unused_slot(settings: Settings, clients: Clients) -> bool:
    """Drop the slot if Kafka holds nothing of it; returns whether it is gone, or in use by another daemon."""
    name = settings.source.slot
    try:
        with closing(clients.kafka()) as kafka, clients.session() as session:
            progress, slot = progress_store(settings, kafka), clients.slot(session)
            until_s = clients.monotonic_s() + RELEASE_S
            while progress.last_record() is None:
                try:
                    if slot.drop():
                        log.info("dropped the slot again: this start has made it, and did not use it: %s", name)
                    break
                except SlotActive:
                    if clients.monotonic_s() >= until_s:
                        break
                    clients.event().wait(POLL_S)
            return True
    except CdcdError as error:
        log.debug("the slot %s stays: %s", name, error)
        return False
