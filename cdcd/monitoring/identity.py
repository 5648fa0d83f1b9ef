"""Who a daemon is and where it stands: its version, its machine, its database, its brokers. No password is in it.

Before: `daemon.process` has the settings; `daemon.service_watch` learns from the servers what they are.
After: the first lines of `cdcd run`, the log's first line, and `status_report` say it.
"""

from __future__ import annotations

import platform
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from psycopg.pq import Conninfo

from cdcd import __version__
from cdcd.build_info import build
from cdcd.config.settings import Settings
from cdcd.source.session import dsn_parameters
from cdcd.terminal.text_format import plural


@dataclass(frozen=True)
class Identity:
    """What one daemon knows of itself before it connects to anything."""

    version: str
    slot: str
    publication: str
    build: str = ""
    """`compiled` or `pure`."""
    machine: str = ""
    database: str = ""
    """`shop@db.example:5432`."""
    brokers: str = ""
    prefix: str = ""
    registry: str = ""
    """The registry's URL, without a user and a password; empty without a registry."""

    def fields(self) -> dict[str, str]:
        """What the log's first line has."""
        named = {
            "version": self.version,
            "build": self.build,
            "machine": self.machine,
            "database": self.database,
            "slot": self.slot,
            "publication": self.publication,
            "brokers": self.brokers,
            "prefix": self.prefix,
            "registry": self.registry,
        }
        return {name: value for name, value in named.items() if value}


class Servers:
    """What the servers said they are. Empty until they have answered. Each attribute has one writer."""

    def __init__(self) -> None:
        self.postgresql = ""
        """`PostgreSQL 18.6`."""
        self.kafka = ""
        """`cluster 5L6g3nShT-eMCtK--X86sw, 3 brokers`."""


def identity_of(settings: Settings) -> Identity:
    """The identity of a daemon with these settings."""
    source, sink = settings.source, settings.sink
    return Identity(
        __version__,
        source.slot,
        source.publication,
        build(),
        socket.gethostname(),
        database(source.dsn),
        sink.bootstrap_servers,
        sink.prefix,
        _without_user(settings.avro.registry_url or ""),
    )


def database(dsn: str) -> str:
    """The database, the servers and the ports of a DSN, with what libpq adds from the environment: `shop@db:5432`."""
    options = Conninfo.get_defaults()
    defaults = {each.keyword.decode(): each.val.decode(errors="replace") for each in options if each.val}
    given = {**defaults, **dsn_parameters(dsn)}
    hosts = (given.get("host") or given.get("hostaddr") or "local socket").split(",")
    ports = given.get("port", "").split(",")
    if len(ports) != len(hosts):
        ports = ports[:1] * len(hosts)
    servers = ",".join(f"{host}:{port}" if port else host for host, port in zip(hosts, ports, strict=True))
    return f"{given.get('dbname') or given.get('user', '')}@{servers}"


def kafka_cluster(cluster_id: str, brokers: int) -> str:
    """`cluster 5L6g3nShT-eMCtK--X86sw, 3 brokers`."""
    return f"cluster {cluster_id}, {plural(brokers, 'broker')}" if cluster_id else plural(brokers, "broker")


def lines(identity: Identity, servers: Servers, url: str) -> list[str]:
    """The five lines with which `cdcd run` begins on a terminal."""
    postgresql = f" ({servers.postgresql})" if servers.postgresql else ""
    kafka = f" ({servers.kafka})" if servers.kafka else ""
    built = f" ({identity.build})" if identity.build else ""
    registry = f", schemas in {identity.registry}" if identity.registry else ""
    return [
        f"cdcd {identity.version}{built}, Python {platform.python_version()}, on {identity.machine}",
        f"from   {identity.database}{postgresql}, slot {identity.slot}, publication {identity.publication}",
        f"to     {identity.brokers}{kafka}, prefix {identity.prefix}{registry}",
        f"page   {url}  (on a terminal: cdcd top)",
        "stop   Ctrl-C: the daemon finishes what it has begun, and ends",
    ]


def _without_user(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
