"""Schemas in a registry: a real one, and for what that cannot be told to do (403, 503), one of this process.

Needs the extra `registry`.
"""

from __future__ import annotations

import io
import json
import re
import ssl
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest
import servers
import trustme
from servers.registry import SchemaRegistry
from support import daemon as installed
from support.daemon import Daemon, environment
from support.page_reader import Open
from support.registry import Registry
from support.stream import StreamFixture, eventually

pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")


def get(registry: SchemaRegistry, path: str) -> Any:
    with urllib.request.urlopen(f"{registry.url}{path}", timeout=10) as answer:
        return json.load(answer)


def put(registry: SchemaRegistry, path: str, document: dict[str, Any]) -> None:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{registry.url}{path}", json.dumps(document).encode(), headers, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def decode(registry: SchemaRegistry, data: bytes) -> dict[str, Any]:
    """Decode a record in Confluent's wire format: a zero byte, the schema's id, Avro."""
    assert data[0] == 0
    schema = json.loads(get(registry, f"/schemas/ids/{int.from_bytes(data[1:5])}")["schema"])
    stream = io.BytesIO(data[5:])
    record = fastavro.schemaless_reader(stream, fastavro.parse_schema(schema), None)
    assert not stream.read()
    assert isinstance(record, dict)
    return record


def events(stream: StreamFixture, registry: SchemaRegistry, table: str = "t") -> list[dict[str, Any]]:
    values = [decode(registry, message.value()) for message in stream.topics.raw(f"{stream.prefix}.public.{table}")]
    return sorted(values, key=lambda value: (value["source"]["commit_lsn"], value["source"]["seq"]))


