"""A masked value, or one that is left out, on every way that a row can take: its bytes are found nowhere behind cdcd.

The way: a snapshot, whole and streamed transactions, the spool's file, a parked row, a default of a new column, keys
that change, `verify`, and what the commands print. The server sends text or binary values, and the events are the same.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka.admin import AdminClient
from psycopg.conninfo import make_conninfo
from support.daemon import Daemon, cdcd, command, environment
from support.stream import StreamFixture, eventually

SECRET = "Xsecret"
KEY = "0123456789abcdef"
OPTIONS = "-c logical_decoding_work_mem=64kB"

MASKS = {
    "email": "hash",
    "phone": {"last": 4},
    "name": "null",
    "city": {"constant": "somewhere"},
    "n": "hash",
    "pin": "hash",
}
ENTRIES = [
    {"match": "public.customers", "exclude": ["notes", "memo"], "mask": MASKS},
    {"match": "public.keyed", "include": ["email", "v", "body"], "mask": {"email": "hash"}},
    {"match": "public.bag", "mask": {"email": "hash", "memo": "null"}},
]
TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, email text, phone text, name text, city text, notes text, n bigint)",
    "ALTER TABLE customers ADD COLUMN v int, ADD COLUMN doc text, ALTER phone TYPE varchar(80)",
    "ALTER TABLE customers ALTER doc SET STORAGE EXTERNAL, ALTER email SET STORAGE EXTERNAL",
    "CREATE TABLE keyed (email text PRIMARY KEY, notes text, v int, body text)",
    "CREATE TABLE bag (email text, memo text, v int)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "CREATE TABLE plain (id int PRIMARY KEY, v text)",
)


def hashed(text: str) -> str:
    return blake2b(text.encode(), key=KEY.encode(), digest_size=16).hexdigest()


def customers(first: int, last: int) -> str:
    return (
        f"INSERT INTO customers SELECT n, '{SECRET}' || n, '{SECRET}-' || 1000 + n, '{SECRET}', '{SECRET}', '{SECRET}',"
        f" 770000000000 + n, n, repeat('d', 50) FROM generate_series({first}, {last}) n"
    )


def masked_row(n: int) -> dict[str, Any]:
    """A row of `customers` as its readers see it."""
    return {
        "id": n, "email": hashed(f"{SECRET}{n}"), "phone": "****" + f"{1000 + n}"[-4:], "name": None,
        "city": "somewhere", "n": hashed(str(770000000000 + n)), "v": n, "doc": "d" * 50,
    }  # fmt: skip


def leaks(data: bytes) -> bool:
    """Whether a secret value is in the data: the text, or one of the secret numbers, as text or in binary."""
    return SECRET.encode() in data or b"77000000" in data or (770000000001).to_bytes(8, "big") in data


def topics_bytes(stream: StreamFixture) -> bytes:
    """Every byte of every topic of the prefix, aborted transactions too."""
    admin = AdminClient({"bootstrap.servers": stream.broker})
    names = [name for name in admin.list_topics(timeout=10).topics if name.startswith(f"{stream.prefix}.")]
    assert f"{stream.prefix}.schemas" in names
    return b"\n".join(
        bytes(part or b"")
        for message in stream.topics.raw(*names, isolation="read_uncommitted")
        for part in (message.key(), message.value(), *(value for _, value in message.headers() or ()))
    )


def files_bytes(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def rows(stream: StreamFixture, table: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Operation, key, old and new row of each event, in order."""
    events = sorted(stream.topics.events(f"{stream.prefix}.public.{table}"), key=lambda event: event.position)
    return ((each.value["op"], each.key, each.value["before"], each.value["after"]) for each in events)


