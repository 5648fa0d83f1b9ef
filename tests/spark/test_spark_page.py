"""The page about Spark: its program runs as it stands there."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import TYPE_CHECKING

from support.pages import blocks
from support.stream import StreamFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_program_on_the_page(spark: SparkSession, stream: StreamFixture, lake: Callable[[str], str]) -> None:
    stream.sql("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10, 2))")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO orders VALUES (1, 7), (2, 8)", "DELETE FROM orders WHERE id = 1")
    daemon.wait_until_confirmed()
    [program] = [block.text for block in blocks("spark") if block.language == "python"]
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
