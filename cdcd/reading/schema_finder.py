"""Finds the schema of a record: by its fingerprint on the schemas topic, or by its id in a registry.

Before: `decoder` has read the id of a schema from a record. After: `decoder` parses the schema's JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from cdcd.avro.schema_bounds import published_schema
from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError, DecodeError, KafkaUnavailable, SettingsError, without_password
from cdcd.reading.consumer import BEGINNING, TopicReader
from cdcd.reading.decoder import SchemaId
from cdcd.schema_registry_client import registry_client
from cdcd.sink.kafka.errors import TRY_AGAIN

_BATCH_ROWS: Final = 500

KEPT_CHARACTERS_MAX: Final = 64 << 20
"""The texts that are kept: the oldest are dropped beyond it, and read again when they are wanted."""

SCHEMA_WAIT_S: Final = 5.0
"""How long to wait for a schema. Kafka commits it with its first event, but may show it a moment later."""


class SchemaFinder:
    """Finds schemas, and keeps them. For one thread.

    On the schemas topic it passes over what no daemon has written: a text whose fingerprint is not the record's key, or
    that is larger than any schema.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        topic: str,
        registry: Mapping[str, Any] | None,
        clock: Callable[[], float] = monotonic_s,
        known: Mapping[SchemaId, str] = MappingProxyType({}),
    ) -> None:
        """`config`: the Kafka client's properties. `topic`: the schemas topic. `registry`: its client's properties.

        `known`: texts that are nowhere else.
        """
        self._config = config
        self._topic = topic
        self._registry = registry
        self._clock = clock
        self._known = known
        self._texts: dict[SchemaId, str] = {}
        self._characters = 0

    def find(self, identifier: SchemaId) -> str:
        """The JSON text of a schema. Raises DecodeError if it is not found, SettingsError if `registry` is missing."""
        if identifier in self._known:
            return self._known[identifier]
        if identifier not in self._texts:
            if isinstance(identifier, int):
                self._keep(identifier, self._from_registry(identifier))
            else:
                self._read_topic(identifier)
        return self._texts[identifier]

    def _read_topic(self, wanted: SchemaId) -> None:
        """Read the topic from its start until the wanted schema comes, and keep every schema on the way."""
        deadline_s = self._clock() + SCHEMA_WAIT_S
        ended = set[int]()
        with TopicReader(self._config, on_end=lambda partition, _: ended.add(partition)) as reader:
            partitions = reader.partitions(self._topic)
            reader.assign((self._topic, partition, BEGINNING) for partition in partitions)
            while wanted not in self._texts:
                if self._clock() > deadline_s:
                    raise self._not_found(wanted, is_complete=len(ended) == len(partitions))
                for message in reader.read(_BATCH_ROWS, skip_errors=True):
                    key, value = message.key(), message.value()
                    text = None if key is None or value is None else published_schema(bytes(key), bytes(value))
                    if key is not None and text is not None:
                        self._keep(bytes(key).decode(), text)

    def _keep(self, identifier: SchemaId, text: str) -> None:
        if identifier in self._texts:
            return
        self._texts[identifier] = text
        self._characters += len(text)
        while self._characters > KEPT_CHARACTERS_MAX and len(self._texts) > 1:
            self._characters -= len(self._texts.pop(next(iter(self._texts))))

    def _not_found(self, wanted: SchemaId, *, is_complete: bool) -> CdcdError:
        if not is_complete:
            return KafkaUnavailable(
                f"{self._topic} could not be read to its end in {SCHEMA_WAIT_S:.0f} s",
                TRY_AGAIN,
                code="kafka-unavailable",
            )
        hint = f"Is sink.prefix the one of the daemon that wrote it? Its schemas are on {self._topic}"
        return DecodeError(f"There is no schema {wanted} on {self._topic}", hint, code="schema-unknown")

    def _from_registry(self, identifier: int) -> str:
        if self._registry is None:
            raise SettingsError(
                f"A record names schema {identifier} of a registry, and avro.registry_url is not set",
                "Set it to the URL of the registry that the writer of the record uses",
                code="registry-not-set",
            )
        client = registry_client(self._registry)
        try:
            return str(client.get_schema(identifier).schema_str)
        except Exception as error:  # the client raises whatever its HTTP library raises
            hint = "Check avro.registry_url and avro.registry_config"
            reason = without_password(str(error))
            raise DecodeError(
                f"The schema registry does not give schema {identifier}: {reason}", hint, code="schema-unknown"
            ) from error
