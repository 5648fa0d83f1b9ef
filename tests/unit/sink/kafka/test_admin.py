"""What the admin client does with brokers that answer in odd ways, without brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from confluent_kafka.admin import AdminClient

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection


class JustStarted:
    """A cluster that names no broker in its first answers."""

    def __init__(self, empty_answers: float) -> None:
        self.empty_answers = empty_answers

    def list_topics(self, *topics: str, timeout: float) -> SimpleNamespace:
        assert timeout > 0
        self.empty_answers -= 1
        names_broker = self.empty_answers < 0
        return SimpleNamespace(brokers={1: "broker"} if names_broker else {}, topics={}, cluster_id="c" * names_broker)

    def poll(self, timeout: float) -> int:
        return 0


def admin_of(cluster: JustStarted, timeout_s: float) -> KafkaAdmin:
    admin = KafkaAdmin(KafkaConnection("127.0.0.1:1", "test", {}), timeout_s)
    admin._client = cast("AdminClient", cluster)
    return admin


def test_a_cluster_is_believed_only_once_it_names_a_broker() -> None:
    assert admin_of(JustStarted(2), 5.0).cluster_id() == "c"


def test_a_cluster_that_never_names_a_broker_is_unavailable() -> None:
    with pytest.raises(KafkaUnavailable):
        admin_of(JustStarted(float("inf")), 0.2).cluster_id()
