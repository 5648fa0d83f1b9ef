"""`sink.format = "debezium"` on real servers: a snapshot and a stream of many types, keys, kills, and what refuses it.

The bytes are those of Debezium by `golden/debezium/test_bytes.py`. Here the whole daemon writes them.
"""

from __future__ import annotations

import io
import json
import subprocess
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest
from confluent_kafka import Consumer, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from servers.registry import SchemaRegistry
from support import daemon as installed
from support.daemon import environment
from support.stream import StreamFixture, Writer, eventually

from cdcd.sink.partitioner import partition_for

SINK = {"format": "debezium", "partitions": 3}

TYPES = """
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE types (
        id bigserial PRIMARY KEY, flag boolean NOT NULL DEFAULT true, i2 smallint, i4 int, f4 real, f8 double precision,
        n numeric, n52 numeric(5,2), c char(5), vc varchar(20), t text, raw bytea, j json, jb jsonb, u uuid, d date,
        t3 time(3), ts timestamp, tz timestamptz, z timetz, iv interval, b bit(12), ip inet, r int4range, a int[],
        m mood, o oid, name name
    );
    CREATE TABLE untouched (id int PRIMARY KEY, v text)
"""
ROW = """
    INSERT INTO types (i2, i4, f4, f8, n, n52, c, vc, t, raw, j, jb, u, d, t3, ts, tz, z, iv, b, ip, r, a, m, o, name)
    VALUES (-1, 2147483647, 1.5, 1e300, 1.500, -0.01, 'ab', 'cd', E'q"\\\\é😀\\n', '\\x00ff', '{"a" : 1}', '{"a" : 1}',
        'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2020-02-29', '10:11:12.5', '1969-12-31 23:59:59.999999',
        '2020-02-29 10:11:12.5+02', '10:11:12+02', '1 mon 1 day', B'000000000101', '10.0.0.1', '[1,5]', '{1,NULL}',
        'ok', 42, 'a name')
"""
ODD = "INSERT INTO odd (n, q) VALUES ('NaN', '{[1,2]}')"
WANTED: dict[str, Any] = {
    "flag": True, "i2": -1, "i4": 2147483647, "f4": 1.5, "f8": 1e300, "n": {"scale": 1, "value": "Dw=="}, "n52": "/w==",
    "c": "ab   ", "vc": "cd", "t": 'q"\\é😀\n', "raw": "AP8=", "j": '{"a" : 1}', "jb": '{"a": 1}',
    "u": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "d": 18321, "t3": 36672500, "ts": -1,
    "tz": "2020-02-29T08:11:12.500000Z", "z": "08:11:12Z", "iv": 2716200000000, "b": "BQ==", "ip": "10.0.0.1",
    "r": "[1,6)", "a": [1, None], "m": "ok", "o": 42, "name": "a name",
}  # fmt: skip


@dataclass(frozen=True)
class Read:
    """A committed record."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def payload(self) -> Any:
        """The event, with or without its schema; None: a tombstone."""
        return None if self.value is None else _payload(self.value)


def _payload(data: bytes) -> Any:
    document = json.loads(data)
    return document["payload"] if document.keys() == {"schema", "payload"} else document


def read(broker: str, topic: str) -> list[Read]:
    """Every committed record of a topic, partition by partition."""
    admin = AdminClient({"bootstrap.servers": broker})
    partitions = sorted(admin.list_topics(topic, 10).topics[topic].partitions)
    consumer = Consumer({
        "bootstrap.servers": broker, "group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed",
    })  # fmt: skip
    found: list[Read] = []
    places = [TopicPartition(topic, partition, 0) for partition in partitions]
    asked = admin.list_offsets(
        {place: OffsetSpec.latest() for place in places}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    left = {place.partition for place, future in asked.items() if future.result().offset}
    consumer.assign(places)
    until = time.monotonic() + 60
    while left:
        assert time.monotonic() < until
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            left.discard(message.partition() or 0)
            continue
        headers: Any = message.headers() or ()
        found.append(Read(message.partition() or 0, message.key(), message.value(), dict(headers)))
    consumer.close()
    return found


def fold(records: list[Read]) -> dict[bytes, Any]:
    """The last row of each key; a key is always in the partition that Java's client would take."""
    rows: dict[bytes, Any] = {}
    for record in records:
        assert record.key is not None
        assert record.partition == partition_for(record.key, SINK["partitions"])  # type: ignore[arg-type]
        event = record.payload
        if event is None or event["op"] == "d":
            rows.pop(record.key, None)  # a snapshot that goes on after a kill lacks rows that were deleted meanwhile
        else:
            rows[record.key] = event["after"]
    return rows


