"""`cdcd verify --repair` publishes what differs and nothing else, once, while daemon and writers go on."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.daemon import cdcd, command, environment
from support.stream import StreamFixture, Writer, eventually

from cdcd.snapshot.repair_events import REPAIR_ORIGIN
from cdcd.source.requests_table import CREATE_SCHEMA, CREATE_TABLE

LOSSES = (
    "UPDATE items SET body = 'changed' WHERE id = 42",
    "INSERT INTO items VALUES (9999, 'missing in Kafka', NULL)",
    "DELETE FROM items WHERE id IN (7, 8)",
)


@contextmanager
def unpublished(stream: StreamFixture) -> Iterator[None]:
    """What is written inside does not come to Kafka."""
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'truncate')")
    yield
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")


def verify(config: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run `cdcd verify`; returns its exit code, its JSON objects, and what it says on stderr."""
    done = subprocess.run(
        [*command(), "verify", "--config", str(config), "--json", *arguments],
        capture_output=True, text=True, timeout=180, check=False, env=environment(),
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def repairs(stream: StreamFixture) -> Counter[tuple[str, str]]:
    """How many events of repairs each topic has, by op."""
    found = (event for event in stream.events() if event.value is not None)
    return Counter(
        (event.topic.removeprefix(f"{stream.prefix}."), event.value["op"])
        for event in found
        if event.value is not None and event.value["source"]["origin"] == REPAIR_ORIGIN
    )


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_only_what_differs_is_published_while_writers_go_on(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE items (id int PRIMARY KEY, name text, body text)", Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO items SELECT n, 'name ' || n, repeat('b', 5000) FROM generate_series(1, 500) n")
    with unpublished(stream):
        stream.sql(*LOSSES)
    with Writer(stream.dsn) as writer:
        code, found, said = verify(daemon.config, "--repair", "--dry-run")
        assert code == 1, said
        assert found[-2:][0].get("would_repair") == 4 or found[-1].get("would_repair") == 4
        assert repairs(stream) == {}
        before = writer.commits
        code, found, said = verify(daemon.config, "--repair")
        assert code == 0, said
        assert [each for each in found if "published" in each] == [
            {"table": "public.items", "published": 2, "deleted": 2, "lsn": found[-1]["lsn"]}
        ]
        assert writer.commits > before
    assert repairs(stream) == {("public.items", "r"): 2, ("public.items", "d"): 2}
    code, found, said = verify(daemon.config)
    assert code == 0, said
    stream.check(("public", "items"), ("public", "t"))
    assert daemon.stop() == 0


def test_a_row_that_is_written_between_comparison_and_repair_is_published_as_it_is_then(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "CREATE TABLE seen (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 0 FROM generate_series(1, 10) n")
    with unpublished(stream):
        stream.sql("UPDATE t SET v = 1 WHERE id <= 3", "DELETE FROM t WHERE id = 4")
    asked = '{"columns":["id"],"keys":[["1"],["2"],["3"],["4"],["5"]]}'
    daemon.stop()
    stream.sql(
        "INSERT INTO cdcd.requests (slot, action, table_schema, table_name, keys) "
        f"VALUES ('{stream.slot}', 'repair', 'public', 't', '{asked}')",
        "UPDATE t SET v = 2 WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (4, 4)",
    )
    daemon.start()
    daemon.wait_for_log("repaired rows")
    assert verify(daemon.config)[0] == 0
    assert repairs(stream) == {("public.t", "r"): 4, ("public.t", "d"): 1}
    assert daemon.stop() == 0


def test_a_daemon_that_is_killed_again_and_again_repairs_each_row_once(stream: StreamFixture, tmp_path: Path) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, repeat('x', 2000) FROM generate_series(1, 4000) n")
    with unpublished(stream):
        stream.sql("UPDATE t SET v = 'changed'", "DELETE FROM t WHERE id % 4 = 0")
    said = tmp_path / "verify"
    with said.open("wb") as output:
        process = subprocess.Popen(
            [*command(), "verify", "--config", str(daemon.config), "--json", "--repair"],
            stdout=output, env=environment(),
        )  # fmt: skip
    eventually(lambda: stream.sql("SELECT 1 FROM cdcd.requests"), "a request", 60)
    for _ in range(4):
        daemon.wait_for_log("took a snapshot", 60)
        daemon.kill()
        daemon.start()
    assert process.wait(180) == 0, said.read_text()[-1000:]
    assert repairs(stream) == {("public.t", "r"): 3000, ("public.t", "d"): 1000}
    stream.check(("public", "t"))
    assert daemon.stop() == 0


KEYS = {
    "long text": ("text", "'%' || repeat('ü\"', 60) || $$'\\$$ || n"),
    "fixed text": ("char(12)", "'a' || n"),
    "numeric": ("numeric", "n + 1.50"),
    "time": ("timestamptz", "'2020-01-01 00:00:00.000001+02'::timestamptz + n * interval '1 day'"),
    "infinity": ("date", "CASE n WHEN 1 THEN 'infinity'::date ELSE date '2020-01-01' + n END"),
    "uuid": ("uuid", "md5(n::text)::uuid"),
    "enum": ("mood", "('{a b,ü}'::mood[])[n % 2 + 1]"),
    "domain": ("guarded", "n"),
    "array": ("int[]", "ARRAY[n, NULL]"),
    "binary": ("bytea", "decode(lpad(to_hex(n), 4, '0'), 'hex')"),
    "not a number": ("float8", "CASE n WHEN 1 THEN 'NaN'::float8 ELSE n / 3.0 END"),
}


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
def test_keys_of_every_kind_are_found(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TYPE mood AS ENUM ('a b', 'ü')",
        "CREATE DOMAIN guarded AS int CHECK (VALUE > -1000)",
        "CREATE TABLE leaves (a int, b text, PRIMARY KEY (b, a)) PARTITION BY RANGE (a)",
        "CREATE TABLE leaf1 PARTITION OF leaves FOR VALUES FROM (0) TO (2)",
        "CREATE TABLE leaf2 PARTITION OF leaves FOR VALUES FROM (2) TO (9)",
        CREATE_SCHEMA,
        CREATE_TABLE,
        "CREATE PUBLICATION cdcd FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    tables = {f"keys{n}": each for n, each in enumerate(KEYS.values())}
    for table, (pgtype, value) in tables.items():
        stream.sql(
            f"CREATE TABLE {table} (k {pgtype} PRIMARY KEY, v int)",
            f"INSERT INTO {table} SELECT {value}, n FROM generate_series(1, 2) n",
        )
    stream.sql("INSERT INTO leaves SELECT n, 'it''s ' || n FROM generate_series(0, 5) n")
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    with unpublished(stream):
        for table in tables:
            stream.sql(f"UPDATE {table} SET v = -1 WHERE v = 1", f"DELETE FROM {table} WHERE v = 2")
        stream.sql("DELETE FROM leaves WHERE a IN (1, 2)", "INSERT INTO leaves VALUES (1, 'other')")
    code, _, said = verify(daemon.config, "--repair")
    assert code == 0, said
    assert repairs(stream) == {
        **{(f"public.{table}", op): 1 for table in tables for op in "rd"},
        ("public.leaves", "d"): 2,
        ("public.leaves", "r"): 1,
    }
    code, found, said = verify(daemon.config)
    assert code == 0, [each for each in found if not each.get("equal")]
    assert daemon.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_what_cannot_or_must_not_be_repaired_is_said(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE bag (n int)", "ALTER TABLE bag REPLICA IDENTITY FULL", "CREATE TABLE t (id int PRIMARY KEY)"
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO bag VALUES (1)", "INSERT INTO t SELECT generate_series(1, 20)")
    with unpublished(stream):
        stream.sql("INSERT INTO bag VALUES (2)", "DELETE FROM t WHERE id <= 10")
    code, _, said = verify(daemon.config, "--repair", "public.bag")
    assert code == 1
    assert "public.bag has no key" in said
    assert "cdcd snapshot public.bag" in said
    code, _, said = verify(daemon.config, "--repair", "--max-rows", "9", "public.t")
    assert code == 1
    assert "10 rows differ, more than --max-rows 9" in said
    code, _, said = verify(daemon.config, "--key-from", "3", "public.t")
    assert code == 2
    assert "Add --repair" in said
    assert repairs(stream) == {}
    code, found, said = verify(daemon.config, "--repair", "--key-from", "3", "--key-to", "10", "public.t")
    assert code == 1, "three rows differ still"
    assert (found[-1]["published"], found[-1]["deleted"]) == (0, 7), said
    assert verify(daemon.config, "--repair", "--key-from", "no number", "public.t")[0] == 1
    stream.sql("DELETE FROM bag WHERE n = 2")
    assert "passed over" not in daemon.log.read_text()
    assert daemon.stop() == 0


@pytest.mark.postgres_versions("newest")
def test_nonsense_from_whoever_may_ask_does_not_stop_the_daemon(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, m money)", "CREATE TABLE m (m money PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1, 1)")
    for table, keys in (
        ("t", "[]"),
        ("t", '{"columns": ["id"], "keys": [["1\\u0000"]]}'),
        ("t", '{"columns": ["id"], "keys": [["no number"]]}'),
        ("t", '{"columns": ["m"], "keys": [["1"]]}'),
        ("m", '{"columns": ["m"], "keys": [["no money"]]}'),
        ("nobody", '{"columns": ["id"], "keys": [["1"]]}'),
    ):
        stream.sql(
            "INSERT INTO cdcd.requests (slot, action, table_schema, table_name, keys) "
            f"VALUES ('{stream.slot}', 'repair', 'public', '{table}', $${keys}$$)"
        )
    stream.sql(f"INSERT INTO cdcd.requests (slot, action, table_schema, table_name) "
               f"VALUES ('{stream.slot}', 'repair', 'public', 't')")  # fmt: skip
    stream.sql("UPDATE t SET m = 2")
    eventually(lambda: daemon.log.read_text().count("passed over") >= 6, "the daemon has passed over all", 60)
    daemon.wait_until_confirmed()
    stream.check(("public", "t"))
    assert "done public.t" in cdcd(daemon, "snapshot", "public.t")
    assert daemon.stop() == 0
