"""The operation of a mirror: a registry, tables that join later, compaction, metrics for Prometheus."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from servers.processes import free_port
from support.fix_spark import FORMATS, given, jobs
from support.registry import Registry
from support.stream import StreamFixture

from cdcd.cli.main import main
from cdcd.errors import GapError, RequestRejected, SettingsError
from cdcd.lsn import format_lsn

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format


VACUUM = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",  # else it has 10,000 tasks
}


def test_events_are_decoded_by_the_schemas_of_a_registry(stream: StreamFixture, cdc: Cdc) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    from cdcd.spark import Cdc

    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with Registry() as registry:
        daemon = stream.daemon(avro={"registry_url": registry.url}).start()
        daemon.wait_for_log("going on")
        stream.sql("INSERT INTO t VALUES (1, 1)", "ALTER TABLE t ALTER v TYPE bigint")
        stream.sql("INSERT INTO t VALUES (2, 1::bigint << 40)")
        daemon.wait_until_confirmed()
        by_registry = Cdc(cdc.spark, stream.broker, stream.prefix, registry=registry.url)
        rows = by_registry.as_of()["public.t"].orderBy("id").select("id", "v").collect()
        assert [tuple(row) for row in rows] == [(1, 1), (2, 1 << 40)]
        registry.subjects[f"{stream.prefix}.public.t-value"].pop()
        forgetful = Cdc(cdc.spark, stream.broker, stream.prefix, registry=registry.url)
        with pytest.raises(Exception, match="names a schema that was not known when the query was made"):
            forgetful.changes("public.t").collect()


def test_a_registry_that_has_no_url_is_refused_with_the_hint(cdc: Cdc) -> None:
    pytest.importorskip("confluent_kafka.schema_registry", reason="needs the extra `registry`")
    from cdcd.spark import Cdc

    with pytest.raises(SettingsError, match=r"refuses its settings: .*Correct the registry's URL"):
        Cdc(cdc.spark, "localhost:1", "p", registry="me:secret@registry:8081")


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_tables_join_and_small_files_go_while_published_versions_stay(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t0 (id int PRIMARY KEY)", "CREATE TABLE other (id int PRIMARY KEY)")
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    mirror = cdc.mirror(["public.t*"], catalog, form)
    lsns = []
    for number in range(3):
        stream.sql(f"INSERT INTO t0 VALUES ({number})", f"INSERT INTO other VALUES ({number})")
        if number == 2:
            stream.sql("CREATE TABLE t1 (id int PRIMARY KEY)", "INSERT INTO t1 VALUES (7)")
        daemon.wait_until_confirmed()
        mirror.run_once()
        lsns.append(mirror.published_lsn())
    mirror.compact(keep_runs=2)
    for table in mirror.published().tables:
        if form == "iceberg":
            assert table.version == mirror._target.version(table.target)
        else:  # VACUUM makes versions, too
            history = cdc.spark.sql(f"DESCRIBE HISTORY {table.target}").collect()
            later = {row["operation"] for row in history if row["version"] > table.version}
            assert later <= {"VACUUM START", "VACUUM END"}, "VACUUM takes what is published"
    assert mirror.as_of()["public.t0"].count() == 3
    earlier = mirror.as_of(lsns[1])
    assert list(earlier) == ["public.t0"]
    assert earlier["public.t0"].count() == 2
    with pytest.raises(RequestRejected, match="has published nothing by then"):
        mirror.as_of(lsns[0])
    if form == "iceberg":
        cdc.spark.sql(f"ALTER TABLE {catalog}.cdcd_runs SET TBLPROPERTIES ('history.expire.max-snapshot-age-ms' = '1')")
        mirror.compact(keep_runs=3)
        assert cdc.spark.table(f"{catalog}.cdcd_runs.snapshots").count() == 1
        assert mirror.as_of(lsns[1])["public.t0"].count() == 2
    stream.sql("DELETE FROM t0 WHERE id < 2", "INSERT INTO t1 VALUES (8)")
    daemon.wait_until_confirmed()
    mirror.run_once()
    found = mirror.as_of()
    assert {row["id"] for row in found["public.t0"].collect()} == {2}
    assert {row["id"] for row in found["public.t1"].collect()} == {7, 8}


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_maintenance_by_others_takes_no_published_row_and_readers_elsewhere_are_not_behind(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t (v int)", "ALTER TABLE t REPLICA IDENTITY FULL")
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    catalog, views, sql = lake(form), lake("delta"), cdc.spark.sql
    mirror = cdc.mirror("*", catalog, form, table_errors="stop", views=views)
    reader = type(cdc)(cdc.spark.newSession(), stream.broker, stream.prefix).mirror("*", catalog, form)
    in_sql = cdc.spark.newSession()
    in_sql.conf.set("spark.sql.catalog.ice.cache-enabled", "false")

    def upkeep() -> None:
        purge = f"REORG TABLE {catalog}.public_t APPLY (PURGE)"  # OPTIMIZE leaves the one file of a small table
        statements = [f"OPTIMIZE {catalog}.public_t", purge, f"VACUUM {catalog}.public_t RETAIN 0 HOURS"]
        if form == "iceberg":
            name = f"table => '{catalog.rpartition('.')[2]}.public_t'"
            rewrite = f"rewrite_data_files({name}, options => map('rewrite-all', 'true'))"
            expire = f"expire_snapshots({name}, older_than => timestamp '9999-01-01', retain_last => 1)"
            statements = [f"CALL ice.system.{call}" for call in (rewrite, expire)]
        with given(cdc.spark, VACUUM):
            for statement in statements:
                sql(statement).collect()

    for number in range(2):
        stream.sql(f"INSERT INTO t SELECT {number} FROM generate_series(1, 3)")
        daemon.wait_until_confirmed()
        mirror.run_once()
        assert reader.published_lsn() == mirror.published_lsn(), "what it has kept is older"
        shown = in_sql.sql(f"SELECT count(*) FROM {views}.public_t").collect()[0][0]
        assert shown == reader.as_of()["public.t"].count() == 3 * (number + 1)
    upkeep()
    assert mirror.as_of()["public.t"].count() == 6
    stream.sql("DELETE FROM t WHERE v = 0")  # of a table without a key: needs the published rows
    daemon.wait_until_confirmed()
    mirror.run_once()
    assert [row["v"] for row in mirror.as_of()["public.t"].collect()] == [1, 1, 1]
    sql(
        f"DELETE FROM {catalog}.public_t WHERE _duplicate = 1"
    )  # a person changes rows, so no version has the published ones
    upkeep()
    stream.sql("DELETE FROM t WHERE ctid = (SELECT max(ctid) FROM t)")
    daemon.wait_until_confirmed()
    with pytest.raises(GapError, match=r"no longer has the (files of version|snapshot) .*, which a run has published"):
        mirror.run_once()
    with cdc.snapshot(stream.dsn, "public.t") as snapshot:
        mirror.load(snapshot)  # the hint
    assert cdc.verify(stream.dsn, "public.t", mirror).ok


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_a_run_with_nothing_new_runs_no_spark_job_and_finds_what_comes_later(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror("*", lake(form), form)
    for number in range(2):
        stream.sql(f"INSERT INTO t VALUES ({number})")
        daemon.wait_until_confirmed()
        daemon.stop()  # an idle daemon still says how far the server is
        before = jobs(cdc.spark)
        while mirror.run_once() is not None:
            before = jobs(cdc.spark)
        assert jobs(cdc.spark) == before, "also right after a run of its own"
        lsn = mirror.published_lsn()
        assert mirror.run_once() is None
        assert mirror.lag().events == 0
        assert mirror.published_lsn() == lsn
        assert jobs(cdc.spark) == before
        assert mirror.as_of()["public.t"].count() == number + 1
        if not number:
            daemon = stream.daemon().start()
            daemon.wait_for_log("going on")


@pytest.mark.parametrize("form", FORMATS)
def test_a_runs_row_tells_its_work_and_a_table_its_files(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    from cdcd.spark.mirror.run_log import PLANNED, PUBLISHED

    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE still (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror(["*"], lake(form), form)

    def work_of(*statements: str) -> dict[str, int | None]:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        began = datetime.now(UTC)
        mirror.run_once()
        run = mirror.published()
        times = mirror.times(run)
        assert began <= times[PLANNED] <= times[PUBLISHED] <= datetime.now(UTC)
        took = (times[PUBLISHED] - began).total_seconds()
        assert all((each.seconds is None) == (each.events is None) for each in run.tables)
        assert all(0 < each.seconds <= took for each in run.tables if each.seconds is not None)
        rows, files = mirror.as_of(), mirror.files(run)
        for each in run.tables:
            paths = rows[each.table].selectExpr("input_file_name()").distinct().collect()
            sizes = [Path(urlsplit(path).path).stat().st_size for (path,) in paths]
            assert (files[each.id].count, files[each.id].bytes) == (len(sizes), sum(sizes))
        return {each.table: each.events for each in run.tables}

    inserts = [f"INSERT INTO {name} SELECT generate_series(1, 5)" for name in ("t", "still")]
    assert work_of(*inserts) == {"public.t": 5, "public.still": 5}
    assert work_of("INSERT INTO t SELECT generate_series(6, 8)") == {"public.t": 3, "public.still": None}


@pytest.mark.whole
def test_a_mirrors_metrics_tell_its_lag(stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]) -> None:
    from cdcd.spark.metrics import MirrorMetrics

    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT generate_series(1, 5)")
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["*"], lake("iceberg"), "iceberg")
    port = free_port()
    metrics = MirrorMetrics(port)
    before = mirror.lag()
    assert before.events >= 5
    metrics.report(mirror.run_once(), mirror.lag())
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[0] != "#")
    assert float(lines["cdcd_mirror_events_total"]) == 5
    assert float(lines["cdcd_mirror_lag_events"]) == 0
    assert int(float(lines["cdcd_mirror_published_lsn"])) == mirror.published_lsn()
    assert float(lines["cdcd_mirror_run_seconds_count"]) == 1


@pytest.mark.whole
def test_the_command_names_the_run_that_it_published_and_that_a_mirror_behind_is_compared_from(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the command would take pytest's
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (1)")
    daemon.wait_until_confirmed()
    config, catalog = tmp_path / "mirror.toml", lake("delta")
    config.write_text(
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ncatalog = "{catalog}"\n[postgres]\ndsn = "{stream.dsn}"\n'
    )
    assert main(["spark", "mirror", "--config", str(config), "--once"]) == 0
    [row] = cdc.spark.table(f"{catalog}.cdcd_runs").where("state = 'published'").select("run", "lsn").collect()
    assert f"published run {row.run} at {format_lsn(row.lsn)} ({row.lsn}): 1 events in " in capsys.readouterr().out
    assert main(["spark", "status", "--config", str(config)]) == 0
    first, behind, last, upkeep, _, of_t = capsys.readouterr().out.splitlines()
    assert first == f"mirror: run {row.run}, published at {format_lsn(row.lsn)}"
    assert behind.startswith("behind the topics: 0 events, ")
    assert last.startswith("last run: 1 events of 1 table in ")
    assert upkeep == "next upkeep: after run 100"
    table, target, state, events, seconds, files, *_ = of_t.split()
    assert (table, target, state, events, files) == ("public.t", f"{catalog}.`public_t`", "published", "1", "1")
    assert float(seconds) > 0
    stream.sql("INSERT INTO t VALUES (2)")
    daemon.wait_until_confirmed()
    assert main(["spark", "verify", "--config", str(config)]) == 0
    compared, of_t = capsys.readouterr().out.splitlines()
    known = f"the mirror: its run {row.run}, published at {format_lsn(row.lsn)} ({row.lsn}), with the later events"
    assert known in compared
    assert of_t.split() == ["public.t", "2", "rows", "equal"]
    assert daemon.stop() == 0
