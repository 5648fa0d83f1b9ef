"""Asks the broker about topics, and makes those that are missing.

Before: `table_topics` and the take-over ask.
After: the broker, through confluent-kafka's AdminClient. The futures of a client fail once Python has collected the
client, so this object keeps it.
Source: Kafka protocol guide, CreateTopics, Metadata, ListOffsets and DescribeConfigs.

Traps that this module knows:

- A future keeps the exception that it raised, and the exception keeps its stack frames. If one of these frames keeps
  the future, they are a cycle, and the client in it lives on with its four threads. So no future keeps a name here.
- If a leader is lost during ListOffsets, librdkafka 2.16 answers the offset -1001, without an error.
- A broker that has just started answers a metadata request without a broker. librdkafka 2.16 aborts the process if
  DescribeCluster gets that answer, or DescribeTopics if no topic is in it either. So nothing here uses DescribeCluster,
  and a plain metadata request comes before DescribeTopics: only that one tells the topics' ids. Brokers answer it with
  every topic that it names.
- The client still fills the dict of futures that it has returned. So futures are taken out of a copy.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from math import inf
from threading import Thread
from typing import Any, Final, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from cdcd.errors import KafkaUnavailable, Unpublishable
from cdcd.progress.records import TopicState
from cdcd.progress.topic_evidence import UNKNOWN_END
from cdcd.sink.kafka.client_config import LIBRDKAFKA_LOG, KafkaConnection, client_config
from cdcd.sink.kafka.deadline import SLICE_S, Deadline
from cdcd.sink.kafka.errors import TRY_AGAIN, Reports, closed, kafka_error, refuses_for_good, to_cdcd_error
from cdcd.sink.kafka.token_endpoint import no_answer
from cdcd.sink.topics import TopicSpec

T = TypeVar("T")

log = logging.getLogger(__name__)

_PAUSE_S: Final = 0.05
"""The pause between two questions whether the cluster knows a new topic."""
_BROKERS_KNOWN_S: Final = 1.0
"""So long an answer that names a broker is trusted."""
REQUEST_RECORDS_MAX: Final = 1_000
"""KRaft takes 10,000 records in one request, and makes 1,000 of them in seconds."""
_UNKNOWN: Final = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_NOT_YET: Final = frozenset(  # a broker may not know yet that it is the leader which the metadata names
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,  # the metadata knows of a later epoch than the leader does
        KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet how far the records are replicated
        KafkaError._TRANSPORT,
        KafkaError._NOENT,  # no leader is known while the client reconnects
        *_UNKNOWN,
    }
)
_LACKS_BROKERS: Final = re.compile(r"only \d+ broker|available brokers|fenced")
"""How Kafka says that too few brokers are there."""
_NO_ANSWER: Final = frozenset({KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN})
_NO_ID: Final = str(Uuid(0, 0))
"""The topic id that a broker before 2.8 gives."""
_NAME_REFUSED: Final = frozenset({KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION})
_CONFIG_REFUSED: Final = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})
_NOT_ALLOWED: Final = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})


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
        self._bootstrap = connection.bootstrap
        self._properties = connection.properties
        self._request_records_max = request_records_max
        self._deadline = Deadline(timeout_s)
        self._reports = Reports()
        self._brokers_known_s = -inf
        config: dict[str, Any] = client_config(connection.bootstrap, connection.client_id, connection.properties)
        config["error_cb"] = self._reports
        try:
            self._client: AdminClient | None = AdminClient(config, logger=LIBRDKAFKA_LOG)
        except KafkaException as error:
            raise to_cdcd_error(kafka_error(error), "making an admin client", connection.bootstrap) from None

    def shorten_deadlines(self, within_s: float) -> None:
        """From now on no call lasts beyond `within_s` seconds from now. May be called by another thread."""
        self._deadline.shorten(within_s)

    def close(self) -> None:
        """End the client's threads."""
        self._client = None

    def ensure(self, *specs: TopicSpec) -> list[int]:
        """Make the topics that are missing, and wait until the cluster knows them; returns each one's partitions.

        Raises Unpublishable, which names the topic, if the broker does not allow it or refuses its name.
        """
        return [partitions for some in _requests(specs, self._request_records_max) for partitions in self._ensure(some)]

    def validate(self, *specs: TopicSpec) -> None:
        """Raise what `ensure` would raise for topics that are missing, and make none.

        The broker is asked about the first topic of each kind: the others would be made alike.
        """
        there = self._described([spec.name for spec in specs])
        missing = [spec for spec in reversed(specs) if spec.name not in there]
        kinds = {(spec.partitions, spec.replication_factor, *sorted(spec.config.items())): spec for spec in missing}
        if kinds:
            self._create(list(kinds.values()), validate_only=True)

    def _ensure(self, specs: list[TopicSpec]) -> list[int]:
        found = self.partitions([spec.name for spec in specs])
        missing = made = [spec for spec in specs if spec.name not in found]
        if made:
            self._create(made)
        deadline = self._deadline.of_call()
        while missing:
            found |= self.partitions([spec.name for spec in missing])
            missing = [spec for spec in missing if spec.name not in found]
            if missing:
                if self._deadline.is_over(deadline):
                    raise KafkaUnavailable(
                        f"Kafka ({self._bootstrap}) made the topic {missing[0].name}, but no leader for all of its "
                        f"partitions within {self._timeout_s:.0f} s",
                        TRY_AGAIN,
                    )
                time.sleep(_PAUSE_S)
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
        with self._asking("asking for the brokers"):
            return len(self._metadata(topic).brokers) == 1

    def exists(self, topic: str) -> bool:
        """Whether the topic exists, with leaders or without."""
        return topic in self._described([topic])

    def _described(self, topics: list[str]) -> dict[str, Any]:  # the client's TopicDescription of those that exist
        described: dict[str, Any] = {}
        if not topics:
            return described
        with self._asking("describing topics"):
            if time.monotonic() >= self._brokers_known_s + _BROKERS_KNOWN_S:
                self._cluster(topics[0])
            futures = {**self._admin().describe_topics(TopicCollection(topics), request_timeout=self._timeout_s)}
            for topic in topics:
                with self._asking(f"describing the topic {topic}"):
                    try:
                        described |= self._answers({topic: futures.pop(topic)})
                    except KafkaException as error:
                        if kafka_error(error).code() not in _UNKNOWN:
                            raise
        return described

    def end_offsets(self, partitions: Mapping[str, int]) -> dict[str, list[int]]:
        """Return the high watermark of each partition, by topic; `partitions` says how many partitions each topic has.

        The high watermark is the next record's offset, even if transactions are open.
        """
        places = [(topic, partition) for topic, count in partitions.items() for partition in range(count)]
        found = self._offsets(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]  # a class without annotations
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
        ends = self._offsets(led, OffsetSpec.latest()) if led else {}  # type: ignore[no-untyped-call]  # as above
        return {
            topic: TopicState(
                "" if str(found.topic_id) == _NO_ID else str(found.topic_id),
                tuple(ends.get((topic, partition), UNKNOWN_END) for partition in range(len(found.partitions))),
            )
            for topic, found in described.items()
        }

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """Return the settings of existing topics, as far as the user may see them (the ACL DescribeConfigs)."""
        wanted = [ConfigResource(ConfigResource.Type.TOPIC, topic) for topic in topics]
        configs = {}
        with self._asking("reading the settings of topics"):
            futures = {**self._admin().describe_configs(wanted, request_timeout=self._timeout_s)} if wanted else {}
            for resource in wanted:
                try:
                    (entries,) = self._answers({"": futures.pop(resource)}).values()
                except KafkaException as error:
                    if kafka_error(error).code() not in _NOT_ALLOWED | _UNKNOWN:
                        raise
                else:
                    configs[resource.name] = {n: each.value for n, each in entries.items() if each.value is not None}
        return configs

    def stable_end(self, topic: str, partition: int) -> int:
        """Return the last stable offset: where the first undecided transaction begins, or the end of the partition."""
        place = topic, partition
        return self._offsets([place], OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)[place]  # type: ignore[no-untyped-call]  # as above

    def partitions_of_all(self, wanted: Callable[[str], bool]) -> dict[str, int]:
        """Return how many partitions each topic of the cluster has whose name is `wanted`."""
        with self._asking("asking for the cluster's topics"):
            listed = self._cluster().topics
        return {name: len(topic.partitions) for name, topic in listed.items() if wanted(name)}

    def unstable(self, looked_at: Callable[[str], bool]) -> dict[tuple[str, int], int]:
        """Return the partitions that hold an undecided transaction, with the offset of its first record.

        `looked_at` says of each topic of the cluster whether it is looked at.
        """
        with self._asking("looking for undecided transactions"):
            listed = self._admin().list_topics(timeout=self._timeout_s).topics
            wanted = {
                TopicPartition(name, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]  # as above
                for name, topic in listed.items()
                if looked_at(name)
                for partition in topic.partitions
            }
            stable = self._listed(wanted, IsolationLevel.READ_COMMITTED)
            written = self._listed(wanted, IsolationLevel.READ_UNCOMMITTED)
        return {place: offset for place, offset in stable.items() if offset < written[place]}

    def start_offset(self, topic: str, partition: int) -> int:
        """Return the first offset that the partition still holds."""
        place = topic, partition
        return self._offsets([place], OffsetSpec.earliest())[place]  # type: ignore[no-untyped-call]  # as above

    def transaction_timeout_max_ms(self) -> int | None:
        """Return the brokers' `transaction.max.timeout.ms`.

        None if the user may not see it: the user needs the ACL DescribeConfigs on the cluster.
        """
        with self._asking("reading transaction.max.timeout.ms"):
            brokers = self._cluster().brokers
            resource = ConfigResource(ConfigResource.Type.BROKER, str(min(brokers)))
            try:
                (entries,) = self._answers(
                    self._admin().describe_configs([resource], request_timeout=self._timeout_s)
                ).values()
            except KafkaException as error:
                if kafka_error(error).code() in _NOT_ALLOWED:
                    return None
                raise
        entry = entries.get("transaction.max.timeout.ms")
        return None if entry is None or entry.value is None else int(entry.value)

    def cluster_id(self) -> str:
        """Return the cluster's id; empty if it has none."""
        with self._asking("asking for the cluster's id"):
            found: str | None = self._cluster().cluster_id
            return found or ""

    def _offsets(
        self,
        places: list[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int]:
        with self._asking(f"asking for the offsets of {places[0][0]}"):
            return self._listed({TopicPartition(*place): spec for place in places}, isolation)

    def _listed(
        self, wanted: dict[TopicPartition, OffsetSpec], isolation: IsolationLevel
    ) -> dict[tuple[str, int], int]:
        deadline = self._deadline.of_call()
        while True:
            try:
                answers = self._answers(
                    self._admin().list_offsets(wanted, isolation_level=isolation, request_timeout=self._timeout_s)
                )
                if any(answer.offset < 0 for answer in answers.values()):
                    raise KafkaException(KafkaError(KafkaError._TRANSPORT, "no answer to ListOffsets"))
            except KafkaException as error:
                if kafka_error(error).code() not in _NOT_YET or self._deadline.is_over(deadline):
                    raise
                time.sleep(_PAUSE_S)
            else:
                return {(each.topic, each.partition): answer.offset for each, answer in answers.items()}

    def _create(self, specs: list[TopicSpec], *, validate_only: bool = False) -> None:
        """Make topics; those that the cluster does not allow, once more without what they can do without."""
        refused = self._try_to_create(specs, validate_only=validate_only)
        for spec in refused:
            left_out = ", ".join(sorted(spec.optional))
            log.warning("the cluster does not allow %s for %s: its own value counts", left_out, spec.name)
        if refused:
            self._try_to_create([spec.without_optional() for spec in refused], validate_only=validate_only)

    def _try_to_create(self, specs: list[TopicSpec], *, validate_only: bool) -> list[TopicSpec]:
        """Return the topics that were refused and have something optional."""
        refused = []
        with self._asking("creating topics"):
            new = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs]
            futures = {**self._admin().create_topics(new, request_timeout=self._timeout_s, validate_only=validate_only)}
            for spec in specs:
                with self._asking(f"creating the topic {spec.name}"):
                    try:
                        self._answers({spec.name: futures.pop(spec.name)})
                    except KafkaException as error:
                        found = kafka_error(error)
                        if found.code() in _CONFIG_REFUSED and spec.optional:
                            refused.append(spec)
                        elif found.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                            self._raise_if_temporary_or_forbidden(spec, found)
                            raise
        return refused

    def _raise_if_temporary_or_forbidden(self, spec: TopicSpec, found: KafkaError) -> None:
        if found.code() == KafkaError.INVALID_REPLICATION_FACTOR:
            # The broker also gives this error for a moment while all brokers are starting or stopping. A policy may
            # give it, too, and will not change its mind.
            brokers = self._metadata(spec.name).brokers
            if not brokers or (spec.replication_factor <= len(brokers) and _LACKS_BROKERS.search(found.str())):
                raise KafkaUnavailable(f"Kafka cannot create {spec.name} now: {found.str()}", TRY_AGAIN) from None
        if found.code() in _NOT_ALLOWED:
            raise Unpublishable(
                f"Kafka does not let cdcd create the topic {spec.name}: {found.str()} ({found.name()})",
                f"Grant the user Create on topics with that prefix, or make it: {creating_command(spec)}",
                topic=spec.name,
            ) from None
        if found.code() in _NAME_REFUSED:
            refused = to_cdcd_error(found, f"creating the topic {spec.name}", self._bootstrap)
            raise Unpublishable(refused.message, refused.hint, topic=spec.name) from None

    def _cluster(self, topic: str | None = None) -> ClusterMetadata:
        """Return the first answer that names a broker: before that, the cluster does not know its topics either.

        The question is about `topic`, or about all topics.
        """
        deadline = self._deadline.of_call()
        while not (answer := self._metadata(topic)).brokers:
            if self._deadline.is_over(deadline):
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the cluster names no broker"))
            time.sleep(_PAUSE_S)
        self._brokers_known_s = time.monotonic()
        return answer

    def _metadata(self, topic: str | None = None) -> ClusterMetadata:
        """Ask for the metadata of one topic, or of all."""
        return self._answers({"": _metadata(self._admin(), topic, self._timeout_s)})[""]

    def _answers(self, futures: dict[Any, Future[T]]) -> dict[Any, T]:
        """Wait for all futures, and return their results; raises the error of the first that failed."""
        deadline = self._deadline.of_call()
        pending = list(futures.items())
        del futures
        answers = {}
        while pending:
            key, future = pending.pop()
            try:
                while not future.done() and not self._deadline.is_over(deadline):
                    wait((future,), SLICE_S)
                    self._admin().poll(0)
                    if refuses_for_good(self._reports.last(self._timeout_s)):
                        break
                answers[key] = future.result(0)
            finally:
                del future
        return answers

    def _admin(self) -> AdminClient:
        if self._client is None:
            raise closed("the admin client")
        return self._client

    @property
    def _timeout_s(self) -> float:
        return self._deadline.timeout_s

    @contextmanager
    def _asking(self, doing: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            found = kafka_error(error)
            if found.code() in _NO_ANSWER:
                raise self._unanswered(doing) from None
            raise to_cdcd_error(found, doing, self._bootstrap) from None
        except FutureTimeoutError:
            raise self._unanswered(doing) from None

    def _unanswered(self, doing: str) -> Exception:
        self._admin().poll(0)
        return no_answer(self._properties, doing, self._bootstrap, self._reports.last(self._timeout_s))


def _metadata(client: AdminClient, topic: str | None, timeout_s: float) -> Future[ClusterMetadata]:
    """Ask in a thread: librdkafka blocks its caller, and signals wait for the main thread."""
    answer: Future[ClusterMetadata] = Future()

    def ask() -> None:
        try:
            answer.set_result(client.list_topics(*([] if topic is None else [topic]), timeout=timeout_s))
        except KafkaException as error:
            answer.set_exception(error.with_traceback(None))  # its frames keep the future

    Thread(target=ask, name="cdcd-metadata", daemon=True).start()
    return answer


def _requests(specs: Iterable[TopicSpec], records_max: int) -> Iterator[list[TopicSpec]]:
    """Divide the topics into requests.

    Kafka refuses two names that differ only in "." and "_", but not within one request: so one request never has both.
    """
    some: dict[str, TopicSpec] = {}
    records = 0
    for spec in specs:
        own = 1 + spec.partitions + len(spec.config)
        alike = spec.name.replace(".", "_")
        if some and (alike in some or records + own > records_max):
            yield list(some.values())
            some, records = {}, 0
        some[alike] = spec
        records += own
    if some:
        yield list(some.values())


def creating_command(spec: TopicSpec) -> str:
    """Return the command of Kafka's own tools that makes the topic as cdcd would."""
    config = "".join(f" --config {name}={value}" for name, value in spec.config.items())
    return (
        f"kafka-topics.sh --create --topic {spec.name} --partitions {spec.partitions} "
        f"--replication-factor {spec.replication_factor}{config}"
    )
