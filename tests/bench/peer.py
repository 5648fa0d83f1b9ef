"""The peer: Debezium's PostgreSQL connector on a Kafka Connect worker, with the settings of an expert.

Before: `servers.connect` runs the worker; `avro_registry` serves the Avro converter.
After: `contestants` measures it.
Source: Debezium 3.7 "Debezium connector for PostgreSQL"; Kafka 4.3 "Kafka Connect", "Exactly-once support".
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
import servers  # noqa: E402
from servers import connect  # noqa: E402

HEAP = ("-Xms1g", "-Xmx2g")
JVM = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Kafka's own flags for Connect (bin/kafka-run-class.sh), with the heap of bin/connect-distributed.sh."""

Kind = Literal["json", "avro", "exactly-once"]


@dataclass(frozen=True)
class Task:
    """The task of a contestant: stream from a slot of a server to topics with a prefix."""

    postgres: servers.PostgreSQL
    kafka: servers.KafkaCluster
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


class Connect(connect.Connect):
    """A worker with one connector. It is standalone; for exactly once it is distributed, because standalone lacks it.

    The connector streams some seconds after the start, when the slot is active.
    """

    def __init__(self, task: Task, kind: Kind, registry_url: str = "") -> None:
        # Debezium confirms to the server only flushed offsets. The default, a minute, would keep much more WAL.
        settings = {"offset.flush.interval.ms": "10000"}
        if kind == "exactly-once":
            settings["exactly.once.source.support"] = "enabled"
        super().__init__(
            task.kafka,
            (connect.DEBEZIUM, connect.APICURIO) if kind == "avro" else (connect.DEBEZIUM,),
            connectors={"peer": connector(task, kind, registry_url)},
            group=f"{task.prefix}.connect" if kind == "exactly-once" else None,
            settings=settings,
            jvm=(*HEAP, *JVM),
        )


def connector(task: Task, kind: Kind, registry_url: str) -> dict[str, str]:
    """The connector's properties."""
    batch = 16_384 if task.record_mb == 1 else 32  # a queue of 65,536 values of 1 MB does not fit into 2 GB of heap
    bytes_max = task.record_mb * 2 << 20
    properties: dict[str, object] = {
        "connector.class": connect.POSTGRES_CONNECTOR,
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
        "topic.creation.default.replication.factor": -1,  # the brokers' default
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
    if kind == "avro":
        properties |= connect.avro_converter("key", registry_url) | connect.avro_converter("value", registry_url)
        properties["schema.name.adjustment.mode"] = "avro"
    else:  # with schemas, each record would have its schema
        properties |= connect.json_converter("key", schemas=False) | connect.json_converter("value", schemas=False)
    return {key: str(value) for key, value in properties.items()}
