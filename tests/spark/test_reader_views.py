"""Readers without Python see all tables at the published LSN: by views in SQL, by tags and versions elsewhere."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from servers.python_packages import python_with
from support import transfers
from support.fix_spark import FORMATS
from support.lake_readers import LakeReader
from support.stream import StreamFixture

from cdcd.lsn import format_lsn

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format


PYICEBERG = """
import glob, json, os, sys
from pyiceberg.table import StaticTable
total = 0
for folder in sys.argv[1:]:
    table = StaticTable.from_metadata(max(glob.glob(folder + "/metadata/*.metadata.json"), key=os.path.getmtime))
    rows = table.scan(snapshot_id=table.snapshot_by_name("cdcd_mirror").snapshot_id).to_arrow()
    total += sum(rows["balance"].to_pylist())
print(json.dumps(int(total)))
"""
"""The second engine on Iceberg's files: PyIceberg, by the tag."""


class Crash(Exception):
    """Stands for the death of the process."""


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_views_tags_and_versions_show_all_tables_at_the_published_lsn(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
) -> None:
    stream.sql(*transfers.CREATE)
    daemon = stream.daemon(sink={"transaction_linger_ms": 20}).start()
    daemon.wait_for_log("going on")
    stream.sql(transfers.FILL)
    daemon.wait_until_confirmed()
    catalog, views = lake(form), f"{lake('delta')}_views"
    sql, schema = cdc.spark.sql, catalog.rpartition(".")[2]

    def run() -> Any:
        return cdc.mirror("public.*", catalog, form, views=views, tags=form == "iceberg")

    def check(lsn: int) -> None:
        shown = sql(f"SELECT DISTINCT run, switching_to, lsn, lsn_text FROM {views}.cdcd_published").collect()
        assert [tuple(row) for row in shown] == [(mirror.published().run, None, lsn, format_lsn(lsn))]
        both = " + ".join(f"(SELECT sum(balance) FROM {views}.public_{name})" for name in transfers.TABLES)
        assert sql(f"SELECT {both}").first()[0] == transfers.TOTAL
        folder = warehouse / "delta" / f"{schema}.db" if form == "delta" else warehouse / "ice" / schema
        with LakeReader(form, folder, "balance") as reader:
            assert reader.read() == (lsn, transfers.TOTAL)
        if form == "iceberg":
            folders = [str(folder / f"public_{name}") for name in transfers.TABLES]
            assert _played(python_with("pyiceberg[pyarrow]==0.12.0"), PYICEBERG, *folders) == transfers.TOTAL

    mirror = run()
    with transfers.Transfers(stream.dsn):
        mirror.run_once()
        check(mirror.published_lsn())
        mirror.run_once()
        check(mirror.published_lsn())
        daemon.wait_until_confirmed()  # so the next run has something to show
        before, execute = mirror.published_lsn(), cdc.spark.sql
        died: list[str] = []

        def dies_amid_the_switch(statement: str) -> Any:
            if f"VIEW {views}.`public_" in statement and not died:
                died.append(statement)
                raise Crash
            return execute(statement)

        with monkeypatch.context() as patched:
            patched.setattr(cdc.spark, "sql", dies_amid_the_switch)
            with pytest.raises(Crash):
                mirror.run_once()
    assert sql(f"SELECT count(*) FROM {views}.cdcd_published WHERE switching_to IS NOT NULL").first()[0]
    daemon.wait_until_confirmed()
    mirror = run()  # another process
    mirror.run_once()
    assert mirror.published_lsn() > before
    check(mirror.published_lsn())
    made: list[str] = []

    def noted(statement: str) -> Any:
        made.append(statement)
        return execute(statement)

    with monkeypatch.context() as patched:
        patched.setattr(cdc.spark, "sql", noted)
        stream.sql("UPDATE here SET balance = balance WHERE id = 1")
        daemon.wait_until_confirmed()
        run().run_once()
    switched = [each for each in made if f"ALTER VIEW {views}.`public_" in each]
    assert len(switched) == 1, "other views than that of the touched table"
    check(mirror.published_lsn())


def _played(python: Path, script: str, *arguments: str) -> Any:
    done = subprocess.run([str(python), "-c", script, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("catalog", "second"), [("spark_catalog", "ALTER"), ("ice", "CREATE OR REPLACE")])
def test_a_reader_finds_a_view_at_any_moment(catalog: str, second: str) -> None:
    """Spark's own catalog drops a view that is replaced, and makes it anew."""
    from cdcd.spark.mirror.reader_views import ReaderViews

    said: list[str] = []
    target: Any = SimpleNamespace(exists=lambda _: bool(said), spark=SimpleNamespace(sql=said.append))
    views = ReaderViews(target, f"{catalog}.now")
    for number in range(2):
        views._set(f"{catalog}.now.t", f"SELECT {number}")
    view = f"VIEW {catalog}.now.t AS SELECT"
    assert said == [f"CREATE OR REPLACE {view} 0", f"{second} {view} 1"]
