"""Finds connections without TLS, or without verification of the server. It reads the settings only.

Before: the daemon or `preflight` has the settings. After: it warns.
Source: libpq, "SSL Support" (sslmode); librdkafka CONFIGURATION.md.

A connection to this machine needs no TLS. But if a setting asks for TLS, the server must be verified, on this machine,
too: without that, any other process could pose as the server.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

_LOCAL = re.compile(r"|/.*|@.*|localhost|127\.\d+\.\d+\.\d+|\[?::1\]?")


def insecure_connections(
    dsns: Mapping[str, Mapping[str, str]], bootstrap: str, properties: Mapping[str, object], registry_url: str | None
) -> Iterator[tuple[str, str]]:
    """Each connection that is not protected, with a hint. `dsns`: by setting, the parameters of the DSN, by name."""
    for setting, dsn in dsns.items():
        yield from _postgres(dsn, setting)
    yield from _kafka(bootstrap, properties)
    if registry_url is not None:
        url = urlsplit(registry_url)
        if url.scheme == "http" and not _LOCAL.fullmatch(url.hostname or ""):
            yield "The schema registry is reached without TLS", "Write avro.registry_url with https://"


def _postgres(parameters: Mapping[str, str], setting: str) -> Iterator[tuple[str, str]]:
    mode = parameters.get("sslmode") or os.environ.get("PGSSLMODE", "")
    hosts = (parameters.get("host") or parameters.get("hostaddr") or os.environ.get("PGHOST", "")).split(",")
    if mode in ("verify-full", "verify-ca") or parameters.get("gssencmode") == "require":
        return
    if all(map(_LOCAL.fullmatch, hosts)) and mode in ("", "disable"):
        return
    yield (
        f"PostgreSQL's certificate is not verified (sslmode={mode or 'prefer'})",
        f"Set sslmode=verify-full and sslrootcert=FILE (or =system) in {setting}",
    )


def _kafka(bootstrap: str, properties: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    values = {name: str(value).lower() for name, value in properties.items()}
    encrypted = values.get("security.protocol", "plaintext") in ("ssl", "sasl_ssl")
    brokers = [broker.strip().rpartition(":")[0] for broker in bootstrap.split(",")]
    if encrypted and values.get("enable.ssl.certificate.verification") in ("false", "0"):
        yield (
            "Kafka's certificates are not verified (enable.ssl.certificate.verification=false)",
            "Remove it from sink.librdkafka, and set ssl.ca.location",
        )
    elif encrypted and values.get("ssl.endpoint.identification.algorithm") == "none":
        yield (
            "Kafka's host names are not verified (ssl.endpoint.identification.algorithm=none)",
            "Remove it from sink.librdkafka, and give the brokers certificates for their names",
        )
    elif not encrypted and not all(map(_LOCAL.fullmatch, brokers)):
        yield (
            "Kafka is reached without TLS",
            'Set "security.protocol" = "SASL_SSL" (or "SSL") and "ssl.ca.location" under sink.librdkafka',
        )
