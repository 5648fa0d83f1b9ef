"""A table's topic: where its partitions end, and where they will end when what is on its way is written.

Before: `publisher` tells what it hands over, and what the producer says was written.
After: the table record, which may so be written beside the rows, and not a round trip behind them.

The problem: a table record names where each partition ends. Kafka tells that when the rows are written; but who alone
writes to a partition knows it before: behind its last record stands the marker of its own transaction, then come the
rows. What was foreseen is compared before the transaction is committed: `Alone` remembers that somebody else writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from cdcd.errors import BrokerLost
from cdcd.progress.record import SnapshotState

Table: TypeAlias = "tuple[str, str]"
"""PostgreSQL's schema and name."""

_MARKER: Final = 1
"""The offsets that the end of a transaction takes in each partition it touched."""


class Alone:
    """Whether nobody but one daemon was seen to write to its topics; it outlives the publishers of the daemon."""

    def __init__(self) -> None:
        self.so_far = True

    def check(self, foreseen: Mapping[str, list[int]], ends: Mapping[str, list[int]]) -> None:
        """Raises Restart if a partition goes on beyond what was foreseen: others wrote there, and may do so again.

        One that ends before it lacks a marker of ours, which hangs (see `hanging`). It was to commit: so will the one
        of this transaction, which must not be given up then.
        """
        pairs = {name: list(zip(foreseen[name], ends[name], strict=True)) for name in ends}
        if any(end < wanted for each in pairs.values() for wanted, end in each):
            return
        self.so_far = False
        raise BrokerLost(
            f"somebody else writes to {min(name for name in ends if ends[name] != foreseen[name])}, or the marker of "
            "another transaction came late",
            "Its rows are sent again. Let nobody but cdcd write to its topics",
        )


class TableTopic:
    """One topic, from its first touch in a publisher's life on."""

    def __init__(self, name: str, table: Table, offsets: list[int], snapshot: SnapshotState | None) -> None:
        """`offsets`: where each partition ends now."""
        self.name = name
        self.table = table
        self.offsets = offsets
        """Of each partition, where our last written record ends; at first, where the partition does."""
        self.snapshot = snapshot
        self._marked = [False] * len(offsets)
        """The partition's last record is ours, and the marker of our transaction stands behind it."""
        self._handed_over = [0] * len(offsets)
        """Records of the open transaction."""

    @property
    def partitions(self) -> int:
        """How many it has."""
        return len(self.offsets)

    def hand_over(self, partition: int, records: int) -> None:
        """So many records are on their way."""
        self._handed_over[partition] += records

    def foreseen(self) -> list[int] | None:
        """Where the partitions will end when all that is on its way is written; None if that cannot be known.

        It cannot the first time: a marker of the producer before us may still come. Nor if others write there, too, as
        all shards do to the topic of the messages.
        """
        schema, _ = self.table
        partitions = list(zip(self.offsets, self._handed_over, self._marked, strict=True))
        if not schema or any(records and not marked for _, records, marked in partitions):
            return None
        return [end + _MARKER + records if records else end for end, records, _ in partitions]

    def written(self, partition: int, end: int) -> None:
        """All that is on its way there is written; the last of it ends at the offset `end`."""
        self.offsets[partition] = end
        self._marked[partition] = True
        self._handed_over[partition] = 0


def foreseen_ends(topics: Iterable[TableTopic]) -> dict[str, list[int]] | None:
    """Where topics will end, by name; None if it cannot be known of one of them, or there are none."""
    ends: dict[str, list[int]] = {}
    for topic in topics:
        foreseen = topic.foreseen()
        if foreseen is None:
            return None
        ends[topic.name] = foreseen
    return ends or None
