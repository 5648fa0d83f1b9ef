#!/usr/bin/env python3
"""Kafka Connect on loopback: one worker, with plugins of which each has its own directory of pinned jars.

Before: `jars` fetches the jars that `connect.lock` lists, `processes` runs the worker. After: `bench/peer.py` measures
Debezium's connector, `golden/debezium` records its events.
Source: Kafka 4.3 "Kafka Connect"; Debezium 3.7 "Debezium connector for PostgreSQL"; Apicurio Registry 2.6 "Kafka
Connect converters".

After a change of a version below, `python tests/servers/connect.py lock` writes `connect.lock` again.
"""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.error
import urllib.request
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from servers import jars, processes
from servers.kafka import FAST_START, Kafka, KafkaCluster

CONNECT = f"connect-{jars.KAFKA}"
DEBEZIUM_VERSION = "3.7.0.Final"  # Maven Central lacks the parent of 3.7.1.Final
DEBEZIUM = f"debezium-{DEBEZIUM_VERSION}"
JDBC_SINK = "debezium-jdbc-3.5.0.Final"  # Maven Central lacks a dependency of 3.6.0.Final, the only newer one
APICURIO = "apicurio-converter-2.6.13.Final"  # and the parent of 3.0.9, the only newer one
ENDPOINTS = (
    (CONNECT, f"org.apache.kafka:connect-runtime:{jars.KAFKA}"),
    (CONNECT, "org.slf4j:slf4j-simple:1.7.36"),
    (DEBEZIUM, f"io.debezium:debezium-connector-postgres:{DEBEZIUM_VERSION}"),
    (JDBC_SINK, "io.debezium:debezium-connector-jdbc:3.5.0.Final"),
    (APICURIO, "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final"),
)
WORKER_HAS = ("org.apache.kafka:", "org.slf4j:", "com.github.luben:", "at.yawk.lz4:", "org.lz4:", "org.xerial.snappy:")
"""Jars that are left out of a plugin, because the worker has them."""
JDBC_SINK_LACKS = (
    "com.mysql:", "org.mariadb.jdbc:", "com.microsoft.sqlserver:", "com.oracle.database.jdbc:",
    "com.fasterxml.jackson.core:",  # Hibernate loads the worker's modules of Jackson, which need the worker's Jackson
)  # fmt: skip
"""Jars that are left out of the JDBC sink."""
LOCK = Path(__file__).with_name("connect.lock")

POSTGRES_CONNECTOR = "io.debezium.connector.postgresql.PostgresConnector"
JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"

_MANIFESTS = {APICURIO: ("org.apache.kafka.connect.storage.Converter", AVRO_CONVERTER)}
"""Plugins without a manifest: the one that bin/connect-plugin-path.sh would write."""


