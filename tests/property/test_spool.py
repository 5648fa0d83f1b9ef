"""Subtransactions of any shape, in memory of any size: the spool gives back what a naive list does."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cdcd.transaction.spool import Spool, SpooledTransaction
from cdcd.transaction.spool_file import SpoolDirectory

PADDING = st.integers(0, 400)


def wrapped(xid: int) -> int:
    """The xid on the wire: they wrap around at 2**32, where the first ones are those of the system."""
    wire = 0xFFFFFFF8 + xid
    return wire if wire < 1 << 32 else wire - (1 << 32) + 3


class Transaction:
    """One top-level transaction as PostgreSQL has it: open subtransactions nest, released ones are their parent's."""

    def __init__(self, xid: int, spooled: SpooledTransaction) -> None:
        self.spooled = spooled
        self.open: list[list[int]] = [[xid]]
        """Xids of each open level: its own, then those that were released into it."""
        self.frames: list[tuple[int, bytes]] = []


class SpoolAndList(RuleBasedStateMachine):
    """Several transactions at a time; the model keeps (xid, frame) and filters by xid on a rollback."""

    @initialize(memory_bytes=st.sampled_from([1, 300, 1_000, 5_000, 1 << 20]), count=st.integers(1, 3))
    def begin(self, memory_bytes: int, count: int) -> None:
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "spool"
        self.memory_bytes = memory_bytes
        self.spool = Spool(SpoolDirectory(self.path), memory_bytes, 1 << 30)
        self.next_xid = 1
        self.transactions = [self.start() for _ in range(count)]
        self.number = 0

    def start(self) -> Transaction:
        self.next_xid += 1
        return Transaction(self.next_xid - 1, self.spool.open(True, wrapped(self.next_xid - 1)))

    def pick(self, data: st.DataObject) -> Transaction:
        return data.draw(st.sampled_from(self.transactions))

    @rule(data=st.data(), padding=PADDING, times=st.integers(1, 5))
    def write(self, data: st.DataObject, padding: int, times: int) -> None:
        transaction = self.pick(data)
        for _ in range(times):
            self.number += 1
            frame = self.number.to_bytes(4, "big") + bytes(padding)
            xid = transaction.open[-1][0]
            transaction.spooled.append(wrapped(xid), frame)
            transaction.frames.append((xid, frame))

    @rule(data=st.data())
    def savepoint(self, data: st.DataObject) -> None:
        self.pick(data).open.append([self.next_xid])
        self.next_xid += 1

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        transaction = self.pick(data)
        if len(transaction.open) > 1:
            released = transaction.open.pop()
            transaction.open[-1].extend(released)

    @rule(data=st.data(), innermost_first=st.booleans())
    def roll_back(self, data: st.DataObject, innermost_first: bool) -> None:
        transaction = self.pick(data)
        if len(transaction.open) == 1:
            return
        depth = data.draw(st.integers(1, len(transaction.open) - 1))
        xids = [xid for level in transaction.open[depth:] for xid in level]
        for xid in reversed(xids) if innermost_first else [*xids[1:], xids[0]]:
            transaction.spooled.roll_back(wrapped(xid))
        del transaction.open[depth:]
        transaction.frames = [(xid, frame) for xid, frame in transaction.frames if xid not in xids]

    @precondition(lambda self: len(self.transactions) > 1)
    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        transaction = self.pick(data)
        self.transactions.remove(transaction)
        self.finish(transaction)
        self.transactions.append(self.start())

    def finish(self, transaction: Transaction) -> None:
        found = [frame for piece in transaction.spooled.frames() for frame in piece]
        assert found == [frame for _, frame in transaction.frames]
        transaction.spooled.close()

    @invariant()
    def memory_is_bounded_and_the_sizes_are_true(self) -> None:
        in_memory = sum(transaction.spooled.memory_bytes for transaction in self.transactions)
        on_disk = sum(path.stat().st_size for path in self.path.iterdir())
        assert in_memory <= self.memory_bytes
        assert self.spool.memory_bytes - self.spool.index_bytes == in_memory
        assert self.spool.disk_bytes == on_disk

    def teardown(self) -> None:
        for transaction in self.transactions:
            self.finish(transaction)
        assert self.spool.memory_bytes + self.spool.disk_bytes == 0
        assert list(self.path.iterdir()) == []
        self.folder.cleanup()


SpoolAndList.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestSpoolAndList = SpoolAndList.TestCase
