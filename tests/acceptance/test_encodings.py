"""Databases in other encodings: what PostgreSQL cannot convert to UTF-8 is unrepresentable, and all else as it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support import topics
from support.fix_postgres import Database
from support.stream import StreamFixture

TABLE = 'CREATE TABLE "größe" (id int PRIMARY KEY, v text, "wörter" text[], d date)'


@pytest.fixture
def encoded(request: Any, database: Database, broker: str, prefix: str, tmp_path: Path) -> Iterator[StreamFixture]:
    """A stream of a database in the encoding that the parameter names."""
    name = f"{database.name}_encoded"
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        made = f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{request.param}' LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(made.encode())
    with StreamFixture(database.server.dsn(name, client_encoding="UTF8"), broker, prefix, tmp_path) as stream:
        yield stream
    Database(name, database.server).drop()


def row(event: topics.Event) -> tuple[Any, ...]:
    """Op, v, words, and the texts of what is unrepresentable."""
    names = {field["name"]: field.get("pg_name", field["name"]) for field in event.fields}
    values = {names[name]: value for name, value in event.value["after"].items()}
    lost = {names[each["column"]]: each["text"] for each in event.value["unrepresentable"]}
    return event.value["op"], values["v"], values["wörter"], lost


@pytest.mark.parametrize("encoded", ["WIN1252"], indirect=True)
def test_a_value_that_has_no_equivalent_is_unrepresentable_and_the_stream_goes_on(encoded: StreamFixture) -> None:
    bad = "convert_from('\\x632081', 'WIN1252')"
    encoded.sql(
        TABLE,
        f"INSERT INTO \"größe\" VALUES (1, 'é€', '{{ü,\"a b\"}}', '2026-01-01'), (2, 'é' || {bad}, NULL, NULL)",
    )
    daemon = encoded.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    encoded.sql(
        f"INSERT INTO \"größe\" VALUES (3, 'Ã©', ARRAY['ß', {bad}], '2026-01-02'), (4, 'œ', '{{É}}', NULL)",
        'DELETE FROM "größe" WHERE id = 3',
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    log = daemon.log.read_text()
    assert log.count("starting again") == 1, log
    events = [event for event in encoded.events() if event.value["op"] != "d"]
    topic = encoded.topics.by_table()["public", "größe"]
    assert {event.topic for event in events} == {topic}
    assert {event.value["after"]["id"]: row(event) for event in events} == {
        1: ("r", "é€", ["ü", "a b"], {}),
        2: ("r", None, None, {"v": "éc \\x81"}),
        3: ("c", "Ã©", None, {"wörter": '{ß,"c \\x81"}'}),
        4: ("c", "œ", ["É"], {}),
    }


@pytest.mark.parametrize("encoded", ["EUC_JP"], indirect=True)
def test_characters_of_several_bytes_are_converted_whole(encoded: StreamFixture) -> None:
    encoded.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = encoded.daemon().start()
    daemon.wait_for_log("going on")
    encoded.sql(
        "INSERT INTO t VALUES (1, '日本語ｱ')",
        "INSERT INTO t VALUES (2, convert_from('\\xfcfe', 'EUC_JP')), (3, '表')",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    found = {event.value["after"]["id"]: event.value for event in encoded.events()}
    assert {number: value["after"]["v"] for number, value in found.items()} == {1: "日本語ｱ", 2: None, 3: "表"}
    assert [each["text"] for each in found[2]["unrepresentable"]] == ["\\xfc\\xfe"]


@pytest.mark.parametrize(("encoded", "name"), [("WIN1252", b"n\x81"), ("SQL_ASCII", b"n\xff")], indirect=["encoded"])
def test_a_name_that_has_no_equivalent_ends_a_start_with_a_hint_that_finds_it(
    encoded: StreamFixture, name: bytes
) -> None:
    encoding = encoded.sql("SHOW server_encoding")[0][0]
    with psycopg.connect(encoded.dsn, autocommit=True, client_encoding=encoding) as connection:
        connection.execute(b'CREATE TABLE "' + name + b'" (id int)')
    encoded.sql("CREATE PUBLICATION cdcd FOR ALL TABLES")
    run = encoded.run()
    assert run.returncode == 1
    found = re.search(r"run: (SET [^;]*); (SELECT [^;]*);", run.stderr)
    assert found is not None, run.stderr
    with psycopg.connect(encoded.dsn, autocommit=True) as connection:
        connection.execute(found[1].encode())
        [(_, shown)] = connection.execute(found[2].encode()).fetchall()
    assert shown == name
