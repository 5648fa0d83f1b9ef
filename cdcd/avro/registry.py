"""Schemas in a Confluent-compatible registry: subjects `{topic}-key` and `{topic}-value`, Confluent's wire format.

Before: `stores.SchemaStore` says what a store does. After: every record starts with 00 and the schema's id.
Source: Confluent, "Schema Registry: Wire format"; the client of `confluent-kafka[schemaregistry]` does the talking.
"""

from __future__ import annotations

from collections.abc import Callable

from cdcd.avro.stores import SchemaStore
from cdcd.errors import BrokerLost, Refused, Unpublishable, without_password
from cdcd.registry_client import registry_client

_CONFLICT = 409
_INCOMPATIBLE = 42201


class RegistryStore(SchemaStore):
    """Registers a schema under its topic's subject; the registry checks that it fits the ones before."""

    def __init__(self, url: str, topic_of: Callable[[str, str], str], extra: dict[str, str] | None = None) -> None:
        """`topic_of(schema, name)` is the table's topic. Raises as `registry_client` does."""
        self._shown_url = without_password(url)
        self._topic_of = topic_of
        self._client = registry_client({"url": url, **(extra or {})})

    def header(self, schema: str, name: str, subject: str, text: str) -> bytes:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        full_subject = f"{self._topic_of(schema, name)}-{subject}"
        try:
            schema_id = self._client.register_schema(full_subject, Schema(text, "AVRO"))
        except SchemaRegistryError as error:
            if error.http_status_code == _CONFLICT or error.error_code == _INCOMPATIBLE:
                latest = self._client.get_latest_version(full_subject)
                raise Unpublishable(
                    f"the registry refuses the new schema of {schema}.{name} as incompatible with version "
                    f"{latest.version} of subject {full_subject}; nothing was published with it",
                    "Allow the change (set the subject's compatibility to NONE for a moment) or undo it in PostgreSQL: "
                    f"{error.error_message}",
                    table=(schema, name),
                ) from error
            raise Refused(
                f"the registry at {self._shown_url} refuses subject {full_subject}: {error.error_message}",
                "Check the registry's URL, credentials and rights",
            ) from error
        except Exception as error:  # the client raises whatever its HTTP library does
            said = without_password(str(error))
            raise BrokerLost(
                f"the schema registry at {self._shown_url} does not answer: {said}",
                "Look at the registry, and at avro.registry_url",
            ) from error
        return b"\x00" + schema_id.to_bytes(4, "big")
