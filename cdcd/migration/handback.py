"""Says where a Debezium connector goes on that gets its slot back: `cdcd migrate debezium --back`.

Before: the daemon is stopped. After: a person gives the offset to Kafka Connect, and starts the connector.
Source: Kafka Connect, "REST API" (PATCH /connectors/NAME/offsets, since 3.6); Debezium 3.7, `PostgresOffsetContext` and
`WalPositionLocator`.

The offset says: everything up to the last slot record is published. The connector then streams from the slot, and
passes over transactions whose commit is not behind that. With its old offset it would not start: the slot has moved on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.errors import GapError, RequestRejected
from cdcd.progress.records import SlotRecord
from cdcd.progress.snapshot_records import TableSnapshot
from cdcd.reading.slot_progress import progress_store
from cdcd.source.server_errors import SlotActive


def connector_offset(settings: Settings, clients: Clients) -> dict[str, Any]:
    """The body of PATCH /connectors/NAME/offsets.

    Raises SlotActive while the daemon streams, GapError without a slot or a progress, and RequestRejected while events
    of tables are not on their topics.
    """
    name = settings.source.slot
    with clients.session() as session:
        slot = clients.slot(session)
        state = slot.fitting_state()
        if state is None or state.lost:
            raise GapError(
                f'the slot "{name}" does not exist, or has lost WAL',
                "Let the connector begin with a new snapshot: delete its offsets",
                code="slot-missing",
            )
        if state.active:
            raise SlotActive(name, state.active_pid, state.used_by)
    kafka = clients.kafka()
    try:
        progress = progress_store(settings, kafka)
        last, found = progress.last_record(), progress.snapshots()
    finally:
        kafka.close()
    if last is None or (state.confirmed_flush_lsn or 0) > last.server_lsn:
        raise GapError(
            f"cdcd has no progress of the slot {name} that reaches to where the slot stands: the connector streams "
            "already, or the progress is lost",
            "If the connector streams already, there is nothing to do",
            code="progress-lost",
        )
    waiting = unpublished(last, found.values())
    if waiting:
        raise RequestRejected(
            f"the topics lack events of {', '.join(waiting[:3])}: a snapshot runs, or was stopped, or the "
            "table is parked",
            "Start the daemon again, and let it finish; cdcd snapshot TABLE begins a stopped one again; cdcd unpark "
            "lists what is parked",
            code="table-parked",
        )
    lsn = last.server_lsn
    offset = {"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn, "ts_usec": last.commit_ts}
    return {"offsets": [{"partition": {"server": settings.sink.prefix}, "offset": offset}]}


def unpublished(last: SlotRecord, snapshots: Iterable[TableSnapshot]) -> list[str]:
    """The tables with events that are still to come, in order. A snapshot that a person has stopped brings none."""
    names = {f"{each.schema}.{each.table}" for each in last.incomplete}
    return sorted(names | {f"{each.schema}.{each.table}" for each in snapshots if not each.has_ended})
