"""Finds the schemas of records where the daemon put them: on the schemas topic, or in a registry.

Before: a record names its schema (`decoder`, `sink.parked_tables`). After: whoever reads it has the schema's JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError, DecodeError, KafkaUnavailable, SettingsError, without_password
from cdcd.reading.consumer import committed_consumer
from cdcd.schema_registry_client import registry_client
from cdcd.sink.kafka.errors import TRY_AGAIN, kafka_error, to_cdcd_error

if TYPE_CHECKING:  # the daemon finds schemas and decodes nothing: it does not wait for fastavro
    from cdcd.reading.decoder import SchemaId

_REQUEST_S: Final = 10.0
_BATCH_ROWS: Final = 500
_BATCH_WAIT_S: Final = 0.2

SCHEMA_WAIT_S: Final = 5.0
"""A schema is committed no later than its first event; its partition may show it a moment after."""


class SchemaFinder:
    """For one thread; keeps what it has found."""

    def __init__(self, config: Mapping[str, object], topic: str, registry: Mapping[str, Any] | None) -> None:
        self._config = config
        self._topic = topic
        self._registry = registry
        self._texts: dict[SchemaId, str] = {}

    def find(self, identifier: SchemaId) -> str:
        """The JSON text of a schema. Raises DecodeError if it is nowhere, SettingsError if a registry is needed."""
        if identifier not in self._texts:
            if isinstance(identifier, int):
                self._texts[identifier] = self._ask_registry(identifier)
            else:
                self._read_topic(identifier)
        return self._texts[identifier]

    def _read_topic(self, wanted: SchemaId) -> None:
        deadline_s = monotonic_s() + SCHEMA_WAIT_S
        consumer = committed_consumer(self._config, **{"enable.partition.eof": True})
        ended = set[int | None]()
        try:
            there = consumer.list_topics(self._topic, timeout=_REQUEST_S).topics[self._topic].partitions
            consumer.assign([TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in there])
            while wanted not in self._texts:
                if monotonic_s() > deadline_s:
                    raise self._not_found(wanted, whole=len(ended) == len(there))
                for message in consumer.consume(_BATCH_ROWS, _BATCH_WAIT_S):
                    problem, key, value = message.error(), message.key(), message.value()
                    if problem is not None and problem.code() == KafkaError._PARTITION_EOF:
                        ended.add(message.partition())
                    elif problem is None and key is not None and value is not None:
                        self._texts[bytes(key).decode()] = bytes(value).decode()
        except KafkaException as error:
            raise to_cdcd_error(
                kafka_error(error), f"reading {self._topic}", str(self._config["bootstrap.servers"])
            ) from error
        finally:
            consumer.close()

    def _not_found(self, wanted: SchemaId, *, whole: bool) -> CdcdError:
        if not whole:
            return KafkaUnavailable(f"{self._topic} could not be read to its end in {SCHEMA_WAIT_S:.0f} s", TRY_AGAIN)
        hint = f"Is sink.prefix the one of the daemon that wrote it? Its schemas are on {self._topic}"
        return DecodeError(f"There is no schema {wanted} on {self._topic}", hint)

    def _ask_registry(self, identifier: int) -> str:
        if self._registry is None:
            raise SettingsError(
                f"A record names schema {identifier} of a registry, and avro.registry_url is not set",
                "Set it to the registry that the record's writer uses",
            )
        client = registry_client(self._registry)
        try:
            return str(client.get_schema(identifier).schema_str)
        except Exception as error:  # the client raises whatever its HTTP library does
            hint = "Check avro.registry_url and avro.registry_config"
            said = without_password(str(error))
            raise DecodeError(f"The schema registry does not give schema {identifier}: {said}", hint) from error
