"""Puts schemas into a Confluent-compatible registry, under the subjects `{topic}-key` and `{topic}-value`.

Before: `schema` makes the JSON text of a relation's schemas. `schema_store` has the base class.
After: `event_encoder` starts every record with 00 and the schema's id, in Confluent's wire format.
Source: Confluent, "Schema Registry: Wire format". The client of `confluent-kafka[schemaregistry]` talks to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from cdcd.avro.schema_store import SchemaStore
from cdcd.errors import KafkaUnavailable, RequestRejected, Unpublishable, without_password
from cdcd.schema_registry_client import registry_client

_CONFLICT = 409
_LATER = (408, 429)
_SERVER_ERROR = 500
_INVALID = 42201


class RegistryStore(SchemaStore):
    """Registers a schema under its topic's subject. The registry checks that it is compatible with earlier ones."""

    def __init__(
        self, url: str, topic_of: Callable[[str, str], str], extra: Mapping[str, object] | None = None
    ) -> None:
        """`topic_of(schema, name)` gives the table's topic. `extra` has more properties of the client.

        Raises what `registry_client` raises.
        """
        self._shown_url = without_password(url)
        self._topic_of = topic_of
        self._client = registry_client({"url": url, **(extra or {})})

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        full_subject = f"{self._topic_of(schema, name)}-{subject}"
        try:
            schema_id = self._client.register_schema(full_subject, Schema(text, "AVRO"))
            return b"\x00" + schema_id.to_bytes(4, "big")
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status >= _SERVER_ERROR or status in _LATER:
                raise self._unavailable(error) from error
            if status == _CONFLICT or error.error_code == _INVALID:
                why = "invalid for" if error.error_code == _INVALID else self._incompatible_with(full_subject)
                raise Unpublishable(
                    f"the registry refuses the new schema of {schema}.{name} as {why} subject {full_subject}; nothing "
                    "was published with it",
                    "Allow the change (set the subject's compatibility to NONE for a moment) or undo it in PostgreSQL: "
                    f"{error.error_message}",
                    table=(schema, name),
                ) from error
            raise RequestRejected(
                f"the registry at {self._shown_url} refuses subject {full_subject}: {error.error_message}",
                "Check the registry's URL, credentials and rights",
            ) from error
        except Exception as error:  # the client also raises errors of its HTTP library, and of its JSON parser
            raise self._unavailable(error) from error

    def ask(self) -> None:
        """Ask for the compatibility level, which every registry has. Raises KafkaUnavailable if none comes."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            self._client.get_compatibility()
        except SchemaRegistryError as error:
            if error.http_status_code >= _SERVER_ERROR:
                raise self._unavailable(error) from error
        except Exception as error:  # the client also raises errors of its HTTP library, and of its JSON parser
            raise self._unavailable(error) from error

    def _incompatible_with(self, full_subject: str) -> str:
        try:
            return f"incompatible with version {self._client.get_latest_version(full_subject).version} of"
        except Exception:  # noqa: BLE001  # the role may not read; the caller reports the conflict
            return "incompatible with earlier versions of"

    def _unavailable(self, error: Exception) -> KafkaUnavailable:
        message = without_password(str(error))
        return KafkaUnavailable(
            f"the schema registry at {self._shown_url} does not answer: {message}",
            "Look at the registry, and at avro.registry_url",
        )
