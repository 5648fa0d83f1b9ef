"""Types that are altered while their values are streamed: no value is lost, none is misread."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from support import topics
from support.daemon import Daemon
from support.fix_postgres import Database
from support.stream import StreamFixture

pytestmark = pytest.mark.in_turns(3)
both_versions = pytest.mark.postgres_versions("oldest", "newest")
both_modes = pytest.mark.parametrize("mode", ["auto", False], ids=["binary", "text"])

TYPES = (
    "CREATE TYPE ct AS (a int, b text)",
    "CREATE TYPE mood AS ENUM ('ok')",
    "CREATE DOMAIN price AS numeric(10,2)",
    "CREATE TABLE t (id int PRIMARY KEY, c ct, cs ct[], m mood, p price)",
)


def _rows(events: list[topics.Event], column: str = "c") -> dict[int, Any]:
    """The column's value in each row, by id; for an unrepresentable value, its text."""
    found: dict[int, Any] = {}
    for event in sorted(events, key=lambda event: event.position):
        after = event.value["after"]
        texts = {u["column"]: u["text"] for u in event.value["unrepresentable"] if u["image"] == "after"}
        assert column not in texts or after[column] is None
        found[after["id"]] = texts.get(column, after[column])
    return found


def _ended_well(stream: StreamFixture, daemon: Daemon, restarts: int) -> list[topics.Event]:
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert log.count("starting again") == restarts, log
    events = stream.events()
    topics.check_exactly_once(events)
    return events


def _lagging(stream: StreamFixture, mode: Any, *statements: str) -> Daemon:
    """Make a slot, run the statements, and start a daemon that reads them all later."""
    stream.sql(*TYPES)
    first = stream.daemon().start()
    first.wait_for_log("going on")
    assert first.stop() == 0
    stream.sql(*statements)
    return stream.daemon(source={"binary": mode}).start()


def _live(stream: StreamFixture, mode: Any) -> Daemon:
    stream.sql(*TYPES)
    daemon = stream.daemon(source={"binary": mode}).start()
    daemon.wait_for_log("going on")
    return daemon


@both_versions
@both_modes
def test_a_lagging_daemon_reads_values_from_before_an_attribute_was_added(stream: StreamFixture, mode: Any) -> None:
    daemon = _lagging(
        stream,
        mode,
        "INSERT INTO t VALUES (1, (1, 'x'), '{\"(2,)\",NULL}'), (2, (NULL, NULL), NULL)",
        "ALTER TYPE ct ADD ATTRIBUTE n numeric(6,2)",
        "INSERT INTO t VALUES (3, (3, 'z', 1.5))",
        "ALTER TYPE ct ADD ATTRIBUTE u uuid",
        "UPDATE t SET id = 20 WHERE id = 2",
    )
    events = _ended_well(stream, daemon, 0)
    none = {"n": None, "u": None}
    events = [event for event in events if event.value["op"] != "d"]
    rows = _rows(events)
    assert rows[1] == {"a": 1, "b": "x", **none}
    assert rows[2] == rows[20] == {"a": None, "b": None, **none}
    assert {name: str(value) for name, value in rows[3].items()} == {"a": "3", "b": "z", "n": "1.50", "u": "None"}
    assert _rows(events, "cs")[1] == [{"a": 2, "b": None, **none}, None]


@both_modes
def test_a_lagging_daemon_keeps_the_text_of_values_from_before_an_attribute_got_another_type(
    stream: StreamFixture, mode: Any
) -> None:
    daemon = _lagging(
        stream,
        mode,
        "CREATE TABLE gone (id int PRIMARY KEY, c ct)",
        "INSERT INTO gone VALUES (1, (1, 'x y'))",
        "DROP TABLE gone",
        "ALTER TABLE t DROP c, DROP cs",
        "ALTER TYPE ct ALTER ATTRIBUTE b TYPE int",
        "INSERT INTO t VALUES (2)",
    )
    events = _ended_well(stream, daemon, 0)
    assert _rows([event for event in events if "c" in event.value["after"]]) == {1: '(1,"x y")'}


