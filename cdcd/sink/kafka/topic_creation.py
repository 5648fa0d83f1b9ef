"""Makes topics, or has the brokers say whether they would.

Before: `admin` knows which topics are missing. After: the brokers.
Source: Kafka protocol guide, CreateTopics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shlex import quote
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from cdcd.errors import KafkaUnavailable, Unpublishable
from cdcd.sink.acls import kafka_command
from cdcd.sink.kafka.admin_calls import NOT_ALLOWED, AdminCalls
from cdcd.sink.kafka.errors import TRY_AGAIN, kafka_error, shown, to_cdcd_error
from cdcd.sink.topics import TopicSpec

REQUEST_RECORDS_MAX: Final = 1_000
"""KRaft takes 10,000 records in one request, and makes 1,000 of them in seconds."""
_LACKS_BROKERS: Final = re.compile(r"only \d+ broker|available brokers|fenced")
"""How Kafka says that too few brokers are there."""
_NAME_REFUSED: Final = frozenset({KafkaError.TOPIC_EXCEPTION, KafkaError.POLICY_VIOLATION})
_CONFIG_REFUSED: Final = frozenset({KafkaError.POLICY_VIOLATION, KafkaError.INVALID_CONFIG})


class TopicCreation:
    """Makes topics with one client."""

    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    def create(self, specs: list[TopicSpec], *, validate_only: bool = False) -> list[TopicSpec]:
        """Make topics; return those that the cluster only allows without what they can do without.

        Raises Unpublishable, which names the topic, if the brokers do not allow it or refuse its name.
        """
        refused = self._try_to_create(specs, validate_only=validate_only)
        if refused:
            self._try_to_create([spec.without_optional() for spec in refused], validate_only=validate_only)
        return refused

    def _try_to_create(self, specs: list[TopicSpec], *, validate_only: bool) -> list[TopicSpec]:
        """Return the topics that were refused and have something optional."""
        calls, refused = self._calls, []
        with calls.asking("creating topics"):
            new = [NewTopic(s.name, s.partitions, s.replication_factor, config=dict(s.config)) for s in specs]
            futures = {**calls.client.create_topics(new, request_timeout=calls.timeout_s, validate_only=validate_only)}
            for spec in specs:
                with calls.asking(f"creating the topic {spec.name}"):
                    try:
                        calls.answers({spec.name: futures.pop(spec.name)})
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
            brokers = self._calls.metadata(spec.name).brokers
            if not brokers or (spec.replication_factor <= len(brokers) and _LACKS_BROKERS.search(found.str())):
                raise KafkaUnavailable(
                    f"Kafka cannot create {spec.name} now: {shown(found.str())}", TRY_AGAIN, code="kafka-unavailable"
                ) from None
        if found.code() in NOT_ALLOWED:
            raise Unpublishable(
                f"Kafka does not let cdcd create the topic {spec.name}: {shown(found.str())} ({found.name()})",
                f"Grant the user Create on topics with that prefix, or make it: {creating_command(spec)}",
                topic=spec.name,
                code="kafka-acl-missing",
            ) from None
        if found.code() in _NAME_REFUSED:
            refused = to_cdcd_error(found, f"creating the topic {spec.name}", self._calls.bootstrap)
            raise Unpublishable(refused.message, refused.hint, topic=spec.name, code=refused.code) from None


def requests(specs: Iterable[TopicSpec], records_max: int) -> Iterator[list[TopicSpec]]:
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
    config = "".join(f" --config {quote(f'{name}={value}')}" for name, value in spec.config.items())
    return kafka_command(
        "kafka-topics.sh",
        f"--create --topic {spec.name} --partitions {spec.partitions} "
        f"--replication-factor {spec.replication_factor}{config}",
    )
