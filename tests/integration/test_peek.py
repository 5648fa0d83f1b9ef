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


def settings(
    database: Database, sink: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **source: Any
) -> Settings:
    given: Any = {"dsn": database.dsn, "slot": slot_of(database), "publication": "p", **source}
    to: Any = {"bootstrap_servers": "nowhere:9092", "prefix": "shop", **(sink or {})}
    return Settings(source=given, sink=to, **(more or {}))


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


OUTBOX = {"table": "public.outbox", "message_prefix": "o"}


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("encoding", ["json", "json-schema", "avro"])
def test_every_format_is_shown_in_commit_order_with_the_outbox_and_headers(shop: Database, encoding: str) -> None:
    shop.execute(
        "CREATE TABLE outbox (id int PRIMARY KEY, aggregatetype text, aggregateid text, type text, payload bytea)",
        "ALTER PUBLICATION p ADD TABLE outbox",
        "INSERT INTO t VALUES (1, 'x', 1.5)",
        "INSERT INTO outbox VALUES (1, 'Order', '7', 'Placed', '\\xc301000102030405060708')",
        'SELECT pg_logical_emit_message(true, \'o\', \'{"aggregatetype":"Order","aggregateid":7,"payload":{"a":1}}\')',
        "DELETE FROM t",
    )
    for name, row in (
        ("cdcd", "id=1 v=x n=1.50 at=null c=null"),
        ("debezium", "id=1 v=x n=1.50 at=null"),
        ("row", "id=1 v=x n=1.50 at=null"),
    ):
        chosen = {"format": name, "encoding": encoding, "headers": ["op"]}
        more: dict[str, Any] = {"outbox": OUTBOX, "debezium": {"decimal_handling_mode": "string"}}
        if encoding == "avro":
            more["avro"] = {"registry_url": "http://nowhere:8081"}
        out, lines = io.StringIO(), io.StringIO()
        peek(settings(shop, chosen, more), 10, as_json=True, out=out)
        peek(settings(shop, chosen, more), 10, as_json=False, out=lines)
        events = [json.loads(line) for line in out.getvalue().splitlines()]
        assert [each["topic"] for each in events] == [
            "shop.public.t",
            "shop.outbox.Order",
            "shop.outbox.Order",
            "shop.public.t",
        ]
        assert [each["headers"]["__op"] for each in events] == ["c", "c", "c", "d"]
        assert [(each["key"], each["value"]) for each in events[1:3]] == [
            ("7", "\\xc3\x01\0\x01\x02\x03\x04\x05\x06\x07\x08"),
            ("7", {"a": 1}),
        ]
        assert events[1]["headers"]["type"] == "Placed"
        assert events[0]["key"] == {"id": 1}
        words = [line.split(" ", 1)[1] for line in lines.getvalue().splitlines()]
        assert words[1].startswith("event shop.outbox.Order ")
        assert words[2] == "event shop.outbox.Order 7 a=1"
        assert f"insert public.t {row}" in words[0]
        assert "delete public.t id=1" in words[3]


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
