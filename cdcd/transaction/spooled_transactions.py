"""What `assembler` holds of spooled transactions: one that is being handed on, and what became of a prepared one.

Before: `spool` keeps the frames. After: `assembler` takes them from a Replay piece by piece; `progress.tracker` is told
of each Phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from mypy_extensions import i64

from cdcd.pgoutput import messages
from cdcd.transaction.change_consumer import RelationChanges
from cdcd.transaction.spool import SpooledTransaction


@final
class PreparedOutcome:
    """What became of a prepared transaction, which holds back the ack: it was prepared, committed or rolled back."""

    def __init__(self, kind: i64, name: str, lsn: i64) -> None:
        self.kind: i64 = kind
        """PREPARE, COMMIT_PREPARED or ROLLBACK_PREPARED of `pgoutput.messages`."""
        self.name = name
        """The transaction's gid and xid: a gid alone may be used again before the first one's rows are durable."""
        self.lsn: i64 = lsn
        """The prepare LSN, or the `end_lsn` of what resolved it."""


@final
class SpoolReplay:
    """A spooled transaction that is being handed on."""

    def __init__(self, spooled: SpooledTransaction, end_lsn: i64, prepared: str) -> None:
        self.spooled = spooled
        self.end_lsn: i64 = end_lsn
        self.prepared = prepared
        """Its name, if it was prepared."""
        self.pieces: Iterator[list[bytes]] = spooled.frames()
        self.frames: list[bytes] = []
        self.at: i64 = 0
        self.changes: dict[int, RelationChanges] = spooled.prior_relations
        self.relations = spooled.relations()
        self.announced: i64 = 0
        """How many of `relations` have come."""


def prepared_name(gid: str, xid: i64) -> str:
    """A prepared transaction's name: a gid alone may be used again before the first one's rows are durable."""
    return f"{xid} {gid}"


def committed_at(message: messages.Message) -> i64:
    """Where that commits which the message hands on; -1 if it hands on nothing."""
    if isinstance(message, messages.Begin):
        return message.final_lsn
    if isinstance(message, (messages.StreamCommit, messages.CommitPrepared)):
        return message.commit_lsn
    # A logical message's LSN is the end of its record: see `Assembler._nontransactional_message`.
    return message.lsn - 1 if isinstance(message, messages.LogicalMessage) else -1
