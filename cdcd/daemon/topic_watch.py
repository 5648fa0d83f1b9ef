"""Watches the topics while a stream runs: one that is deleted, made again or cut ends the stream.

Before: `publisher` knows how far each topic reaches.
After: `pipeline` raises what was found; the next start looks at the topics (`sink.kafka.topic_check`).

The producer does not notice everything: a topic that seldom gets a record may be gone for days, and a broker with
auto.create.topics.enable makes a deleted topic again at once. The watch has a thread and an admin client of its own,
because the sink must not wait for its questions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Event, Thread
from typing import Final

from cdcd.errors import AccessDenied, CdcdError, TopicLost
from cdcd.progress.records import TopicState
from cdcd.progress.topic_evidence import describe, lost_topics
from cdcd.sink.kafka.cluster import KafkaCluster

log = logging.getLogger(__name__)

INTERVAL_S: Final = 15.0
CONFIRM_S: Final = 2.0
"""The brokers are asked again so soon, before a topic counts as lost: one that has just started may know less."""


class TopicWatch:
    """Watches the topics of one stream, from `start` to `close`."""

    def __init__(
        self,
        kafka: Callable[[], KafkaCluster],
        recorded: Callable[[], Mapping[str, TopicState]],
        others: frozenset[str],
        wake: Callable[[], None],
        closed: Event,
    ) -> None:
        """`kafka` makes clients for the watch alone. `recorded` returns how far each topic reaches at least.

        `others` are watched, too, if they exist. `wake` is called when a loss is found; `closed` is not set yet.
        """
        self._make_kafka = kafka
        self._kafka: KafkaCluster | None = None
        self._recorded = recorded
        self._others = others
        self._wake = wake
        self._closed = closed
        self._seen: Mapping[str, TopicState] = {}
        """The `others`, as the brokers had them last."""
        self._suspected: Mapping[str, str] = {}
        self._grown: set[str] = set()
        """The topics that have more partitions than this stream writes to."""
        self._is_denied = False
        self._loss: Exception | None = None
        self._thread = Thread(target=self._run, name="cdcd-topic-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def raise_loss(self) -> None:
        """Raise TopicLost if topics have lost records, or the error that ended the watch. For the source thread."""
        if self._loss is not None:
            raise self._loss

    def close(self) -> None:
        """Stop watching. Does not wait for an answer that is still on its way."""
        self._closed.set()
        if self._kafka is not None:
            self._kafka.admin.shorten_deadlines(0.0)

    def check(self) -> None:
        """Ask the brokers once. A topic that lacks records twice in a row has lost them."""
        self._kafka = self._kafka or self._make_kafka()
        recorded = self._recorded()  # before the question, because ends only grow
        found = self._kafka.admin.states({*recorded, *self._others})
        lost = lost_topics(recorded, found) | lost_topics(self._seen, found)
        self._note_new_partitions(recorded, found)
        certain = {topic: what for topic, what in lost.items() if topic in self._suspected}
        self._suspected = lost
        self._seen = {**self._seen, **{topic: found[topic] for topic in found.keys() & self._others - lost.keys()}}
        if certain:
            self._loss = TopicLost(
                describe(certain), "The daemon starts again, and looks what is left", certain, code="topic-lost"
            )
            self._wake()

    def _check_if_allowed(self) -> None:
        """Check. The sink can write without seeing the topics; the next start cannot."""
        try:
            self.check()
        except AccessDenied as error:
            if not self._is_denied:
                log.warning("the topics cannot be watched, and the next start will be refused: %s", error)
            self._is_denied = True
        else:
            self._is_denied = False

    def _note_new_partitions(self, recorded: Mapping[str, TopicState], found: Mapping[str, TopicState]) -> None:
        for topic in recorded.keys() & found.keys() - self._grown:
            if len(found[topic].ends) > len(recorded[topic].ends):
                self._grown.add(topic)
                log.warning(
                    "the topic has more partitions: from the next start on, a key may go to another one than before",
                    extra={"topic": topic, "partitions": len(found[topic].ends)},
                )

    @property
    def pause_s(self) -> float:
        """When to ask next."""
        return CONFIRM_S if self._suspected else INTERVAL_S

    def _run(self) -> None:
        while not self._closed.wait(self.pause_s) and self._loss is None:
            # Brokers that do not answer are no loss. The sink notices them, too.
            try:
                with suppress(CdcdError):
                    self._check_if_allowed()
            except Exception as error:  # noqa: BLE001 - handed to the source thread
                self._loss = error
                self._wake()
        if self._kafka is not None:
            self._kafka.close()
