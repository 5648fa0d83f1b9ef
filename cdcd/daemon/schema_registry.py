"""The schema registry, by the settings: for the records of the stream, and for parked records that are replayed.

Before: the settings name the registry, or none.
After: `avro.registry_store` asks the registry; without one the schemas travel in Kafka.
"""

from __future__ import annotations

from cdcd.avro.registry_store import RegistryStore
from cdcd.config.settings import Settings
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.kafka.client_config import client_config
from cdcd.sink.parking.registry_headers import RegistryHeaders
from cdcd.sink.topics import TopicNames


def registry_store(settings: Settings, names: TopicNames) -> RegistryStore | None:
    """The store of the registry; None without a registry. Raises SettingsError for properties it does not know."""
    avro = settings.avro
    if avro.registry_url is None:
        return None
    return RegistryStore(avro.registry_url, names.topic, avro.registry_config)


def registry_headers(settings: Settings, names: TopicNames) -> RegistryHeaders | None:
    """Translates replayed records' headers to the registry's; None without a registry. Raises as `registry_store`."""
    registry = registry_store(settings, names)
    if registry is None:
        return None
    sink = settings.sink
    config = client_config(sink.bootstrap_servers, settings.source.application_name, sink.librdkafka)
    return RegistryHeaders(registry, SchemaFinder(config, names.schemas, None).find)
