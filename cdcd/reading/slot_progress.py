"""Opens the progress of a slot in Kafka, for commands that run next to a daemon: they fence no producer.

Before: `cli.main` has loaded the settings.
After: `sink.kafka.progress_store` reads the records; `cdcd slot`, `snapshot`, `unpark` and `check` use them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager

from cdcd.config.settings import Settings
from cdcd.progress.records import SlotRecord
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster import KafkaCluster
from cdcd.sink.kafka.delivery import Delivery, delivery_of
from cdcd.sink.kafka.progress_store import ProgressStore
from cdcd.sink.topics import TopicSpec, own_specs, parked_spec


def kafka_connection(settings: Settings) -> KafkaConnection:
    """How the cluster that the settings name is reached."""
    sink = settings.sink
    return KafkaConnection(sink.bootstrap_servers, settings.source.application_name, sink.client_properties)


def kafka_cluster(settings: Settings) -> KafkaCluster:
    """The clients of that cluster. Raises SettingsError for properties that belong to cdcd."""
    return KafkaCluster(kafka_connection(settings))


def delivery(settings: Settings) -> Delivery:
    """The delivery mode that the settings name."""
    return delivery_of(settings.sink.delivery, settings.sink.prefix, settings.source.slot)


def progress_store(
    settings: Settings, kafka: KafkaCluster, stopping: Callable[[], bool] = lambda: False
) -> ProgressStore:
    """The progress of the slot that the settings name. If `stopping` returns True, reading ends early."""
    names = settings.topic_names()
    return ProgressStore(kafka, names, settings.source.slot, delivery(settings).rank, stopping)


@contextmanager
def open_progress(settings: Settings) -> Iterator[ProgressStore]:
    """The progress of the slot, until the context ends."""
    with closing(kafka_cluster(settings)) as kafka:
        yield progress_store(settings, kafka)


def last_record(settings: Settings) -> SlotRecord | None:
    """The last slot record; None if there is none yet. Raises KafkaUnavailable or RequestRejected."""
    with open_progress(settings) as progress:
        return progress.last_record()


def validate_sink(settings: Settings, kafka: KafkaCluster, tables: Collection[tuple[str, str]]) -> list[TopicSpec]:
    """Raise an error if librdkafka or the brokers reject the settings, or the topics of `tables` and cdcd's own.

    It fences no producer and creates no topic. Returns the topics that the cluster only allows without what they can do
    without. Raises KafkaUnavailable while Kafka does not answer.
    """
    return kafka.validate(delivery(settings).producers, *sink_specs(settings, tables))


def sink_specs(settings: Settings, tables: Collection[tuple[str, str]]) -> list[TopicSpec]:
    """The topics as the daemon would make them: cdcd's own, and those of the tables (schema, name)."""
    sink = settings.sink
    names = settings.topic_names()
    own = own_specs(names, sink.replication_factor, sink.topic_config)
    parked = parked_spec(names, sink.replication_factor, sink.topic_config)
    partitions = {names.on_broker(*table): names.partitions(*table, sink.partitions) for table in tables}
    of_tables = [
        TopicSpec(name, number, sink.replication_factor, sink.topic_config) for name, number in partitions.items()
    ]
    return [*own, parked, *of_tables]