@pytest.mark.parametrize("encoding", ["json", "json-schema"])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "text"])
def test_a_table_of_many_types_comes_as_debezium_writes_it(stream: StreamFixture, encoding: str, binary: bool) -> None:
    stream.sql(*TYPES.split(";"), "CREATE TABLE odd (id serial PRIMARY KEY, n numeric, q int4multirange)", ROW, ODD)
    settings: Any = {"sink": {**SINK, "encoding": encoding}, "snapshot": {"mode": "initial"}}
    settings["debezium"] = {"unrepresentable_in_header": True}
    with stream.daemon(source={"binary": str(binary).lower()}, **settings) as daemon:
        daemon.start().wait_until_streaming()
        eventually(lambda: "snapshot is complete" in daemon.log.read_text(), "the snapshot")
        stream.sql(ODD)
        stream.sql(ROW, "UPDATE types SET id = 7 WHERE id = 2", "DELETE FROM types WHERE id = 1", "TRUNCATE untouched")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    records = read(stream.broker, f"{stream.prefix}.public.types")
    events = {(event["op"], event["source"]["snapshot"]): event for record in records if (event := record.payload)}
    assert events["r", "true"]["after"] == {"id": 1, **WANTED}
    [moved] = [record for record in records if record.payload and record.headers.get("__debezium.oldkey")]
    assert _payload(moved.key or b"") == {"id": 7}
    assert _payload(moved.headers["__debezium.oldkey"]) == {"id": 2}
    old = [record for record in records if record.headers.get("__debezium.newkey")]
    assert [(record.payload or {"op": ""})["op"] for record in old] == ["d", ""]
    assert {_payload(record.headers["__debezium.newkey"])["id"] for record in old} == {7}
    source = moved.payload["source"]
    assert (source["connector"], source["name"], source["db"]) == ("postgresql", stream.prefix, _database(stream))
    if encoding == "json-schema":
        schema = json.loads(moved.value or b"")["schema"]
        assert schema["name"] == f"{stream.prefix}.public.types.Envelope"
        fields = {field["field"]: field for field in schema["fields"][1]["fields"]}
        assert (fields["id"]["default"], fields["flag"]["default"], fields["flag"]["optional"]) == (0, True, False)
        assert fields["m"]["parameters"] == {"allowed": "sad,ok"}
    assert list(fold(records).values()) == [{"id": 7, **WANTED}]
    near = [json.loads(record.headers.get("__cdcd.unrepresentable", b"[]")) for record in records]
    assert [[(each["column"], each["text"]) for each in values] for values in near if values] == [
        [("z", "10:11:12+02"), ("iv", "1 mon 1 day")]  # Debezium's types hold neither the offset nor the months
    ] * 3
    odd = sorted(read(stream.broker, f"{stream.prefix}.public.odd"), key=lambda record: record.payload["after"]["id"])
    assert [record.payload["after"] for record in odd] == [{"id": 1, "n": None}, {"id": 2, "n": None}]
    lost = [json.loads(record.headers["__cdcd.unrepresentable"]) for record in odd]
    assert [[(each["column"], each["text"]) for each in values] for values in lost] == [
        [("n", "NaN"), ("q", "{[1,3)}")]
    ] * 2


