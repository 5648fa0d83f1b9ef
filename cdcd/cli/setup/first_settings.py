"""The settings that `cdcd init` writes: the answers, and replicas as the cluster has brokers. Pure.

Before: `answers`, and `kafka` has counted the brokers. After: `config.smallest_file` writes them.
"""

from __future__ import annotations

from typing import Any, Final

from cdcd.cli.setup.answers import Answers
from cdcd.cli.setup.kafka import Cluster
from cdcd.config.layers import Layers
from cdcd.config.loading import check_sink
from cdcd.config.settings import NAMES, Settings

REPLICAS_MAX: Final = 3
IN_SYNC: Final = 2


def first_settings(given: Answers, cluster: Cluster | None) -> Settings:
    """The daemon's settings. `cluster` None: the brokers did not answer. Raises SettingsError, with the option."""
    layers = Layers(NAMES)
    values: list[tuple[str, Any, str]] = [
        ("source.dsn", given.dsn, "--dsn"),
        ("source.tables", tuple(given.tables), "--tables"),
        ("source.slot", given.slot, "--slot"),
        ("source.publication", given.publication, "--publication"),
        ("source.application_name", given.slot, "--slot"),
        ("source.messages", given.has_messages, "--no-messages"),
        ("sink.bootstrap_servers", given.brokers, "--brokers"),
        ("sink.prefix", given.prefix, "--prefix"),
        ("sink.librdkafka", given.properties, "--kafka"),
    ]
    if given.port is not None:
        values.append(("monitoring.port", given.port, "--port"))
    if cluster is not None and cluster.brokers > 1:
        replicas = min(REPLICAS_MAX, cluster.brokers)
        values.append(("sink.replication_factor", replicas, "Kafka"))
        if replicas > IN_SYNC > cluster.in_sync:
            values.append(("sink.topic_config", {"min.insync.replicas": str(IN_SYNC)}, "Kafka"))
    layers.add(values)
    settings = layers.validated().settings
    check_sink(settings)
    return settings
