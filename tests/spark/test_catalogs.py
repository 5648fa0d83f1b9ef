"""The page's catalogs of Iceberg: one in PostgreSQL itself, and a folder."""

from __future__ import annotations

import signal
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict
from support.fix_spark import given
from support.pages import blocks
from support.stream import StreamFixture

from cdcd.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog."


@pytest.mark.whole
@pytest.mark.parametrize("kind", ["jdbc", "hadoop"])
def test_the_page_mirrors_into_catalogs_of_iceberg_that_need_no_server(
    stream: StreamFixture, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # the command would take pytest's
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "CREATE SCHEMA lake")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    [text] = [block.text for block in blocks("spark") if block.text.startswith("# iceberg.toml")]
    login = {name: str(value) for name, value in conninfo_to_dict(stream.dsn).items()}
    name = f"my-{kind}"  # SQL has to quote it
    for there, here in {
        "localhost:9092": stream.broker,
        'prefix = "shop"': f'prefix = "{stream.prefix}"',
        "host=localhost dbname=shop user=cdcd": stream.dsn,
        "localhost:5432/shop": f"{login['host']}:{login['port']}/{login['dbname']}",
        'user" = "cdcd"': f'user" = "{login["user"]}"',
        '"/lake"': f'"{tmp_path}/lake"',
        f"{CATALOG}lake": f"{CATALOG}{name}",
        '"lake.shop"': f'"{name}.my shop"',
    }.items():
        assert there in text
        text = text.replace(there, here)
    if kind == "hadoop":
        lines = text.replace('"jdbc"', '"hadoop"').splitlines()
        text = "\n".join(line for line in lines if "jdbc" not in line)
    config = tmp_path / "iceberg.toml"
    config.write_text(text)
    options = tomllib.loads(text)["spark"]
    with given(spark, {each: value for each, value in options.items() if each.startswith(CATALOG)}):
        for statement in "INSERT INTO t VALUES (1, 'a'), (2, 'b')", "UPDATE t SET id = 3 WHERE id = 1":
            stream.sql(statement)
            daemon.wait_until_confirmed()
            assert main(["spark", "mirror", "--config", str(config), "--once"]) == 0
        assert main(["spark", "verify", "--config", str(config)]) == 0
        rows = spark.sql(f"SELECT id, v FROM `{name}`.`my shop`.public_t ORDER BY id").collect()
        assert [tuple(row) for row in rows] == [(2, "b"), (3, "a")]