@both_versions
def test_types_that_double_with_each_level_stop_nothing(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "CREATE PUBLICATION cdcd FOR ALL TABLES"
    )
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql(
        "DO $$ BEGIN CREATE TYPE c0 AS (a int, b text); FOR n IN 1..16 LOOP "
        "EXECUTE format('CREATE TYPE c%s AS (a c%s, b c%2$s)', n, n - 1); END LOOP; END $$",
        "CREATE TABLE doubled (id int PRIMARY KEY, v c16, w c2)",
        "INSERT INTO doubled (id, w.a.a.a) VALUES (1, 7)",
        "INSERT INTO t VALUES (2)",
    )
    daemon.wait_until_confirmed()
    daemon.kill()
    stream.sql("UPDATE doubled SET v.a = NULL", "INSERT INTO t VALUES (3)")
    daemon.start()
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    events = [event for event in stream.events() if event.topic.endswith(".doubled")]
    assert [field["type"][1] for field in events[0].fields if field["name"] == "v"] == ["string"]
    assert events[-1].value["after"]["v"] == "(,)"
    assert events[-1].value["after"]["w"]["a"]["a"]["a"] == 7
    stream.check(("public", "t"))


@both_modes
def test_a_dropped_type_is_text_also_if_it_is_named_as_that_of_an_extension(stream: StreamFixture, mode: Any) -> None:
    daemon = _lagging(
        stream,
        mode,
        "CREATE TYPE vector AS (x float8, y float8)",
        "CREATE TYPE geometry AS ENUM ('round')",
        "CREATE TYPE hstore AS RANGE (subtype = int4)",
        "CREATE DOMAIN ltree AS vector",
        "CREATE TABLE odd (id int PRIMARY KEY, v vector, g geometry, h hstore, l ltree)",
        "INSERT INTO odd VALUES (1, '(1,2)', 'round', '[1,3)', '(3,4)')",
        "DROP TABLE odd",
        "DROP TYPE ltree, vector, geometry, hstore",
    )
    [event] = _ended_well(stream, daemon, 1 if mode else 0)
    assert event.value["after"] == {"id": 1, "v": "(1,2)", "g": "round", "h": "[1,3)", "l": "(3,4)"}
    assert [field["pg_type"] for field in event.fields[1:4]] == ["public.vector", "public.geometry", "public.hstore"]


@both_versions
@both_modes
def test_a_lagging_daemon_keeps_the_text_of_values_from_before_an_attribute_was_dropped(
    stream: StreamFixture, mode: Any
) -> None:
    daemon = _lagging(
        stream,
        mode,
        "INSERT INTO t VALUES (1, (1, 'x y'), '{\"(2,)\",NULL}')",
        "ALTER TYPE ct ADD ATTRIBUTE j jsonb, ADD ATTRIBUTE k int",
        "INSERT INTO t VALUES (2, (3, 'z', '[1]', 4))",
        "ALTER TYPE ct DROP ATTRIBUTE a, DROP ATTRIBUTE j",
        "INSERT INTO t VALUES (3, ('new', 5))",
    )
    events = _ended_well(stream, daemon, 0)
    rows = _rows(events)
    # The first and the last shape have two fields. In text mode, k tells them apart: it cannot be a text.
    assert rows[1] == '(1,"x y")'
    assert rows[2] == "(3,z,[1],4)"
    assert rows[3] == {"b": "new", "k": 5}
    assert _rows([event for event in events if event.value["after"]["id"] == 1], "cs") == {
        1: '{"(2,)",NULL}' if mode == "auto" else [{"b": "2", "k": None}, None]
    }


@both_versions
@both_modes
def test_a_live_daemon_asks_the_catalog_again_once_for_each_alteration(stream: StreamFixture, mode: Any) -> None:
    daemon = _live(stream, mode)
    stream.sql("INSERT INTO t VALUES (1, (1, 'x'))")
    daemon.wait_until_confirmed()
    stream.sql(
        "BEGIN; INSERT INTO t VALUES (2, (2, 'y')); ALTER TYPE ct ADD ATTRIBUTE n int; "
        "INSERT INTO t VALUES (3, (3, 'z', 33)); COMMIT"
    )
    daemon.wait_until_confirmed()
    stream.sql("ALTER TYPE ct DROP ATTRIBUTE b", "INSERT INTO t VALUES (4, (4, 44))")
    daemon.wait_until_confirmed()
    stream.sql("ALTER TYPE ct ADD ATTRIBUTE e mood", "UPDATE t SET c = (5, 55, 'ok') WHERE id = 1")
    daemon.wait_until_confirmed()
    events = _ended_well(stream, daemon, 3)
    assert daemon.log.read_text().count("the daemon asks the catalog again") == 3
    rows = _rows([event for event in events if event.value["op"] == "c"])
    assert rows == {
        1: {"a": 1, "b": "x"},
        2: {"a": 2, "b": "y", "n": None},
        3: {"a": 3, "b": "z", "n": 33},
        4: {"a": 4, "n": 44},
    }
    assert _rows(events)[1] == {"a": 5, "n": 55, "e": "ok"}