def cdcd(daemon: Daemon, command: str, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [*installed.command(), command, "--config", str(daemon.config), *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_every_version_of_a_table_is_a_version_of_its_subject(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon(avro={"registry_url": schema_registry.url}).start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 'a')",
        "ALTER TABLE t ADD COLUMN w numeric(6,2)",
        "INSERT INTO t VALUES (2, 'b', 1.5)",
        "DELETE FROM t WHERE id = 1",
    )
    daemon.wait_until_confirmed()
    daemon.kill()
    daemon.start()  # asks for the same schemas again, and gets the same ids
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (3, 'c', 2.5)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    topic = f"{stream.prefix}.public.t"
    keys = {message.value(): decode(schema_registry, message.key()) for message in stream.topics.raw(topic)}
    assert sorted(key["id"] for key in keys.values()) == [1, 1, 2, 3]
    found = events(stream, schema_registry)
    assert [value["op"] for value in found] == ["c", "c", "d", "c"]
    assert [set(value["after"] or value["before"]) for value in found][:2] == [{"id", "v"}, {"id", "v", "w"}]
    assert get(schema_registry, f"/subjects/{topic}-value/versions") == [1, 2]
    assert get(schema_registry, f"/subjects/{topic}-key/versions") == [1]
    assert list(stream.topics.raw(f"{stream.prefix}.schemas")) == []


@pytest.mark.parametrize(
    ("strategy", "subjects"),
    [
        ("record", {"public.{t}.Key", "public.{t}.Envelope"}),
        ("topic-record", {"{p}-public.{t}.Key", "{p}-public.{t}.Envelope"}),
    ],
)
def test_a_subject_has_the_name_that_the_strategy_gives_it(
    stream: StreamFixture, schema_registry: SchemaRegistry, strategy: str, subjects: set[str]
) -> None:
    table = f"t_{strategy.replace('-', '_')}"
    stream.sql(f"CREATE TABLE {table} (id int PRIMARY KEY)")
    daemon = stream.daemon(avro={"registry_url": schema_registry.url, "subject_strategy": strategy}).start()
    daemon.wait_for_log("going on")
    stream.sql(f"INSERT INTO {table} VALUES (1)", f"TRUNCATE {table}")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert {value["op"] for value in events(stream, schema_registry, table)} == {"c", "t"}
    expected = {each.format(t=table, p=f"{stream.prefix}.public.{table}") for each in subjects}
    assert {each for each in get(schema_registry, "/subjects") if table in each} == expected


def test_a_schema_that_the_registry_refuses_ends_the_daemon_and_the_printed_command_lets_it_go_on(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    avro = {"registry_url": schema_registry.url}
    daemon = stream.daemon(avro=avro, sink={"on_unpublishable": "stop"}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 1)")
    daemon.wait_until_confirmed()
    topic = f"{stream.prefix}.public.t"
    put(schema_registry, f"/config/{topic}-value", {"compatibility": "FULL"})
    stream.sql("ALTER TABLE t ALTER v TYPE text", "INSERT INTO t VALUES (2, 'two')")
    assert daemon.wait() == 1
    last = daemon.log.read_text().splitlines()[-1]
    assert " ERROR cdcd: " in last
    assert "refuses the new schema of public.t as incompatible with version 1 of" in last
    assert len(list(stream.topics.raw(topic))) == 1
    assert f"incompatible with earlier ones in {topic}-value" in cdcd(daemon, "check", code=1)
    [command] = re.findall(r"(curl -X PUT .*?/config/[^ .]+(?:\.[^ .]+)*)\. When", last)
    subprocess.run(["/bin/sh", "-c", f"{command} --silent --fail"], check=True, capture_output=True)
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert [value["after"] for value in events(stream, schema_registry)] == [{"id": 1, "v": 1}, {"id": 2, "v": "two"}]


def test_a_column_that_joins_the_key_parks_the_table_where_the_registry_refuses_the_key(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)", "CREATE TABLE u (id int PRIMARY KEY)")
    daemon = stream.daemon(avro={"registry_url": schema_registry.url}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 1)")
    daemon.wait_until_confirmed()
    subject = f"{stream.prefix}.public.t-key"
    put(schema_registry, f"/config/{subject}", {"compatibility": "BACKWARD"})
    stream.sql(
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, v)",
        "INSERT INTO t VALUES (2, 2)",
        "INSERT INTO u VALUES (1)",
    )
    daemon.wait_until_confirmed()
    assert f"incompatible with version 1 of subject {subject}" in daemon.log.read_text()
    assert [len(events(stream, schema_registry, table)) for table in "tu"] == [1, 1]
    put(schema_registry, f"/config/{subject}", {"compatibility": "NONE"})
    cdcd(daemon, "unpark", "public.t")
    assert daemon.stop() == 0
    keys = [decode(schema_registry, message.key()) for message in stream.topics.raw(f"{stream.prefix}.public.t")]
    assert sorted(keys, key=lambda key: key["id"]) == [{"id": 1}, {"id": 2, "v": 2}]


def test_a_registry_that_others_fill_parks_a_table_until_its_schema_is_registered(
    stream: StreamFixture, schema_registry: SchemaRegistry
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    stream.publish("cdcd", "t", "u")
    daemon = stream.daemon(avro={"registry_url": schema_registry.url, "register": False})
    assert "lacks schemas of public.t, public.u, and avro.register is false" in cdcd(daemon, "check", code=1)
    cdcd(daemon, "schema", "--register", "public.u")
    daemon.start().wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (1)")
    daemon.wait_until_confirmed()
    log = daemon.log.read_text()
    assert "the registry lacks a schema of public.t" in log
    assert [each for each in get(schema_registry, "/subjects") if f"{stream.prefix}.public.t-" in each] == []
    assert len(events(stream, schema_registry, "u")) == 1
    [command] = re.findall(r"cdcd (schema --register public\.t)\b", log)
    cdcd(daemon, *command.split())
    cdcd(daemon, "unpark", "public.t")
    stream.sql("INSERT INTO t VALUES (2)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert [value["after"] for value in events(stream, schema_registry)] == [{"id": 1}, {"id": 2}]
    assert "lacks schemas" not in cdcd(daemon, "check")


def test_a_registry_that_lets_nobody_write_any_more_does_not_keep_the_daemon_from_its_next_start(
    stream: StreamFixture,
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        daemon.kill()
        registry.takes_schemas = False
        registry.requests.clear()
        daemon.start()
        stream.sql("INSERT INTO t VALUES (2)")
        daemon.wait_until_confirmed()
        assert {verb for verb, subject in registry.requests if "public.t" in subject} == {"look up"}
        stream.sql("ALTER TABLE t ADD v int", "INSERT INTO t VALUES (3, 3)")
        daemon.wait_until_confirmed()
        assert "does not let this user register it: this user may not write" in daemon.log.read_text()
        assert daemon.stop() == 0
    found = [registry.decode(message.value())["after"] for message in stream.topics.raw(f"{stream.prefix}.public.t")]
    assert sorted(found, key=lambda row: row["id"]) == [{"id": 1}, {"id": 2}]


def test_a_start_asks_the_registry_for_no_schema_that_was_registered_before(stream: StreamFixture) -> None:
    tables = [f"t{number}" for number in range(12)]
    stream.sql(*(f"CREATE TABLE {table} (id int PRIMARY KEY)" for table in tables))
    insert = "".join(f"INSERT INTO {table} VALUES (%s);" for table in tables)
    parts = {f"{stream.prefix}.public.{table}-{part}" for table in tables for part in ("key", "value")}
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        stream.sql(insert.replace("%s", "1"))
        daemon.wait_until_confirmed()
        assert sorted(registry.requests) == sorted(("register", part) for part in parts), "two requests a table"
        for row in (2, 3):
            if row == 2:
                daemon.kill()
            else:
                assert daemon.stop() == 0
            registry.requests.clear()
            daemon.start()
            stream.sql(insert.replace("%s", str(row)))
            daemon.wait_until_confirmed()
            assert {verb for verb, _ in registry.requests} == {"look up"}
            assert len(registry.requests) <= 2, "of one table, which shows that it is the same registry"
        registry.requests.clear()
        stream.sql("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        daemon.wait_for_log("starting again")
        stream.sql(insert.replace("%s", "4"))
        daemon.wait_until_confirmed()
        assert registry.requests == [], "nor does a stream that starts again ask"
        assert daemon.stop() == 0


def test_another_registry_at_the_same_url_is_noticed_at_the_next_start(stream: StreamFixture) -> None:
    stream.sql(*(f"CREATE TABLE t{number} (id int PRIMARY KEY)" for number in range(4)))
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}, sink={"partitions": 1}).start()
        daemon.wait_for_log("going on")
        stream.sql(*(f"INSERT INTO t{number} VALUES (1)" for number in range(4)))
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
        registry.schemas[:] = ['"string"']  # so each schema gets another id
        registry.subjects.clear()
        for row, tables in enumerate(((3, 1), (0, 1, 2, 3)), start=2):  # a start sees ids of both registries
            daemon.start()
            stream.sql(*(f"INSERT INTO t{number} VALUES ({row})" for number in tables))
            daemon.wait_until_confirmed()
            assert daemon.stop() == 0
        assert len(registry.schemas) == 9
        for number in range(4):
            message = list(stream.topics.raw(f"{stream.prefix}.public.t{number}"))[-1]
            assert registry.decode(message.value())["source"]["commit_lsn"] > 0
            assert (
                json.loads(registry.schemas[int.from_bytes(message.value()[1:5]) - 1])["namespace"]
                == f"public.t{number}"
            )


def test_a_registry_that_is_slower_than_wal_sender_timeout_does_not_end_the_stream(
    start_postgres: Callable[..., servers.PostgreSQL], broker: str, prefix: str, tmp_path: Path
) -> None:
    server = start_postgres(settings={"wal_sender_timeout": "2s"})
    with StreamFixture(server.dsn(), broker, prefix, tmp_path) as stream, Registry() as registry:
        stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
        daemon = stream.daemon(avro={"registry_url": registry.url, "registry_config": {"timeout": 15}}).start()
        daemon.wait_for_log("going on")
        registry.delay_s = 4.5
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_until_confirmed()
        assert "starting again" not in daemon.log.read_text()
        assert daemon.stop() == 0


def test_a_failure_that_passes_costs_no_restart_of_the_stream(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u (id int PRIMARY KEY)")
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        registry.failure = 429, {"error_code": 42901, "message": "slow down"}
        registry.headers = {"Retry-After": "1"}
        stream.sql("INSERT INTO t VALUES (1)")
        daemon.wait_for_log("waiting for the schema registry at http://127.0.0.1")
        registry.failure = None
        daemon.wait_until_confirmed()
        assert "starting again" not in daemon.log.read_text()
        stream.sql("INSERT INTO t VALUES (2)")
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0


@pytest.mark.whole
def test_a_registry_that_does_not_answer_is_waited_for_and_a_stop_does_not_wait_for_it(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon(avro={"registry_url": "http://127.0.0.1:9/none"}).start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_for_log("waiting for the schema registry at http://127.0.0.1:9/none")
    assert daemon.stop() == 0
    daemon.start()
    daemon.wait_for_log("starting again", 60)
    daemon.wait_for_log("the schema registry at http://127.0.0.1:9/none does not answer")
    assert daemon.stop() == 0


def test_the_page_of_the_registry_and_the_program_that_reads_with_one(
    stream: StreamFixture, open_page: Open, schema_registry: SchemaRegistry
) -> None:
    pytest.importorskip("confluent_kafka.schema_registry.avro", reason="needs the extra `registry`")
    stream.sql("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10, 2))")
    here = {"http://localhost:8081": schema_registry.url}
    with open_page("registry", here) as reader, open_page("consumers", here) as consumers:
        reader.begin()
        reader.add("toml")
        with reader.shell("cdcd run --config cdcd.toml") as daemon:
            eventually(lambda: f"{stream.prefix}.public.orders" in stream.topics.names(), "the topic", 60)
            assert "public.orders" in reader.run()
            stream.sql("INSERT INTO orders VALUES (1, 7)", "UPDATE orders SET total = 8", "DELETE FROM orders")
            consumers.write("python")
            with consumers.start() as program:
                assert program.stdout is not None
                printed = [program.stdout.readline() for _ in range(3)]
            reader.stop(daemon)
    assert printed == [
        "c {'id': 1, 'total': Decimal('7.00')}\n",
        "u {'id': 1, 'total': Decimal('8.00')}\n",
        "d None\n",
    ]


def test_a_registry_behind_tls_and_a_password_is_reached_as_the_page_says(
    stream: StreamFixture, open_page: Open, tmp_path: Path
) -> None:
    stream.sql("CREATE TABLE orders (id bigint PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ca.issue_cert("localhost").configure_cert(context)
    with Registry(lambda: context) as registry:
        registry.credentials = "cdcd:secret"
        here = {"https://registry.example:8443": registry.url, "/etc/cdcd/ca.pem": str(tmp_path / "ca.pem")}
        with open_page("registry", here) as reader:
            reader.begin()
            reader.add("toml")
            with reader.shell("cdcd run --config cdcd.toml") as daemon:
                topic = f"{stream.prefix}.public.orders"
                eventually(lambda: topic in stream.topics.names() and [*stream.topics.raw(topic)], "the row", 60)
                reader.stop(daemon)
        [message] = stream.topics.raw(topic)
        assert registry.decode(message.value())["after"] == {"id": 1}
        assert registry.subjects.keys() == {f"{topic}-key", f"{topic}-value"}
