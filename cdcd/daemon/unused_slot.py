"""Drops a slot again that a start has made and could not use: a slot that nobody reads keeps WAL without end.

Before: `supervisor` ends, and no stream came about.
After: the next start makes a new slot.

Only the progress in Kafka can tell that a slot is unused: another daemon may have streamed from it meanwhile. If Kafka
does not answer, the slot stays. If another daemon begins to stream between the answer and the drop, PostgreSQL refuses
the drop. If that daemon even publishes and dies in between, the progress shows the next start that changes are missing.
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

RELEASE_S: Final = 2.0
"""How long the walsender of this start may take to let the slot go."""


def drop_unused_slot(settings: Settings, clients: Clients) -> bool:
    """Drop the slot if Kafka holds nothing of it; returns whether it is gone, or in use by another daemon."""
    name = settings.source.slot
    try:
        with closing(clients.kafka()) as kafka:
            if progress_store(settings, kafka).last_record() is not None:
                return True
        with clients.session() as session:
            slot = clients.slot(session)
            until_s = clients.monotonic_s() + RELEASE_S
            while True:
                try:
                    if slot.drop():
                        log.info("dropped the slot again: this start has made it, and did not use it: %s", name)
                except SlotActive:
                    if clients.monotonic_s() < until_s:
                        clients.event().wait(0.1)
                        continue
                return True
    except CdcdError as error:
        log.debug("the slot %s stays: %s", name, error)
        return False
