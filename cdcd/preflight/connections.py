"""Judges the connections to the servers: which of them TLS does not protect. Pure.

Before: the settings. After: `check` and `cdcd init` show the findings; a start of the daemon logs them.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.settings import Settings
from cdcd.config.transport_security import insecure_connections
from cdcd.preflight.findings import Finding, warning
from cdcd.source.session import dsns_by_setting


def judge(settings: Settings) -> Iterator[Finding]:
    """The connections that lack TLS, or the verification of the server."""
    source, sink = settings.source, settings.sink
    for what, hint in insecure_connections(
        dsns_by_setting(source.dsn, source.primary_dsn),
        sink.bootstrap_servers,
        sink.client_properties,
        settings.avro.registry_url,
    ):
        yield warning("tls", what, hint, code="connection-not-verified")
