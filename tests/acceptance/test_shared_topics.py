"""Tables that share a topic, on real servers: every promise holds table by table, whatever is killed."""

from __future__ import annotations

import json
import random
import threading
import time
from typing import Any

import psycopg
import pytest
from acceptance.test_debezium import _payload, confluent, read
from servers.registry import SchemaRegistry
from support import topics
from support.daemon import Daemon, cdcd
from support.stream import StreamFixture, eventually

SHARED: dict[str, Any] = {
    "source": {"tables": ["*.*"]},
    "snapshot": {"mode": "initial"},
    "table": [{"match": "tenant_*.orders", "topic": "{prefix}.orders", "partitions": 3}],
}
"""One topic for the orders of all tenants."""

ORDERS = "(id int PRIMARY KEY, v text, at timestamptz DEFAULT now())"


def make_tenants(stream: StreamFixture, *numbers: int) -> None:
    """Tables with the same columns, and the same keys."""
    for number in numbers:
        stream.sql(
            f"CREATE SCHEMA tenant_{number}",
            f"CREATE TABLE tenant_{number}.orders {ORDERS}",
            f"INSERT INTO tenant_{number}.orders SELECT g, 'copied {number} ' || g FROM generate_series(1, 50) g",
        )


def verified(daemon: Daemon, *tables: str) -> dict[str, bool]:
    """Whether each table equals its events, by topic."""
    found = [json.loads(each) for each in cdcd(daemon, "verify", "--json", "--wait", "90", *tables).splitlines()]
    return {each["topic"]: each["equal"] for each in found}


def write(
    stream: StreamFixture,
    seed: int,
    tenants: int,
    until: threading.Event,
    errors: list[BaseException],
    truncates: float = 0.02,
) -> None:
    """Change rows of all tenants, several of them in each transaction. `truncates`: how many of these truncate one."""
    chance = random.Random(seed)
    try:
        with psycopg.connect(stream.dsn) as connection:
            while not until.is_set():
                for _ in range(chance.randint(1, 8)):
                    table = f"tenant_{chance.randrange(tenants)}.orders"
                    row = chance.randint(1, 80)
                    statement = chance.choice(
                        [
                            f"INSERT INTO {table} VALUES ({row}, '{seed}') ON CONFLICT (id) DO UPDATE SET v = 'again'",
                            f"UPDATE {table} SET v = v || '.' WHERE id = {row}",
                            f"UPDATE {table} SET id = -id WHERE id = {row} AND {-row} NOT IN (SELECT id FROM {table})",
                            f"DELETE FROM {table} WHERE id = {row}",
                        ]
                    )
                    connection.execute(statement.encode())
                if chance.random() < truncates:
                    connection.execute(f"TRUNCATE tenant_{chance.randrange(tenants)}.orders".encode())
                try:
                    connection.commit()
                except psycopg.errors.DeadlockDetected:
                    connection.rollback()
    except psycopg.errors.DeadlockDetected:
        if not until.is_set():
            write(stream, seed + 100, tenants, until, errors, truncates)
    except BaseException as error:  # noqa: BLE001 - reported by the test's own thread
        errors.append(error)


def wait_for_copies(stream: StreamFixture, tenants: int) -> None:
    """Wait until the snapshots of all tables are complete."""
    found = {}

    def is_copied() -> bool:
        found.update({v["table"] + v["schema"]: v["snapshot"] for k, v in stream.topics.progress() if "/" in k})
        return len(found) == tenants and all(each and each["done"] for each in found.values())

    eventually(is_copied, "all tables are copied", 60)


def check(stream: StreamFixture, tenants: int) -> None:
    """Every event is there once and in order, and each table folds to what the server has."""
    events = stream.events()
    topics.check_exactly_once(events)
    assert {event.topic.partition("#")[0] for event in events} == {f"{stream.prefix}.orders"}
    for number in range(tenants):
        topic = f"{stream.prefix}.orders#tenant_{number}.orders"
        folded = topics.fold([event for event in events if event.topic == topic], snapshot=True)
        assert folded == stream.content(f"tenant_{number}", "orders"), topic


