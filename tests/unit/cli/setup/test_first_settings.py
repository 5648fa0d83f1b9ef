"""The settings that the first file has."""

from __future__ import annotations

from typing import Any

import pytest

from cdcd.cli.setup.answers import Answers
from cdcd.cli.setup.first_settings import first_settings
from cdcd.cli.setup.kafka import Cluster
from cdcd.errors import SettingsError


def given(**more: Any) -> Answers:
    known: dict[str, Any] = {
        "dsn": "host=db", "role": "cdcd", "brokers": "k:9092", "tables": ["public.*"], "prefix": "shop", "slot": "cdcd",
        "publication": "cdcd", "properties": {},
    }  # fmt: skip
    return Answers(**{**known, **more})


@pytest.mark.parametrize(
    ("cluster", "replicas", "config"),
    [
        (None, 1, {}),
        (Cluster(1, 1, has_authorizer=True), 1, {}),
        (Cluster(2, 1, has_authorizer=True), 2, {}),
        (Cluster(3, 1, has_authorizer=True), 3, {"min.insync.replicas": "2"}),
        (Cluster(9, 2, has_authorizer=True), 3, {}),
    ],
)
def test_a_cluster_that_can_lose_a_broker_keeps_what_it_has(
    cluster: Cluster | None, replicas: int, config: dict[str, str]
) -> None:
    sink = first_settings(given(), cluster).sink
    assert (sink.replication_factor, sink.topic_config) == (replicas, config)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"slot": "Bad"}, "source.slot must be 1 to 63 of the characters"),
        ({"slot": "Bad"}, "(--slot)"),
        ({"tables": ["orders"]}, "must be written as schema.table"),
        ({"prefix": "a b"}, "sink.prefix is 'a b'"),
        ({"properties": {"acks": "1"}}, "sink.librdkafka may not hold 'acks'"),
    ],
)
def test_a_wrong_answer_is_named_with_its_option(more: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError) as refused:
        first_settings(given(**more), None)
    assert said in str(refused.value)


def test_a_daemon_beside_another_has_names_of_its_own() -> None:
    more = {"slot": "orders", "publication": "orders", "port": 9479, "has_messages": False}
    settings = first_settings(given(**more), None)
    source = settings.source
    assert (source.slot, source.publication, source.application_name) == ("orders", "orders", "orders")
    assert (source.messages, settings.monitoring.port) == (False, 9479)


def test_a_wrong_port_is_named_with_its_option() -> None:
    with pytest.raises(SettingsError, match="--port"):
        first_settings(given(port=70_000), None)
