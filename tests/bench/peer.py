"""The peer: Debezium's PostgreSQL connector on a Kafka Connect worker, with the settings of an expert.

Before: `servers.jars` fetches the jars that `peer.lock` lists; `avro_registry` serves the Avro converter.
After: `contestants` measures it.
Source: Debezium 3.7 "Debezium connector for PostgreSQL"; Kafka 4.3 "Kafka Connect", "Exactly-once support".

After a change of a version below, `python tests/bench/peer.py lock` writes `peer.lock` again.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
import servers  # noqa: E402
from servers import jars, processes  # noqa: E402

CONNECT = f"connect-{jars.KAFKA}"
DEBEZIUM = "debezium-3.7.0.Final"  # Maven Central lacks the parent of 3.7.1.Final
APICURIO = "apicurio-converter-2.6.13.Final"  # and the parent of 3.0.9, the only newer one
ENDPOINTS = (
    (CONNECT, f"org.apache.kafka:connect-runtime:{jars.KAFKA}"),
    (CONNECT, "org.slf4j:slf4j-simple:1.7.36"),
    (DEBEZIUM, "io.debezium:debezium-connector-postgres:3.7.0.Final"),
    (APICURIO, "io.apicurio:apicurio-registry-utils-converter:2.6.13.Final"),
)
WORKER_HAS = ("org.apache.kafka:", "org.slf4j:", "com.github.luben:", "at.yawk.lz4:", "org.lz4:", "org.xerial.snappy:")
"""Jars that are left out of a plugin, because the worker has them."""
LOCK = HERE / "peer.lock"
AVRO_CONVERTER = "io.apicurio.registry.utils.converter.AvroConverter"

HEAP = ("-Xms1g", "-Xmx2g")
JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Kafka's own flags for Connect (bin/kafka-run-class.sh), with the heap of bin/connect-distributed.sh."""

Kind = Literal["json", "avro", "exactly-once"]


@dataclass(frozen=True)
class Task:
    """The task of a contestant: stream from a slot of a server to topics with a prefix."""

    postgres: servers.PostgreSQL
    kafka: servers.Kafka
    slot: str
    publication: str
    prefix: str
    partitions: int = 4
    record_mb: int = 1
    """The largest record, in megabytes."""
    streaming: str = "off"
    binary: bool = True
    quick: bool = False
    """Whether latency counts, and not throughput."""


