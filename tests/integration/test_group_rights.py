"""Readers that join no consumer group need no right to one, however long they read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import servers
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from cdcd.reading.consumer import BEGINNING, TopicReader
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, client_config
from cdcd.sink.kafka.range_reader import RangeReader

LATER_S = 4.0
"""When the record comes: long after the brokers have refused the group."""


@pytest.fixture
def reader_only(start_kafka: Callable[..., servers.Kafka]) -> Iterator[KafkaConnection]:
    """A connection of a user who may read the topic `t` and nothing else. A record comes LATER_S later."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} required user_reader="secret";',
    }
    kafka = start_kafka(settings=settings, listeners={"SASL": "SASL_PLAINTEXT"}, has_acls=True, heap_mb=256)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(10)
    bindings = [
        AclBinding(
            ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:reader", "*", operation, AclPermissionType.ALLOW
        )
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    ]
    for done in admin.create_acls(bindings).values():
        done.result(10)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})

    def write() -> None:
        producer.produce("t", b"late")
        producer.flush(10)

    writer = threading.Timer(LATER_S, write)
    writer.start()
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "reader",
        "sasl.password": "secret",
    }
    yield KafkaConnection(kafka.address("SASL"), "reader", properties)
    writer.join()


def test_a_range_is_read_by_a_user_without_a_right_to_any_group(reader_only: KafkaConnection) -> None:
    reader = RangeReader(reader_only, "t", KafkaAdmin(reader_only), 20.0)
    with reader.consumer() as consumer:
        assert [message.value() for _, message in reader.read(consumer, 0, 1)] == [b"late"]


def test_a_topic_is_followed_by_a_user_without_a_right_to_any_group(reader_only: KafkaConnection) -> None:
    config = client_config(reader_only.bootstrap, reader_only.client_id, reader_only.properties)
    with TopicReader(config) as reader:
        reader.assign([("t", 0, BEGINNING)])
        assert next(message.value() for _ in range(100) for message in reader.read(10)) == b"late"
