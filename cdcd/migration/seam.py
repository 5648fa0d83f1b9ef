"""Leaves out of cdcd's first events what the connector has published already. Pure.

Before: `topic_tails` has read the last change of each partition; the slot sends again what it has not confirmed.
After: `handover` publishes what is left.

The connector stops anywhere, also inside a transaction, and its partitions do not end at the same change. So the *seam*
is not one position: on each partition it is behind the last change there. The events of a partition are left out up to
and including this change, and published from there on. The slot must send this change, with the same key: else the
settings, the tables or the server are not the connector's, and nothing may be published.

Rows without a key go to any partition: each is left out as often as it is there. A truncate goes to every partition,
and the connector writes it to one: it is left out if it is on any. If it is on none, and later events of the table are
published, then nothing can bring it before them. And if events are on other partitions than those where their keys
belong now, then nothing tells which others are there. In both cases the connector has to go on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import replace

from cdcd.errors import GapError
from cdcd.lsn import format_lsn
from cdcd.migration.published_change import Change, ChangeReader
from cdcd.migration.topic_tails import TopicTails, identity
from cdcd.sink.batches import Batch, TableBatch
from cdcd.sink.partitioner import partition_for


class Seam:
    """The seam of one slot, while its transactions pass from the confirmed position on."""

    def __init__(
        self, found: TopicTails, confirmed_lsn: int, topic: Callable[[str, str], str], changes: ChangeReader
    ) -> None:
        """`topic` names the topic of a table on the broker, by schema and name."""
        self._changes = changes
        self._found = found
        self._confirmed_lsn = confirmed_lsn
        self._topic = topic
        self._waiting = dict(found.tails)
        """The last changes that the slot has not sent again yet."""
        self._rows = dict(found.rows)
        """The changes without a key that it has not sent again yet."""
        self._sent = set[int]()
        """The xids of transactions that it has sent again."""
        self._unfit = ""
        """Why no position is a seam, whatever follows."""
        self.left_out = 0
        """Events that were published already."""
        self.published = 0
        """Events that were not."""

    def is_over(self, end_lsn: int) -> bool:
        """Whether no later transaction than one that ends at `end_lsn` can be published in part."""
        return end_lsn > self._found.last_commit

    def check(self) -> None:
        """Raise GapError if a change that is published has not come from the slot, or if there is no seam."""
        if self._unfit:
            raise GapError(
                self._unfit,
                "Start the connector again, and stop it once the slot's confirmed_flush_lsn has passed that. Nothing "
                "was published",
                code="events-unmatched",
            )
        unmatched = [
            (f"the last event of {topic}, partition {partition},", tail.change)
            for (topic, partition), tail in self._waiting.items()
            if self._must_come(tail.change)
        ]
        unmatched += [
            (f"an event of {topic}", change) for (topic, _), change in self._rows.items() if self._must_come(change)
        ]
        if unmatched:
            what, change = unmatched[0]
            raise GapError(
                f"{what} is a change at {format_lsn(change.lsn)} (xid {change.xid}), and the slot does not send it as "
                "the connector has published it",
                "Compare the settings with the connector's options, and source.dsn with its database. Nothing was "
                "published: the connector can go on",
                code="events-unmatched",
            )

    def _must_come(self, change: Change) -> bool:
        """Whether the slot sends a change again. The first transaction may have begun before the slot's position."""
        return change.last_commit >= self._confirmed_lsn or change.xid in self._sent

    def cut(self, batch: Batch) -> None:
        """Take out of a batch what is published."""
        for table in batch.tables:
            topic = self._topic(table.schema, table.name)
            kept = self._kept(table, topic) if topic in self._found.ends else None
            if kept is not None:
                ops = table.ops.getvalue()
                dropped = sum(1 for at, op in enumerate(ops) if op and at not in kept)
                self.left_out += dropped
                batch.rows -= dropped
                _keep(table, kept)
        self.published += batch.rows
        batch.tables = [table for table in batch.tables if table.messages]

    def _kept(self, table: TableBatch, topic: str) -> set[int]:
        """The indexes of the messages that are not published yet."""
        kept: set[int] = set()
        everywhere = set(table.everywhere)
        partitions = len(self._found.ends[topic])
        follows_kept = False
        follows_last = False
        for at, message in enumerate(table.messages):
            key, value = message.get("key"), message["value"]
            if value is None:  # the tombstone of the delete before
                is_new = follows_kept or follows_last
            elif at in everywhere:
                is_new = self._is_new_truncate(topic, value)
            elif key is None:
                is_new = self._is_new_row(topic, value)
            else:
                is_new, follows_last = self._is_new(topic, partition_for(key, partitions), key, value)
            follows_kept = is_new
            if is_new:
                kept.add(at)
        return kept

    def _is_new(self, topic: str, partition: int, key: bytes, value: bytes) -> tuple[bool, bool]:
        """Whether an event is behind the last one of its partition; and whether it is that one and has no tombstone."""
        place = topic, partition
        tail, misplaced = self._waiting.get(place), self._found.misplaced.get(topic, ())
        if tail is None and not misplaced:
            return True, False
        change, _ = self._changes.read(value, topic)
        assert change is not None
        found = identity(change, key)
        if found in misplaced:
            self._unfit = self._unfit or (
                f"the change at {format_lsn(change.lsn)} (xid {change.xid}) is not on the partition of {topic} that "
                "its key has now: the topic got more partitions, or the connector's producer another partitioner"
            )
        if tail is None:
            return True, False
        self._sent.add(change.xid)
        if not self._must_come(tail.change):
            del self._waiting[place]  # the slot had confirmed it
            return True, False
        if found != tail.identity:
            return False, False
        if tail.times > 1:
            self._waiting[place] = replace(tail, times=tail.times - 1)
            return False, False
        del self._waiting[place]
        return False, not tail.has_tombstone

    def _is_new_truncate(self, topic: str, value: bytes) -> bool:
        change, _ = self._changes.read(value, topic)
        assert change is not None
        waiting = {place: tail for place, tail in self._waiting.items() if place[0] == topic}
        if (change.xid, change.lsn) in self._found.truncates.get(topic, ()):
            for place, tail in waiting.items():
                if tail.identity == identity(change, None):
                    del self._waiting[place]
            return False
        # It locks the table: other changes lie before it or behind it, also in the order of the commits.
        later = [tail.change.lsn for tail in waiting.values()]
        later += [lsn for (_, lsn, *_), times in self._found.keyless.get(topic, {}).items() if times > 0]
        if max(later, default=0) > change.lsn:
            self._unfit = self._unfit or (
                f"the truncate at {format_lsn(change.lsn)} (xid {change.xid}) is not on {topic}, and later changes are"
            )
        return True

    def _is_new_row(self, topic: str, value: bytes) -> bool:
        rows = self._found.keyless.get(topic)
        if not rows:
            return True
        change, _ = self._changes.read(value, topic)
        assert change is not None
        self._sent.add(change.xid)
        self._rows.pop((topic, change.identity), None)
        if rows[change.identity] <= 0:
            return True
        rows[change.identity] -= 1
        return False


def _keep(table: TableBatch, kept: set[int]) -> None:
    """Keep these messages of a batch, and forget the others."""
    ops, messages, everywhere = table.ops.getvalue(), table.messages, set(table.everywhere)
    order = sorted(kept)
    starts = [at for at, _ in table.turns]
    begins = [bisect_left(order, at) for at in (*starts, len(messages))]
    table.turns = [
        (begin, of) for begin, end, (_, of) in zip(begins, begins[1:], table.turns, strict=False) if begin < end
    ]
    table.messages = [messages[at] for at in order]
    table.everywhere = [number for number, at in enumerate(order) if at in everywhere]
    table.ops.truncate(0)
    table.ops.write(bytes(ops[at] for at in order))
