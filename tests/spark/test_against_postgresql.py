"""Tables loaded from PostgreSQL join the topics at the snapshot's LSN; `verify` names every difference by its key."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support import workload
from support.fix_postgres import Database
from support.rendering import content
from support.stream import StreamFixture

from cdcd.cli.main import main

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cdcd.source.connection import Connection, CreatedSlot
    from cdcd.source.session import Session
    from cdcd.spark import Cdc

TABLES = ["public.customers", "public.orders", "public.ledger"]


@pytest.mark.whole
def test_a_load_under_writers_is_exact_and_verify_finds_what_differs(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stream.sql(workload.SCHEMA)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        workload.mix(connection, 1, 100)
    writer = threading.Thread(target=_write, args=[stream.dsn])
    writer.start()
    catalog = lake("delta")
    mirror = cdc.mirror(TABLES, catalog, "delta")
    with cdc.snapshot(stream.dsn, TABLES, parallelism=3) as snapshot:
        at_lsn = {name: content(snapshot.rows(name)) for name in snapshot.tables}
        mirror.load(snapshot)
    folded = cdc.as_of(snapshot.lsn, TABLES)
    for name, rows in at_lsn.items():
        assert content(folded[name], folded[name].columns[:-4]) == rows, f"{name} at the snapshot"
    report = cdc.verify(stream.dsn, TABLES, mirror, parallelism=2)
    assert report.ok, report.as_text()
    assert {table.table for table in report.tables} == set(TABLES)
    assert not any(table.not_compared for table in report.tables)
    writer.join()
    daemon.wait_until_confirmed()
    assert cdc.verify(stream.dsn, ["*.*"]).ok  # the rows that the topics fold to, odd names included

    ids = [row[0] for row in stream.sql("SELECT id FROM orders ORDER BY id LIMIT 2")]
    stream.sql(
        "ALTER PUBLICATION cdcd SET (publish = 'truncate')",  # so that the daemon gets no event of the statements below
        f"UPDATE orders SET note = note || '!' WHERE id = {ids[0]}",
        f"DELETE FROM orders WHERE id = {ids[1]}",
        "INSERT INTO orders (id) VALUES (-7)",
        "INSERT INTO ledger SELECT * FROM ledger LIMIT 1",
    )
    report = cdc.verify(stream.dsn, ["public.orders", "public.ledger"], mirror)
    ledger, orders = report.tables
    found = {(each.difference, each.key) for each in orders.differences}
    assert found == {("changed", f"id={ids[0]}"), ("extra", f"id={ids[1]}"), ("missing", "id=-7")}
    assert [each.difference for each in ledger.differences] == ["missing"]

    config = tmp_path / "mirror.toml"
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ncatalog = "{catalog}"\ntables = ["public.orders"]\n[postgres]\ndsn = "{stream.dsn}"\n'
    )
    assert main(["spark", "verify", "--config", str(config)]) == 1
    assert "3 DIFFER" in capsys.readouterr().out
    assert main(["spark", "snapshot", "--config", str(config)]) == 0
    assert main(["spark", "verify", "--config", str(config), "--json"]) == 0
    assert '"ok": true' in capsys.readouterr().out


@pytest.mark.whole
def test_rows_that_the_publication_filters_out_are_neither_loaded_nor_missing(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE t (tenant int, id int, PRIMARY KEY (tenant, id))")
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t WHERE (tenant = 1)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n % 2, n FROM generate_series(1, 10) n")
    daemon.wait_until_confirmed()
    assert cdc.verify(stream.dsn, ["public.t"]).ok, "what the topics hold"
    mirror = cdc.mirror(["*"], lake("delta"), "delta")
    with cdc.snapshot(stream.dsn, ["public.t"], parallelism=2) as snapshot:
        assert snapshot.rows("public.t").count() == 5
        mirror.load(snapshot)
    assert mirror.as_of()["public.t"].count() == 5
    assert cdc.verify(stream.dsn, ["public.t"], mirror).ok


@pytest.mark.whole
def test_a_table_without_rows_comes_into_the_lake_by_a_load_and_goes_on_from_there(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE bag (v text)")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL", "CREATE TABLE other (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO other VALUES (1)")
    daemon.wait_until_confirmed()
    mirror = cdc.mirror("*", lake("iceberg"), "iceberg", table_errors="stop")
    with cdc.snapshot(stream.dsn, "public.*") as snapshot:
        mirror.load(snapshot)
    assert {name: rows.count() for name, rows in mirror.as_of().items()} == {
        "public.t": 0, "public.bag": 0, "public.other": 1
    }  # fmt: skip
    stream.sql("INSERT INTO t VALUES (1)", "INSERT INTO bag VALUES ('a'), ('a')")
    daemon.wait_until_confirmed()
    mirror.run_once()
    report = cdc.verify(stream.dsn, "public.*", mirror)
    assert report.ok, report.as_text()


@pytest.mark.whole
def test_children_that_inherit_and_partitions_without_wal_are_read_as_the_stream_has_them(
    stream: StreamFixture, cdc: Cdc
) -> None:
    stream.sql(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (more int, PRIMARY KEY (id)) INHERITS (parent)",
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE logged PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE UNLOGGED TABLE unlogged PARTITION OF root FOR VALUES FROM (10) TO (20)",
        "CREATE PUBLICATION cdcd FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (2)", "INSERT INTO root VALUES (3), (13)")
    daemon.wait_until_confirmed()
    with cdc.snapshot(stream.dsn, ["public.*"], parallelism=2) as snapshot:
        ids = {name: [row.id for row in snapshot.rows(name).collect()] for name in snapshot.tables}
    assert ids == {"public.child": [2], "public.parent": [1], "public.root": [3]}
    report = cdc.verify(stream.dsn, ["public.*"])
    assert report.ok, report.as_text()


def test_a_table_that_is_rewritten_just_after_the_snapshot_is_not_read_as_empty_and_is_locked_then(
    database: Database, spark: SparkSession
) -> None:
    from cdcd.sink.topics import TopicNames
    from cdcd.source.exported_snapshot import export_snapshot
    from cdcd.spark.load import Snapshot

    rewrites = [
        "DROP TABLE t; CREATE TABLE t AS SELECT generate_series(1, 7) AS id",
        "ALTER TABLE other ALTER id TYPE bigint",
    ]

    def export_then_rewrite(maker: Connection, session: Session, **_: object) -> CreatedSlot:
        slot = export_snapshot(maker, session)
        if rewrites:
            connection.execute(rewrites.pop().encode())
        return slot

    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute("CREATE TABLE t AS SELECT generate_series(1, 5) AS id")
        connection.execute("CREATE TABLE other AS SELECT generate_series(1, 6) AS id")
        connection.execute("CREATE PUBLICATION cdcd FOR ALL TABLES")
        with Snapshot(spark, database.dsn, "cdcd", TopicNames("p"), ["*"], 2, export_then_rewrite) as snapshot:
            assert not rewrites
            assert snapshot.rows("public.t").count() == 7
            assert snapshot.rows("public.other").count() == 6
            connection.execute("SET lock_timeout = 100")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                connection.execute("TRUNCATE t")
        connection.execute("TRUNCATE t")


def test_a_local_time_is_what_it_says_in_a_zone_that_does_not_have_it(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    from cdcd.spark.sql_expressions import text_in_spark, value_from

    local = {"type": "long", "logicalType": "local-timestamp-micros"}
    texts = (
        "0001-01-01 00:00:00", "1883-11-18 12:00:00.000005", "2026-03-29 02:30:00.000001", "9999-12-31 23:59:59.999999"
    )  # fmt: skip
    micros = [(datetime.fromisoformat(text) - datetime(1970, 1, 1)) // timedelta(microseconds=1) for text in texts]
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        sent = spark.range(1).select(f.explode(f.array(*map(f.lit, micros))).alias("sent"))
        made = sent.select(value_from(f.col("sent"), local).alias("made"))
        rows = made.select(f.col("made").cast("string"), text_in_spark(f.col("made"), local))
        assert [tuple(row) for row in rows.collect()] == list(zip(texts, map(str, micros), strict=True))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def _write(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        for part in range(5):
            workload.mix(connection, 1000 + part * 1000, 60)


@pytest.mark.whole
def test_no_setting_of_the_role_ends_or_changes_a_load(stream: StreamFixture, cdc: Cdc) -> None:
    role = f"loader_{stream.slot}"
    timeouts = {"statement_timeout": "500ms", "idle_in_transaction_session_timeout": "500ms", "lock_timeout": "1ms"}
    hostile = timeouts | {"search_path": "nowhere", "default_transaction_read_only": "on", "DateStyle": "German"}
    if stream.sql("SHOW server_version_num")[0][0] >= "170000":
        hostile["transaction_timeout"] = "1s"
    stream.sql(
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "CREATE TABLE t (id int PRIMARY KEY, d date, h hstore)",
        "INSERT INTO t SELECT g, '2026-01-31', 'a=>1' FROM generate_series(1, 1000) g",
        "CREATE PUBLICATION cdcd FOR TABLE t",
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON t TO {role}",
        *(f"ALTER ROLE {role} SET {name} = '{value}'" for name, value in hostile.items()),
    )
    stream.daemon().start().wait_for_log("going on")  # makes the topic that tells which columns are masked
    try:
        with cdc.snapshot(make_conninfo(stream.dsn, user=role), ["public.t"], parallelism=2) as snapshot:
            time.sleep(1.5)
            rows = snapshot.rows("public.t").collect()
        assert len(rows) == 1000
        assert {(str(row["d"]), *row["h"].items()) for row in rows} == {("2026-01-31", ("a", "1"))}
    finally:
        stream.sql(f"DROP OWNED BY {role}", f"DROP ROLE {role}")


def test_no_function_of_somebody_who_makes_types_is_called(stream: StreamFixture, cdc: Cdc) -> None:
    """A role that may make functions where an extension is could else run them with the rights of the loader."""
    trap = "RETURNS {} LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$"
    stream.sql(
        "CREATE EXTENSION IF NOT EXISTS hstore",
        "CREATE DOMAIN moment AS timestamptz",
        "CREATE DOMAIN bag AS hstore",
        "CREATE DOMAIN word AS text",
        f"CREATE FUNCTION public.format(text, public.word) {trap.format('text')}",
        f"CREATE FUNCTION public.length(public.word) {trap.format('int')}",
        f"CREATE FUNCTION public.hstore_to_json(public.bag) {trap.format('json')}",
        f"CREATE FUNCTION public.later(public.moment, timestamptz) {trap.format('bool')}",
        "CREATE OPERATOR public.>= (LEFTARG = public.moment, RIGHTARG = timestamptz, FUNCTION = public.later)",
        "CREATE TABLE t (id int PRIMARY KEY, m moment, b bag, w word)",
        "INSERT INTO t VALUES (1, '2026-01-31 00:00Z', 'a=>1', 'x')",
        "CREATE PUBLICATION cdcd FOR TABLE t",
    )
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    with cdc.snapshot(stream.dsn, ["public.t"]) as snapshot:
        [row] = snapshot.rows("public.t").collect()
    assert (row["id"], row["b"], row["w"]) == (1, {"a": "1"}, "x")
    report = cdc.verify(stream.dsn, ["public.t"])
    assert report.ok, report.as_text()