class Connect(processes.Server):
    """A worker. It is standalone, unless `group` names a distributed worker's group (and its three topics).

    It is ready when it has accepted the `connectors`. They start some seconds later, on their own. `plugins` are names
    of `connect.lock`. `settings` are worker properties, which win.
    """

    def __init__(
        self,
        kafka: Kafka | KafkaCluster,
        plugins: Sequence[str],
        *,
        connectors: Mapping[str, Mapping[str, str]] | None = None,
        group: str | None = None,
        settings: Mapping[str, str] | None = None,
        jvm: Sequence[str] = ("-Xmx1g", *FAST_START),
        python: str = sys.executable,
        say: jars.Say = jars.say_on_stderr,
    ) -> None:
        """Take the settings. `connectors` are the connectors' properties by their names."""
        name = f"connect-{group}" if group else "connect"
        super().__init__(name, home=kafka.home, data=None, port=None, python=python, say=say)
        self.connectors = {name: dict(properties) for name, properties in (connectors or {}).items()}
        self._kafka = kafka
        self._plugins = plugins
        self._group = group
        self._settings = settings or {}
        self._jvm = jvm

    def check(self) -> None:
        """Raise ServerError if a connector or its task has failed: the worker does not end then."""
        for name in self.connectors:
            status = self.ask("GET", f"/connectors/{name}/status")
            if status and '"FAILED"' in status:
                raise jars.ServerError(f"{self.name}: {json.loads(status)}")

    def _prepare(self) -> list[str]:
        classes = self._install(CONNECT)
        for plugin in self._plugins:
            folder = self.directory / "plugins" / plugin
            folder.mkdir(parents=True, exist_ok=True)
            for jar in self._install(plugin).iterdir():
                with contextlib.suppress(FileExistsError):  # the worker is started again
                    (folder / jar.name).symlink_to(jar)
            if plugin in _MANIFESTS:
                service, implementation = _MANIFESTS[plugin]
                with zipfile.ZipFile(folder / "manifest.jar", "w") as archive:
                    archive.writestr(f"META-INF/services/{service}", implementation)
        properties = self.directory / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        main = "ConnectDistributed" if self._group else "ConnectStandalone"
        return [
            jars.find_java(self.python), *self._jvm, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", f"{classes}/*",
            f"org.apache.kafka.connect.cli.{main}", str(properties),
        ]  # fmt: skip

    def _install(self, name: str) -> Path:
        return jars.install_jars(name, self.home, lock=LOCK, python=self.python, say=self.say)

    def _properties(self) -> dict[str, object]:
        shared: dict[str, object] = {
            "bootstrap.servers": self._kafka.bootstrap,
            "listeners": f"http://127.0.0.1:{self.port}",
            "plugin.path": self.directory / "plugins",
            "plugin.discovery": "service_load",  # otherwise the worker scans every class of every jar
            "key.converter": JSON_CONVERTER,  # a connector may have its own
            "value.converter": JSON_CONVERTER,
        }
        if not self._group:
            return {**shared, "offset.storage.file.filename": self.directory / "offsets", **self._settings}
        topics = {}
        for what in ("config", "offset", "status"):
            topics[f"{what}.storage.topic"] = f"{self._group}-{what}"
            topics[f"{what}.storage.replication.factor"] = "-1"  # the brokers' default
        return {
            **shared,
            **topics,
            "group.id": self._group,
            "offset.storage.partitions": 1,
            "status.storage.partitions": 1,
            **self._settings,
        }

    def _ready(self) -> bool:
        """Whether the worker has accepted the connectors."""
        if self.ask("GET", "/") is None:
            return False
        return all(
            self.ask("PUT", f"/connectors/{name}/config", properties) is not None
            for name, properties in self.connectors.items()
        )

    def ask(self, method: str, path: str, body: Any = None) -> str | None:
        """Return the answer of the worker's REST server; None while there is none, or nothing at `path`."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as answer:
            if answer.code == 400:
                raise jars.ServerError(f"{self.name} refuses the connector: {answer.read().decode()}") from None
            return None
        except OSError:
            return None


def json_converter(part: str, *, schemas: bool) -> dict[str, str]:
    """Return a connector's properties for Connect's JSON. `part` is "key", "value" or "header"."""
    return {f"{part}.converter": JSON_CONVERTER, f"{part}.converter.schemas.enable": str(schemas).lower()}


def avro_converter(part: str, registry_url: str) -> dict[str, str]:
    """Return a connector's properties for Avro in Confluent's framing: a zero byte, the schema's number, the record.

    `registry_url` is that of Apicurio's own API, version 2.
    """
    prefix = f"{part}.converter"
    return {
        prefix: AVRO_CONVERTER,
        f"{prefix}.apicurio.registry.url": registry_url,
        f"{prefix}.apicurio.registry.auto-register": "true",
        f"{prefix}.apicurio.registry.as-confluent": "true",
        f"{prefix}.apicurio.registry.headers.enabled": "false",
        f"{prefix}.apicurio.registry.use-id": "contentId",  # the number by which Confluent's API knows the schema
    }


def _write_lock() -> None:
    rows = [f"# Written by `python {Path(__file__).name} lock`: program, SHA-256 of the jar, Maven coordinate."]
    for name, endpoint in ENDPOINTS:
        for row in jars.lock_rows(name, endpoint):
            if row not in rows and (name == CONNECT or not row.split()[2].startswith(WORKER_HAS + JDBC_SINK_LACKS)):
                rows.append(row)
    LOCK.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["lock"]:
        sys.exit(f"usage: {sys.argv[0]} lock")
    _write_lock()