@both_versions
def test_a_dropped_attribute_of_a_user_defined_type_switches_to_text_mode_and_loses_nothing(
    stream: StreamFixture,
) -> None:
    daemon = _lagging(
        stream,
        "auto",
        "ALTER TYPE ct ADD ATTRIBUTE m mood",
        "INSERT INTO t VALUES (1, (1, 'x', 'ok'))",
        "ALTER TYPE ct DROP ATTRIBUTE m",
        "INSERT INTO t VALUES (2, (2, 'y'))",
    )
    events = _ended_well(stream, daemon, 1)
    assert "goes on in text mode" in daemon.log.read_text()
    assert _rows(events) == {1: "(1,x,ok)", 2: {"a": 2, "b": "y"}}


@both_versions
@both_modes
def test_a_row_type_follows_its_table(stream: StreamFixture, mode: Any) -> None:
    daemon = _live(stream, mode)
    stream.sql("CREATE TABLE part (a int, b int)", "CREATE TABLE whole (id int PRIMARY KEY, c part)")
    stream.sql("INSERT INTO whole VALUES (1, (1, 2))", "ALTER TABLE part ADD COLUMN d date")
    stream.sql("INSERT INTO whole VALUES (2, (3, 4, NULL))")
    stream.sql("ALTER TABLE part DROP COLUMN a", "INSERT INTO whole VALUES (3, (5, NULL))")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    rows = _rows([event for event in stream.events() if event.topic.endswith("whole")])
    assert rows.keys() == {1, 2, 3}
    assert rows[3] == {"b": 5, "d": None}
    assert rows[2] in ({"a": 3, "b": 4, "d": None}, "(3,4,)")


@both_versions
@both_modes
def test_enums_and_domains_change_without_a_restart(stream: StreamFixture, mode: Any) -> None:
    daemon = _live(stream, mode)
    stream.sql("INSERT INTO t (id, m, p) VALUES (1, 'ok', 1.25)")
    daemon.wait_until_confirmed()
    stream.sql(
        "ALTER TYPE mood ADD VALUE 'sad' BEFORE 'ok'",
        "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'",
        "ALTER DOMAIN price ADD CHECK (value >= 0)",
        "INSERT INTO t (id, m, p) VALUES (2, 'sad', 0), (3, 'fine', 3.5)",
    )
    events = _ended_well(stream, daemon, 0)
    assert _rows(events, "m") == {1: "ok", 2: "sad", 3: "fine"}
    assert {n: str(price) for n, price in _rows(events, "p").items()} == {1: "1.25", 2: "0.00", 3: "3.50"}


@both_versions
def test_bytes_of_a_database_without_encoding_are_escaped_and_do_not_stop_the_stream(
    stream: StreamFixture, database: Database
) -> None:
    name = f"{database.name}_ascii"
    with psycopg.connect(database.server.dsn(), autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    stream.dsn = database.server.dsn(name, client_encoding="UTF8")  # psycopg needs it
    try:
        stream.sql('CREATE TABLE t (id int PRIMARY KEY, c text, cs text[], "café" text)')
        with psycopg.connect(stream.dsn, autocommit=True, client_encoding="SQL_ASCII") as connection:
            connection.execute(b"INSERT INTO t VALUES (3, 'caf\xe9', '{\xc3\xa9}'), (4, 'caf\xc3\xa9', '{a,\xff}')")
            with stream.daemon(snapshot={"mode": "initial"}).start() as daemon:
                daemon.wait_for_log("the snapshot is complete")
                connection.execute(b"SELECT pg_logical_emit_message(true, 'caf\xe9', 'm')")
                connection.execute(b"INSERT INTO t VALUES (1, 'caf\xe9', '{\xc3\xa9}'), (2, 'caf\xc3\xa9', '{a,\xff}')")
                events = _ended_well(stream, daemon, 0)
        assert _rows(events) == {1: "caf\\xe9", 2: "café", 3: "caf\\xe9", 4: "café"}
        assert _rows(events, "cs") == {1: ["é"], 2: "{a,\\xff}", 3: ["é"], 4: "{a,\\xff}"}
    finally:
        Database(name, database.server).drop()
