"""Spark's own `from_json` reads cdcd's events in JSON: the program on the page, and a value of each form."""

from __future__ import annotations

import contextlib
import datetime as dt
import io
import math
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
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


@pytest.mark.parametrize("form", ["debezium", "row"])
def test_it_makes_the_table_of_debeziums_events_and_of_flat_rows(
    spark: SparkSession, stream: StreamFixture, form: str
) -> None:
    from pyspark.sql.functions import col, from_json, max_by

    stream.sql(
        "CREATE TABLE forms (id int8 PRIMARY KEY, flag bool, n numeric(38,10), t text, raw bytea, d date, "
        "ts3 timestamp(3), tz timestamptz, f8 double precision, f4 real, a int[], j jsonb)",
        "INSERT INTO forms SELECT g FROM generate_series(1, 20) g",
    )
    modes = {"decimal_handling_mode": "string"}
    sink = {"format": form, "encoding": "json"}
    with stream.daemon(sink=sink, debezium=modes, snapshot={"mode": "initial"}) as daemon:
        daemon.start().wait_for_log("the snapshot is complete")
        stream.sql(
            "UPDATE forms SET flag = true, n = 1234567890123456789012345678.0000000001, t = E'q\"\\\\é😀\\n', "
            "raw = '\\x00ff', d = '0001-01-01', ts3 = '1969-12-31 23:59:59.999', tz = '9999-12-31 23:59:59.999999Z', "
            "f8 = 1e300, f4 = 0.1, a = '{1,NULL}', j = '{\"a\": 1}' WHERE id < 10",
            "UPDATE forms SET id = id + 100 WHERE id IN (3, 13)",
            "DELETE FROM forms WHERE id IN (4, 14)",
            "INSERT INTO forms (id, t) VALUES (4, 'again')",
        )
        daemon.wait_until_confirmed()
        assert daemon.stop() == 0
    columns = (
        "id BIGINT, flag BOOLEAN, n DECIMAL(38, 10), t STRING, raw BINARY, d INT, ts3 BIGINT, tz TIMESTAMP, "
        "f8 DOUBLE, f4 FLOAT, a ARRAY<INT>, j STRING"
    )
    event, row = (columns, "event.*") if form == "row" else (f"op STRING, after STRUCT<{columns}>", "event.after.*")
    records = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", stream.broker)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", f"{stream.prefix}.public.forms")
        .load()
        .select("key", "offset", from_json(col("value").cast("string"), event).alias("event"))
    )
    last = records.groupBy("key").agg(max_by("event", "offset").alias("event"))  # a key has one partition
    last = last.where("event IS NOT NULL" if form == "row" else "event.op <> 'd'")
    found = last.select(row).orderBy("id").collect()
    shown = (
        "id, flag, n, t, raw, d - '1970-01-01'::date, (extract(epoch FROM ts3) * 1000)::int8, tz AT TIME ZONE 'UTC', "
        "f8, f4::float8, a, j::text"
    )
    assert [tuple(each) for each in found] == stream.sql(f"SELECT {shown} FROM forms ORDER BY id")
    assert len(found) == 19
