"""The client of a Confluent-compatible schema registry, and what it says, fit for people to see.

Before: the daemon, the commands and Spark have its properties. After: the registry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cdcd.errors import SettingsError, without_password

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_DEFAULTS: Final = {"timeout": 5, "max.retries": 1}
"""Whoever asks has a server waiting: seconds until a request is given up (the client has no bound), and repeats of it
(the client has 3)."""


def registry_client(config: Mapping[str, Any]) -> SchemaRegistryClient:
    """A client with these properties, `url` at least; nothing is asked yet.

    What its calls raise may hold the URL's password: show it by `errors.without_password`.
    Raises SettingsError if it is not installed, or refuses them.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as missing:
        raise SettingsError(
            "a schema registry is set, but its client is not installed",
            "Install it with: pip install 'confluent-kafka[schemaregistry]'",
        ) from missing
    try:
        return SchemaRegistryClient({**_DEFAULTS, **config})
    except (ValueError, TypeError) as refused:
        raise SettingsError(
            f"the schema registry's client refuses its settings: {without_password(str(refused))}",
            "Correct the registry's URL, such as http://localhost:8081, or its properties "
            "(avro.registry_url and avro.registry_config)",
        ) from None
