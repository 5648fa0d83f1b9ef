"""Turns the rows of some keys into events that repair a topic. No I/O.

Before: `daemon.repair_reading` has read the rows under the snapshot at the consistent point L, and knows which keys
have none.
After: the consumer's events go into a batch of their own.

A row is an event `r`, as of a snapshot. A key without a row is a delete. Both stand at the commit LSN L - 1, as rows of
a snapshot do: after every transaction that the snapshot shows, and before every other one. `source.origin` marks them:
PostgreSQL gives no replication origin a name that begins with `pg_`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from cdcd.errors import CdcdError
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.messages import KEY
from cdcd.progress.repair_records import PendingRepair
from cdcd.snapshot.copy_format import TableRows
from cdcd.transaction.change_consumer import ChangeConsumer
from cdcd.transaction.column_masks import MASKED
from cdcd.transaction.masked_changes import open_relation
from cdcd.transaction.relations import ResolvedRelation

REPAIR_ORIGIN: Final = "pg_cdcd_repair"
"""`source.origin` of the events of a repair."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RepairRows:
    """The rows of one repair, as they were read."""

    pending: PendingRepair
    relation: ResolvedRelation | None = None
    """None if nothing was read."""
    kinds: bytes = b""
    """For each column BINARY, or TEXT where COPY gives its text."""
    copies: Sequence[list[bytes]] = ()
    """The messages of each COPY."""
    without_rows: Sequence[tuple[str, ...]] = ()
    """The keys that have no row."""
    left: Sequence[tuple[str, ...]] = ()
    """The keys that were not read, because the rows before them are large."""
    refused: str = ""
    """Why the repair is given up; empty if it is not."""


@dataclass(frozen=True)
class RepairOutcome:
    """The rows and deletes that were published of one repair."""

    pending: PendingRepair
    left: Sequence[tuple[str, ...]]
    rows: int
    deletes: int
    refused: str


def encode_repairs(
    encoder: ChangeConsumer, repairs: Iterable[RepairRows], lsn: int, taken_us: int
) -> list[RepairOutcome]:
    """Encode the rows and deletes of these repairs.

    `lsn`: the consistent point; `taken_us`: when it was taken, microseconds since 1970 UTC. Raises DecodeError (the
    server's fault) if a message is no row of its table.
    """
    encoder.begin_snapshot(lsn - 1, taken_us)
    encoder.origin(REPAIR_ORIGIN)
    return [_encode(encoder, each, lsn - 1) for each in repairs]


def _encode(encoder: ChangeConsumer, repair: RepairRows, lsn: int) -> RepairOutcome:
    relation, rows, deletes = repair.relation, 0, 0
    if relation is not None:
        changes = open_relation(encoder, relation)
        table = TableRows(changes, repair.kinds)
        rows = sum(int(table.encode(messages, table.begin_copy(), lsn)) for messages in repair.copies)
        for key in repair.without_rows:
            values = dict(zip(relation.key, key, strict=True))
            old = [values[column.name].encode() if column.in_key else None for column in relation.columns]
            try:
                changes.delete(bytes([MASKED, KEY]) + encode_tuple(old), 1, lsn)  # made here, of the columns left
                deletes += 1
            except CdcdError as error:  # whoever asks for repairs must not stop the daemon by it
                log.warning("passed over a key to repair: %s", error, extra={"table": _name(repair.pending)})
                changes = open_relation(encoder, relation)
    return RepairOutcome(repair.pending, repair.left, rows, deletes, repair.refused)


def _name(pending: PendingRepair) -> str:
    return f"{pending.schema}.{pending.table}"
