"""The promises win over the user's properties; the user's properties count everywhere else."""

from __future__ import annotations

from typing import Any

import pytest

from cdcd.errors import SettingsError
from cdcd.sink.kafka.client_config import (
    KafkaConnection,
    check_properties,
    idempotent_producer_config,
    transaction_timeout_ms,
    transactional_producer_config,
)
from cdcd.sink.producer_bounds import ProducerBounds


@pytest.mark.parametrize(
    ("allowed_ms", "properties", "expected"),
    [
        (None, {}, 900_000),
        (None, {"transaction.timeout.ms": 600_000}, 600_000),
        (None, {"transaction.timeout.ms": "3600000"}, 3_600_000),
        (7_200_000, {}, 7_200_000),
        (300_000, {"transaction.timeout.ms": 600_000}, 300_000),
        (600_000, {"transaction.timeout.ms": 300_000}, 300_000),
    ],
)
def test_a_transaction_may_last_as_long_as_kafka_allows_and_the_user_wants(
    allowed_ms: int | None, properties: Any, expected: int
) -> None:
    assert transaction_timeout_ms(allowed_ms, properties) == expected


def test_a_timeout_that_is_no_number_is_a_wrong_setting() -> None:
    with pytest.raises(SettingsError, match=r"transaction\.timeout\.ms"):
        transaction_timeout_ms(None, {"transaction.timeout.ms": "soon"})


def test_the_producer_takes_the_shorter_timeout_and_none_without_transactions() -> None:
    connection = KafkaConnection("b", "c", {"transaction.timeout.ms": 5_000})
    assert transactional_producer_config(connection, "id", 60_000)["transaction.timeout.ms"] == 5_000
    assert transactional_producer_config(connection, "id", 3_000)["transaction.timeout.ms"] == 3_000
    assert "transactional.id" not in idempotent_producer_config(connection)


def test_the_queue_is_bounded_in_messages_and_in_bytes_and_holds_a_row_of_100_mb() -> None:
    config: Any = idempotent_producer_config(KafkaConnection("b", "c"))
    assert 0 < config["queue.buffering.max.messages"] <= 100_000
    assert 100 * 1024 < config["queue.buffering.max.kbytes"] <= 128 * 1024


@pytest.mark.parametrize("name", ["oauth_cb", "error_cb", "stats_cb", "logger", "on_delivery"])
def test_a_property_that_takes_a_function_is_a_wrong_setting(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}.*takes a function"):
        check_properties({name: "print"})


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_oauth_without_a_way_to_a_token_is_a_wrong_setting(name: str) -> None:
    with pytest.raises(SettingsError, match="how to get a token") as failure:
        check_properties({name: "OAUTHBEARER"})
    assert "sasl.oauthbearer.token.endpoint.url" in failure.value.hint
    check_properties({name: "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"})
    check_properties({name: "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True})
    check_properties({name: "PLAIN"})


@pytest.mark.parametrize(("wanted", "bound", "expected"), [(None, 90_000, 90_000), (50_000, 90_000, 50_000)])
def test_a_batch_is_no_larger_than_the_user_wants_and_than_the_topics_take(
    wanted: int | None, bound: int, expected: int
) -> None:
    bounds = ProducerBounds()
    bounds.batch_bytes = bound
    connection = KafkaConnection("b", "c", {} if wanted is None else {"batch.size": wanted}, bounds)
    assert idempotent_producer_config(connection)["batch.size"] == expected
