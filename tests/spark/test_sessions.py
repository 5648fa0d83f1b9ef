"""The tables of a lake are the same whatever a session's settings say, and with compiled plans as users have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest
from support import workload
from support.fix_spark import DELTA_WHOLE, FORMATS, SMALL_DATA, generated_classes, given
from support.stream import StreamFixture

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format

ODD = {
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
}
AS_USERS_HAVE = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.adaptive.enabled": "true",
}


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_no_setting_of_a_session_changes_a_type_or_a_row(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    columns = 'at timestamptz, local timestamp, ats timestamptz[], j jsonb, "Name" text'
    stream.sql(f"CREATE TABLE t (id int PRIMARY KEY, {columns})", f"CREATE TABLE bag ({columns})")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL", "CREATE TABLE named (name text PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    instant = "'2026-03-29 02:30:00.000001Z'::timestamptz"
    values = (
        f"""{instant}, '2026-03-29 02:30:00.000001', ARRAY[{instant}], '{{"a": "it''s \\\\ q"}}', E'it''s \\\\ "q"'"""
    )
    catalog = lake(form)
    mirror = cdc.mirror("*", catalog, form, table_errors="stop")
    with given(cdc.spark, ODD):
        stream.sql(f"INSERT INTO t VALUES (1, {values})", f"INSERT INTO bag VALUES ({values})")
        stream.sql("INSERT INTO t (id) VALUES (2)", "INSERT INTO bag (at) VALUES (now())")
        stream.sql("INSERT INTO named SELECT unnest(ARRAY['${spark.app.name}', 'A''s', E'a\\\\b']), 1")
        daemon.wait_until_confirmed()
        mirror.run_once()
        stream.sql("UPDATE named SET v = 2")
        stream.sql("UPDATE t SET id = 3 WHERE id = 1", 'DELETE FROM bag WHERE "Name" IS NULL')
        stream.sql(f"ALTER TABLE t ADD more timestamptz DEFAULT {instant}", "INSERT INTO t (id) VALUES (4)")
        daemon.wait_until_confirmed()
        mirror.run_once()
        for compared in (mirror, None)[: 2 if form == "iceberg" else 1]:
            report = cdc.verify(stream.dsn, "public.*", compared)
            assert report.ok, report.as_text()
    for name in "t", "bag":
        types = dict(cdc.spark.table(f"{catalog}.public_{name}").dtypes)
        assert (types["at"], types["local"], types["ats"]) == ("timestamp", "timestamp_ntz", "array<timestamp>")
        assert types["_commit_ts"] == "timestamp"


@pytest.mark.whole
def test_compiled_plans_give_the_same_rows(stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]) -> None:
    """`test_cluster` has them with Delta."""
    stream.sql(workload.SCHEMA)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    assert AS_USERS_HAVE.keys() == SMALL_DATA.keys()
    names = ["public.customers", "public.documents", "public.ledger"]
    with given(cdc.spark, AS_USERS_HAVE), psycopg.connect(stream.dsn, autocommit=True) as connection:
        mirror = cdc.mirror(names, lake("iceberg"), "iceberg", table_errors="stop")
        for part in range(2):
            workload.mix(connection, 1 + part * 1000, 40)
            daemon.wait_until_confirmed()
            mirror.run_once()
        report = cdc.verify(stream.dsn, names, mirror, parallelism=1)
        assert report.ok, report.as_text()


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_a_run_as_the_one_before_generates_no_classes(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    """Java would run them uncompiled, which takes a fifth of a run. So no text of a plan has a figure of the run."""
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror("*", lake(form), form, table_errors="stop", parallel=1)
    of_inserts = "INSERT INTO t SELECT n, 0 FROM generate_series((SELECT count(*) FROM t) + 1, {} * 10100) n"
    of_updates = "UPDATE t SET v = v + 1 WHERE id BETWEEN 10 + {0} AND 100 + {0}"
    generated: list[int] = []
    with given(cdc.spark, AS_USERS_HAVE):
        for changes in [[of_inserts]] * 4 + [[of_inserts, of_updates, of_updates]] * 5:
            stream.sql(*(each.format(len(generated) + 1) for each in changes))
            daemon.wait_until_confirmed()
            before = generated_classes(cdc.spark)
            mirror.run_once()
            generated.append(generated_classes(cdc.spark) - before)
    assert generated[0] > 0
    # At a checkpoint Delta generates classes of its own.
    assert (min(generated[2:4]), min(generated[6:])) == (0, 0), generated
    assert cdc.spark.table(mirror.published().tables[0].target).count() == 9 * 10100