def test_in_avro_a_table_of_many_types_is_read_with_the_schemas_of_the_registry(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql(*TYPES.split(";"), 'CREATE TABLE "odd-name" ("a-b" int PRIMARY KEY)', ROW)
    settings: Any = {"sink": {**SINK, "encoding": "avro"}, "snapshot": {"mode": "initial"}}
    settings["avro"] = {"registry_url": schema_registry.url}
    adjusted = {"schema_name_adjustment_mode": "avro", "field_name_adjustment_mode": "avro"}
    with stream.daemon(debezium=adjusted, **settings) as daemon:
        daemon.start().wait_until_streaming()
        eventually(lambda: "snapshot is complete" in daemon.log.read_text(), "the snapshot")
        stream.sql(
            ROW, "UPDATE types SET id = 7 WHERE id = 2", "DELETE FROM types WHERE id = 1",
            'INSERT INTO "odd-name" SELECT 5', "SELECT pg_logical_emit_message(true, 'hello', 'world')",
        )  # fmt: skip
        daemon.wait_until_confirmed()
        daemon.kill()
        stream.sql("INSERT INTO untouched SELECT 1")
        daemon.start().wait_until_confirmed()
        assert daemon.stop() == 0
    records = read(stream.broker, f"{stream.prefix}.public.types")
    events: list[tuple[Read, Any]] = [
        (record, None if record.value is None else confluent(schema_registry, record.value)) for record in records
    ]
    wanted = WANTED | {"n": {"scale": 1, "value": b"\x0f"}, "n52": b"\xff", "raw": b"\x00\xff", "b": b"\x05"}
    assert [event["after"] for _, event in events if event and event["op"] == "r"] == [{"id": 1, **wanted}]
    [moved] = [(record, event) for record, event in events if record.headers.get("__debezium.oldkey")]
    assert (confluent(schema_registry, moved[0].key or b""), moved[0].headers["__debezium.oldkey"]) == (
        {"id": 7}, b'{"id":2}',
    )  # fmt: skip
    assert moved[1]["after"] == {"id": 7, **wanted}
    assert moved[1]["source"]["name"] == stream.prefix
    assert len(read(stream.broker, f"{stream.prefix}.public.untouched")) == 1
    [odd] = read(stream.broker, f"{stream.prefix}.public.odd-2dname")
    assert confluent(schema_registry, odd.value or b"")["after"] == {"a_b": 5}
    [message] = read(stream.broker, f"{stream.prefix}.messages")
    shown = confluent(schema_registry, message.value or b"")["message"]
    assert (shown, confluent(schema_registry, message.key or b"")) == (
        {"prefix": "hello", "content": b"world"}, {"prefix": "hello"},
    )  # fmt: skip
    printed = _cdcd(daemon.config, "schema", "--json", "public.types")
    [table] = [json.loads(line) for line in printed.stdout.splitlines()]
    assert table["value"] == schema_of(schema_registry, moved[0].value or b"")
    registered = _cdcd(daemon.config, "schema", "--register", "public.types")
    assert (
        f"{stream.prefix}.public.types-value has id {int.from_bytes((moved[0].value or b'')[1:5])}" in registered.stdout
    )
    checked = _cdcd(daemon.config, "check").stdout
    assert "and has" in checked
    assert "public.types.n (NaN and infinity)" in checked
    assert "[values-lost]" in checked


def schema_of(registry: SchemaRegistry, data: bytes) -> Any:
    """The schema that a record in Confluent's wire format names."""
    assert data[0] == 0
    with urllib.request.urlopen(f"{registry.url}/schemas/ids/{int.from_bytes(data[1:5])}", timeout=10) as answer:
        return json.loads(json.load(answer)["schema"])


def confluent(registry: SchemaRegistry, data: bytes) -> Any:
    """The record, without Python's types of dates and decimals."""
    schema = json.loads(json.dumps(schema_of(registry, data)).replace('"logicalType"', '"logical"'))
    stream = io.BytesIO(data[5:])
    record = fastavro.schemaless_reader(stream, schema, None)
    assert not stream.read()
    return record


def _database(stream: StreamFixture) -> str:
    [(name,)] = stream.sql("SELECT current_database()")
    return str(name)


def test_every_change_comes_once_although_the_daemon_is_killed(stream: StreamFixture) -> None:
    stream.sql(Writer.TABLE, "INSERT INTO t SELECT -g, g FROM generate_series(1, 2000) g")
    settings: Any = {"sink": {**SINK, "encoding": "json"}, "snapshot": {"mode": "initial", "chunk_bytes": 8192}}
    with stream.daemon(**settings) as daemon:
        daemon.start().wait_until_streaming(timeout_s=120)
        with Writer(stream.dsn, pause_s=0.02) as writer:
            for pause_s in (0.3, 1.5, 3.0, 0.1):
                time.sleep(pause_s)
                daemon.kill()
                daemon.start().wait_until_streaming(timeout_s=120)
            stream.sql("UPDATE t SET id = -id - 100000 WHERE id < -1900")
            stream.sql("DELETE FROM t WHERE id BETWEEN -1000 AND -901")
            time.sleep(1)
        eventually(lambda: "the snapshot is complete" in daemon.log.read_text(), "the snapshot", 120)
        daemon.wait_until_confirmed(timeout_s=120)
        assert daemon.stop() == 0
    records = read(stream.broker, f"{stream.prefix}.public.t")
    streamed = [event for record in records if (event := record.payload) and event["op"] != "r"]
    places = Counter((event["source"]["lsn"], event["op"], json.dumps(event["after"])) for event in streamed)
    assert max(places.values()) == 1
    assert writer.commits > 50
    assert len(streamed) > 50
    rows = {row["id"]: row["v"] for row in fold(records).values()}
    assert rows == dict(stream.sql("SELECT id, v FROM t"))


def test_what_cannot_read_the_format_refuses_it_in_one_sentence(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    with stream.daemon(sink={**SINK, "encoding": "json"}) as daemon:
        daemon.start().wait_until_streaming()
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    topic = f"{stream.prefix}.public.t"
    for command in (["verify"], ["adopt"]):
        said = _cdcd(daemon.config, *command)
        assert said.returncode != 0, command
        assert f"cdcd {command[0]}" in said.stderr
        assert 'does not read events of sink.format = "debezium" yet' in said.stderr
        assert "[format-unsupported]" in said.stderr
    said = _cdcd(daemon.config, "tail", topic, "--no-follow", "--from-beginning")
    assert f"{topic} insert id=1 (" in said.stdout
    assert "cdcd schema shows Avro schemas" in _cdcd(daemon.config, "schema").stderr
    again = stream.run(timeout_s=60)
    assert again.returncode != 0
    assert "have events in the format debezium/json, and the settings say cdcd/avro" in again.stderr
    checked = _cdcd(stream.daemon().config, "check")
    assert "[format-changed]" in checked.stdout + checked.stderr
    assert {record.payload["op"] for record in read(stream.broker, topic)} == {"c"}


def _cdcd(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*installed.command(), *arguments, "--config", str(config)],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip


@pytest.mark.whole
def test_the_metadata_counts_what_was_written_over_a_restart_and_no_other_slot_writes_to_its_topic(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE transaction (id int PRIMARY KEY)")
    wanted = dict[int, Counter[str]]()

    def write(numbers: range) -> None:
        with psycopg.connect(stream.dsn) as connection:
            for number in numbers:
                ids = range(number * 10, number * 10 + number % 3 + 1)
                for at in ids:
                    connection.execute("INSERT INTO a VALUES (%s)", (at,))
                connection.execute("INSERT INTO transaction VALUES (%s)", (number,))
                if number % 2:
                    connection.execute("UPDATE a SET id = -id WHERE id = %s", (ids[0],))  # a delete and a create
                [[xid]] = connection.execute("SELECT pg_current_xact_id()::text::int").fetchall()
                wanted[xid] = Counter({"public.a": len(ids) + number % 2 * 2, "public.transaction": 1})
                connection.commit()

    prefix = f"{stream.prefix}.public"
    settings: Any = {"sink": {**SINK, "encoding": "json", "prefix": prefix}}
    with stream.daemon(debezium={"provide_transaction_metadata": True}, **settings) as daemon:
        daemon.start().wait_until_streaming()
        with stream.daemon(
            source={"slot": f"{stream.slot}_2", "publication": "other"}, sink={**SINK, "encoding": "json"}
        ) as other:
            refusal = f"the slot {stream.slot} writes to the topic {prefix}.transaction, too"
            assert f"error    {refusal}" in installed.cdcd(other, "check", code=1)
            assert other.start().wait() == 1
            assert refusal in other.log.read_text()
        write(range(1, 20))
        daemon.kill()
        write(range(20, 30))
        daemon.start().wait_until_confirmed()
        assert daemon.stop() == 0
    of_events = dict[int, Counter[str]]()
    orders = dict[int, list[int]]()
    for table in ("a", "transaction"):
        for record in read(stream.broker, f"{prefix}.public.{table}"):
            if (event := record.payload) is not None:
                xid = int(event["transaction"]["id"].partition(":")[0])
                of_events.setdefault(xid, Counter())[f"public.{table}"] += 1
                orders.setdefault(xid, []).append(event["transaction"]["total_order"])
    marks = [record.payload for record in read(stream.broker, f"{prefix}.transaction")]
    ends = {int(mark["id"].partition(":")[0]): mark for mark in marks if mark["status"] == "END"}
    counted = {
        xid: Counter({each["data_collection"]: each["event_count"] for each in mark["data_collections"]})
        for xid, mark in ends.items()
    }
    assert counted == of_events == wanted
    assert len(marks) == 2 * len(wanted)
    assert all(sorted(found) == list(range(1, ends[xid]["event_count"] + 1)) for xid, found in orders.items())
