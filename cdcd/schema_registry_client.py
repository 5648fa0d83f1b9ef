"""Makes the client of a Confluent-compatible schema registry.

Before: the daemon, the commands and `cdcd spark` have the client's properties. After: they send requests with the
client.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cdcd.errors import SettingsError, without_password

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

_DEFAULTS: Final = {"timeout": 5, "max.retries": 1}
"""Seconds that a request may take, and how often it is repeated. PostgreSQL waits meanwhile, and the client's own
defaults are long: no limit, 3 repeats."""

FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
"""The properties that name files. A client reads them once, when it is made."""


def registry_client(config: Mapping[str, Any]) -> SchemaRegistryClient:
    """A client with these properties, at least `url`. It sends no request yet.

    Errors of its calls may contain the URL's password: pass them through `errors.without_password`.
    Raises SettingsError if the client is not installed, or if it refuses the properties.
    """
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as missing:
        raise SettingsError(
            "a schema registry is set, but its client is not installed",
            "Install it with: pip install 'cdcd[registry]'",
            code="registry-client-missing",
        ) from missing
    try:
        return SchemaRegistryClient({**_DEFAULTS, **config})
    except OSError as unusable:
        files = ", ".join(f"{name} = {config[name]}" for name in FILES if name in config)
        raise SettingsError(
            f"the schema registry's client cannot use its files: {unusable}",
            f"Check in avro.registry_config: {files}",
            code="registry-config-invalid",
        ) from None
    except (ValueError, TypeError) as refused:
        raise SettingsError(
            f"the schema registry's client refuses its settings: {without_password(str(refused))}",
            "Correct the registry's URL, such as http://localhost:8081, or its properties "
            "(avro.registry_url and avro.registry_config)",
            code="registry-config-invalid",
        ) from None
