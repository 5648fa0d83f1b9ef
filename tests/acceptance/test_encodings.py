"""Databases in other encodings: what PostgreSQL cannot convert to UTF-8 is unrepresentable, and all else as it is."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
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


EUC = ("EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004")
SINGLE_BYTE = (
    *(f"LATIN{number}" for number in range(1, 11)),
    *(f"WIN{number}" for number in (866, 874, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)),
    *("KOI8R", "KOI8U", "ISO_8859_5", "ISO_8859_6", "ISO_8859_7", "ISO_8859_8"),
)
ENCODINGS = ("UTF8", *EUC, *SINGLE_BYTE)
"""Every encoding of a server with a conversion to UTF-8. SQL_ASCII has none, and MULE_INTERNAL lets nobody in."""
USUAL = ("UTF8", "EUC_JP", "EUC_KR", "LATIN1", "WIN1251", "WIN1252", "KOI8R", "ISO_8859_8")
ALL = "CDCD_TEST_ENCODINGS" in os.environ
"""Whether to take all of ENCODINGS, which takes some minutes, and not only the USUAL ones."""


def letters(encoding: str) -> list[bytes]:
    """Bytes that may be letters in this encoding: of a single-byte one all that are not ASCII."""
    if encoding == "UTF8":
        return ["é語🐘".encode()]
    if encoding in EUC:
        return [bytes([lead, trail]) for lead in (0xA4, 0xB0, 0xC8) for trail in range(0xA1, 0xFF, 7)]
    return [bytes([byte]) for byte in range(0x80, 0x100)]


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("encoded", ENCODINGS if ALL else USUAL, indirect=True)
def test_the_letters_of_every_encoding_of_a_server_are_copied_and_streamed(encoded: StreamFixture) -> None:
    stream = encoded
    [(encoding,)] = stream.sql("SHOW server_encoding")
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE TABLE u (LIKE t INCLUDING ALL)")
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for number, letter in enumerate(letters(encoding)):
            with suppress(psycopg.DataError):  # this is no letter, or it has no equivalent
                inserted = "INSERT INTO t SELECT %s, v FROM convert_from(%s, %s) v RETURNING v"
                connection.execute(inserted, [number, letter, encoding])
        found = connection.execute("SELECT id, v FROM t").fetchall()
    assert len(found) >= min(20, len(letters(encoding)))
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    stream.sql("INSERT INTO u SELECT * FROM t", "UPDATE u SET v = v || v", "DELETE FROM t WHERE id % 2 = 1")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    assert "starting again" not in daemon.log.read_text()
    stream.check(("public", "t"), ("public", "u"))


@pytest.mark.parametrize("encoded", ["MULE_INTERNAL"], indirect=True)
def test_an_encoding_that_postgresql_does_not_convert_is_refused(encoded: StreamFixture) -> None:
    run = encoded.run()
    assert run.returncode == 1
    assert "cannot be converted to UTF-8 at all" in run.stderr.splitlines()[-1]


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
