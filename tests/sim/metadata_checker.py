"""Judges the metadata of transactions: each event has its numbers, and each transaction begins and ends once.

Before: `checker` has the records of a committed Kafka transaction, and the transactions of the ledger in it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

from sim.fake_kafka import Placed
from sim.sql import Committed, Event


class MetadataChecker:
    """The metadata of one world."""

    def __init__(self, topic: str, demand: Callable[[bool, str], None]) -> None:
        """`topic`: empty if the world has no metadata."""
        self._topic = topic
        self._demand = demand

    def has(self, topic: str) -> bool:
        """Whether this is the topic of transactions."""
        return topic == self._topic

    def judge_event(self, of: Committed, event: Event, seq: int, found: Any) -> None:
        """Compare the numbers of the event with this number in its transaction. `found`: its field `transaction`."""
        wanted = None
        if self._topic and of.xid:
            earlier = [each for number, each in of.numbered() if number < seq and each.table == event.table]
            name = f"{of.xid}:{event.lsn}"
            wanted = {"id": name, "total_order": seq + 1, "data_collection_order": len(earlier) + 1}
        self._demand(found == wanted, f"{event}: wanted the numbers {wanted}, got {found}")

    def judge(self, records: list[Placed], inside: list[Committed]) -> None:
        """Compare the records of one Kafka transaction with the transactions in it."""
        found = [json.loads(placed.value or b"") for placed in records]
        for placed, document in zip(records, found, strict=True):
            self._demand(json.loads(placed.key or b"") == {"id": document["id"]}, f"the key of {document}")
            self._demand(not placed.headers, f"{document} has headers")
            counts = document["data_collections"]
            document["data_collections"] = counts and {each["data_collection"]: each["event_count"] for each in counts}
        wanted = [record for of in inside if self._topic and of.xid for record in self._wanted(of)]
        by_id = sorted(found, key=_place), sorted(wanted, key=_place)
        for document, right in zip(*by_id, strict=False):
            if right["ts_ms"] is None:  # the ledger does not know it
                right["ts_ms"] = document["ts_ms"]
        self._demand(by_id[0] == by_id[1], f"wanted the metadata {by_id[1]}, got {by_id[0]}")

    def _wanted(self, of: Committed) -> list[dict[str, Any]]:
        events = [event for event in of.events if not event.is_told]
        if not events:
            return []
        time = of.commit_us // 1000 if of.commit_us else None
        counts = Counter(".".join(filter(None, event.table)) for event in events)
        first = 0 if of.origin else events[0].lsn
        none = {"event_count": None, "data_collections": None}
        return [
            {"status": "BEGIN", "id": f"{of.xid}:{first}", **none, "ts_ms": time},
            {"status": "END", "id": f"{of.xid}:{of.end_lsn}", "event_count": len(events),
             "data_collections": dict(counts), "ts_ms": time},
        ]  # fmt: skip


def _place(document: dict[str, Any]) -> tuple[str, str]:
    return document["id"], document["status"]
