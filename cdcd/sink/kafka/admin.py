"""Asks the brokers about topics, and makes those that are missing.

Before: `table_topics`, the take-over, and `cluster_facts` for `cdcd check` ask.
After: `admin_calls` has the client; `topic_creation`, `partition_offsets` and `broker_configs` ask with it.
Source: Kafka protocol guide, Metadata, DescribeTopicPartitions and DescribeConfigs; KIP-430 (authorized operations).

Trap: librdkafka 2.16 aborts the process if DescribeTopics gets an answer without a broker and without a topic. So a
plain metadata request comes before DescribeTopics: only that one tells the topics' ids. Brokers answer it with every
topic that it names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from confluent_kafka import IsolationLevel, KafkaException, TopicCollection, Uuid
from confluent_kafka.admin import AclOperation, ClusterMetadata, ConfigResource

from cdcd.errors import KafkaUnavailable
from cdcd.progress.records import TopicState
from cdcd.progress.topic_evidence import UNKNOWN_END
from cdcd.sink.kafka.admin_calls import NOT_ALLOWED, PAUSE_S, AdminCalls
from cdcd.sink.kafka.broker_configs import BrokerConfigs, ask
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.errors import TRY_AGAIN, kafka_error
from cdcd.sink.kafka.partition_offsets import EARLIEST, UNKNOWN_TOPIC, offsets
from cdcd.sink.kafka.topic_creation import REQUEST_RECORDS_MAX, TopicCreation, requests
from cdcd.sink.topics import TopicSpec

log = logging.getLogger(__name__)

_MAKE_AGAIN_S: Final = 1.0
"""A topic that is not there after so long is made again: brokers say of one that they still delete that it exists."""
_NO_ID: Final = str(Uuid(0, 0))
"""The topic id that a broker before 2.8 gives."""
_NEEDED: Final = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)
"""What the daemon does with a topic that exists."""


class KafkaAdmin:
    """Plays `interfaces.TopicAdmin`, and answers the take-over. For one thread, `shorten_deadlines` excepted."""

    def __init__(
        self,
        connection: KafkaConnection,
        timeout_s: float = 15.0,
        request_records_max: int = REQUEST_RECORDS_MAX,
    ) -> None:
        """Connects in the background; `timeout_s` bounds each call.

        `request_records_max` bounds one request for new topics: each topic, partition and setting is one record.
        Raises SettingsError for properties that librdkafka does not know or that belong to cdcd.
        """
        self._calls = AdminCalls(connection, timeout_s)
        self._creation = TopicCreation(self._calls)
        self._request_records_max = request_records_max

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._calls.deadline.shorten(within_s)

    def close(self) -> None:
        """End the client's threads."""
        self._calls.close()

    def ensure(self, *specs: TopicSpec) -> list[int]:
        """Make the topics that are missing, and wait until the cluster knows them; returns each one's partitions.

        Raises Unpublishable, which names the topic, if the broker does not allow it or refuses its name.
        """
        return [partitions for some in requests(specs, self._request_records_max) for partitions in self._ensure(some)]

    def validate(self, *specs: TopicSpec) -> list[TopicSpec]:
        """Raise what `ensure` would raise for topics that are missing, and make none.

        Returns those that the cluster only allows without what they can do without. It asks about the first topic of
        each kind: the others would be made alike.
        """
        there = self._described([spec.name for spec in specs])
        missing = [spec for spec in reversed(specs) if spec.name not in there]
        kinds = {(spec.partitions, spec.replication_factor, *sorted(spec.config.items())): spec for spec in missing}
        return self._creation.create(list(kinds.values()), validate_only=True) if kinds else []

    def _ensure(self, specs: list[TopicSpec]) -> list[int]:
        found = self.partitions([spec.name for spec in specs])
        missing = made = [spec for spec in specs if spec.name not in found]
        if made:
            for spec in self._creation.create(made):
                left_out = ", ".join(sorted(spec.optional))
                log.warning("the cluster does not allow %s for %s: its own value counts", left_out, spec.name)
        deadline, make_again_s = self._calls.deadline.of_call(), time.monotonic() + _MAKE_AGAIN_S
        while missing:
            found |= self.partitions([spec.name for spec in missing])
            missing = [spec for spec in missing if spec.name not in found]
            if missing:
                if time.monotonic() >= make_again_s:
                    self._creation.create(missing)
                    make_again_s = time.monotonic() + _MAKE_AGAIN_S
                if self._calls.deadline.is_over(deadline):
                    name, within_s = missing[0].name, self._calls.timeout_s
                    raise KafkaUnavailable(
                        f"Kafka ({self._calls.bootstrap}) made the topic {name}, but no leader for all of its "
                        f"partitions within {within_s:.0f} s",
                        TRY_AGAIN,
                        code="kafka-unavailable",
                    )
                time.sleep(PAUSE_S)
        if made:
            # New leaders take their time: wait for them here, not in the next request.
            self.end_offsets({spec.name: found[spec.name] for spec in made})
        return [found[spec.name] for spec in specs]

    def partitions(self, topics: list[str]) -> dict[str, int]:
        """Return how many partitions each topic has; leaves out topics that do not exist or lack a leader."""
        return {
            topic: len(described.partitions)
            for topic, described in self._described(topics).items()
            if all(each.leader is not None and each.leader.id >= 0 for each in described.partitions)
        }

    def keeps_leader(self, topic: str) -> bool:
        """Whether the topic has a leader as long as any other has: it is replicated, or there is only one broker.

        False if the broker that answers does not know the topic (yet).
        """
        found = self._described([topic]).get(topic)
        if found is None:
            return False
        if all(len(each.replicas) > 1 for each in found.partitions):
            return True
        with self._calls.asking("asking for the brokers"):
            return len(self._calls.metadata(topic).brokers) == 1

    def exists(self, topic: str) -> bool:
        """Whether the topic exists, with leaders or without."""
        return topic in self._described([topic])

    def _described(self, topics: list[str], **more: bool) -> dict[str, Any]:
        """Return the client's TopicDescription of those topics that exist."""
        calls, described = self._calls, dict[str, Any]()
        if not topics:
            return described
        with calls.asking("describing topics"):
            calls.wait_for_brokers(topics[0])
            named = TopicCollection(topics)
            futures = {**calls.client.describe_topics(named, request_timeout=calls.timeout_s, **more)}
            for topic in topics:
                with calls.asking(f"describing the topic {topic}"):
                    try:
                        described |= calls.answers({topic: futures.pop(topic)})
                    except KafkaException as error:
                        if kafka_error(error).code() not in UNKNOWN_TOPIC:
                            raise
        return described

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the high watermark of each partition, by topic; `partitions` says how many partitions each topic has.

        The high watermark is the next record's offset, even if transactions are open.
        """
        places = [(topic, partition) for topic, count in partitions.items() for partition in range(count)]
        found = self._offsets(places)
        return {topic: [found[topic, partition] for partition in range(count)] for topic, count in partitions.items()}

    def states(self, topics: Collection[str]) -> dict[str, TopicState]:
        """Return the ids and the ends of those topics that exist; UNKNOWN_END for a partition without a leader."""
        if not topics:
            return {}
        described = self._described(list(topics))
        led = [
            (topic, each.id)
            for topic, found in described.items()
            for each in found.partitions
            if each.leader is not None and each.leader.id >= 0
        ]
        ends = self._offsets(led) if led else {}
        return {
            topic: TopicState(
                "" if str(found.topic_id) == _NO_ID else str(found.topic_id),
                tuple(ends.get((topic, partition), UNKNOWN_END) for partition in range(len(found.partitions))),
            )
            for topic, found in described.items()
        }

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of existing topics, as far as the user may see them (the ACL DescribeConfigs)."""
        calls, configs = self._calls, {}
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        with calls.asking("reading the settings of topics"):
            futures = {**calls.client.describe_configs(wanted, request_timeout=calls.timeout_s)} if wanted else {}
            for resource in wanted:
                try:
                    (entries,) = calls.answers({"": futures.pop(resource)}).values()
                except KafkaException as error:
                    if kafka_error(error).code() not in NOT_ALLOWED | UNKNOWN_TOPIC:
                        raise
                else:
                    configs[resource.name] = {n: each.value for n, each in entries.items() if each.value is not None}
        return configs

    def stable_end(self, topic: str, partition: int) -> int:
        """Return the last stable offset: where the first undecided transaction begins, or the end of the partition."""
        place = topic, partition
        return self._offsets([place], isolation=IsolationLevel.READ_COMMITTED)[place]

    def partitions_of_all(self, wanted: Callable[[str], bool]) -> dict[str, int]:
        """Return how many partitions each topic of the cluster has whose name is `wanted`."""
        listed = self.cluster().topics
        return {name: len(topic.partitions) for name, topic in listed.items() if wanted(name)}

    def unstable(self, looked_at: Callable[[str], bool]) -> dict[tuple[str, int], int]:
        """Return the partitions that hold an undecided transaction, with the offset of its first record.

        `looked_at` says of each topic of the cluster whether it is looked at.
        """
        with self._calls.asking("looking for undecided transactions"):
            listed = self._calls.cluster().topics
            places = [(name, each) for name, topic in listed.items() if looked_at(name) for each in topic.partitions]
            stable = offsets(self._calls, places, isolation=IsolationLevel.READ_COMMITTED)
            written = offsets(self._calls, places)
        return {place: offset for place, offset in stable.items() if offset < written[place]}

    def start_offset(self, topic: str, partition: int) -> int:
        """Return the first offset that the partition still holds."""
        place = topic, partition
        return self._offsets([place], spec=EARLIEST)[place]

    def transaction_timeout_max_ms(self) -> int | None:
        """Return the brokers' `transaction.max.timeout.ms`.

        Brokers may differ: the least counts. None if the user may not see it: that needs the ACL DescribeConfigs on the
        cluster.
        """
        return self.broker_configs().least("transaction.max.timeout.ms")

    def broker_configs(self) -> BrokerConfigs:
        """Return the settings of the brokers, and which broker does not answer."""
        with self._calls.asking("reading the brokers' settings"):
            return ask(self._calls, self._calls.cluster().brokers)

    def cluster(self) -> ClusterMetadata:
        """Return the brokers and all topics that the user may see."""
        with self._calls.asking("asking for the cluster's topics"):
            return self._calls.cluster()

    def cluster_id(self) -> str:
        """Return the cluster's id; empty if it has none."""
        found: str | None = self.cluster().cluster_id
        return found or ""

    def denied(self, topics: Collection[str]) -> dict[str, frozenset[str]]:
        """Return those of these topics with which the user may not do what the daemon does, and the operations."""
        denied = {}
        for topic, described in self._described(list(topics), include_authorized_operations=True).items():
            allowed = {AclOperation(operation) for operation in described.authorized_operations or ()}
            lacking = frozenset(operation.name for operation in _NEEDED if operation not in allowed)
            if lacking and AclOperation.ALL not in allowed:
                denied[topic] = lacking
        return denied

    def _offsets(self, places: list[tuple[str, int]], **more: Any) -> dict[tuple[str, int], int]:
        with self._calls.asking(f"asking for the offsets of {places[0][0]}"):
            return offsets(self._calls, places, **more)
