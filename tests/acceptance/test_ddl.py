"""Tables that are altered while they are streamed: each event has the schema of its moment, and the topics fold."""

from __future__ import annotations

from typing import Any

import pytest
from support import topics
from support.stream import StreamFixture

pytestmark = pytest.mark.in_turns(3)


def _fields(event: topics.Event) -> dict[str, str]:
    return {f.get("pg_name", f["name"]): f["pg_type"] for f in event.fields}


def _versions(events: list[topics.Event]) -> list[dict[str, str]]:
    """The schemas of the events, in the events' order; equal schemas in a row count once."""
    found: list[dict[str, str]] = []
    for event in sorted(events, key=lambda event: event.position):
        if not found or found[-1] != _fields(event):
            found.append(_fields(event))
    return found


@pytest.mark.postgres_versions("oldest", "newest")
@pytest.mark.parametrize("mode", ["auto", False], ids=["binary", "text"])
def test_every_event_has_the_schema_of_its_moment(stream: StreamFixture, mode: Any) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, a int, b text)")
    daemon = stream.daemon(source={"binary": mode}).start()
    daemon.wait_for_log("going on")
    steps = [
        ("ALTER TABLE t ADD COLUMN c numeric(8,2)", {"id": "int4", "a": "int4", "b": "text", "c": "numeric"}),
        ("ALTER TABLE t DROP COLUMN b", {"id": "int4", "a": "int4", "c": "numeric"}),
        ("ALTER TABLE t RENAME COLUMN a TO \"a b\"", {"id": "int4", "a b": "int4", "c": "numeric"}),
        ("ALTER TABLE t ALTER COLUMN \"a b\" TYPE bigint", {"id": "int4", "a b": "int8", "c": "numeric"}),
        ("ALTER TABLE t ALTER COLUMN c TYPE numeric(10,4)", {"id": "int4", "a b": "int8", "c": "numeric"}),
        ("ALTER TABLE t ADD COLUMN b date", {"id": "int4", "a b": "int8", "c": "numeric", "b": "date"}),
    ]  # fmt: skip
    wanted = [{"id": "int4", "a": "int4", "b": "text"}]
    stream.sql("INSERT INTO t SELECT n, n, 'b' || n FROM generate_series(1, 20) n")
    for number, (statement, schema) in enumerate(steps):
        # The DDL is inside a transaction, with rows before and after it, as in migrations.
        stream.sql(
            f"BEGIN; INSERT INTO t VALUES ({100 + number}); {statement}; INSERT INTO t VALUES ({200 + number}); COMMIT",
            "UPDATE t SET id = id",
            f"DELETE FROM t WHERE id = {1 + number}",
        )
        wanted.append(schema)
    wanted.remove(steps[4][1])  # only the scale changes: the type is the same, the typmod differs
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert "starting again" not in daemon.log.read_text()
    events = stream.check(("public", "t"))
    assert _versions(events) == wanted
    scales = {f["pg_typmod"] for event in events for f in event.fields if f["name"] == "c"}
    assert len(scales) == 2


@pytest.mark.postgres_versions("oldest", "newest")
def test_a_renamed_table_goes_on_in_a_topic_of_its_new_name(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT n, n FROM generate_series(1, 50) n",
        "BEGIN; UPDATE t SET v = v + 1 WHERE id < 10; ALTER TABLE t RENAME TO u; "
        "UPDATE u SET v = v + 1 WHERE id < 20; COMMIT",
        "DELETE FROM u WHERE id > 40",
        "CREATE SCHEMA other",
        "ALTER TABLE u SET SCHEMA other",
        "INSERT INTO other.u VALUES (51, 51)",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check()
    assert {event.topic for event in events} == {
        f"{stream.prefix}.{name}" for name in ("public.t", "public.u", "other.u")
    }
    assert topics.fold(events) == stream.content("other", "u")


@pytest.mark.whole
@pytest.mark.postgres_versions("oldest", 15, "newest")
def test_a_table_whose_schema_is_renamed_goes_on_in_a_topic_of_its_new_name(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE SCHEMA before",
        "CREATE TABLE before.t (id int PRIMARY KEY)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "INSERT INTO before.t VALUES (1)",
        "CREATE PUBLICATION cdcd FOR ALL TABLES",
    )
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql("INSERT INTO before.t VALUES (2)")
    daemon.wait_until_confirmed()
    stream.sql("ALTER SCHEMA before RENAME TO now", "INSERT INTO now.t VALUES (3)", "INSERT INTO u VALUES (1)")
    daemon.until(lambda: daemon.log.read_text().count("the snapshot is complete") == 2, "a snapshot of now.t", 40)
    stream.sql("INSERT INTO now.t VALUES (4)", "DELETE FROM now.t WHERE id = 1", "INSERT INTO u VALUES (2)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.check(("now", "t"), ("public", "u"))


@pytest.mark.postgres_versions("oldest", "newest")
def test_a_table_that_was_dropped_and_made_again_goes_on_in_its_topic(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE PUBLICATION cdcd FOR ALL TABLES")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t VALUES (1, 1), (2, 2)",
        "BEGIN; TRUNCATE t; DROP TABLE t; CREATE TABLE t (name text PRIMARY KEY, v text[]); "
        "INSERT INTO t VALUES ('a', '{x}'); COMMIT",
        "INSERT INTO t VALUES ('b', NULL)",
    )
    daemon.wait_for_log("the snapshot is complete")  # it begins with a truncate event
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = stream.check(("public", "t"))
    assert _versions(events) == [{"id": "int4", "v": "int4"}, {"name": "text", "v": "_text"}]
