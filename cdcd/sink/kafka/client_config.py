"""The librdkafka properties of cdcd's clients, and their log: the promises decide first, the user's settings second.

Before: plain arguments from the settings.
After: `producer_client`, `admin` and `range_reader` make their clients with these properties.
Source: librdkafka CONFIGURATION.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from cdcd.errors import SettingsError
from cdcd.sink.kafka.token_function import TokenFunction, token_function
from cdcd.sink.producer_bounds import ProducerBounds

Property: TypeAlias = "str | int | float | bool | TokenFunction"


@dataclass(frozen=True)
class KafkaConnection:
    """How a client reaches the cluster."""

    bootstrap: str
    """Brokers to ask first: `host:port,host:port`."""
    client_id: str
    properties: Mapping[str, Property] = field(default_factory=dict)
    """The user's settings under `sink.librdkafka`."""
    bounds: ProducerBounds = field(default_factory=ProducerBounds)
    """The bounds of the next producer: they follow the cluster."""

    def silent(self) -> KafkaConnection:
        """Return the connection of a client that logs nothing: other clients log the same."""
        return replace(self, properties={**self.properties, "log_level": 0})


_RESERVED: Final[dict[str, str]] = {
    "bootstrap.servers": "sink.bootstrap_servers",
    "metadata.broker.list": "sink.bootstrap_servers",
    "transactional.id": "sink.prefix and source.slot",
    "enable.idempotence": "sink.delivery",
    "acks": "sink.delivery",
    "request.required.acks": "sink.delivery",
    "isolation.level": "nothing: cdcd reads committed records only",
    "enable.auto.commit": "nothing: cdcd uses no consumer group",
    "delivery.report.only.error": "nothing: the progress needs the reports",
    "allow.auto.create.topics": "nothing: cdcd makes the topics itself",
    "retry.backoff.ms": "nothing: it tells whether a request may have been sent twice",
    "retry.backoff.max.ms": "nothing: it tells whether a request may have been sent twice",
}
"""Properties that would break a promise, and what decides them instead."""

_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's default for the brokers' `transaction.max.timeout.ms`; used if the user may not see the brokers' value."""

_CONNECTION: Final = (
    "api.", "broker.", "client.", "connections.", "debug", "enable.sasl", "enable.ssl", "https.", "log",
    "max.in.flight.requests", "metadata.", "oauth", "reconnect.", "resolve.", "sasl.", "security.",
    "socket.", "ssl.", "topic.metadata.",
)  # fmt: skip
"""Prefixes of the properties that concern every client, not only a producer."""


