"""The librdkafka properties of cdcd's clients, and where these log: what the promises need, then what the user wants.

Before: plain arguments from the settings.
After: `kafka.producer`, `kafka.admin` and `kafka.progress_reader` make clients of it.
Source: librdkafka CONFIGURATION.md.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, TypeAlias

from cdcd.errors import SettingsError

Property: TypeAlias = "str | int | float | bool"

_OURS: Final[dict[str, str]] = {
    "bootstrap.servers": "sink.bootstrap_servers",
    "metadata.broker.list": "sink.bootstrap_servers",
    "transactional.id": "sink.prefix and source.slot",
    "enable.idempotence": "sink.delivery",
    "acks": "sink.delivery",
    "request.required.acks": "sink.delivery",
    "isolation.level": "nothing: cdcd reads committed records only",
    "enable.auto.commit": "nothing: cdcd uses no consumer group",
    "delivery.report.only.error": "nothing: the progress needs the reports",
    "retry.backoff.ms": "nothing: it tells whether a request may have been sent twice",
    "retry.backoff.max.ms": "nothing: it tells whether a request may have been sent twice",
}
"""Properties that would break a promise, and what decides about them."""

RETRY_BACKOFF_MS: Final = 1_000
"""How long a producer waits before it repeats a request: longer than a broker takes that is well."""

_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Kafka's default for the brokers' `transaction.max.timeout.ms`; used where we may not see theirs."""

_CONNECTION: Final = (
    "allow.", "api.", "broker.", "client.", "connections.", "debug", "enable.sasl", "enable.ssl", "https.", "log",
    "max.in.flight.requests", "metadata.", "oauthbearer", "reconnect.", "resolve.", "sasl.", "security.",
    "socket.", "ssl.", "topic.metadata.",
)  # fmt: skip
"""How the properties begin that concern every client, not only a producer."""


class _Seldom(logging.Filter):
    """Lets each kind of line through once in a while: librdkafka repeats "FAIL" at every attempt to connect."""

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
LIBRDKAFKA_LOG.addFilter(_Seldom(every_s=30.0))


def check_properties(properties: Mapping[str, Property]) -> None:
    """Raises SettingsError if a property is set that belongs to cdcd."""
    for name in properties:
        if name in _OURS:
            raise SettingsError(
                f"sink.librdkafka may not hold {name!r}", f"Take it out: it follows from {_OURS[name]}."
            )


def transaction_timeout_ms(allowed_ms: int | None, properties: Mapping[str, Property]) -> int:
    """How long Kafka is to leave a transaction open: as long as it allows, or less if the user wants less.

    `allowed_ms` is the brokers' `transaction.max.timeout.ms`, None if we may not see it: then the user's word counts.
    Raises SettingsError if the user's is no number.
    """
    wanted = properties.get(_TRANSACTION_TIMEOUT)
    if wanted is None:
        return _TRANSACTION_TIMEOUT_MS if allowed_ms is None else allowed_ms
    try:
        wanted_ms = int(wanted)
    except ValueError:
        raise SettingsError(
            f"{_TRANSACTION_TIMEOUT} under sink.librdkafka is no whole number of milliseconds", "Correct it."
        ) from None
    return wanted_ms if allowed_ms is None else min(wanted_ms, allowed_ms)


def transactional_ids(prefix: str, slot: str, delivery: str) -> tuple[str | None, ...]:
    """The transactional.id of each producer of a slot; None for the one that delivers at least once."""
    if delivery != "exactly_once":
        return (None,)
    return (f"{prefix}-{slot}", f"{prefix}-{slot}.2")  # a slot's name has no full stop: no other daemon has this one


def producer_config(
    bootstrap: str,
    client_id: str,
    transactional_id: str | None,
    timeout_ms: int,
    properties: Mapping[str, Property],
) -> dict[str, object]:
    """Of the producer; without a transactional id it is merely idempotent.

    `timeout_ms` is the transaction's, unless the user wants less. Raises as `check_properties`.
    """
    check_properties(properties)
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "compression.type": "lz4",
        # Every commit flushes, which sends at once. Between two, larger requests cost us and the broker less: measured
        # in a backlog 3.8 and 2.6 us of CPU a row at 5 ms, 2.6 and 1.7 at 50.
        "linger.ms": 50,
        # Bounded twice: a message takes some 150 bytes beside its own, and one row of 100 MB must fit.
        "queue.buffering.max.kbytes": 128 * 1024,
        "queue.buffering.max.messages": 100_000,
        "batch.num.messages": 100_000,
        "batch.size": 1_000_000,
        # The topic's own max.message.bytes decides, and its refusal is named; not a limit of the client's.
        "message.max.bytes": 256 * 1024 * 1024,
        "statistics.interval.ms": 0,
        "socket.nagle.disable": True,
        "reconnect.backoff.max.ms": 2_000,
        "retry.backoff.ms": RETRY_BACKOFF_MS,
        "retry.backoff.max.ms": RETRY_BACKOFF_MS,
    }
    config.update(properties)
    config["enable.idempotence"] = True
    if transactional_id is not None:
        config["transactional.id"] = transactional_id
        config[_TRANSACTION_TIMEOUT] = transaction_timeout_ms(timeout_ms, properties)
    return config


def client_config(bootstrap: str, client_id: str, properties: Mapping[str, Property]) -> dict[str, object]:
    """Of an admin client, or the base of a consumer: of the user's properties those that concern the connection.

    Raises as `check_properties`.
    """
    check_properties(properties)
    config: dict[str, object] = {
        "bootstrap.servers": bootstrap,
        "client.id": client_id,
        "reconnect.backoff.max.ms": 2_000,
    }
    config.update({name: value for name, value in properties.items() if name.startswith(_CONNECTION)})
    return config
