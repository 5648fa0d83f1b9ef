"""The logical messages of one streamed transaction: whether a rollback took one of them cannot always be told.

Before: `spool` tells of each message, of each change of the xid among the frames, and of each rollback.
After: `spooled_transactions` asks at the commit whether a message is ambiguous.
Source: `ReorderBufferApplyMessage` in PostgreSQL's reorderbuffer.c.

In a stream block the server gives every message the xid of the top level, whichever subtransaction wrote it. A message
may therefore belong to a subtransaction that has not sent a row yet. If such a subtransaction rolls back, nobody can
know whether the message is rolled back, too. If a frame of a lower xid came after the message, the subtransaction began
after the message: xids are given in the order in which subtransactions begin.

Messages with the same lowest xid after them share one entry. It has the position of the first of them: whatever cuts
that one cuts all.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, final

from mypy_extensions import i64

ENTRY_BYTES: Final = 96
"""The memory of one entry."""

_NOTHING_LATER: Final = 1 << 33
_NONE: Final = -1


@final
class SpooledMessages:
    """The logical messages of one transaction. Xids count from the xid of the top level, which is 0."""

    def __init__(self) -> None:
        self._positions: list[int] = []
        """For each entry the number of its first message's frame: ascending."""
        self._lowest: list[int] = []
        """For each entry the lowest xid of the frames after it: ascending."""
        self._ambiguous_at = _NONE
        """The position of the first message that is ambiguous."""

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._positions)

    @property
    def has_ambiguous(self) -> bool:
        """For one of the messages nobody can know whether it was rolled back."""
        return self._ambiguous_at != _NONE

    def add(self, position: int) -> None:
        """Note a message: the transaction's frame number `position`."""
        if not self._lowest or self._lowest[-1] != _NOTHING_LATER:
            self._positions.append(position)
            self._lowest.append(_NOTHING_LATER)

    def note_xid(self, xid: i64) -> None:
        """Note that frames of `xid` follow."""
        lowest = self._lowest
        first = _NONE
        while lowest and lowest[-1] > xid:
            lowest.pop()
            first = self._positions.pop()
        if first != _NONE and not (lowest and lowest[-1] == xid):
            lowest.append(xid)
            self._positions.append(first)

    def roll_back(self, xid: i64, position: i64) -> None:
        """Note that `xid` was rolled back, and that this has cut the frames from `position` on."""
        while self._positions and self._positions[-1] >= position:
            self._positions.pop()
            self._lowest.pop()
        if self._ambiguous_at >= position:
            self._ambiguous_at = _NONE
        first = bisect_left(self._lowest, xid)
        if first < len(self._lowest) and (self._ambiguous_at == _NONE or self._positions[first] < self._ambiguous_at):
            self._ambiguous_at = self._positions[first]
