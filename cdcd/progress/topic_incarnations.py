"""Which table the rows of each topic are from, and what the stream says of it. Pure.

Before: the records in Kafka say it for a start; the stream announces the OID of each table with its first event.
After: `daemon.snapshot_requests` and `sink.table_keys` each keep one: the stream reaches them in the same order, but
the second one holds only what is on its way to Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdcd.source.incarnations import Incarnation


class TopicIncarnations:
    """The incarnations by topic. For one thread, `get` excepted."""

    def __init__(self, known: Mapping[str, Incarnation]) -> None:
        self._by_topic = dict(known)
        self._topics = {each.oid: topic for topic, each in known.items() if each.oid}

    def get(self, topic: str) -> Incarnation | None:
        """The table that the rows of a topic are from; None: not known. For any thread."""
        return self._by_topic.get(topic)

    def all(self) -> dict[str, Incarnation]:
        """All that are known, by topic."""
        return dict(self._by_topic)

    def put(self, topic: str, incarnation: Incarnation) -> dict[str, Incarnation | None]:
        """The topic has the rows of this table, and no others.

        Returns the topic that had its rows until now, if that is another one, as `announce`.
        """
        left = self._leave(topic, incarnation.oid)
        self._by_topic[topic] = incarnation
        self._topics[incarnation.oid] = topic
        return left

    def announce(self, topic: str, oid: int) -> dict[str, Incarnation | None]:
        """The next events of a topic are of the table `oid`, as the stream says.

        Returns the topics whose table is another one now, each with the one before. A table has one topic at a time:
        the one that had its rows until now lacks those that follow.
        """
        before, changed = self._by_topic.get(topic), self._leave(topic, oid)
        if before is None or before.oid != oid:
            changed[topic] = before
            self._by_topic[topic] = Incarnation(oid)
        self._topics[oid] = topic
        return changed

    def _leave(self, topic: str, oid: int) -> dict[str, Incarnation | None]:
        """The rows of a table come to this topic. Returns the other one that had them, with what it had."""
        left = self._topics.get(oid, topic)
        if not oid or left == topic or self._by_topic[left].oid != oid:
            return {}
        before = self._by_topic[left]
        self._by_topic[left] = Incarnation(0)
        return {left: before}
