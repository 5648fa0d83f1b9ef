"""A snapshot of the database at an exact LSN, and locks that keep tables as the snapshot shows them.

Before: a replication connection makes the slot; a session outside the snapshot shows the present.
After: `daemon.snapshot_export` copies the tables, `verify.postgres_checksums` compares them, under the same snapshot.
Source: PostgreSQL, "Streaming Replication Protocol" (CREATE_REPLICATION_SLOT), "Snapshot Synchronization Functions",
"Explicit Locking".

PostgreSQL gives a snapshot together with its LSN only when it creates a slot. The snapshot shows the transactions that
committed before that LSN, and no others. The slot here is temporary, as in PostgreSQL's own table synchronization. The
server creates it once every write transaction has ended that was open at the request.

    with Connection(dsn) as maker:
        slot = export_snapshot(maker, session)
        reader.import_snapshot(slot.snapshot)     # SET TRANSACTION SNAPSHOT: before the maker's next command or end
    heaps = lock_tables(reader, session, oids)    # SnapshotGone: start again, with a new slot

If a table is rewritten between snapshot and lock, it looks empty under the snapshot. If a table or column is renamed,
COPY and SELECT read the table or column that has the name now. `lock_tables` finds both cases.
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
"""Tables that are locked in one round trip."""

TRIES: Final = 5
"""Snapshots that `until_unaltered` takes."""


def export_snapshot(
    maker: Connection,
    session: QueryRunner,
    *,
    timeout_s: float = SLOT_TIMEOUT_S,
    meanwhile: Callable[[], None] | None = None,
) -> CreatedSlot:
    """Make a temporary slot. Its snapshot can be imported until the next command on `maker`, or until `maker` ends.

    `session` finds the transactions that the server waits for, for the error. `timeout_s`, `meanwhile` and the errors
    are those of `Connection.create_temporary_slot`.
    """
    return maker.create_temporary_slot(
        f"cdcd_snapshot_{token_hex(8)}",
        timeout_s=timeout_s,
        blockers=lambda: described_writers(session),
        meanwhile=meanwhile,
    )


def check_unaltered(snapshot: QueryRunner, now: QueryRunner, oids: Sequence[int]) -> dict[int, list[Heap]]:
    """The heaps of these tables. Raises SnapshotGone if the snapshot cannot show one of the tables any more.

    `now` asks outside the snapshot. A new snapshot can show the table: the server makes the new slot only after the
    transaction that alters it has ended.
    """
    found = heaps(snapshot, oids)
    altered = altered_heaps(snapshot, now, [heap for own in found.values() for heap in own])
    if altered:
        raise SnapshotGone(f"{altered[0].schema}.{altered[0].name} was altered while the snapshot was taken")
    return found


def lock_tables(
    snapshot: QueryRunner, now: QueryRunner, oids: Sequence[int], names: Sequence[str] | None = None
) -> dict[int, list[Heap]]:
    """Lock tables (ACCESS SHARE, as a SELECT does) for a transaction that has imported a snapshot; return their heaps.

    `names` are the tables to lock. Without `names` these are the heaps, and the role must be allowed to read each
    partition. Raises SnapshotGone as `check_unaltered` does, or if a lock is not free within the `lock_timeout` of
    `snapshot`: its holder may itself wait for Kafka, because the daemon is its synchronous standby.
    """
    if names is None:
        names = [f"ONLY {identifier(heap.schema, heap.name)}" for own in heaps(snapshot, oids).values() for heap in own]
    for at in range(0, len(names), LOCK_TABLES):
        # LOCK TABLE needs a privilege on the whole table. To select none of its columns, one on a column is enough.
        snapshot.rows("; ".join(f"SELECT FROM {name} LIMIT 0" for name in names[at : at + LOCK_TABLES]))
    return check_unaltered(snapshot, now, oids)  # after the lock: before it, a table could still be altered


def until_unaltered(take: Callable[[], T]) -> T:
    """Call `take`, which takes a snapshot and locks its tables, until no table is altered between the two.

    Returns the result of `take`. Raises RequestRejected after TRIES calls that raised SnapshotGone.
    """
    tries = 0
    while True:
        try:
            return take()
        except SnapshotGone as error:
            tries += 1
            if tries == TRIES:
                raise RequestRejected(
                    f"{error.message}, {tries} times",
                    "Try again when no session alters or truncates the tables",
                    code="snapshot-gone",
                ) from error