def verified(daemon: Daemon, *tables: str, code: int = 0) -> list[dict[str, Any]]:
    said = cdcd(daemon, "verify", "--json", *tables, code=code)
    assert not leaks(said.encode())
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("binary", [False, "auto"], ids=["text", "binary"])
@pytest.mark.postgres_versions("oldest", "newest")
def test_a_secret_value_is_nowhere_behind_cdcd(stream: StreamFixture, binary: object) -> None:
    stream.sql(*TABLES, customers(1, 20), f"INSERT INTO keyed VALUES ('{SECRET}0', '{SECRET}', 0)")
    daemon = stream.daemon(
        source={"binary": binary, "dsn": make_conninfo(stream.dsn, options=OPTIONS)},
        snapshot={"mode": "initial"},
        spool={"memory_bytes": 1 << 20},
        log={"level": "debug"},
        tables={"hash_secret": KEY},
        table=ENTRIES,
    )
    assert "names columns that none of its tables has: memo, pin." in cdcd(daemon, "check")
    daemon.start()
    daemon.wait_for_log("the snapshot is complete", 120)
    # Whole transactions: values that an update leaves as they are, keys that change, old rows, nulls.
    stream.sql(
        customers(21, 30),
        f"UPDATE customers SET email = repeat('{SECRET}', 5000) WHERE id = 21",
        "UPDATE customers SET v = -1 WHERE id = 21",
        "UPDATE customers SET id = 121 WHERE id = 21",
        "UPDATE customers SET (email, phone, name, city, n) = (NULL, NULL, NULL, NULL, NULL) WHERE id = 22",
        "DELETE FROM customers WHERE id = 23",
        f"INSERT INTO keyed VALUES ('{SECRET}1', '{SECRET}', 1), ('{SECRET}2', '{SECRET}', 2)",
        f"UPDATE keyed SET email = '{SECRET}3' WHERE v = 1",
        f"DELETE FROM keyed WHERE email = '{SECRET}2'",
        f"INSERT INTO bag VALUES ('{SECRET}', '{SECRET}', 1), ('{SECRET}', '{SECRET}', 1), (NULL, NULL, 2)",
        f"UPDATE bag SET memo = '{SECRET}9', v = 3 WHERE v = 2",
        "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
        # Columns that are added with defaults, which older rows hold.
        f"ALTER TABLE customers ADD COLUMN pin text DEFAULT '{SECRET}', ADD COLUMN memo text DEFAULT '{SECRET}', "
        "ADD COLUMN w int DEFAULT 7",
        "INSERT INTO plain VALUES (1, 'x')",
    )
    daemon.wait_until_confirmed(timeout_s=180)
    # A streamed transaction, which the spool keeps in its file until it commits.
    spool = daemon.folder / "spool"
    with psycopg.connect(stream.dsn) as connection:
        connection.execute("SAVEPOINT a")
        connection.execute(customers(1000, 1500).encode())
        connection.execute("ROLLBACK TO a")
        connection.execute(customers(2000, 22_000).encode())
        connection.execute(
            f"INSERT INTO keyed SELECT '{SECRET}s' || n, '{SECRET}', n FROM generate_series(1, 5000) n".encode()
        )
        eventually(lambda: len(files_bytes(spool)) > 1_000_000, "a spool's file")
        kept = files_bytes(spool)
        assert hashed(f"{SECRET}2000").encode() in kept or hashed(f"{SECRET}2001").encode() in kept
        assert not leaks(kept)
    daemon.wait_until_confirmed(timeout_s=180)
    found = list(rows(stream, "customers"))
    by_id = {after["id"]: after for _, _, _, after in found if after is not None}
    assert {name: by_id[5][name] for name in masked_row(5)} == masked_row(5), "from the snapshot"
    assert {name: by_id[25][name] for name in masked_row(25)} == masked_row(25), "from the stream"
    assert {name: by_id[3000][name] for name in masked_row(3000)} == masked_row(3000), "from the spool"
    assert "notes" not in by_id[3000]
    emails = [after["email"] for _, _, _, after in found if after is not None and after["id"] in (21, 121)]
    assert emails == [hashed(f"{SECRET}21"), hashed(SECRET * 5000), None, None], "PostgreSQL sends it no third time"
    assert [by_id[22][name] for name in ("email", "phone", "name", "city", "n")] == [None] * 5
    keys = [(op, key["email"]) for op, key, _, _ in rows(stream, "keyed")][:6]
    assert keys == [
        ("r", hashed(f"{SECRET}0")), ("c", hashed(f"{SECRET}1")), ("c", hashed(f"{SECRET}2")),
        ("d", hashed(f"{SECRET}1")), ("c", hashed(f"{SECRET}3")), ("d", hashed(f"{SECRET}2")),
    ]  # fmt: skip
    olds = [(before["email"], before["memo"], before["v"]) for _, _, before, _ in rows(stream, "bag") if before]
    assert olds == [(None, None, 2), (hashed(SECRET), None, 1)]
    verified(daemon)
    # A row that is too large for its topic: the table is parked, with its key and its other columns masked.
    large = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 60000) n)"
    stream.sql(f"INSERT INTO keyed VALUES ('{SECRET}8', '{SECRET}', 8, {large})", "DELETE FROM keyed WHERE v = 3")
    daemon.wait_for_log("the table public.keyed is parked", 120)
    daemon.wait_until_confirmed(timeout_s=180)
    assert cdcd(daemon, "unpark").startswith("public.keyed parked")
    assert not leaks(
        cdcd(daemon, "tail", "--json", "--last", "50", "--no-follow", f"{stream.prefix}.public.*").encode()
    )
    assert not leaks(cdcd(daemon, "schema").encode())
    assert KEY not in cdcd(daemon, "config")
    assert daemon.stop() == 0
    stream.sql(customers(50_001, 50_003), f"DELETE FROM keyed WHERE email = '{SECRET}0'")
    for form in ((), ("--json",)):
        said = cdcd(daemon, "peek", *form)
        assert hashed(f"{SECRET}50001") in said
        assert not leaks(said.encode())
    assert not leaks(topics_bytes(stream))
    assert not leaks(files_bytes(daemon.folder))
    assert KEY.encode() not in daemon.log.read_bytes()


