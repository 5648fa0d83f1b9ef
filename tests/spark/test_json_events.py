"""Spark's own `from_json` reads cdcd's events in JSON: the program on the page, and a value of each form."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import math
from decimal import Decimal
from typing import TYPE_CHECKING

from support.pages import blocks
from support.stream import StreamFixture

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TYPES = """
    id BIGINT, n DECIMAL(38, 10), raw BINARY, d DATE, tz TIMESTAMP, ts TIMESTAMP_NTZ, f8 DOUBLE, f4 FLOAT, a ARRAY<INT>,
    j STRING, p STRUCT<no: INT, name: STRING>
"""


def test_the_program_on_the_page_reads_json_by_spark_alone(spark: SparkSession, stream: StreamFixture) -> None:
    stream.sql(
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2), placed timestamptz, tags text[])",
        "CREATE TYPE pair AS (no int, name text)",
        "CREATE TABLE forms (id int8 PRIMARY KEY, n numeric(38,10), raw bytea, d date, tz timestamptz, ts timestamp, "
        "f8 double precision, f4 real, a int[], j jsonb, p pair)",
    )
    daemon = stream.daemon(sink={"encoding": "json"}).start()
    daemon.wait_for_log("going on")
    stream.sql(
        "INSERT INTO orders VALUES (7, 'Ada', 99.9, '2026-11-26 10:00Z', '{gift}'), (8, 'Bob', 1, NULL, NULL)",
        "UPDATE orders SET customer = 'Eve' WHERE id = 7",
        "DELETE FROM orders WHERE id = 8",
        "INSERT INTO forms VALUES (9007199254740993, 1234567890123456789012345678.0000000001, '\\x00ff', '0001-01-01', "
        "'9999-12-31 23:59:59.999999Z', '1969-12-31 23:59:59.999999', 'NaN', 0.1, '{1,NULL}', '{\"a\": 1}', '(7,x)')",
    )
    daemon.wait_until_confirmed()
    assert daemon.stop() == 0
    [program] = [block.text for block in blocks("consumers") if block.text.startswith("# orders_json.py")]
    topic = f"{stream.prefix}.public.orders"
    for there, here in {"localhost:9092": stream.broker, "shop.public.orders": topic}.items():
        assert there in program
        program = program.replace(there, here)
    names: dict[str, object] = {}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "consumers.md", "exec"), names)
    assert "|  7|     Eve|99.90|2026-11-26 10:00:00|[gift]|" in printed.getvalue()
    assert "Bob" not in printed.getvalue()

    from pyspark.sql.functions import col, from_json

    events = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", stream.broker)
        .option("subscribe", f"{stream.prefix}.public.forms")
        .load()
        .select(from_json(col("value").cast("string"), f"after STRUCT<{TYPES}>").alias("event"))
    )
    [found] = events.select("event.after.*").collect()
    row = found.asDict(recursive=True)
    assert math.isnan(row.pop("f8"))
    assert row == {
        "id": 9007199254740993, "n": Decimal("1234567890123456789012345678.0000000001"), "raw": b"\0\xff",
        "d": dt.date(1, 1, 1), "tz": dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        "ts": dt.datetime(1969, 12, 31, 23, 59, 59, 999999), "f4": 0.10000000149011612, "a": [1, None], "j": '{"a": 1}',
        "p": {"no": 7, "name": "x"},
    }  # fmt: skip
