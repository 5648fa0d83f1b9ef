"""Mirrored tables equal PostgreSQL's at every published LSN, also if the mirror dies between any two statements."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from support import transfers, workload
from support.fix_spark import DELTA_WHOLE, FORMATS, ICEBERG_WHOLE
from support.rendering import content
from support.stream import StreamFixture

from cdcd.errors import Fenced, RequestRejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdcd.spark import Cdc
    from cdcd.spark.mirror.mirror import Mirror
    from cdcd.spark.packages import Format

TABLES = ("public.customers", "public.documents", "public.ledger")
"""One with a key that Avro cannot always hold, one with unchanged TOAST values, one without a key."""

COLUMNS = """SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"""
OURS = ("_row_hash", "_duplicate", "_is_deleted")


class Crash(Exception):
    """Stands for the death of the process."""


def check(mirror: Mirror, stream: StreamFixture, tables: Sequence[str] = TABLES) -> None:
    """Assert that the published tables equal the server's present ones."""
    found = mirror.as_of()
    for name in tables:
        schema, _, table = name.partition(".")
        rows = found[name]
        folded = content(rows.where("NOT _is_deleted") if "_is_deleted" in rows.columns else rows, ignore=OURS)
        wanted = stream.content(schema, table)
        assert folded - wanted == wanted - folded == Counter(), name


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_random_histories_come_out_equal_through_crashes_between_any_two_statements(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr("cdcd.spark.mirror.new_rows._APPENDED_ROWS_MIN", 1)
    chance = random.Random(8)
    catalog = lake(form)
    stream.sql(workload.SCHEMA)
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    steps: list[str] = []
    dies_at = -1

    def step(what: str) -> None:
        steps.append(what)
        if len(steps) == dies_at:
            raise Crash(what)

    with psycopg.connect(stream.dsn, autocommit=True) as connection:
        for part in range(2):
            workload.mix(connection, 1 + part * 1000, 60)
            if part:
                connection.execute("ALTER TABLE documents ALTER revision TYPE bigint, ADD vip boolean")
                connection.execute("TRUNCATE ledger")
                workload.mix(connection, 501, 20)
                # Every row changes its key, and keeps unchanged values. Then some rows change their key again.
                connection.execute("UPDATE documents SET id = gen_random_uuid()")
                connection.execute("UPDATE documents SET id = gen_random_uuid() WHERE revision = 0")
            daemon.wait_until_confirmed()
            while True:  # a new process each time
                steps.clear()
                dies_at = chance.randrange(2, 9) if part and dies_at >= -1 else -2
                # Every second process appends inserts while it reads them.
                monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", chance.choice([0, 5_000]))
                deletes = "soft" if form == "iceberg" else "hard"
                mirror = cdc.mirror(TABLES, catalog, form, deletes=deletes, on_step=step)
                try:
                    mirror.run_once()
                    break
                except Crash:
                    dies_at = -3  # once a part
            dies_at = -1
            assert mirror.lag().events == 0
            check(mirror, stream)
            assert mirror.run_once() is None or mirror.lag().events == 0


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_constraints_between_tables_hold_at_every_published_lsn(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql(*transfers.CREATE)
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    stream.sql(transfers.FILL)
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["public.*"], lake(form), form)
    with transfers.Transfers(stream.dsn):
        published = set()
        for _ in range(2):
            mirror.run_once()
            tables = mirror.as_of()
            totals = [tables[f"public.{name}"].agg({"balance": "sum"}).first()[0] for name in transfers.TABLES]
            assert sum(totals) == transfers.TOTAL
            published.add((mirror.published_lsn(), *totals))
        assert len(published) == 2
    earlier = min(published)
    assert mirror.published(earlier[0]).lsn == earlier[0]
    again = mirror.as_of(earlier[0])
    assert again["public.here"].agg({"balance": "sum"}).first()[0] == earlier[1]


@pytest.mark.whole
def test_a_change_that_cannot_be_followed_stops_with_a_hint_and_goes_on_when_told_to(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, a text, n int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake("iceberg")
    mirror = cdc.mirror("*", catalog, "iceberg", table_errors="stop")
    stream.sql("INSERT INTO t VALUES (1, 'a', 1)")
    daemon.wait_until_confirmed()
    mirror.run_once()
    stream.sql("ALTER TABLE t RENAME a TO b", "INSERT INTO t VALUES (2, 'b', 2)")
    daemon.wait_until_confirmed()
    with pytest.raises(RequestRejected, match="column a went and b came"):
        mirror.run_once()
    cdc.spark.sql(f"ALTER TABLE {catalog}.public_t RENAME COLUMN a TO b")
    mirror.run_once()
    stream.sql("ALTER TABLE t ALTER n TYPE text", "INSERT INTO t VALUES (3, 'c', '3')")
    daemon.wait_until_confirmed()
    with pytest.raises(RequestRejected, match="column n is int, and PostgreSQL's is string now"):
        mirror.run_once()
    cdc.mirror(["*"], catalog, "iceberg", schema_changes="follow").run_once()
    rows = mirror.as_of()["public.t"].orderBy("id").select("id", "b", "n").collect()
    assert [tuple(row) for row in rows] == [(1, "a", 1), (2, "b", 2), (3, "c", 3)]
    other = cdc.mirror(["*"], catalog, "iceberg")
    plan: Any = mirror._planner.plan
    stream.sql("INSERT INTO t VALUES (4, 'd', '4')")
    daemon.wait_until_confirmed()
    mirror._log.write(plan(mirror._log.last()[0], {}))
    with pytest.raises(Fenced, match="another process runs the mirror"):
        other._log.write(plan(mirror._log.last()[0], {}))


@pytest.mark.whole
def test_a_table_whose_key_changes_is_followed_through_its_new_snapshot(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    daemon = stream.daemon(snapshot={"mode": "initial"}, sink={"tombstones": True}).start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["*"], lake("delta"), "delta")
    mirror.run_once()
    stream.sql(
        "UPDATE t SET v = 'bb' WHERE id = 2",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD COLUMN tenant int NOT NULL DEFAULT 1, ADD PRIMARY KEY (tenant, id)",
        "UPDATE t SET v = 'cc' WHERE id = 3",
    )
    complete = "the snapshot is complete"
    daemon.until(lambda: daemon.log.read_text().count(complete) == 2, "the snapshot under the new key", 60.0)
    daemon.wait_until_confirmed()
    mirror.run_once()
    check(mirror, stream, ["public.t"])
    stream.sql("DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (2, 'other', 2)")
    daemon.wait_until_confirmed()
    mirror.run_once()
    check(mirror, stream, ["public.t"])


@pytest.mark.parametrize("form", ICEBERG_WHOLE)
def test_a_table_that_was_only_created_or_altered_is_merged_by_the_next_process(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    def dies(*_: object, **__: object) -> None:
        raise Crash("before the rows")

    stream.sql("CREATE TABLE t (id int PRIMARY KEY, a text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    altered = (
        "ALTER TABLE t ADD b int NOT NULL DEFAULT 7, ADD c text DEFAULT E'it''s \\\\', ADD d date DEFAULT 'infinity'",
        "ALTER TABLE t ALTER b SET DEFAULT 9",
        "INSERT INTO t VALUES (2, 'b', 2)",
    )
    for statements in ("INSERT INTO t VALUES (1, 'a')",), altered:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror = cdc.mirror(["*"], catalog, form)
        with monkeypatch.context() as patched:
            for write in "append", "merge":
                patched.setattr(f"cdcd.spark.mirror.table_write.TableWriter.{write}", dies)
            with pytest.raises(Crash):
                mirror.run_once()
        mirror = cdc.mirror(["*"], catalog, form)
        mirror.run_once()
        check(mirror, stream, ["public.t"])


@pytest.mark.whole
@pytest.mark.parametrize(("form", "deletes"), [("delta", "hard"), ("iceberg", "soft")])
def test_a_table_without_a_key_is_followed_through_columns_that_go_and_come(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format, deletes: str
) -> None:
    stream.sql("CREATE TABLE t (v int, a text, _row text, _lost int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror(["*"], lake(form), form, deletes=deletes, table_errors="stop")

    def run(*statements: str) -> None:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        [(names,)] = stream.sql(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute"
            " WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        [table] = mirror.published().tables
        for rows in mirror.table_at(table), cdc.as_of()["public.t"]:
            assert content(rows, columns=names) == stream.content("public", "t")

    one = "DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t WHERE v = 1)"
    run("INSERT INTO t VALUES (1, 'x', 'r', 7), (1, 'y', 'r', 7), (1, NULL, 'r', 7), (2, 'y', 's', 8)")
    run("DELETE FROM t WHERE a IS NULL", "ALTER TABLE t DROP a", one)  # the other row of v = 1 has the dead one's hash
    run("ALTER TABLE t ADD c int DEFAULT 7", "DELETE FROM t WHERE v = 2", "INSERT INTO t VALUES (3, 'q', 9, 8)")
    run("ALTER TABLE t ADD a text", "INSERT INTO t VALUES (4, 'q', 9, 8, 'a')", "ALTER TABLE t DROP c", one)
    with cdc.snapshot(stream.dsn, ["public.t"]) as snapshot:
        mirror.load(snapshot)
    run("DELETE FROM t WHERE v = 3")


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_rows_without_a_key_that_differ_by_a_microsecond_are_two_in_every_time_zone(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE seen (at timestamptz, place text)", "ALTER TABLE seen REPLICA IDENTITY FULL")
    stream.sql("CREATE TABLE local (at timestamp, place text)", "ALTER TABLE local REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror(["*"], lake(form), form)
    for table, zone in ("seen", "Z"), ("local", ""):
        stamps = ", ".join(f"('2026-03-29 02:30:00.00000{n}{zone}', 'x')" for n in (1, 2, 2))
        stream.sql(f"INSERT INTO {table} VALUES {stamps}")
    daemon.wait_until_confirmed()
    mirror.run_once()
    check(mirror, stream, ["public.seen", "public.local"])
    for table in "seen", "local":
        stream.sql(f"DELETE FROM {table} WHERE date_part('microseconds', at) = 1")
    daemon.wait_until_confirmed()
    zone = cdc.spark.conf.get("spark.sql.session.timeZone")
    try:
        cdc.spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
        mirror.run_once()
    finally:
        cdc.spark.conf.set("spark.sql.session.timeZone", zone)
    check(mirror, stream, ["public.seen", "public.local"])


@pytest.mark.whole
def test_an_update_that_a_row_filter_makes_an_insert_ends_the_run_with_the_unknown_value_flagged(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, body text, n int)", "ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    stream.sql("CREATE PUBLICATION cdcd FOR TABLE t WHERE (id > 100)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO t SELECT n, repeat('x', 9000), 0 FROM generate_series(1, 2) n",
        "UPDATE t SET id = id + 100",  # for the row filter, these are inserts without a body
        "UPDATE t SET n = 7 WHERE id = 101",  # an update without a body
        "INSERT INTO t VALUES (201, 'of another row', 0), (301, repeat('y', 9000), 0)",
        "INSERT INTO t VALUES (3, repeat('x', 9000), 0)",
        "BEGIN; DELETE FROM t WHERE id = 201; UPDATE t SET id = 103 WHERE id = 3; COMMIT",
        "UPDATE t SET id = 302 WHERE id = 301",  # a key change: the deleted row has the body
    )
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["*"], lake("delta"), "delta")
    frames: Any = type(cdc.spark.range(1))
    checkpoint, rounds = frames.localCheckpoint, itertools.count()

    def counted(frame: Any) -> Any:
        assert next(rounds) < 9, "goes on for ever"
        return checkpoint(frame)

    monkeypatch.setattr(frames, "localCheckpoint", counted)
    mirror.run_once()
    rows = mirror.as_of()["public.t"].orderBy("id").select("id", "body", "n", "_unrepresentable").collect()
    assert [tuple(row) for row in rows] == [
        (101, None, 7, {"body": None}),
        (102, None, 0, {"body": None}),
        (103, None, 0, {"body": None}),
        (302, "y" * 9000, 0, None),
    ]


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_deletes_may_become_soft_and_hard_again(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE bag (v int)")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog, tables = lake(form), ["public.t", "public.bag"]

    def run(deletes: str, *statements: str) -> dict[str, DataFrame]:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror = cdc.mirror(["*"], catalog, form, deletes=deletes)
        mirror.run_once()
        found = mirror.as_of()
        live = {name: mirror.table_at(mirror.published().by_id()[f"{stream.prefix}.{name}"]) for name in tables}
        for name in tables:
            assert content(live[name], ignore=OURS) == stream.content(*name.split("."))
        return found

    run("hard", "INSERT INTO t VALUES (1), (2), (3)", "INSERT INTO bag VALUES (1), (1), (2)")
    one = "DELETE FROM bag WHERE ctid = (SELECT max(ctid) FROM bag WHERE v = 1)"
    kept = run("soft", "DELETE FROM t WHERE id = 2", one)
    assert [kept[name].where("_is_deleted").count() for name in tables] == [1, 1]
    run("hard", "INSERT INTO t VALUES (2), (4)", "INSERT INTO bag VALUES (1), (3)", "DELETE FROM t WHERE id = 1")
    run("soft", "TRUNCATE t, bag", "INSERT INTO t VALUES (3)", "INSERT INTO bag VALUES (1)")


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_a_column_that_went_long_ago_and_one_that_a_person_has_added_block_no_later_column(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, a text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    mirror = cdc.mirror(["*"], catalog, form, table_errors="stop")

    def run(*statements: str) -> None:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        [(names,)] = stream.sql(
            "SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute"
            " WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        rows = mirror.as_of()["public.t"]
        named = rows.select(*(rows[name].alias(name) for name in names), "_unrepresentable")
        assert content(named) == stream.content("public", "t")

    run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    run("ALTER TABLE t DROP a, ADD at timestamp", "INSERT INTO t VALUES (3, '2026-03-29 02:30:00.000001')")
    cdc.spark.sql(f"ALTER TABLE {catalog}.public_t ADD COLUMNS (note string)")
    run(
        *("ALTER TABLE t ADD z text DEFAULT 'd'", "INSERT INTO t VALUES (4, NULL, 'z')"),
        *("ALTER TABLE t ADD a text", "INSERT INTO t VALUES (5, NULL, 'z', 'a')"),  # not the column of rows 1 and 2
    )
    stream.sql("ALTER TABLE t RENAME z TO y", "INSERT INTO t VALUES (7, NULL, 'y', 'a')")
    daemon.wait_until_confirmed()
    with pytest.raises(RequestRejected, match="column z went and y came, of the same type") as refused:
        mirror.run_once()
    renames = refused.value.hint.removeprefix("If it was renamed: ").partition(". If not")[0]
    for statement in renames.split("; "):
        cdc.spark.sql(statement)
    mirror.run_once()  # what was planned then
    added = "INSERT INTO t VALUES (8, NULL, 'y', 'a')", "INSERT INTO t VALUES (9, NULL, 'y', 'a')"
    run(added[0], 'ALTER TABLE t RENAME a TO "A"', added[1])


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_a_table_that_another_one_replaces_leaves_the_lake_with_all_its_rows(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int, a text)", "CREATE TABLE bag (v int)")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL")
    stream.sql("INSERT INTO t SELECT n, n, 'old' FROM generate_series(1, 5) n", "INSERT INTO bag VALUES (1), (1), (2)")
    daemon = stream.daemon(snapshot={"mode": "initial"}).start()
    daemon.wait_for_log("the snapshot is complete")
    daemon.wait_until_confirmed()
    mirror = cdc.mirror("*", lake(form), form, table_errors="stop")
    mirror.run_once()

    def replace(*statements: str) -> None:
        copies = daemon.log.read_text().count("the snapshot is complete")
        stream.sql(*statements)
        daemon.until(
            lambda: daemon.log.read_text().count("the snapshot is complete") > copies, "the new table's snapshot", 60.0
        )
        daemon.wait_until_confirmed()
        mirror.run_once()
        report = cdc.verify(stream.dsn, "public.*", mirror)
        assert report.ok, report.as_text()

    replace(
        "UPDATE t SET v = 7 WHERE id = 1",
        "CREATE TABLE t_new (id int PRIMARY KEY, w int, a text)",  # no rename of v: no row has outlived it
        "INSERT INTO t_new SELECT n, -n, 'new' FROM generate_series(3, 7) n",
        "BEGIN; ALTER TABLE t RENAME TO t_old; ALTER TABLE t_new RENAME TO t; COMMIT",
        "INSERT INTO t VALUES (8, 8, 'later')",
    )
    assert {row["id"] for row in mirror.as_of()["public.t"].collect()} == {3, 4, 5, 6, 7, 8}
    replace(
        "BEGIN; DROP TABLE bag; CREATE TABLE bag (v int, note text); ALTER TABLE bag REPLICA IDENTITY FULL;"
        "INSERT INTO bag VALUES (1, 'a'), (1, 'a'), (9, 'b'); COMMIT"
    )
    replace("DELETE FROM bag WHERE v = 9", "BEGIN; DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY, v int); COMMIT")
    assert mirror.as_of()["public.t"].count() == 0


def test_a_batch_is_looked_through_before_it_is_decoded_only_if_its_schema_is_another_one(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdcd.spark.mirror.batches import Batch

    looked, headers = [], Batch.headers

    def noted(batch: Batch) -> Any:
        looked.append(batch)
        return headers(batch)

    monkeypatch.setattr(Batch, "headers", noted)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror(["*"], lake("iceberg"), "iceberg")

    def looks(*statements: str) -> int:
        looked.clear()
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        [(columns,)] = stream.sql(COLUMNS)
        assert content(mirror.as_of()["public.t"], columns) == stream.content("public", "t")
        return len(looked)

    assert looks("INSERT INTO t VALUES (1, 1), (2, 2)") == 0, "the table has one schema"
    assert looks("UPDATE t SET v = 3 WHERE id = 1") == 0
    assert looks("INSERT INTO t VALUES (3, 3)", "ALTER TABLE t ADD w int", "INSERT INTO t VALUES (4, 4, 4)") == 1
    assert looks("DELETE FROM t WHERE id = 2") == 1, "nothing tells which of the two schemas"
    assert looks("INSERT INTO t VALUES (5, 5, 5)", "UPDATE t SET w = 0") == 0, "as the batch before"
    assert looks("ALTER TABLE t DROP w", "UPDATE t SET v = 0", "TRUNCATE t", "INSERT INTO t VALUES (1, 2)") == 1