class Connect(processes.Server):
    """A worker with one connector. It is standalone; for exactly once it is distributed, because standalone lacks it.

    The connector streams some seconds after the start, when the slot is active.
    """

    def __init__(self, task: Task, kind: Kind, registry_url: str = "") -> None:
        super().__init__(
            f"connect-{kind}", home=task.kafka.home, data=None, port=None, python=sys.executable,
            say=jars.say_on_stderr,
        )  # fmt: skip
        self._task = task
        self._distributed = kind == "exactly-once"
        self._plugins = (DEBEZIUM, APICURIO) if kind == "avro" else (DEBEZIUM,)
        self._connector = connector(task, kind, registry_url)

    def _prepare(self) -> list[str]:
        classes, *plugins = (
            jars.install_jars(name, self.home, lock=LOCK, python=self.python, say=self.say)
            for name in (CONNECT, *self._plugins)
        )
        for plugin in plugins:
            folder = self.directory / "plugins" / plugin.name
            folder.mkdir(parents=True)
            for jar in plugin.iterdir():
                (folder / jar.name).symlink_to(jar)
            if plugin.name == APICURIO:  # the plugin has no manifest; bin/connect-plugin-path.sh would write this one
                with zipfile.ZipFile(folder / "manifest.jar", "w") as archive:
                    archive.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", AVRO_CONVERTER)
        settings = worker(self._task, self._distributed, self.port, self.directory)
        properties = self.directory / "worker.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        connector_file = self.directory / "connector.json"
        connector_file.write_text(json.dumps({"name": "peer", "config": self._connector}))
        main = "ConnectDistributed" if self._distributed else "ConnectStandalone"
        return [
            jars.find_java(self.python), *HEAP, *JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp", f"{classes}/*",
            f"org.apache.kafka.connect.cli.{main}", str(properties),
            *([] if self._distributed else [str(connector_file)]),
        ]  # fmt: skip

    def check(self) -> None:
        """Raise ServerError if the connector or its task has failed: the worker does not end then."""
        status = self._ask("GET", "/connectors/peer/status")
        if status and '"FAILED"' in status:
            raise jars.ServerError(f"{self.name}: {json.loads(status)}")

    def _ready(self) -> bool:
        """Whether the worker answers; if it is distributed, whether it has accepted the connector."""
        if self._distributed:
            return self._ask("PUT", "/connectors/peer/config", self._connector) is not None
        return self._ask("GET", "/") is not None

    def _ask(self, method: str, path: str, body: dict[str, str] | None = None) -> str | None:
        """The answer of the worker's REST server; None while there is no answer, or nothing at `path`."""
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


def worker(task: Task, distributed: bool, port: int, folder: Path) -> dict[str, object]:
    """The worker's properties."""
    shared: dict[str, object] = {
        "bootstrap.servers": task.kafka.bootstrap,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.path": folder / "plugins",  # with a directory for each plugin
        "plugin.discovery": "service_load",  # otherwise the worker scans every class of every jar
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",  # the connector has its own
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        # Debezium confirms to the server only flushed offsets. The default, a minute, would keep much more WAL.
        "offset.flush.interval.ms": 10_000,
    }
    if not distributed:
        return {**shared, "offset.storage.file.filename": folder / "offsets"}
    topics = {}
    for what in ("config", "offset", "status"):
        topics[f"{what}.storage.topic"] = f"{task.prefix}.connect-{what}"
        topics[f"{what}.storage.replication.factor"] = "1"
    return {
        **shared,
        **topics,
        "group.id": f"{task.prefix}.connect",
        "offset.storage.partitions": 1,
        "status.storage.partitions": 1,
        "exactly.once.source.support": "enabled",
    }


def connector(task: Task, kind: Kind, registry_url: str) -> dict[str, str]:
    """The connector's properties."""
    batch = 16_384 if task.record_mb == 1 else 32  # a queue of 65,536 values of 1 MB does not fit into 2 GB of heap
    bytes_max = task.record_mb * 2 << 20
    properties: dict[str, object] = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": 1,
        "database.hostname": "127.0.0.1",
        "database.port": task.postgres.port,
        "database.user": "postgres",
        "database.dbname": "postgres",
        "topic.prefix": task.prefix,
        "plugin.name": "pgoutput",
        "publication.name": task.publication,
        "publication.autocreate.mode": "disabled",
        "slot.name": task.slot,
        "slot.drop.on.stop": "false",
        "snapshot.mode": "no_data",  # from the slot's position on, as with the others
        "tombstones.on.delete": "false",  # as in cdcd
        "provide.transaction.metadata": "false",
        # Without it, Debezium reads a table's schema again for every update with an unchanged TOASTed value.
        "schema.refresh.mode": "columns_diff_exclude_unchanged_toast",
        "topic.creation.default.partitions": task.partitions,
        "topic.creation.default.replication.factor": 1,
        # A batch is taken when it is full or when this time is over, so a change waits this long. Debezium also pauses
        # this long after five reads of the socket without data.
        "poll.interval.ms": 1 if task.quick else 100,
        "max.batch.size": 2_048 if task.quick else batch,
        "max.queue.size": 8_192 if task.quick else 4 * batch,
        # Connect's own default is one request in flight, without idempotence.
        "producer.override.enable.idempotence": "true",
        "producer.override.acks": "all",
        "producer.override.max.in.flight.requests.per.connection": 5,
        "producer.override.linger.ms": 0 if task.quick else 20,
        "producer.override.batch.size": 16_384 if task.quick else 524_288,
        "producer.override.buffer.memory": 134_217_728,
        "producer.override.max.request.size": max(bytes_max, 1 << 20),
        "producer.override.compression.type": "lz4",  # as in cdcd
    }
    if kind == "exactly-once":
        # One Kafka transaction for each batch that is polled.
        properties |= {"exactly.once.support": "required", "transaction.boundary": "poll"}
    for part in ("key", "value"):
        converter = f"{part}.converter"
        if kind == "avro":
            properties |= {
                converter: AVRO_CONVERTER,
                f"{converter}.apicurio.registry.url": registry_url,
                f"{converter}.apicurio.registry.auto-register": "true",
                # As with Confluent's registry: the schema's number is in the record (four bytes), not in a header.
                f"{converter}.apicurio.registry.as-confluent": "true",
                f"{converter}.apicurio.registry.headers.enabled": "false",
                "schema.name.adjustment.mode": "avro",
            }
        else:
            properties |= {
                converter: "org.apache.kafka.connect.json.JsonConverter",
                f"{converter}.schemas.enable": "false",  # otherwise each record has its schema
            }
    return {key: str(value) for key, value in properties.items()}


def _write_lock() -> None:
    rows = [f"# Written by `python {Path(__file__).name} lock`: program, SHA-256 of the jar, Maven coordinate."]
    for name, endpoint in ENDPOINTS:
        for row in jars.lock_rows(name, endpoint):
            if row not in rows and (name == CONNECT or not row.split()[2].startswith(WORKER_HAS)):
                rows.append(row)
    LOCK.write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    if sys.argv[1:] != ["lock"]:
        sys.exit(f"usage: {sys.argv[0]} lock")
    _write_lock()
