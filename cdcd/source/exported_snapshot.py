"""A snapshot of the database at an exact LSN, and locks that keep its tables as the snapshot shows them.

Before: a replication connection makes the slot; a session next to it asks for what is true now.
After: `daemon.snapshot_export` copies the tables, `verify.postgres_checksums` compares them, under the same snapshot.
Source: PostgreSQL, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT), "Snapshot Synchronization Functions",
"LOCK".

Only a new slot gives a snapshot and the LSN that belongs to it. The snapshot shows what committed before that LSN, and
nothing else. So the slot is a temporary one, as PostgreSQL's own table synchronization makes it. The server makes it
once every transaction has ended that was writing when it was asked.

    with Connection(dsn) as maker:
        slot = export_snapshot(maker, session)
        reader.import_snapshot(slot.snapshot)     # SET TRANSACTION SNAPSHOT: before the maker's next command or end
    heaps = lock_tables(reader, session, oids)    # SnapshotGone: begin again, with a new slot

A table that is rewritten between snapshot and lock looks empty under the snapshot. COPY and SELECT go by the names of
now: where a table or its columns were renamed, they would read what has the name now. `lock_tables` finds both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from secrets import token_hex
from typing import Final, TypeVar

from cdcd.errors import RequestRejected
from cdcd.source.connection import SLOT_TIMEOUT_S, Connection, CreatedSlot
from cdcd.source.heaps import Heap, altered_heaps, heaps
from cdcd.source.identifiers import identifier
from cdcd.source.query_runner import QueryRunner
from cdcd.source.server_errors import SnapshotGone
from cdcd.source.write_transactions import described_writers

T = TypeVar("T")

LOCK_TABLES: Final = 500
"""Tables that one LOCK statement names."""

TRIES: Final = 5
"""Snapshots that `until_unaltered` takes."""


def export_snapshot(
    maker: Connection,
    session: QueryRunner,
    *,
    timeout_s: float = SLOT_TIMEOUT_S,
    meanwhile: Callable[[], None] | None = None,
) -> CreatedSlot:
    """Make a temporary slot, which exports its snapshot until the next command on `maker`, or its end.

    `session` describes the transactions that hold it up. `timeout_s` and `meanwhile` are those of
    `Connection.create_temporary_slot`, which says what is raised.
    """
    return maker.create_temporary_slot(
        f"cdcd_snapshot_{token_hex(8)}",
        timeout_s=timeout_s,
        blockers=lambda: described_writers(session),
        meanwhile=meanwhile,
    )


def lock_tables(
    snapshot: QueryRunner, now: QueryRunner, oids: Sequence[int], names: Sequence[str] | None = None
) -> dict[int, list[Heap]]:
    """Lock tables (ACCESS SHARE, as a SELECT does) for a transaction that has imported a snapshot; return their heaps.

    `now` asks outside the snapshot. `names` are what LOCK TABLE is to name; without them it names the heaps, and needs
    the privilege to read each partition.
    Raises SnapshotGone if a lock is not free, or if the snapshot cannot show one of the tables any more. A new snapshot
    can: the server makes its slot after the transaction that holds the lock has ended.
    """
    if names is None:
        names = [f"ONLY {identifier(heap.schema, heap.name)}" for own in heaps(snapshot, oids).values() for heap in own]
    for at in range(0, len(names), LOCK_TABLES):
        # The holder of a lock may itself wait for Kafka: the daemon is its synchronous standby.
        snapshot.rows(f"LOCK TABLE {', '.join(names[at : at + LOCK_TABLES])} IN ACCESS SHARE MODE NOWAIT")
    locked = heaps(snapshot, oids)  # measured before the lock, a heap may be another one by now
    altered = altered_heaps(snapshot, now, [heap for own in locked.values() for heap in own])
    if altered:
        raise SnapshotGone(f"{altered[0].schema}.{altered[0].name} was altered while the snapshot was taken")
    return locked


def until_unaltered(take: Callable[[], T]) -> T:
    """Call `take`, which takes a snapshot and locks its tables, until no table was altered meanwhile.

    Returns its result. Raises RequestRejected after TRIES calls that raised SnapshotGone.
    """
    tries = 0
    while True:
        try:
            return take()
        except SnapshotGone as error:
            tries += 1
            if tries == TRIES:
                raise RequestRejected(
                    f"{error.message}, {tries} times", "Try again while nobody alters or truncates the tables"
                ) from error
