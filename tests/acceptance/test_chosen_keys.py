"""Keys that the settings have: refused where an old row would lack them, and followed where they change."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support import topics
from support.daemon import cdcd
from support.stream import StreamFixture

TABLES = (
    "CREATE TABLE orders (id int PRIMARY KEY, tenant int NOT NULL, v text)",
    "CREATE TABLE log (v text, tenant int NOT NULL, id int NOT NULL)",
    "ALTER TABLE log REPLICA IDENTITY FULL",
    "INSERT INTO orders VALUES (1, 7, 'a'), (2, 7, 'b')",
    "INSERT INTO log VALUES ('a', 7, 1), ('b', 7, 2)",
)
KEY = ["tenant", "id"]


def keys(stream: StreamFixture, table: str) -> list[tuple[str, Any]]:
    """Op and key of each event of a table, in order."""
    events: list[topics.Event] = sorted(stream.events(), key=lambda event: event.position)
    return [(event.value["op"], event.key) for event in events if event.topic.endswith(f".{table}")]


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_a_key_is_refused_until_each_old_row_has_it_and_a_changed_one_copies_the_table(stream: StreamFixture) -> None:
    stream.sql(*TABLES)
    entry = {"match": "public.orders", "key": KEY}
    unfit = stream.daemon(snapshot={"mode": "initial"}, table=[entry])
    said = cdcd(unfit, "check", code=1)
    assert "its replica identity lacks tenant, so an update or a delete would not name the old key" in said
    [line] = [line for line in said.splitlines() if "REPLICA IDENTITY USING INDEX" in line]
    unfit.start()
    assert unfit.wait() != 0
    assert "[key-unfit]" in unfit.log.read_text()
    index = line.partition("CREATE UNIQUE INDEX")[2].partition(". Or change")[0]
    stream.sql(*f"CREATE UNIQUE INDEX{index}".split("; "))
    daemon = stream.daemon(snapshot={"mode": "initial"}, table=[{"match": "public.*", "key": KEY}])
    assert "2 tables with a key of [[table]]" in cdcd(daemon, "check")
    daemon.start()
    daemon.wait_for_log("the snapshot is complete", 60)
    stream.sql(
        "UPDATE orders SET v = 'c' WHERE id = 1",
        "UPDATE orders SET tenant = 8 WHERE id = 1",
        "DELETE FROM orders WHERE id = 2",
        "INSERT INTO log VALUES ('c', 8, 1)",
        "UPDATE log SET v = 'd' WHERE tenant = 8",
        "UPDATE log SET id = 3 WHERE tenant = 8",
        "DELETE FROM log WHERE tenant = 7 AND id = 2",
    )
    daemon.wait_until_confirmed()
    one, two = {"id": 1, "tenant": 7}, {"id": 2, "tenant": 7}
    assert keys(stream, "orders") == [
        ("r", one), ("r", two), ("u", one), ("d", one), ("c", {"id": 1, "tenant": 8}), ("d", two),
    ]  # fmt: skip
    moved = {"tenant": 8, "id": 1}
    assert keys(stream, "log")[2:] == [
        ("c", moved), ("u", moved), ("d", moved), ("c", {"tenant": 8, "id": 3}), ("d", two),
    ]  # fmt: skip
    assert all(json.loads(each)["equal"] for each in cdcd(daemon, "verify", "--json").splitlines())
    assert daemon.stop() == 0
    # Another key in the settings is another key of the table: its rows are copied under it.
    changed = stream.daemon(snapshot={"mode": "initial"}, table=[{"match": "public.orders", "key": ["id"]}]).start()
    stream.sql("INSERT INTO orders VALUES (3, 9, 'e')", "INSERT INTO log VALUES ('e', 9, 3)")
    changed.wait_for_log("the key of public.orders changed from (id, tenant) to (id)", 60)
    stream.sql("INSERT INTO log VALUES ('f', 9, 4)")  # with FULL the old key holds for the first transaction
    changed.wait_for_log("the key of public.log changed from (tenant, id) to none", 60)
    changed.wait_until_confirmed()
    found = [json.loads(each) for each in cdcd(changed, "verify", "--json").splitlines()]
    assert [(each["equal"], each["other_keys"]) for each in found] == [(True, []), (True, [])]
    topics.check_exactly_once(stream.events())
    assert changed.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_the_stream_ends_before_an_update_of_a_new_partition_that_does_not_tell_the_old_key(
    stream: StreamFixture,
) -> None:
    """A partition that is made has REPLICA IDENTITY DEFAULT, whatever its root has."""
    stream.sql(
        "CREATE TABLE root (id int PRIMARY KEY, tenant int NOT NULL) PARTITION BY RANGE (id)",
        "CREATE TABLE first PARTITION OF root FOR VALUES FROM (0) TO (10)",
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("root", "first")),
        "CREATE PUBLICATION cdcd FOR TABLE root WITH (publish_via_partition_root)",
    )
    daemon = stream.daemon(table=[{"match": "public.root", "key": ["tenant"]}]).start()
    daemon.wait_until_streaming()
    stream.sql("INSERT INTO root VALUES (1, 7)", "UPDATE root SET tenant = 8 WHERE id = 1")
    daemon.wait_until_confirmed()
    stream.sql("CREATE TABLE second PARTITION OF root FOR VALUES FROM (10) TO (20)", "INSERT INTO root VALUES (11, 7)")
    daemon.wait_until_confirmed()
    stream.sql("UPDATE root SET tenant = 9 WHERE id = 11")
    assert daemon.wait() != 0
    assert "[partition-identity-lesser]" in daemon.log.read_text()
    seven, eight = {"tenant": 7}, {"tenant": 8}
    assert keys(stream, "root") == [("c", seven), ("d", seven), ("c", eight), ("c", seven)]


@pytest.mark.postgres_versions("newest")
def test_a_column_of_the_key_or_nothing_decides_the_partitions(stream: StreamFixture) -> None:
    stream.sql(*TABLES, "CREATE TABLE one (id int PRIMARY KEY)", "INSERT INTO one SELECT generate_series(1, 20)")
    entries = [
        {"match": "public.log", "key": KEY, "partition_by": {"column": "tenant"}},
        {"match": "public.*", "partition_by": "one"},
    ]
    daemon = stream.daemon(snapshot={"mode": "initial"}, sink={"partitions": 5}, table=entries).start()
    daemon.wait_for_log("the snapshot is complete", 60)
    stream.sql(
        "INSERT INTO log SELECT 'c', tenant, 10 + n FROM generate_series(1, 40) tenant, generate_series(1, 3) n",
        "UPDATE log SET tenant = tenant + 100, v = 'd' WHERE id = 12",
        "DELETE FROM log WHERE id = 11",
        "DELETE FROM one WHERE id < 10",
    )
    daemon.wait_until_confirmed()
    assert all(json.loads(each)["equal"] for each in cdcd(daemon, "verify", "--json").splitlines())
    assert daemon.stop() == 0
    events = stream.events()
    topics.check_exactly_once(events)
    homes: dict[int, set[int]] = {}
    for event in events:
        if event.topic.endswith(".log") and event.key is not None:
            homes.setdefault(event.key["tenant"], set()).add(event.partition)
        else:
            assert event.partition == 0
    assert {len(partitions) for partitions in homes.values()} == {1}
    assert len(set.union(*homes.values())) == 5
