"""Reads the progress in Kafka for `cdcd check`, and looks whether all evidence tells one story. Changes nothing.

Before: `kafka` knows the topics of the published tables, and the server.
After: `progress` judges slot, server and slot record; `kafka` passes the findings on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import replace

from cdcd.config.settings import Settings
from cdcd.errors import GapError, RequestRejected, SettingsError
from cdcd.preflight import progress
from cdcd.preflight.findings import Finding, of_error, warning
from cdcd.preflight.postgres_facts import PostgresFacts
from cdcd.progress.continuity import Server, check_format, check_recorded
from cdcd.progress.records import SlotRecord
from cdcd.progress.topic_evidence import describe
from cdcd.reading.slot_progress import delivery, progress_store
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.progress_store import ProgressStore, SnapshotsTopic
from cdcd.sink.kafka.topic_check import BEYOND_S, TopicCheck
from cdcd.source.session import Session
from cdcd.source.slot import Slot
from cdcd.source.slot_conflicts import check_databases


def findings(
    settings: Settings, kafka: KafkaCluster, published: Collection[str] | None, facts: PostgresFacts | None
) -> Iterator[Finding]:
    """Yield the findings; what `cdcd run` would refuse is an error. `published`: topics of tables; None: not known.

    `facts` None: PostgreSQL did not answer. Raises as Kafka's readers do, and as `Session` does.
    """
    resnapshot = settings.sink.on_topic_lost == "resnapshot"
    store = progress_store(settings, kafka)
    found = store.snapshots_topic()
    remains = store.remains(found, published or ())
    last = store.last_record()  # after what is committed together with it: a daemon may publish meanwhile
    here, others = (None, None) if facts is None else _server_now(settings, facts, found)
    slot = None if facts is None else facts.slot
    try:
        check_format(last, settings.sink.event_format)
    except SettingsError as failure:
        yield of_error("format", failure)
    yield from progress.judge(
        last,
        remains,
        settings.source,
        here,
        store.names.progress,
        slot_exists=slot is not None,
        slot_lost=slot is not None and slot.lost,
    )
    yield from progress.snapshots(found.snapshots.values())
    if others is not None:
        yield others
    check = TopicCheck(kafka, store, published, time.sleep, {}, resnapshot=resnapshot)
    try:
        check.check(last)
    except GapError as failure:
        yield of_error("topics", failure)
    else:
        yield from _beyond(settings, store, check, last)
    if check.lost and resnapshot:
        yield warning(
            "topics", describe(check.lost), "Run: cdcd run. It takes new snapshots of these tables", code="topic-lost"
        )


def _beyond(settings: Settings, store: ProgressStore, check: TopicCheck, last: SlotRecord | None) -> Iterator[Finding]:
    """The finding if the progress lacks its last records."""
    if last is None or not delivery(settings).leaves_hanging_transactions:
        return
    until_s = time.monotonic() + BEYOND_S
    beyond = check.topic_beyond(last, lambda: time.monotonic() >= until_s)
    if not beyond or store.last_record() != last:
        return  # a daemon that runs has published meanwhile
    try:
        check_recorded(last, beyond, store.names.progress, accepts_gap=settings.source.accepts_gap)
    except GapError as failure:
        yield of_error("progress", failure)
    else:
        message = f"The last records of {store.names.progress} are lost: {beyond} has later rows"
        yield warning(
            "progress",
            message,
            "cdcd run takes a new snapshot of all tables, by source.on_slot_lost",
            code="progress-lost",
        )


def _server_now(
    settings: Settings, facts: PostgresFacts, found: SnapshotsTopic
) -> tuple[Server | None, Finding | None]:
    """The server as it is once the progress was read, and an error if another database publishes under the prefix.

    A daemon may stream meanwhile. So the slot's position is that of before, and the end of the WAL that of now.
    """
    here, source = facts.here, settings.source
    if here is None:
        return None, None
    with Session(source.login, source.application_name) as session:
        slot = Slot(session, source.slot).state()
        if slot is not None:
            here = replace(here, wal_lsn=slot.wal_lsn)
        try:
            check_databases(session, found.slots_of_other_databases(here.system_id, here.database_oid))
        except RequestRejected as failure:
            return here, of_error("slot conflicts", failure)
    return here, None
