"""The pages of the manual about the years of a stream do what they say, block by block, on real servers."""

from __future__ import annotations

import signal
import tomllib
from collections import Counter
from typing import Any

import psycopg
import servers
from support import topics
from support.page_reader import Open
from support.stream import StreamFixture, eventually

ORDERS = "CREATE TABLE orders (id bigint PRIMARY KEY, note text)"
LARGE = "INSERT INTO orders SELECT 2, string_agg(md5(n::text), '') FROM generate_series(1, 60000) n"
"""A row of two megabytes, which compression does not make small enough."""


def ops(stream: StreamFixture, table: str = "orders") -> Counter[str]:
    """How many events of each kind the topic of a table has."""
    if f"{stream.prefix}.public.{table}" not in stream.topics.names():
        return Counter()
    return Counter(event.value["op"] for event in stream.topics.events(f"{stream.prefix}.public.{table}"))


def parked(stream: StreamFixture) -> list[Any]:
    records = [value for key, value in stream.topics.progress() if key == "cdcd"]
    return records[-1].get("parked", []) if records else []


def test_the_page_about_tables(stream: StreamFixture, open_page: Open) -> None:
    stream.sql(ORDERS)
    with open_page("tables") as reader:
        reader.begin()
        with reader.shell("cdcd run --config cdcd.toml") as daemon:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            stream.sql("INSERT INTO orders VALUES (1, 'Ada')", LARGE)
            eventually(lambda: parked(stream), "the parked table", 60)
            assert "[row-too-large]" in reader.run()
            topics.set_config(stream.broker, f"{stream.prefix}.public.orders", max_message_bytes=str(8 << 20))
            reader.run()
            assert parked(stream) == []
            assert ops(stream) == {"c": 2}
            stream.sql("ALTER PUBLICATION cdcd SET (publish = 'truncate')", "UPDATE orders SET note = 'Grace'")
            stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")
            assert "2 changed" in reader.run(code=1)
            reader.run()
            assert ops(stream) == {"c": 2, "r": 2}
            reader.run()
            assert ops(stream) == {"c": 2, "r": 4, "t": 4}  # the truncate event goes to each partition
            assert reader.run() == "paused\nresumed\n"
            reader.sql()
            eventually(lambda: ops(stream) == {"c": 2, "r": 6, "t": 8}, "the snapshot that a row asks for")
            reader.stop(daemon)
    assert topics.fold(stream.events()) == stream.content("public", "orders")


def test_a_standby_daemon(stream: StreamFixture, open_page: Open) -> None:
    stream.sql(ORDERS)
    with open_page("deployment", {"=9479": f"={servers.free_port()}"}) as reader:
        reader.begin()
        with reader.shell("cdcd run --config cdcd.toml") as first:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            with reader.start() as second:
                eventually(lambda: "another daemon" in reader.log(), "the daemon that waits")
                stream.sql("INSERT INTO orders VALUES (1)")
                eventually(lambda: ops(stream) == {"c": 1}, "the row")
                first.send_signal(signal.SIGKILL)
                stream.sql("INSERT INTO orders VALUES (2)")
                eventually(lambda: ops(stream) == {"c": 2}, "the row that the second daemon publishes")
                reader.stop(second)


def test_two_shards(stream: StreamFixture, open_page: Open) -> None:
    stream.sql(ORDERS, "CREATE TABLE customers (id bigint PRIMARY KEY)")
    role = f"cdcd_{stream.prefix}"
    here = {
        "port = 9479": "port = 0", "--port 9479": "--port 0", "--role cdcd": f"--role {role}",
        "--prefix shop": f"--prefix {stream.prefix}",
    }  # fmt: skip
    try:
        shards(stream, open_page, here, role)
    finally:
        stream.sql(f'DROP OWNED BY "{role}" CASCADE', f'DROP ROLE "{role}"')


def shards(stream: StreamFixture, open_page: Open, here: dict[str, str], role: str) -> None:
    with open_page("deployment", here) as reader:
        reader.run()
        for name in ("orders.toml", "customers.toml"):
            made = tomllib.loads((reader.folder / name).read_text())
            shown = tomllib.loads(reader.next("toml").text)
            assert made["source"].pop("dsn").endswith(f"user={role}")
            del shown["source"]["dsn"]
            assert made == shown
        with reader.start() as shards:
            eventually(lambda: len(stream.topics.names()) == 2, "the topics", 60)
            stream.sql("INSERT INTO orders VALUES (1)", "INSERT INTO customers VALUES (1)")
            eventually(lambda: ops(stream)["c"] == ops(stream, "customers")["c"] == 1, "a row from each shard")
            reader.interrupt(shards)
            eventually(lambda: reader.log().count("stopped lsn=") == 2, "two daemons that stop in order")
    slots = stream.sql("SELECT slot_name FROM pg_replication_slots WHERE database = current_database() ORDER BY 1")
    assert slots == [("shop_customers",), ("shop_orders",)]


def test_another_server(stream: StreamFixture, on_restartable_postgres: StreamFixture, open_page: Open) -> None:
    new = on_restartable_postgres
    stream.sql(ORDERS)
    with open_page("servers") as reader:
        reader.begin()
        with reader.shell("cdcd run --config cdcd.toml") as daemon:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            stream.sql("INSERT INTO orders SELECT generate_series(1, 100)")
            eventually(lambda: ops(stream) == {"c": 100}, "the rows")
            reader.run()
            reader.stop(daemon)
        new.sql(ORDERS, "INSERT INTO orders SELECT generate_series(1, 100)", "CREATE PUBLICATION cdcd FOR TABLE orders")
        settings = reader.folder / "cdcd.toml"
        settings.write_text(settings.read_text().replace(stream.dsn, new.dsn))
        reader.run()
        with reader.start() as daemon:
            eventually(lambda: slot_is_active(new.dsn, "cdcd"), "the stream from the new server")
            new.sql("DELETE FROM orders WHERE id = 7")
            eventually(lambda: ops(stream) == {"c": 100, "d": 1}, "the change at the new server")
            reader.stop(daemon)


def test_another_kafka_cluster(stream: StreamFixture, restartable_kafka: servers.Kafka, open_page: Open) -> None:
    stream.sql(ORDERS, "INSERT INTO orders VALUES (1), (2)")
    moved = StreamFixture(stream.dsn, restartable_kafka.bootstrap, stream.prefix, stream.folder)
    with open_page("servers", {"kafka.new:9092": moved.broker, "port = 9479": "port = 0"}) as reader:
        reader.begin()
        with reader.shell("cdcd run --config cdcd.toml") as first:
            eventually(lambda: ops(stream) == {"r": 2}, "the snapshot", 60)
            reader.write("toml")
            with reader.start() as second:
                eventually(lambda: ops(moved) == {"r": 2}, "the snapshot in the new cluster", 60)
                stream.sql("INSERT INTO orders VALUES (3)")
                assert "public.orders" in reader.run()
                reader.stop(first)
                reader.run()
                stream.sql("INSERT INTO orders VALUES (4)")
                eventually(lambda: ops(moved) == {"r": 2, "c": 2}, "the rows in the new cluster")
                reader.stop(second)
    assert ops(stream) == {"r": 2, "c": 1}
    assert topics.fold(moved.events()) == stream.content("public", "orders")


def slot_is_active(dsn: str, slot: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = connection.execute("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (slot,)).fetchone()
    return bool(found and found[0])
