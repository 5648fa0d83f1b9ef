"""Where the stream stands between two messages, and which messages may come there: one table of states.

Before: `assembler` moves from state to state.
After: `assembler` asks the state how to treat the next message. The table also gives the error for a message that must
not come.
Source: PostgreSQL, "Logical Replication Message Flow"; `apply_dispatch` and `apply_handle_*` in worker.c.

A *change* is what a transaction contains: Insert, Update, Delete, Truncate, Origin, or a transactional Message. The
state alone decides what becomes of a change. Every other message has one handler (see `Assembler._dispatch`), and may
come in some states only.

The pause (`Assembler.pause_before`) is not a state: the stream may pause between transactions, or at a keepalive in a
stream block, and goes on in the same state.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.pgoutput import messages as m

# The treatments of a change.
REFUSED: Final = 0
"""A change must not come here."""
HANDED_ON: Final = 1
"""The consumer gets the change."""
SKIPPED: Final = 2
"""Kafka has the change already."""
SPOOLED: Final = 3
"""The spool keeps the change until its transaction commits."""

NONTRANSACTIONAL_MESSAGE: Final = 0x6D
"""Stands for a Message that is not transactional; `m` is no type byte of the protocol."""

_CHANGES: Final = (m.INSERT, m.UPDATE, m.DELETE, m.TRUNCATE, m.ORIGIN, m.MESSAGE)


@final
class StreamState:
    """One row of the table."""

    def __init__(self, where: str, in_transaction: bool, changes: i64, others: tuple[int, ...]) -> None:
        """`others`: the messages that may come in addition to changes, by their type bytes."""
        self.where: Final = where
        """The state in words, for errors."""
        self.in_transaction: Final = in_transaction
        """The end of a committed or prepared transaction is still to come; until then no keepalive counts as idle."""
        self.changes: Final[i64] = changes
        """The treatment of a change: REFUSED, HANDED_ON, SKIPPED or SPOOLED."""
        allowed = bytearray(256)
        for kind in others if changes == REFUSED else (*others, *_CHANGES):
            allowed[kind] = 1
        self._allowed: Final = bytes(allowed)

    def allows(self, kind: i64) -> bool:
        """Whether a message of this type byte (or NONTRANSACTIONAL_MESSAGE) may come."""
        return self._allowed[kind] != 0


BETWEEN_TRANSACTIONS: Final = StreamState(
    "between transactions", False, REFUSED,
    (
        m.RELATION, m.TYPE, m.BEGIN, NONTRANSACTIONAL_MESSAGE,
        m.STREAM_START, m.STREAM_ABORT, m.STREAM_COMMIT, m.STREAM_PREPARE,
        m.BEGIN_PREPARE, m.COMMIT_PREPARED, m.ROLLBACK_PREPARED,
    ),
)  # fmt: skip
IN_TRANSACTION: Final = StreamState("inside a transaction", True, HANDED_ON, (m.RELATION, m.TYPE, m.COMMIT))
IN_DURABLE_TRANSACTION: Final = StreamState(
    "inside a transaction that Kafka has", True, SKIPPED, (m.RELATION, m.TYPE, m.COMMIT)
)
IN_STREAM_BLOCK: Final = StreamState("inside a stream block", False, SPOOLED, (m.RELATION, m.TYPE, m.STREAM_STOP))
IN_PREPARE_BLOCK: Final = StreamState(
    "between Begin Prepare and Prepare", True, SPOOLED, (m.RELATION, m.TYPE, m.PREPARE)
)
REPLAYING: Final = StreamState("while a spooled transaction is handed on", True, REFUSED, ())
"""Every message waits until `proceed` has handed the transaction on."""
