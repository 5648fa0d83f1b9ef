"""Asks each broker for its settings: they may differ, and one broker may be out of reach.

Before: a start asks how long a transaction may be open; `cluster_facts` asks for `cdcd check`.
After: the brokers.
Source: Kafka protocol guide, DescribeConfigs. The question about a broker goes to that broker, at the address that it
advertises: so the answer shows that the address works, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import BrokerMetadata, ConfigResource

from cdcd.clock import monotonic_s
from cdcd.sink.kafka.admin_calls import NO_ANSWER, NOT_ALLOWED, AdminCalls
from cdcd.sink.kafka.deadline import SLICE_S
from cdcd.sink.kafka.errors import kafka_error

BROKERS_MAX: Final = 50
"""So many brokers are asked: each costs a connection."""
OTHERS_S: Final = 3.0
"""Once one broker has answered, the others have so long: a start must not wait for a broker that has just stopped."""


@dataclass(frozen=True)
class BrokerConfigs:
    """What the brokers answered."""

    configs: Mapping[int, Mapping[str, str]]
    """The settings of each broker by its node id, as far as the user may see them (the ACL DescribeConfigs)."""
    silent: Mapping[int, str]
    """The brokers that did not answer: the address that each advertises, and the reason if the client knows it."""

    def first(self, name: str) -> str | None:
        """Return the value of a setting that is the same everywhere; None if the user may not see it."""
        return next((config[name] for config in self.configs.values() if name in config), None)

    def least(self, name: str) -> int | None:
        """Return the least value of a setting, a number; None if the user may not see it."""
        found = [config.get(name, "") for config in self.configs.values()]
        return min((int(value) for value in found if value.lstrip("-").isdigit()), default=None)


def ask(calls: AdminCalls, brokers: Mapping[int, BrokerMetadata]) -> BrokerConfigs:
    """Ask these brokers. Raises KafkaException, and KafkaUnavailable if none answers."""
    began_s, until_s, deadline = monotonic_s(), inf, calls.deadline.of_call()
    pending = {node_id: _asked(calls, node_id) for node_id in sorted(brokers)[:BROKERS_MAX]}
    configs: dict[int, Mapping[str, str]] = {}
    while pending and monotonic_s() < until_s and not calls.deadline.is_over(deadline) and not calls.is_refused():
        wait(pending.values(), SLICE_S, FIRST_COMPLETED)
        calls.client.poll(0)
        for node_id in [node_id for node_id, future in pending.items() if future.done()]:
            config = _answer(pending[node_id])
            if config is None:
                continue
            del pending[node_id]
            configs[node_id] = config
            until_s = min(until_s, monotonic_s() + max(OTHERS_S, monotonic_s() - began_s))
        if all(future.done() for future in pending.values()):
            break
    if not configs:
        advertised = ", ".join(f"{brokers[node_id].host}:{brokers[node_id].port}" for node_id in pending)
        raise calls.unanswered(f"asking the brokers at the addresses that they advertise: {advertised}")
    silent = {node_id: _silence(calls, node_id, brokers[node_id]) for node_id in pending}
    return BrokerConfigs({node_id: config for node_id, config in configs.items() if config}, silent)


def _asked(calls: AdminCalls, node_id: int) -> Future[Any]:
    broker = ConfigResource(ConfigResource.Type.BROKER, str(node_id))
    [future] = calls.client.describe_configs([broker], request_timeout=calls.timeout_s).values()
    return future


def _answer(future: Future[Any]) -> Mapping[str, str] | None:
    """Return the settings; none if the user may not see them; None if the broker did not answer."""
    error = future.exception()
    if error is None:
        return {name: each.value for name, each in future.result().items() if each.value is not None}
    if not isinstance(error, KafkaException):
        raise error
    code = kafka_error(error).code()
    if code in NOT_ALLOWED:
        return {}
    if code not in NO_ANSWER:
        raise error
    return None


def _silence(calls: AdminCalls, node_id: int, broker: BrokerMetadata) -> str:
    why = calls.reports.of_broker(node_id)
    return f"{broker.host}:{broker.port}" + (f" ({why})" if why else "")