@pytest.mark.postgres_versions("newest")
def test_verify_names_the_rows_that_differ_and_shows_no_value(stream: StreamFixture) -> None:
    stream.sql(*TABLES)
    daemon = stream.daemon(tables={"hash_secret": KEY}, table=ENTRIES).start()
    daemon.wait_for_log("going on")
    stream.sql(
        customers(1, 300),
        f"INSERT INTO keyed SELECT '{SECRET}' || n, '{SECRET}', n FROM generate_series(1, 300) n",
        f"INSERT INTO bag SELECT '{SECRET}' || n % 10, '{SECRET}' || n, 1 FROM generate_series(1, 100) n",
    )
    daemon.wait_until_confirmed(timeout_s=180)
    assert all(each["equal"] for each in verified(daemon))
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'truncate')")
    stream.sql(
        f"UPDATE customers SET email = '{SECRET}-other' WHERE id = 7",
        f"UPDATE customers SET notes = '{SECRET}-other' WHERE id = 8",  # nobody sees it: no difference
        "DELETE FROM customers WHERE id = 9",
        f"UPDATE keyed SET v = -1 WHERE email = '{SECRET}7'",
        f"INSERT INTO keyed VALUES ('{SECRET}-new', '{SECRET}', 0)",
        f"UPDATE bag SET email = '{SECRET}-other' WHERE ctid = (SELECT min(ctid) FROM bag)",
    )
    daemon.wait_until_confirmed(timeout_s=180)
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")
    found = verified(daemon, code=1)
    named = [(each["table"], each["difference"], each["key"]) for each in found if "difference" in each]
    bag = {"v": "1", "memo": None}
    assert sorted(named, key=str) == sorted(
        [
            ("public.customers", "changed", {"id": "7"}),
            ("public.customers", "extra", {"id": "9"}),
            ("public.keyed", "changed", {"email": hashed(f"{SECRET}7")}),
            ("public.keyed", "missing", {"email": hashed(f"{SECRET}-new")}),
            ("public.bag", "extra", {"email": hashed(f"{SECRET}1"), **bag}),
            ("public.bag", "missing", {"email": hashed(f"{SECRET}-other"), **bag}),
        ],
        key=str,
    )
    # A key that is masked finds no row: to repair it one by one would delete it.
    refused = subprocess.run(
        [*command(), "verify", "--repair", "public.keyed", "--config", str(daemon.config)],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip
    assert refused.returncode == 1
    assert "a column of the key of public.keyed is masked" in refused.stderr
    cdcd(daemon, "verify", "--repair", "public.customers")
    assert all(each["equal"] for each in verified(daemon, "public.customers"))
    assert {op for op, _, _, _ in rows(stream, "keyed")} == {"c"}
    assert not leaks(topics_bytes(stream))
    assert not leaks(files_bytes(daemon.folder))
    assert daemon.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_a_key_that_is_lost_is_refused_by_check_and_by_run_or_parks_its_table(stream: StreamFixture) -> None:
    stream.sql(*TABLES)
    named = stream.daemon(table=[{"match": "public.customers", "exclude": ["id"]}])
    said = cdcd(named, "check", code=1)
    assert "The column id of public.customers is left out, and it is part of the key of its events" in said
    assert "[key-masked]" in said
    named.start()
    assert named.wait() != 0
    assert "[key-masked]" in named.log.read_text()
    stream.sql("INSERT INTO customers VALUES (0)")
    masks = [{"match": "public.*", "mask": {"id": "null"}}]
    starred = stream.daemon(snapshot={"mode": "initial"}, table=masks).start()
    starred.wait_for_log("going on")
    stream.sql(customers(1, 2), "INSERT INTO plain VALUES (1, 'x')", "INSERT INTO bag VALUES ('a', 'b', 1)")
    starred.wait_for_log("the table public.customers is parked", 120)
    starred.wait_for_log("the table public.plain is parked", 120)
    stream.sql("UPDATE plain SET id = 2", "DELETE FROM plain WHERE id = 2")  # old rows with nothing but a lost key
    starred.wait_until_confirmed(timeout_s=180)

    def left() -> list[int]:
        found: list[int] = []
        for _, _, _, after in rows(stream, "bag"):
            found = [] if after is None else [*found, after["v"]]  # a snapshot that begins again begins with a truncate
        return found

    starred.until(lambda: left() == [1], "the row of the other table, perhaps of a snapshot that began again", 60)
    assert starred.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_a_mask_that_needs_text_takes_text_mode(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TYPE mood AS ENUM ('fine')", "CREATE TABLE people (id int PRIMARY KEY, born date, m mood, f float8)"
    )
    entry = {"match": "public.people", "mask": {"born": "hash", "m": "hash", "f": {"last": 2}}}
    daemon = stream.daemon(tables={"hash_secret": KEY}, table=[entry], snapshot={"mode": "initial"})
    stream.sql("INSERT INTO people VALUES (1, '2000-01-31', 'fine', 0.1)")
    assert "is made from text only" in cdcd(daemon, "check")
    daemon.start().wait_for_log("the snapshot is complete", 120)
    assert "starting again" not in daemon.log.read_text()
    stream.sql("INSERT INTO people VALUES (2, '2000-01-31', 'fine', 0.1)")
    stream.sql("CREATE TABLE later (id int PRIMARY KEY)", "ALTER TABLE people ADD COLUMN d date")
    daemon.wait_until_confirmed(timeout_s=180)
    found = [after for _, _, _, after in rows(stream, "people")]
    assert found == [
        {"id": n, "born": hashed("2000-01-31"), "m": hashed("fine"), "f": "****.1"} for n in (1, 2)
    ]  # fmt: skip
    assert all(each["equal"] for each in verified(daemon))
    assert daemon.stop() == 0
