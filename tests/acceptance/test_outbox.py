"""The outbox on real servers: events by aggregate, once and in order, whatever is killed; next to ordinary tables."""

from __future__ import annotations

import json
import threading
import time
import tomllib
from collections import defaultdict
from typing import Any

import psycopg
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from servers.registry import SchemaRegistry
from support import topics
from support.daemon import cdcd
from support.pages import blocks
from support.stream import StreamFixture

TABLE, SETTINGS, EVENT, AVRO, MESSAGE = (block.text for block in blocks("outbox"))
OUTBOX = tomllib.loads(SETTINGS)["outbox"]
INSERT = "INSERT INTO outbox (aggregatetype, aggregateid, type, payload, tenant) VALUES (%s, %s, 'Counted', %s, 7)"


def records(stream: StreamFixture, aggregate: str) -> list[Any]:
    """The committed records of an aggregate's topic."""
    return list(topics.Topics(stream.broker, stream.prefix).raw(f"{stream.prefix}.outbox.{aggregate}"))


def test_each_event_comes_once_and_in_order_although_the_daemon_is_killed(stream: StreamFixture) -> None:
    stream.sql(TABLE, "CREATE TABLE orders (id int PRIMARY KEY, n int)")
    done, written = threading.Event(), defaultdict[tuple[str, str], list[int]](list)

    def write() -> None:
        with psycopg.connect(stream.dsn) as connection:
            for number in range(100_000):
                if done.wait(0.003):
                    break
                aggregate, key = ("Order", "Line item")[number % 2], str(number % 5)
                connection.execute("INSERT INTO orders VALUES (%s, 0)", (number,))
                connection.execute(INSERT, (aggregate, key, json.dumps({"n": number})))
                if number % 2:
                    connection.execute("DELETE FROM outbox")
                if number % 10 == 9:
                    connection.rollback()
                    continue
                connection.commit()
                written[aggregate, key].append(number)
                connection.execute("DELETE FROM outbox")  # a transaction without an event
                connection.commit()

    with stream.daemon(outbox=OUTBOX) as daemon:
        daemon.start().wait_until_streaming()
        writer = threading.Thread(target=write)
        writer.start()
        for pause_s in (0.5, 1.0, 0.2):
            time.sleep(pause_s)
            daemon.kill()
            daemon.start().wait_until_streaming(timeout_s=60)
        time.sleep(0.5)
        done.set()
        writer.join()
        daemon.wait_until_confirmed(timeout_s=60)
        assert daemon.stop() == 0
    found = defaultdict[tuple[str, str], list[int]](list)
    for aggregate, topic in (("Order", "Order"), ("Line item", "Line-20item")):
        for record in records(stream, topic):
            headers = dict(record.headers())
            assert headers.keys() == {"id", "type", "tenant"}
            assert (headers["type"], headers["tenant"]) == (b"Counted", b"7")
            found[aggregate, record.key().decode()].append(json.loads(record.value())["n"])
    assert found == written
    assert min(map(len, found.values())) > 5
    reader = topics.Topics(stream.broker, stream.prefix)
    assert topics.fold(reader.events(f"{stream.prefix}.public.orders")) == stream.content("public", "orders")
    assert f"{stream.prefix}.public.outbox" not in reader.names()


def test_the_page_and_what_knows_the_outbox(stream: StreamFixture) -> None:
    stream.sql(TABLE, "CREATE TABLE orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    stream.sql("INSERT INTO outbox (aggregatetype, aggregateid, type) VALUES ('Early', '1', 'before the slot')")
    with stream.daemon(outbox=OUTBOX, snapshot={"mode": "initial"}) as daemon:
        daemon.start().wait_for_log("the snapshot is complete")
        bytes_of_a_header = json.dumps({"aggregatetype": "Raw", "aggregateid": "\0\0\0\0\7k", "payload": "\0\0\0\0\7v"})
        stream.sql(EVENT, MESSAGE, "SELECT pg_logical_emit_message(true, 'outbox', 'no JSON')")
        stream.sql(f"SELECT pg_logical_emit_message(true, 'outbox', '{bytes_of_a_header}')")
        daemon.wait_until_confirmed()
        row, said = records(stream, "Order")
        assert (row.key(), row.value()) == (b"42", b'{"total": "99.90"}')
        [(name, _), *others] = row.headers()
        assert (name, others) == ("id", [("type", b"OrderPlaced"), ("tenant", b"7")])
        assert (said.key(), said.value()) == (b"42", b'{"total": 99.90}')
        assert said.headers() == [("id", b"e1"), ("type", b"OrderPlaced")]
        [message] = topics.Topics(stream.broker, stream.prefix).events(f"{stream.prefix}.messages")
        assert message.value["after"]["content"] == b"no JSON"
        tailed = cdcd(daemon, "tail", f"{stream.prefix}.outbox.*", "--no-follow", "--from-beginning", "--json")
        shown = {each["topic"]: each for each in map(json.loads, tailed.splitlines())}
        assert shown[f"{stream.prefix}.outbox.Raw"]["key"] == "\0\0\0\0\7k"
        assert shown[f"{stream.prefix}.outbox.Order"]["value"] == {"total": 99.90}
        assert "public.orders" in cdcd(daemon, "verify")
        assert "public.outbox is the outbox" in cdcd(daemon, "verify", "public.outbox", code=1)
        stream.sql("ALTER TABLE outbox RENAME payload TO body")
        assert "[outbox-unfit]" in cdcd(daemon, "check", code=1)
        assert daemon.stop() == 0
    assert "Early" not in str(topics.Topics(stream.broker, stream.prefix).names())


def test_payloads_are_avro_by_the_schema_that_the_application_has_registered(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "string"}]}
    topic = f"{stream.prefix}.outbox.Order"
    with SchemaRegistryClient({"url": schema_registry.url}) as client:
        number = client.register_schema(f"{topic}-value", Schema(json.dumps(schema), "AVRO"))
    stream.sql(TABLE)
    outbox = OUTBOX | tomllib.loads(AVRO)["outbox"]
    daemon = stream.daemon(outbox=outbox, avro={"registry_url": schema_registry.url}).start()
    daemon.wait_until_streaming()
    rows = [("Order", "1", '{"total": "9"}'), ("Order", "1", '{"total": 9}'), ("Other", "2", "{}")]
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for row in rows:
            connection.execute(INSERT, row)
        connection.execute(MESSAGE)  # its payload is no Order
    daemon.wait_until_confirmed()
    [record] = records(stream, "Order")
    assert record.value() == b"\0" + number.to_bytes(4, "big") + b"\x029"
    assert record.key() == b"1"
    read = topics.Topics(stream.broker, stream.prefix).raw
    assert [len(list(read(f"{stream.prefix}.{name}"))) for name in ("messages", "public.outbox")] == [1, 2]
    assert "does not fit the newest schema of its subject" in daemon.log.read_text()
    assert '"total": "9"' in cdcd(daemon, "tail", topic, "--json", "--from-beginning", "--no-follow")
    assert daemon.stop() == 0
