"""A broker that tells those who come through the proxy to stay there; others find it as any.

Before: `servers`, which has the broker. After: the chaos runs, and tests of connections to Kafka that break.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import servers

from support.proxy import Proxy


@contextmanager
def proxied_kafka(settings: Mapping[str, str] | None = None) -> Iterator[tuple[servers.Kafka, Proxy]]:
    """Yield the broker, with these server properties, and the proxy before it."""
    kafka = servers.Kafka(settings=settings, listeners={"PROXIED": "PLAINTEXT"})
    with Proxy(int(kafka.address("PROXIED").rpartition(":")[2])) as proxy:
        kafka.settings["advertised.listeners"] = f"PLAINTEXT://{kafka.bootstrap},PROXIED://127.0.0.1:{proxy.port}"
        with kafka:
            yield kafka, proxy
