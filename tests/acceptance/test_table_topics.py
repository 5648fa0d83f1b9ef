"""Topics that [[table]] names: their partitions, a collision, and a table that a setting moves to another topic."""

from __future__ import annotations

import json

import pytest
from confluent_kafka.admin import AdminClient
from support.daemon import cdcd
from support.stream import StreamFixture, eventually


def partitions(stream: StreamFixture) -> dict[str, int]:
    """The topics of tables, without the prefix, and how many partitions each has."""
    found = AdminClient({"bootstrap.servers": stream.broker}).list_topics(timeout=10).topics
    own = ("progress", "snapshots", "schemas", "parked", "messages")
    named = {
        name.removeprefix(f"{stream.prefix}."): topic
        for name, topic in found.items()
        if name.startswith(f"{stream.prefix}.")
    }
    return {name: len(topic.partitions) for name, topic in named.items() if name not in own}


@pytest.mark.postgres_versions("newest")
def test_tables_get_the_topics_that_entries_name_and_one_that_moves_is_copied(stream: StreamFixture) -> None:
    stream.sql(
        *(f"CREATE SCHEMA {schema}" for schema in ("tenant_a", "tenant_b")),
        *(
            f"CREATE TABLE {schema}.orders (id int PRIMARY KEY, v text)"
            for schema in ("tenant_a", "tenant_b", "public")
        ),
        *(f"INSERT INTO {schema}.orders VALUES (1, '{schema}')" for schema in ("tenant_a", "tenant_b", "public")),
        "CREATE TABLE lines (id int PRIMARY KEY, v text)",
    )
    of_tenants = {"match": "tenant_*.orders", "topic": "{prefix}.of-{schema}", "partitions": 3}
    colliding = stream.daemon(
        source={"tables": ["*.*"]}, table=[of_tenants, {"match": "public.orders", "topic": "{prefix}.of-tenant_a"}]
    )
    said = cdcd(colliding, "check", code=1)
    assert f"The tables public.orders and tenant_a.orders would share the topic {stream.prefix}.of-tenant_a" in said
    colliding.start()
    assert colliding.wait() != 0
    assert "[topics-collide]" in colliding.log.read_text()
    shared = {"match": "*.orders", "topic": "{prefix}.all"}
    unequal = stream.daemon(source={"tables": ["*.*"]}, table=[shared, {"match": "tenant_a.*", "partitions": 2}])
    assert "[topic-partitions-unequal]" in cdcd(unequal, "check", code=1)
    unequal.start()
    assert unequal.wait() != 0
    assert "[topic-partitions-unequal]" in unequal.log.read_text()
    daemon = stream.daemon(
        source={"tables": ["*.*"]},
        snapshot={"mode": "initial"},
        table=[of_tenants, {"match": "public.orders", "topic": "{prefix}.orders"}],
    ).start()
    daemon.wait_for_log("the snapshot is complete", 60)
    stream.sql(
        "UPDATE tenant_a.orders SET v = 'x'", "INSERT INTO orders VALUES (2, 'y')", "INSERT INTO lines VALUES (1)"
    )
    daemon.wait_until_confirmed()
    assert partitions(stream) == {"of-tenant_a": 3, "of-tenant_b": 3, "orders": 4, "public.lines": 4}
    assert all(json.loads(each)["equal"] for each in cdcd(daemon, "verify", "--json").splitlines())
    assert daemon.stop() == 0
    # Another topic: it gets all rows, and the old one is nobody's.
    moved = stream.daemon(source={"tables": ["*.*"]}, snapshot={"mode": "initial"}, table=[of_tenants]).start()
    moved.wait_for_log("the snapshot is complete", 60)
    stream.sql("DELETE FROM orders WHERE id = 1")
    moved.wait_until_confirmed()
    [verified] = [json.loads(each) for each in cdcd(moved, "verify", "--json", "public.orders").splitlines()]
    assert (verified["topic"], verified["equal"]) == (f"{stream.prefix}.public.orders", True)
    assert moved.stop() == 0
    found = [(event.topic.removeprefix(f"{stream.prefix}."), event.value["op"]) for event in stream.events()]
    assert sorted(each for each in found if each[0].endswith("orders")) == [
        ("orders", "c"), ("orders", "r"), ("public.orders", "d"), ("public.orders", "r"), ("public.orders", "r"),
    ]  # fmt: skip
    admin = AdminClient({"bootstrap.servers": stream.broker})
    admin.delete_topics([f"{stream.prefix}.orders"])[f"{stream.prefix}.orders"].result(10)
    eventually(lambda: "orders" not in partitions(stream), "the topic is gone")
    with stream.daemon(source={"tables": ["*.*"]}, snapshot={"mode": "initial"}, table=[of_tenants]).start() as again:
        stream.sql("INSERT INTO orders VALUES (3, 'z')")
        again.wait_until_confirmed()
        assert again.stop() == 0
    ids = {(event.key or {})["id"] for event in stream.events() if event.topic.endswith("public.orders")}
    assert ids == {1, 2, 3}
    # There and back, without an event before the copy there is done: the first topic lacks what came between.
    third = [of_tenants, {"match": "public.orders", "topic": "{prefix}.third"}]
    with stream.daemon(source={"tables": ["*.*"]}, snapshot={"mode": "initial"}, table=third).start() as there:
        there.wait_for_log("the snapshot is complete", 60)
        stream.sql("DELETE FROM orders WHERE id = 2")
        there.wait_until_confirmed()
        assert there.stop() == 0
    with stream.daemon(source={"tables": ["*.*"]}, snapshot={"mode": "initial"}, table=[of_tenants]).start() as back:
        back.wait_for_log("the snapshot is complete", 60)
        [verified] = [json.loads(each) for each in cdcd(back, "verify", "--json", "public.orders").splitlines()]
        assert (verified["topic"], verified["equal"]) == (f"{stream.prefix}.public.orders", True)
        assert back.stop() == 0
