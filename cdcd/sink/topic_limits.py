"""Keeps batches of records below what each topic takes: `max.message.bytes`.

Before: `table_topics` looks at a topic before its first record; `publisher` hears that a topic refuses one.
After: `producer_bounds` has the bound, and the next stream's producer makes batches that fit.
Source: Apache Kafka, "Topic Configs", `max.message.bytes`: the largest batch, after compression.

A record that is refused in a batch may fit alone. So a table cannot be parked before the batches are small enough.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from typing import Final

from cdcd.errors import BatchTooLarge, CdcdError, RecordTooLarge
from cdcd.sink.batches import TableBatch, message_bytes
from cdcd.sink.interfaces import TopicAdmin
from cdcd.sink.kafka_transaction import Table
from cdcd.sink.producer_bounds import BATCH_BYTES_MIN, ProducerBounds

_SETTING: Final = "max.message.bytes"
_SHARE: Final = 0.96
"""A batch may be so large, as a share of the limit: it has a header, and compression may enlarge it."""


class TopicLimits:
    """The limits of one daemon's topics. For the thread of the sink."""

    def __init__(self, admin: TopicAdmin, bounds: ProducerBounds) -> None:
        self._admin = admin
        self._bounds = bounds
        self._smallest: float = inf
        self._largest: dict[str, tuple[int, Table]] = {}
        """By topic: the largest record that was noted, and its table."""

    def look(self, topics: Collection[str]) -> None:
        """Ask for the limits of topics that exist.

        Raises BatchTooLarge if the producer's batches do not fit, and else as TopicAdmin.
        """
        for topic, limit in self._ask(topics).items():
            self._smallest = min(self._smallest, limit)
            if limit * _SHARE < self._bounds.batch_bytes:
                raise self._shrunken(topic, limit)

    def note(self, topic: str, batch_bytes: int, batch: TableBatch) -> None:
        """Note the largest of these records, if one may be too large: all together have at most `batch_bytes`."""
        if batch_bytes >= min(self._smallest, self._bounds.batch_bytes):
            for table in batch.without(batch.tables):
                largest = max(map(message_bytes, table.messages), default=0)
                if topic not in self._largest or largest > self._largest[topic][0]:
                    self._largest[topic] = largest, (table.schema, table.name)

    def explain(self, error: RecordTooLarge) -> CdcdError:
        """Return what a refusal means: BatchTooLarge as long as smaller batches may pass, else the same error.

        Raises as TopicAdmin.
        """
        topic, bounds = error.topic, self._bounds
        limit = self._ask([topic] if topic else []).get(topic)
        fits = bounds.batch_bytes <= (BATCH_BYTES_MIN if limit is None else limit * _SHARE)
        if not fits:
            return self._shrunken(topic, limit)
        size = f"{self._largest[topic][0]:,} bytes" if topic in self._largest else "unknown size"
        error.table = error.table or (self._largest[topic][1] if topic in self._largest else None)
        takes = f"takes at most {limit:,} bytes" if limit is not None else "has a limit that this user may not see"
        error.message = f"Kafka refuses a row of {size}: the topic {topic} {takes} ({_SETTING})"
        return error

    def _shrunken(self, topic: str, limit: int | None) -> BatchTooLarge:
        bounds = self._bounds
        bounds.batch_bytes = bounds.batch_bytes // 2 if limit is None else int(limit * _SHARE)
        takes = f"takes at most {limit:,} bytes in one batch" if limit is not None else "refuses a batch as too large"
        return BatchTooLarge(
            f"the topic {topic} {takes} ({_SETTING})",
            f"The daemon starts again by itself, with batches of {bounds.batch_bytes:,} bytes",
            code="stream-restarted",
        )

    def _ask(self, topics: Collection[str]) -> dict[str, int]:
        if not topics:
            return {}
        configs = self._admin.topic_configs(topics)
        found = {topic: config.get(_SETTING, "") for topic, config in configs.items()}
        return {topic: int(value) for topic, value in found.items() if value.isdigit()}
