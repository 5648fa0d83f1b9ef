"""The page about Spark: its program runs as it stands there."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.pages import blocks
from support.stream import StreamFixture

from cdcd.lsn import parse_lsn
from cdcd.manual import page

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.whole
def test_the_program_on_the_page(
    spark: SparkSession,
    stream: StreamFixture,
    lake: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream.sql("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10, 2))")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO orders VALUES (1, 7), (2, 8)", "DELETE FROM orders WHERE id = 1")
    daemon.wait_until_confirmed()
    query, program = [block.text for block in blocks("spark") if block.language == "python"]
    lsn = stream.slot_records()[-1]["lsn"]
    catalog = lake("delta")
    for there, here in {
        "localhost:9092": stream.broker,
        'prefix="shop"': f'prefix="{stream.prefix}"',
        "16/B374D848": lsn,
        "lake.shop": catalog,
    }.items():
        assert there in program
        program = program.replace(there, here)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "spark.md", "exec"), {"spark": spark, "dsn": stream.dsn})
    assert daemon.stop() == 0
    assert "public.orders" in printed.getvalue()
    assert [tuple(row) for row in spark.sql(f"SELECT id, total FROM {catalog}.public_orders").collect()]

    [settings] = [block.text for block in blocks("spark") if block.text.startswith("# mirror.toml")]
    (tmp_path / "mirror.toml").write_text(settings)
    monkeypatch.chdir(tmp_path)
    partitions = spark.conf.get("spark.sql.shuffle.partitions")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(query.replace("spark_catalog.shop", catalog), "spark.md", "exec"), {})
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    assert "|  2| 8.00|" in printed.getvalue()


def test_the_text_of_a_number_that_the_page_gives_is_the_lsn(spark: SparkSession) -> None:
    text = "concat(hex(shiftright(lsn, 32)), '/', hex(lsn & 4294967295))"
    assert f"`{text}`" in page("spark")
    for lsn in ("0/232FD50", "16/B374D848", "7FFFFFFF/A"):
        assert spark.sql(f"SELECT {text} FROM (SELECT {parse_lsn(lsn)}L AS lsn)").collect()[0][0] == lsn