@pytest.mark.postgres_versions("newest")
@pytest.mark.parametrize("kills", [3, pytest.param(12, marks=pytest.mark.whole)])
def test_tables_that_share_a_topic_are_whole_whatever_is_killed(stream: StreamFixture, kills: int) -> None:
    tenants = 4 if kills == 3 else 12
    make_tenants(stream, *range(tenants - 1))
    daemon = stream.daemon(**SHARED).start()
    until, errors = threading.Event(), list[BaseException]()
    writer = threading.Thread(target=write, args=(stream, 4711, tenants - 1, until, errors))
    daemon.wait_until_streaming()
    writer.start()
    chance = random.Random(kills)
    try:
        for number in range(kills):
            time.sleep(chance.uniform(0.1, 1.0))
            daemon.kill()
            daemon.start()
            if number == 1:
                make_tenants(stream, tenants - 1)  # is copied while the others go on
                cdcd(daemon, "snapshot", "--no-wait", "tenant_0.orders")
    finally:
        until.set()
        writer.join()
    assert not errors, errors
    stream.sql(f"UPDATE tenant_{tenants - 1}.orders SET v = 'last'")
    daemon.wait_until_confirmed(timeout_s=60)
    wait_for_copies(stream, tenants)
    daemon.wait_until_confirmed(timeout_s=60)
    of_orders = verified(daemon, "tenant_*.orders")
    assert of_orders == {f"{stream.prefix}.orders#tenant_{number}.orders": True for number in range(tenants)}
    assert daemon.stop() == 0
    check(stream, tenants)


def decoded(data: bytes, registry: SchemaRegistry | None) -> Any:
    """A key or an event, in the encoding of the test."""
    return _payload(data) if registry is None else confluent(registry, data)


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
@pytest.mark.parametrize("event_format", ["debezium", "row"])
@pytest.mark.parametrize("encoding", ["json", "json-schema", "avro"])
def test_so_are_they_as_debeziums_events_and_flat_rows(
    stream: StreamFixture, request: pytest.FixtureRequest, event_format: str, encoding: str
) -> None:
    make_tenants(stream, 0, 1, 2)
    settings: dict[str, Any] = {**SHARED, "sink": {"format": event_format, "encoding": encoding}}
    registry = None
    if encoding == "avro":
        registry = request.getfixturevalue("schema_registry")
        settings["avro"] = {"registry_url": registry.url}
        settings["debezium"] = {"schema_name_adjustment_mode": "avro"}  # the prefix has a hyphen
    daemon = stream.daemon(**settings).start()
    until, errors = threading.Event(), list[BaseException]()
    writer = threading.Thread(target=write, args=(stream, 4712, 3, until, errors, 0))
    daemon.wait_for_log("snapshot is complete")
    wait_for_copies(stream, 3)  # a row cannot say that a copy begins anew, nor a truncate
    writer.start()
    chance = random.Random(encoding)
    try:
        for _ in range(4):
            time.sleep(chance.uniform(0.2, 1.5))
            daemon.kill()
            daemon.start()
    finally:
        until.set()
        writer.join()
    assert not errors, errors
    daemon.wait_until_confirmed(timeout_s=60)
    assert "__dbz__physicalTableIdentifier" in cdcd(
        daemon, "tail", f"{stream.prefix}.orders", "--last", "1", "--no-follow"
    )
    assert daemon.stop() == 0
    rows: dict[tuple[str, int], str] = {}
    for record in read(stream.broker, f"{stream.prefix}.orders"):
        assert record.key is not None
        key = decoded(record.key, registry)
        place = key["__dbz__physicalTableIdentifier"], key["id"]
        event = None if record.value is None else decoded(record.value, registry)
        if event is not None and event_format == "debezium":
            assert f"{stream.prefix}.{event['source']['schema']}.{event['source']['table']}" == place[0]
            event = event["after"]
        if event is None:
            rows.pop(place, None)
        else:
            rows[place] = event["v"]
    for number in range(3):
        table = f"tenant_{number}.orders"
        found = {row: v for (of, row), v in rows.items() if of == f"{stream.prefix}.{table}"}
        assert found == dict(stream.sql(f"SELECT id, v FROM {table}"))
