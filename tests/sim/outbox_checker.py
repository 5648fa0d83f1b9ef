"""Judges the events of the outbox: each is on its aggregate's topic, under its key, with its value and its headers.

Before: `checker` has the records of a committed Kafka transaction.
After: the ledger says where each of them stands; the checker holds that to the order of commits.
"""

from __future__ import annotations

from sim.fake_kafka import Placed
from sim.snapshots_checker import Seen
from sim.sql import OUTBOX_TOPICS, Database, Event


class OutboxChecker:
    """The outbox of one world. An event does not say where it was committed; but its id says which one it is."""

    def __init__(self, prefix: str, database: Database) -> None:
        self._topics = f"{prefix}.{OUTBOX_TOPICS}"
        self._database = database
        self._at = 0
        """How many transactions of the ledger `_positions` holds."""
        self._positions: dict[bytes, tuple[int, int]] = {}
        """By the event's id."""

    def has(self, topic: str) -> bool:
        """Whether the topic is one of an aggregate."""
        return topic.startswith(self._topics)

    def seen(self, placed: Placed) -> Seen:
        """Return a record as an event of the stream."""
        for committed in self._database.ledger[self._at :]:
            for seq, event in committed.numbered():
                if event.is_told:
                    self._positions[(event.after or {})["headers"]["id"]] = committed.commit_lsn, seq
        self._at = len(self._database.ledger)
        headers = dict(placed.headers)
        found = self._positions.get(headers.get("id", b""))
        assert found is not None, f"{placed} was never committed"
        commit_lsn, seq = found
        source = {"commit_lsn": commit_lsn, "seq": seq, "origin": None}
        value = {"op": "m", "source": source, "told": {"key": placed.key, "value": placed.value, "headers": headers}}
        return Seen(placed.topic, placed.partition, placed.key, placed.value or b"", value)

    def judge(self, event: Event, seen: list[Seen]) -> None:
        """Compare the records of one position with the event that stands there."""
        got = [(each.topic.removeprefix(self._topics), each.value["told"]) for each in seen]
        wanted = [(event.table[1].removeprefix(OUTBOX_TOPICS), event.after)]
        assert got == wanted, f"wanted {wanted} in the outbox, got {got}"