class _RateLimit(logging.Filter):
    """Lets each kind of line through once in `every_s`: librdkafka repeats "FAIL" at every attempt to connect."""

    def __init__(self, every_s: float) -> None:
        super().__init__()
        self._every_s = every_s
        self._logged_at: dict[object, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        kind = record.args[0] if isinstance(record.args, tuple) and record.args else record.msg
        if record.created - self._logged_at.get(kind, 0.0) < self._every_s:
            return False
        self._logged_at[kind] = record.created
        return True


LIBRDKAFKA_LOG: Final = logging.getLogger("cdcd.sink.librdkafka")
LIBRDKAFKA_LOG.addFilter(_RateLimit(every_s=30.0))


_FUNCTIONS: Final = frozenset(
    {"default_topic_conf", "interceptors", "logger", "on_commit", "on_delivery", "opaque", "ssl_engine_callback_data"}
)
"""Properties of confluent-kafka, besides those that end in `_cb`, whose value is no text and no number."""

_OAUTH_HINT: Final = (
    "Set sasl.oauthbearer.method = oidc under sink.librdkafka, and with it sasl.oauthbearer.client.id, "
    "sasl.oauthbearer.client.secret and sasl.oauthbearer.token.endpoint.url. Or set sink.token_function."
)


def with_token_function(properties: Mapping[str, Property], function: TokenFunction | None) -> Mapping[str, Property]:
    """Return the user's properties, with the function that makes tokens and what it needs, if there is one."""
    if function is None:
        return properties
    needed: dict[str, Property] = {"security.protocol": "SASL_SSL"}
    if "sasl.mechanisms" not in properties:
        needed["sasl.mechanism"] = "OAUTHBEARER"
    return {**needed, **properties, "oauth_cb": function}


def check_properties(properties: Mapping[str, Property]) -> None:
    """Raise SettingsError if the user sets a property that cdcd decides, or one that cannot work."""
    for name in properties:
        if name in _RESERVED:
            raise SettingsError(
                f"sink.librdkafka may not hold {name!r}",
                f"Take it out: it follows from {_RESERVED[name]}.",
                code="kafka-config-invalid",
            )
        if name in _FUNCTIONS or (name.endswith("_cb") and not isinstance(properties[name], TokenFunction)):
            instead = f" {_OAUTH_HINT}" if name == "oauth_cb" else ""
            raise SettingsError(
                f"sink.librdkafka may not hold {name!r}: it takes a function",
                f"Take it out.{instead}",
                code="kafka-config-invalid",
            )
    mechanism = properties.get("sasl.mechanism", properties.get("sasl.mechanisms"))
    by_itself = properties.get("sasl.oauthbearer.method") == "oidc"
    unsecured = str(properties.get("enable.sasl.oauthbearer.unsecure.jwt", "false")).lower() == "true"
    has_function = token_function(properties) is not None
    if has_function and mechanism != "OAUTHBEARER":
        raise SettingsError(
            "sink.token_function needs another sasl.mechanism than the one under sink.librdkafka",
            "Take sasl.mechanism out: it is OAUTHBEARER then. Or take sink.token_function out.",
            code="kafka-config-invalid",
        )
    if has_function and (by_itself or unsecured):
        raise SettingsError(
            "sink.token_function and sink.librdkafka both say how to get a token",
            "Take one of them out: sink.token_function, or sasl.oauthbearer.method and "
            "enable.sasl.oauthbearer.unsecure.jwt under sink.librdkafka.",
            code="kafka-config-invalid",
        )
    if mechanism == "OAUTHBEARER" and not (by_itself or unsecured or has_function):
        raise SettingsError(
            "sink.librdkafka asks for OAUTHBEARER and does not say how to get a token",
            _OAUTH_HINT,
            code="kafka-config-invalid",
        )


def transaction_timeout_ms(allowed_ms: int | None, properties: Mapping[str, Property]) -> int:
    """Return how long Kafka shall leave a transaction open: what the brokers allow, or less if the user wants less.

    `allowed_ms` is the brokers' `transaction.max.timeout.ms`, None if the user may not see it: then only the user's
    property counts. Raises SettingsError if that property is no number.
    """
    wanted = properties.get(_TRANSACTION_TIMEOUT)
    if wanted is None:
        return _TRANSACTION_TIMEOUT_MS if allowed_ms is None else allowed_ms
    try:
        wanted_ms = int(str(wanted))
    except ValueError:
        raise SettingsError(
            f"{_TRANSACTION_TIMEOUT} under sink.librdkafka is no whole number of milliseconds",
            "Correct it.",
            code="kafka-config-invalid",
        ) from None
    return wanted_ms if allowed_ms is None else min(wanted_ms, allowed_ms)


def transactional_producer_config(
    connection: KafkaConnection, transactional_id: str, timeout_ms: int
) -> dict[str, object]:
    """Return the properties of a transactional producer.

    A transaction may be open for `timeout_ms`, or less if the user wants less. Raises as `check_properties`.
    """
    config = idempotent_producer_config(connection)
    config["transactional.id"] = transactional_id
    config[_TRANSACTION_TIMEOUT] = transaction_timeout_ms(timeout_ms, connection.properties)
    return config


def idempotent_producer_config(connection: KafkaConnection) -> dict[str, object]:
    """Return the properties of a producer without transactions. Raises as `check_properties` and `_make_token`."""
    check_properties(connection.properties)
    _make_token(connection.properties)
    bounds = connection.bounds
    config: dict[str, object] = {
        "bootstrap.servers": connection.bootstrap,
        "client.id": connection.client_id,
        "compression.type": "lz4",
        # Every commit flushes, and a flush sends at once. Between two commits larger requests cost the daemon and the
        # broker less: measured in a backlog 3.8 and 2.6 us of CPU a row at 5 ms, 2.6 and 1.7 at 50 ms.
        "linger.ms": 50,
        # Two bounds: a message takes some 150 bytes in addition to its key and value, and one row of 100 MB must fit.
        "queue.buffering.max.kbytes": 128 * 1024,
        "queue.buffering.max.messages": 100_000,
        "batch.num.messages": 100_000,
        "batch.size": bounds.batch_bytes,
        # The topic's own max.message.bytes decides, and the broker's refusal names it; the client sets no limit.
        "message.max.bytes": 256 * 1024 * 1024,
        "statistics.interval.ms": 0,
        "socket.nagle.disable": True,
        "reconnect.backoff.max.ms": 2_000,
        "retry.backoff.ms": bounds.retry_backoff_ms,
        "retry.backoff.max.ms": bounds.retry_backoff_ms,
    }
    config.update(connection.properties)
    config["allow.auto.create.topics"] = False  # the broker would make a deleted topic again, with its own defaults
    if str(config["batch.size"]).isdigit():  # else librdkafka refuses it
        config["batch.size"] = min(int(str(config["batch.size"])), bounds.batch_bytes)
    config["enable.idempotence"] = True
    return config


def client_config(bootstrap: str, client_id: str, properties: Mapping[str, Property]) -> dict[str, object]:
    """Return the properties of an admin client, or of a consumer to add to.

    They hold the user's properties that concern the connection. Raises as `check_properties` and `_make_token`.
    """
    check_properties(properties)
    _make_token(properties)
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "reconnect.backoff.max.ms": 2_000,
    }
    config.update({name: value for name, value in properties.items() if name.startswith(_CONNECTION)})
    config["allow.auto.create.topics"] = False  # a question makes no topic
    return config


def _make_token(properties: Mapping[str, Property]) -> None:
    """Raise KafkaUnavailable if a function is to make the token of the client, and makes none."""
    if (function := token_function(properties)) is not None:
        config = properties.get("sasl.oauthbearer.config")
        function.raise_if_failing(None if config is None else str(config))
