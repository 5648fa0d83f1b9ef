"""`cdcd peek` against real servers: it shows what the daemon would publish next, and leaves the slot as it was."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from support.fix_postgres import Database

from cdcd.cli.commands.peek import peek
from cdcd.config.settings import Settings
from cdcd.errors import GapError, RequestRejected
from cdcd.source.replication_stream import ReplicationStream
from cdcd.source.server_errors import SlotActive

pytestmark = pytest.mark.postgres_versions("oldest", "newest")


def slot_of(database: Database) -> str:
    return f"s_{database.name}"


def settings(database: Database, **source: Any) -> Settings:
    given = {"dsn": database.dsn, "slot": slot_of(database), "publication": "p", **source}
    return Settings(source=given, sink={"bootstrap_servers": "nowhere:9092", "prefix": "shop"})


def shown(database: Database, limit: int = 100, **source: Any) -> list[str]:
    out = io.StringIO()
    peek(settings(database, **source), limit, as_json=False, out=out)
    return [line.partition(" ")[2].partition(" ")[2].partition(" ")[2] for line in out.getvalue().splitlines()]


def as_json(database: Database, limit: int = 100, **source: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    peek(settings(database, **source), limit, as_json=True, out=out)
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def shop(database: Database) -> Database:
    database.execute(
        "CREATE TYPE pair AS (a int, b text)",
        "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(8,2), at timestamptz, c pair)",
        "ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
        "CREATE PUBLICATION p FOR TABLE t",
        f"SELECT pg_create_logical_replication_slot('{slot_of(database)}', 'pgoutput')",
    )
    return database


def test_each_change_is_one_line_for_people(shop: Database) -> None:
    shop.execute(
        "INSERT INTO t VALUES (1, 'two words', 1.5, 'infinity', (1, 'x'))",
        "INSERT INTO t (id, v) VALUES (2, repeat('x', 9000))",
        "UPDATE t SET n = 7 WHERE id = 2",
        "SELECT pg_logical_emit_message(true, 'hello', 'there')",
        "DELETE FROM t WHERE id = 1",
        "TRUNCATE t CASCADE",
    )
    lines = shown(shop)
    assert lines[0] == 'insert public.t id=1 v="two words" n=1.50 at=infinity c={"a": 1, "b": "x"}'
    assert lines[1].startswith("insert public.t id=2 v=xxxx")
    assert lines[2:] == [
        "update public.t id=2 v=(unchanged) n=7.00 at=null c=null",
        "message transactional=true prefix=hello content=\\x7468657265",
        "delete public.t id=1",
        "truncate public.t cascade=true restart_identity=false",
    ]


def test_nothing_is_consumed_and_the_limit_holds(shop: Database) -> None:
    shop.execute("INSERT INTO t SELECT n FROM generate_series(1, 500) n", "INSERT INTO t VALUES (1000)")
    state = f"SELECT confirmed_flush_lsn, restart_lsn FROM pg_replication_slots WHERE slot_name = '{slot_of(shop)}'"
    before = shop.execute(state)
    first = as_json(shop, 3)
    assert [event["key"] for event in first] == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert [event["value"]["source"]["seq"] for event in first] == [0, 1, 2]
    assert {event["topic"] for event in first} == {"shop.public.t"}
    assert as_json(shop, 3) == first
    assert len(as_json(shop, 100_000)) == 501
    assert shop.execute(state) == before


def test_empty_transactions_do_not_hide_what_comes_after_them(shop: Database) -> None:
    shop.execute("CREATE TABLE other (id int)", *("INSERT INTO other VALUES (1)" for _ in range(100)))
    shop.execute("INSERT INTO t VALUES (7)")
    assert [event["key"] for event in as_json(shop, 1)] == [{"id": 7}]


def test_binary_and_text_mode_show_the_same(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1, 'é', -1.5, '2026-01-02 03:04:05.5+00', (NULL, ''))")
    assert as_json(shop, binary=True) == as_json(shop, binary=False) != []
    shop.execute("ALTER TABLE t ADD m money", "INSERT INTO t (id, m) VALUES (2, 3.5)")
    assert as_json(shop)[1]["value"]["after"]["m"] == "$3.50"


def test_values_from_before_their_type_grew_are_shown(shop: Database) -> None:
    shop.execute("INSERT INTO t (id, c) VALUES (1, (1, 'x'))", "ALTER TYPE pair ADD ATTRIBUTE d date")
    assert as_json(shop)[0]["value"]["after"]["c"] == {"a": 1, "b": "x", "d": None}


def test_what_was_prepared_is_shown_once_it_is_committed(shop: Database) -> None:
    if shop.server.version >= 15:
        name = slot_of(shop)
        shop.execute(
            f"SELECT pg_drop_replication_slot('{name}')",
            f"SELECT pg_create_logical_replication_slot('{name}', 'pgoutput', false, true)",
        )
    with shop.connect() as session:
        session.execute("BEGIN")
        session.execute("INSERT INTO t VALUES (1)")
        session.execute(f"PREPARE TRANSACTION '{shop.name}'")
        assert as_json(shop) == []
        session.execute("INSERT INTO t VALUES (2)")
        session.execute(f"COMMIT PREPARED '{shop.name}'")
    assert [event["key"] for event in as_json(shop)] == [{"id": 2}, {"id": 1}]


def test_a_slot_in_use_is_named_with_who_has_it(shop: Database) -> None:
    with ReplicationStream(shop.dsn) as walsender:
        walsender.start(slot_of(shop), 0, {"proto_version": "1", "publication_names": '"p"'})
        with pytest.raises(SlotActive, match=f"in use by PostgreSQL's process {walsender.backend_pid}"):
            shown(shop)


def test_a_slot_that_is_not_there_or_not_ours_is_named(shop: Database) -> None:
    with pytest.raises(GapError, match='"nowhere" does not exist'):
        shown(shop, slot="nowhere")
    name = slot_of(shop)
    shop.execute(
        f"SELECT pg_drop_replication_slot('{name}')",
        f"SELECT pg_create_logical_replication_slot('{name}', 'test_decoding')",
    )
    with pytest.raises(RequestRejected, match="test_decoding"):
        shown(shop)


def test_the_command_writes_lines_and_errors_end_it_with_1(shop: Database) -> None:
    shop.execute("INSERT INTO t VALUES (1), (2)")

    def run(*arguments: str, slot: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "CDCD_SOURCE__DSN": shop.dsn,
            "CDCD_SOURCE__SLOT": slot or slot_of(shop),
            "CDCD_SOURCE__PUBLICATION": "p",
            "CDCD_SINK__BOOTSTRAP_SERVERS": "nowhere:9092",
        }
        command = [sys.executable, "-P", "-m", "cdcd", "peek", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    done = run("--limit", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["value"]["after"]["id"] == 1
    missing = run(slot="nowhere")
    assert missing.returncode == 1
    assert missing.stderr.startswith('cdcd: the slot "nowhere" does not exist. ')
    assert run("--limit", "0").returncode == 2
