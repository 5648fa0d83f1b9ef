"""Finds where a stream goes on at another server, and what its tables need there.

Before: `adoption` has taken over Kafka. After: `adoption` records what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import Enum

from cdcd.config.settings import Settings
from cdcd.daemon.gap_declaration import comparable
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.recopies import Table
from cdcd.errors import RequestRejected
from cdcd.progress.records import SlotRecord
from cdcd.progress.snapshot_records import DONE


class Proof(Enum):
    """Why the tables are what the topics have."""

    COMPARED = "compared"
    SAID = "said"
    REPLACED = "replaced"
    REPAIRED = "repaired"


@dataclass(frozen=True)
class Compared:
    """The result of comparing this server's tables with the topics."""

    lsn: int
    """The LSN of the snapshot that was compared, as the server knows it."""
    different: tuple[str, ...]
    """The tables that differ from their topics."""


@dataclass(frozen=True)
class Seam:
    """Where the old server's stream ends and this one's begins."""

    server_lsn: int
    """The stream goes on there, as this server knows it."""
    tables: frozenset[Table]
    """These need a new snapshot, or a comparison."""
    gap_lsn: int = 0
    """As in SlotRecord."""
    compared: frozenset[Table] = frozenset()
    """Those of `tables` that are compared."""


Compare = Callable[[SlotRecord, Collection[Table]], Compared]
"""Compares the published tables, except some, with all that was published up to a slot record."""


def prove(
    proof: Proof,
    settings: Settings,
    kafka: KafkaSession,
    tables: Collection[Table],
    server_lsn: int,
    compare: Compare,
) -> Seam:
    """Find where the stream goes on: at `server_lsn`, or at the LSN at which the `tables` were compared.

    Raises RequestRejected if tables that are compared differ.
    """
    last = kafka.publisher.last
    assert last is not None
    if proof is Proof.REPLACED:
        return Seam(server_lsn, frozenset(tables), last.lsn)
    # Ranges that a snapshot has read, and events on the parked topic, belong to the other server's blocks and LSNs.
    again = {(each.schema, each.table) for each in kafka.snapshots.values() if each.state != DONE or each.where}
    again |= {(each.schema, each.table) for each in last.incomplete}
    again &= set(tables)
    if proof is Proof.SAID:
        return Seam(server_lsn, frozenset(again))
    if proof is Proof.REPAIRED:
        found = comparable(settings, kafka, last, tables)
        return Seam(server_lsn, frozenset(tables), last.lsn, frozenset(found))
    compared = compare(last, again)
    if compared.different:
        raise RequestRejected(
            f"this server's rows are not those that Kafka has, in {len(compared.different)} of {len(tables)} "
            f"tables ({', '.join(compared.different[:3])}): the stream cannot go on here with nothing missing",
            "Run cdcd adopt --repair, then cdcd run: the daemon publishes what differs. Or run cdcd adopt "
            "--resnapshot, which takes new snapshots of all tables. Or run cdcd run with the old server's dsn until it "
            "has published everything, and keep writers from both servers meanwhile",
            code="server-rows-differ",
        )
    return Seam(compared.lsn, frozenset(again))
