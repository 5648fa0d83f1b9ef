"""The schema registry, by the settings: for the records of the stream, and for parked records that are replayed.

Before: the settings name the registry, or none.
After: `avro.registry_store` waits for its answers; without one the schemas travel in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Thread

from cdcd.avro.registry_ids import RegistryIds
from cdcd.avro.registry_newest import NewestSchemas
from cdcd.avro.registry_patience import RegistryPatience, Wait
from cdcd.avro.registry_requests import RegistryRequests
from cdcd.avro.registry_store import RegistryStore
from cdcd.avro.registry_subjects import SubjectNames
from cdcd.config.settings import Settings
from cdcd.outbox.avro_payloads import AvroPayloads
from cdcd.progress.schema_ids import SchemaId
from cdcd.reading.schema_finder import SchemaFinder
from cdcd.sink.batches import Message
from cdcd.sink.kafka.client_config import client_config
from cdcd.sink.parking.registry_headers import RegistryHeaders
from cdcd.sink.publisher import Publisher
from cdcd.sink.topics import TopicNames


def registry_ids(
    settings: Settings, thread: Callable[[Callable[[], None], str], Thread], *, may_register: bool | None = None
) -> RegistryIds | None:
    """The ids of schemas; None without a registry. Raises SettingsError for properties that the client refuses.

    `may_register`: whatever `avro.register` says.
    """
    avro = settings.avro
    if avro.registry_url is None:
        return None
    requests = RegistryRequests(avro.registry_url, avro.registry_config)
    return RegistryIds(requests, thread, may_register=avro.register if may_register is None else may_register)


def take_over_ids(ids: RegistryIds, slot: str, recorded: Iterable[SchemaId], publisher: Publisher) -> None:
    """Take the ids that Kafka has, and let the publisher record those that it lacks."""
    url = ids.requests.url
    of_registry = [each for each in recorded if each.registry == url]
    last = max((each.generation for each in of_registry), default=0)
    ids.take_over({(e.subject, e.digest): e.schema_id for e in of_registry if e.generation == last}, last)

    def unrecorded() -> list[Message]:
        new = [SchemaId(slot, *schema, found, url, ids.generation) for schema, found in ids.unrecorded().items()]
        return [{"key": each.key(), "value": each.value()} for each in new]

    publisher.unrecorded_ids = unrecorded


def subject_names(settings: Settings) -> SubjectNames:
    """The names of the subjects."""
    return SubjectNames(settings.avro.subject_strategy, settings.topic_names().on_broker)


def avro_payloads(settings: Settings, ids: RegistryIds, wait: Wait, clock: Callable[[], float]) -> AvroPayloads | None:
    """Encodes payloads of the outbox; None: they go as they are. `wait` and `clock`: those of RegistryPatience."""
    subject, names = settings.outbox.payload_subject, settings.topic_names()
    if subject is None:
        return None
    schemas = NewestSchemas(ids, RegistryPatience(ids.requests, wait, clock))
    return AvroPayloads(subject, lambda topic: names.on_broker("", topic), schemas)


def registry_headers(settings: Settings, names: TopicNames, ids: RegistryIds | None) -> RegistryHeaders | None:
    """Translates replayed records' headers to the registry's; None without a registry."""
    if ids is None:
        return None
    sink = settings.sink
    config = client_config(sink.bootstrap_servers, settings.source.application_name, sink.client_properties)
    store = RegistryStore(ids, subject_names(settings))
    return RegistryHeaders(store, SchemaFinder(config, names.schemas, None).find)
