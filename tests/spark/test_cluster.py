"""The mirror on a standalone cluster: a master, two workers, a driver. Executors are killed in the midst of runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest
from servers.jars import find_java
from support import fix_spark
from support.daemon import command, environment
from support.fix_spark import FORMATS
from support.lake_readers import LakeReader
from support.spark_cluster import SparkCluster
from support.stream import StreamFixture, eventually

from cdcd.lsn import format_lsn

if TYPE_CHECKING:
    from cdcd.spark.packages import Format

RUN_S = 300.0
"""For one run of the mirror, on a busy machine."""
TABLES = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, n int, doc text)",
    "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",  # so an update of another column does not have it
    "CREATE TABLE bag (n int, note text)",  # without a key: needs the published rows, and their number
    "ALTER TABLE bag REPLICA IDENTITY FULL",
)
INSERTS = """BEGIN;
    INSERT INTO orders SELECT g, 1, CASE WHEN g % 100 = 0 THEN repeat('x', 3000) ELSE md5(g::text) END
    FROM generate_series(1, 60000) g;
    INSERT INTO bag SELECT g % 50, 'equal' FROM generate_series(1, 2000) g; COMMIT"""
CHANGES = """BEGIN;
    UPDATE orders SET n = n + 1 WHERE id % 3 = 0; DELETE FROM orders WHERE id % 7 = 0;
    INSERT INTO orders SELECT g + (SELECT max(id) FROM orders), 5, 'new' FROM generate_series(1, 20000) g;
    DELETE FROM bag WHERE n = 1; UPDATE bag SET n = n + 1 WHERE n < 20; COMMIT"""
"""Each of both is one transaction, and so one run."""
SUM = "SELECT (SELECT sum(n) FROM orders) + (SELECT sum(n) FROM bag)"


class Driver:
    """`cdcd spark mirror` as a process, and what it says."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._log = config.with_suffix(".log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command("mirror"), stdout=log, stderr=log, env=_without_python())

    def wait(self, text: str, since: int) -> int:
        """Wait until it says what matches, after this place in its log; returns the place behind it."""

        def found() -> re.Match[str] | None:
            said = self._log.read_text(errors="replace")
            assert self._process.poll() is None, said[-3000:]
            return re.compile(text).search(said, since)

        return int(eventually(found, text, RUN_S).end())

    def stop(self) -> int:
        """End it by SIGTERM; returns its exit code."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(RUN_S)

    def verify(self) -> dict[str, Any]:
        """The report of `cdcd spark verify`, with the same settings."""
        command = [*self._command("verify"), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, env=_without_python(), check=False)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def _command(self, what: str) -> list[str]:
        return [*command(), "spark", what, "--config", str(self._config)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()


def _without_python() -> dict[str, str]:
    """The environment of a driver whose executors find no Python: they need none."""
    java = os.path.dirname(os.path.dirname(os.path.realpath(find_java())))  # noqa: PTH120
    return environment() | {"PYSPARK_PYTHON": "/nowhere/python", "SPARK_LOCAL_IP": "127.0.0.1", "JAVA_HOME": java}


def _settings(stream: StreamFixture, folder: Path, form: Format, master: str) -> str:
    catalog = "spark_catalog.lake" if form == "delta" else "ice.lake"
    spark = fix_spark.settings(folder) | {
        "spark.master": master,
        "spark.executor.memory": "900m",
        "spark.driver.memory": "1g",
        "spark.sql.catalogImplementation": "hive",  # a catalog that outlives the process
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
    }
    return (
        f'[kafka]\nbootstrap_servers = "{stream.broker}"\nprefix = "{stream.prefix}"\n'
        f'[mirror]\ntables = ["public.*"]\ncatalog = "{catalog}"\nformat = "{form}"\ninterval_s = 1.0\n'
        f'[postgres]\ndsn = "{stream.dsn}"\n[spark]\n'
    ) + "".join(f'"{name}" = {value!r}\n' for name, value in spark.items())


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_executors_that_are_killed_in_a_run_change_no_row(stream: StreamFixture, tmp_path: Path, form: Format) -> None:
    stream.sql(*TABLES)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    config, folder = tmp_path / "mirror.toml", tmp_path / "lake"
    tables = folder / ("delta/lake.db" if form == "delta" else "ice/lake")
    place, before = 0, 0
    with SparkCluster(workers=2, memory="1g") as cluster:
        config.write_text(_settings(stream, folder, form, cluster.url))
        stream.sql(INSERTS)
        daemon.wait_until_confirmed()
        with Driver(config) as driver, LakeReader(form, tables, "n") as reader:
            for change, victims in (INSERTS, 1), (CHANGES, 1), (CHANGES, 2):
                if place:
                    stream.sql(change)
                place = driver.wait("merge .*orders", place)
                time.sleep(1.0)
                for executor in cluster.executors()[:victims]:
                    os.kill(executor, signal.SIGKILL)
                lost = driver.wait("Lost executor", place)
                if before:
                    assert reader.read()[1] == before, "a reader saw the run that was under way"
                place = driver.wait(r"published run \d+ at \S+ \(\d+\): [1-9]", place)
                assert lost < place, "the run had ended"
                [(before,)] = stream.sql(SUM)
                assert reader.read()[1] == before
            assert driver.stop() == 0
            report = driver.verify()
            assert report["published_lsn"] == format_lsn(reader.read()[0])
    assert report["ok"]
    assert {each["table"]: each["rows"] for each in report["tables"]} == {
        f"public.{name}": stream.sql(f"SELECT count(*) FROM {name}")[0][0] for name in ("orders", "bag")
    }
