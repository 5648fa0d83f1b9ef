"""`cdcd verify` names every difference, and reports none where none is, while writers go on."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer
from servers.processes import alive, children
from support import workload
from support.daemon import Daemon, cdcd, command, environment
from support.stream import StreamFixture, Writer, eventually

from cdcd.config.loading import load
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.progress_bar import ProgressBar
from cdcd.verify.comparison import Comparison

ORACLE = Path(__file__).parents[1] / "integration" / "test_types_oracle.py"


def verify(config: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """Run `cdcd verify`; returns its exit code, and its JSON objects: one for each key that differs, and each table."""
    done = subprocess.run(
        [*command(), "verify", "--config", str(config), "--json", *arguments],
        capture_output=True, text=True, timeout=120, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode in (0, 1), done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_nothing_differs_while_writers_go_on(stream: StreamFixture) -> None:
    stream.sql(workload.SCHEMA, Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("CALL mix(1, 400, 10)")
    with Writer(stream.dsn) as writer:
        before = writer.commits
        code, found = verify(daemon.config)
        assert writer.commits > before
    assert (code, [each for each in found if not each["equal"]]) == (0, [])
    tables = {each["table"]: each for each in found}
    assert set(tables) == {qualified_name(*table) for table in (*workload.TABLES, ("public", "t"))}
    assert all(each["rows"] > 10 for each in found)
    assert daemon.stop() == 0


@pytest.mark.whole
@pytest.mark.postgres_versions("newest")
@pytest.mark.parametrize("encoding", ["avro", pytest.param("json", marks=pytest.mark.whole)])
def test_values_of_every_type_are_equal(stream: StreamFixture, encoding: str) -> None:
    spec = importlib.util.spec_from_file_location("types_oracle", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    oracle = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(oracle)
    stream.sql("CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree")
    stream.sql("CREATE TYPE mood AS ENUM ('sad', 'so so', 'Ü')", "CREATE DOMAIN price AS numeric(10,2)")
    stream.sql(
        "CREATE DOMAIN dearer AS price CHECK (VALUE > 1)", "CREATE TYPE address AS (street text, no int, since date)"
    )
    stream.sql("CREATE TYPE nested AS (a address, ns int[])", "CREATE TYPE textrange AS RANGE (subtype = text)")
    daemon = stream.daemon(sink={"encoding": encoding}).start()
    daemon.wait_for_log("going on")
    made = 0
    for number, (type_name, cases) in enumerate((oracle.CASES | oracle.EXTENDED).items()):
        values = ", ".join(f"({n}, $v${literal}$v$)" for n, (literal, _) in enumerate(cases))
        try:  # an old server lacks some types, and some values of others
            stream.sql(f"CREATE TABLE t{number} (id int PRIMARY KEY, v {type_name})")
            stream.sql(f"INSERT INTO t{number} VALUES {values}, (-1, NULL)")
        except (psycopg.DataError, psycopg.errors.UndefinedObject):
            continue
        made += 1
    assert made > 40
    code, found = verify(daemon.config)
    assert (code, [each for each in found if not each.get("equal")]) == (0, [])
    assert sum(each["rows"] for each in found) > 300
    assert daemon.stop() == 0


def test_a_changed_a_lost_and_an_extra_row_are_named(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE items (id int PRIMARY KEY, name text, body text)",
        'CREATE TABLE "Odd, one" (a int, "B b" text, price numeric(10,2), PRIMARY KEY ("B b", a))',
        "CREATE TABLE bag (n int, memo text)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "CREATE TABLE same (id int PRIMARY KEY)",
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO items SELECT n, 'name ' || n, repeat('b', 5000) FROM generate_series(1, 5000) n",
        """INSERT INTO "Odd, one" SELECT n, 'key ' || n, n * 1.25 FROM generate_series(1, 500) n""",
        "INSERT INTO bag SELECT n % 10, NULL FROM generate_series(1, 100) n",
        "INSERT INTO same SELECT generate_series(1, 100)",
    )
    daemon.wait_until_confirmed()
    # Stop publishing for a moment, so that Kafka does not get the next changes.
    for table in ("items", '"Odd, one"', "bag"):
        stream.sql(f"ALTER PUBLICATION cdcd SET (publish = 'truncate')", f"SELECT * FROM {table} LIMIT 0")  # noqa: F541
    stream.sql(
        "UPDATE items SET body = 'changed' WHERE id = 42",
        "INSERT INTO items VALUES (9999, 'missing in Kafka', NULL)",
        "DELETE FROM items WHERE id IN (7, 8)",
        """UPDATE "Odd, one" SET price = 0 WHERE a = 17""",
        "DELETE FROM bag WHERE ctid = (SELECT ctid FROM bag WHERE n = 3 LIMIT 1)",
        "INSERT INTO bag VALUES (NULL, 'new')",
    )
    daemon.wait_until_confirmed()
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")
    code, found = verify(daemon.config)
    assert code == 1
    named = [(each["table"], each["difference"], each["key"]) for each in found if "difference" in each]
    assert sorted(named, key=str) == sorted(
        [
            ("public.items", "changed", {"id": "42"}),
            ("public.items", "missing", {"id": "9999"}),
            ("public.items", "extra", {"id": "7"}),
            ("public.items", "extra", {"id": "8"}),
            ('public."Odd, one"', "changed", {"a": "17", "B b": "key 17"}),
            ("public.bag", "extra", {"n": "3", "memo": None}),
            ("public.bag", "missing", {"n": None, "memo": "new"}),
        ],
        key=str,
    )
    summary = {each["table"]: each for each in found if "equal" in each}
    assert [summary[t]["equal"] for t in ("public.items", "public.bag", "public.same")] == [False, False, True]
    assert (summary["public.items"]["rows"], summary["public.items"]["rows_in_kafka"]) == (4999, 5000)
    said = subprocess.run(
        [*command(), "verify", "--config", str(daemon.config), "public.items", "public.same"],
        capture_output=True, text=True, timeout=120, check=False, env=environment(),
    )  # fmt: skip
    assert said.returncode == 1
    assert "public.items: 1 changed, 1 missing in Kafka, 2 extra in Kafka (PostgreSQL has 4,999 rows" in said.stdout
    assert "    changed  id=42\n" in said.stdout
    assert "public.same: 100 rows, equal" in said.stdout
    assert daemon.stop() == 0


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("encoding", ["json", "json-schema"])
def test_topics_with_json_are_compared_by_the_present_schema_and_repaired(stream: StreamFixture, encoding: str) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, gone text, n numeric(5,2), became int, body text, p int4range)",
        "ALTER TABLE t ALTER body SET STORAGE EXTERNAL",
        "CREATE TABLE bag (n float8, d date)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
    )
    daemon = stream.daemon(sink={"encoding": encoding}).start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT n, 'x', n, n, repeat(md5(n::text), 200), '[1,2]' FROM generate_series(1, 40) n",
        "UPDATE t SET id = id + 100 WHERE id > 30",
        "ALTER TABLE t DROP gone, ALTER became TYPE text",
        "ALTER TABLE t ADD since timestamptz DEFAULT '2026-11-26 10:00Z'",
        "UPDATE t SET n = -1 WHERE id < 10",
        "INSERT INTO bag VALUES ('NaN', 'infinity'), ('NaN', 'infinity'), (1e300, '0001-01-01')",
        "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
    )
    assert [each["equal"] for each in verify(daemon.config)[1]] == [True, True]
    daemon.wait_until_confirmed()
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'truncate')")
    stream.sql("UPDATE t SET since = 'infinity' WHERE id = 1", "DELETE FROM t WHERE id = 20")
    daemon.wait_until_confirmed()
    stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")
    code, found = verify(daemon.config, "public.t")
    named = [(each["difference"], each["key"]) for each in found if "difference" in each]
    assert (code, sorted(named)) == (1, [("changed", {"id": "1"}), ("extra", {"id": "20"})])
    assert verify(daemon.config, "--repair")[1][-1]["published"] == 1
    assert verify(daemon.config)[0] == 0
    stream.sql("TRUNCATE t")
    assert verify(daemon.config, "public.t")[1][-1]["rows_in_kafka"] == 0
    assert daemon.stop() == 0
    topic = f"{stream.prefix}.public.t"
    producer = Producer({"bootstrap.servers": stream.broker})
    producer.produce(topic, key=b'{"id":7}', value=b'{"op":"c","op":"d"}')
    assert producer.flush(30) == 0
    daemon.start().wait_until_streaming()
    assert "A record of 19 bytes is not an event of cdcd" in cdcd(daemon, "verify", "public.t", code=1)
    assert daemon.stop() == 0


@pytest.mark.whole
def test_tables_that_share_a_topic_with_json_are_told_apart(stream: StreamFixture) -> None:
    for name in ("a", "b"):
        stream.sql(f"CREATE SCHEMA {name}", f"CREATE TABLE {name}.t (id int PRIMARY KEY, v text)")
    shared = [{"match": "*.t", "topic": "{prefix}.all"}]
    with stream.daemon(sink={"encoding": "json"}, table=shared) as daemon:
        daemon.start().wait_until_streaming()
        stream.sql("INSERT INTO a.t VALUES (1, 'x'), (2, 'y')", "INSERT INTO b.t VALUES (1, 'x')", "TRUNCATE b.t")
        stream.sql("INSERT INTO b.t VALUES (3, 'z')")
        code, found = verify(daemon.config)
        assert (code, [(each["rows"], each["rows_in_kafka"]) for each in found]) == (0, [(2, 2), (1, 1)])
        daemon.wait_until_confirmed()
        stream.sql("ALTER PUBLICATION cdcd SET (publish = 'truncate')", "UPDATE b.t SET v = NULL")
        daemon.wait_until_confirmed()
        stream.sql("ALTER PUBLICATION cdcd SET (publish = 'insert, update, delete, truncate')")
        code, found = verify(daemon.config)
        assert [(each["table"], each["key"]) for each in found if "difference" in each] == [("b.t", {"id": "3"})]
        assert daemon.stop() == 0


def streams_documents(stream: StreamFixture, rows: int) -> Daemon:
    """Start a daemon, and insert rows with a TOASTed value, which it streams."""
    stream.sql(
        "CREATE TABLE docs (id int PRIMARY KEY, v int, body text)", "ALTER TABLE docs ALTER body SET STORAGE EXTERNAL"
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(f"INSERT INTO docs SELECT n, 0, repeat(md5(n::text), 200) FROM generate_series(1, {rows}) n")
    return daemon


def test_a_key_change_with_an_unchanged_toasted_value_is_folded_across_partitions(stream: StreamFixture) -> None:
    daemon = streams_documents(stream, 50)
    for _ in range(3):
        stream.sql("UPDATE docs SET id = id + 1000", "UPDATE docs SET v = v + 1")
    code, found = verify(daemon.config)
    assert (code, found[-1]["rows"], found[-1]["events"]) == (0, 50, 50 + 3 * 150)
    assert daemon.stop() == 0


def test_a_row_whose_key_lies_in_another_partition_since_its_type_was_altered_is_the_newest(
    stream: StreamFixture,
) -> None:
    daemon = streams_documents(stream, 200)
    stream.sql("UPDATE docs SET v = 1", "ALTER TABLE docs ALTER id TYPE bigint", "UPDATE docs SET v = 2")
    stream.sql("DELETE FROM docs WHERE id % 4 = 0")
    code, found = verify(daemon.config)
    assert (code, found[-1]["rows"]) == (0, 150)
    assert daemon.stop() == 0


def test_a_partition_that_is_far_ahead_waits(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 0 FROM generate_series(1, 4000) n", "UPDATE t SET v = id")
    daemon.wait_until_confirmed()
    settings = load(str(daemon.config)).settings
    comparison = Comparison(settings, ProgressBar(sys.stderr), waiting_max=20, batch_rows_max=50)
    [result] = comparison.run(["public.t"], wait_s=60)
    assert (result.is_equal, result.events) == (True, 8000)
    assert daemon.stop() == 0


def test_without_a_daemon_it_says_what_is_missing(stream: StreamFixture) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    stream.sql("INSERT INTO t VALUES (2)")
    done = subprocess.run(
        [*command(), "verify", "--config", str(daemon.config), "--wait", "1"],
        capture_output=True, text=True, timeout=60, check=False, env=environment(),
    )  # fmt: skip
    assert done.returncode == 1
    assert "Check that the daemon runs" in done.stderr


@pytest.mark.in_turns(2)
@pytest.mark.postgres_versions("oldest", "newest")
def test_older_rows_have_the_default_of_an_added_column(stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE bag (v text)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO t SELECT n, 'v' FROM generate_series(1, 5) n",
        "INSERT INTO bag VALUES ('a'), ('a'), ('b')",
    )
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    stream.sql(
        "ALTER TABLE t ADD c int DEFAULT 7, ADD d text[] DEFAULT '{a,NULL}', ADD e int",
        "ALTER TABLE bag ADD c int DEFAULT 7",
    )
    cdcd(daemon, "verify")  # no event knows the columns
    stream.sql("ALTER TABLE t ALTER c SET DEFAULT 8", "INSERT INTO t VALUES (6, 'v')", "DELETE FROM bag WHERE v = 'b'")
    cdcd(daemon, "verify")
    assert '"pg_missing_value":"7"' in cdcd(daemon, "schema", "--json").replace('\\"', '"').replace(": ", ":")
    stream.sql("VACUUM FULL t", "UPDATE t SET v = 'w' WHERE id = 2")
    cdcd(daemon, "verify")
    daemon.kill()
    daemon.start()
    stream.sql("UPDATE t SET v = 'x' WHERE id = 2")
    daemon.wait_until_confirmed()
    [*_, before, last] = [event for event in stream.events() if event.value["op"] == "u"]
    assert [field.get("pg_missing_value") for field in last.fields] == [None, None, "7", "{a,NULL}", None]
    assert last.fields == before.fields, "PostgreSQL has forgotten the defaults, the daemon has not"
    assert daemon.stop() == 0


@contextmanager
def verify_whose_table_process_stands(stream: StreamFixture) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`cdcd verify`, and the process that hashes the rows of its table, which is stopped (SIGSTOP) as it begins."""
    stream.sql("CREATE TABLE items (id int PRIMARY KEY, body text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO items SELECT n, repeat('b', 500) FROM generate_series(1, 100000) n")
    with subprocess.Popen(
        [*command(), "verify", "--config", str(daemon.config)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        deadline = time.monotonic() + 60
        while not (found := children(process.pid)) and time.monotonic() < deadline:
            pass
        [of_table] = found
        os.kill(of_table, signal.SIGSTOP)
        try:
            yield process, of_table
        finally:
            process.kill()
    assert daemon.stop() == 0


def test_a_killed_table_process_is_said_in_one_sentence_with_a_hint(stream: StreamFixture) -> None:
    with verify_whose_table_process_stands(stream) as (process, of_table):
        os.kill(of_table, signal.SIGKILL)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 1
    assert "the process that hashes the rows of public.items was killed by signal 9. A system that is short" in said
    assert said.rstrip().endswith("give it more memory [process-ended]")
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_table_process_ends_with_the_command(stream: StreamFixture, number: int) -> None:
    with verify_whose_table_process_stands(stream) as (process, of_table):
        os.killpg(process.pid, number)  # as Ctrl-C does: the command and what is in its group
        with suppress(ProcessLookupError):  # the command has ended it
            os.kill(of_table, signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        assert process.returncode in (-number, 128 + number)
        eventually(lambda: not alive(of_table), "the end of the process", 30)
    assert "Traceback" not in said
