"""A broker with a proxy in front, and a listener for clients that come through it: they stay with the proxy.

Before: `servers` starts the broker. After: the chaos runs, and tests that break connections to Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import servers

from support.proxy import Proxy


@contextmanager
def proxied_kafka(
    settings: Mapping[str, str] | None = None, version: str | None = None
) -> Iterator[tuple[servers.Kafka, Proxy]]:
    """Start the broker, with these server properties, and the proxy in front of it."""
    kafka = servers.Kafka(version, settings=settings, listeners={"PROXIED": "PLAINTEXT"})
    with Proxy(kafka.port_of("PROXIED")) as proxy:
        kafka.settings["advertised.listeners"] = f"PLAINTEXT://{kafka.bootstrap},PROXIED://127.0.0.1:{proxy.port}"
        with kafka:
            yield kafka, proxy
