"""Fixtures of real Kafka brokers, started on first use and ended with the session.

Before: `servers` starts the broker.
After: every test that asks for `broker`, `prefix`, `kafka` or `start_kafka`.

- `broker`: the address of the session's broker, for `bootstrap.servers`.
- `prefix`: a topic prefix for one test; the topics that begin with it are deleted after the test.
- `kafka`: the session's broker, of the version in CDCD_TEST_KAFKA (default: the newest).
- `three_brokers`: a cluster, which a test may break, and must leave whole.
- `start_kafka`: starts brokers for one test, which may restart, kill, pause or configure them.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import servers
from confluent_kafka.admin import AdminClient

from support.kafka_cluster import ProxiedCluster, proxied_cluster

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def kafka() -> Iterator[servers.Kafka]:
    """Start the session's broker. Tests must leave it running."""
    with servers.Kafka() as server:
        yield server


@pytest.fixture(scope="session")
def broker(kafka: servers.Kafka) -> str:
    """Return the bootstrap address of the session's broker."""
    return kafka.bootstrap


@pytest.fixture
def prefix(broker: str) -> Iterator[str]:
    """Return a topic prefix that no other test has, and delete its topics after the test."""
    prefix = f"test-{os.getpid()}-{next(_numbers)}"
    yield prefix
    admin = AdminClient({"bootstrap.servers": broker})
    topics = [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(f"{prefix}.")]
    if topics:
        for done in admin.delete_topics(topics, operation_timeout=10).values():
            done.result()


@pytest.fixture(scope="session")
def three_brokers() -> Iterator[ProxiedCluster]:
    """Start three brokers, with ACLs for the user `cdcd` of the listener SASL. Tests must leave them running."""
    plain = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "super.users": "User:ANONYMOUS",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{plain} required user_cdcd="secret";',
    }
    with proxied_cluster(settings=settings, listeners={"SASL": "SASL_PLAINTEXT"}, has_acls=True) as cluster:
        yield cluster


@pytest.fixture
def start_kafka() -> Iterator[Callable[..., servers.Kafka]]:
    """Return a function that starts a broker for this test: `start_kafka(settings={...}, heap_mb=512)`."""
    with ExitStack() as stack:

        def start(**more: Any) -> servers.Kafka:
            return stack.enter_context(servers.Kafka(**more))

        yield start
