"""Changes of columns on real servers: what a format can follow is followed, and what it cannot has a way out."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from support.daemon import cdcd as run_cdcd
from support.fix_spark import FORMATS
from support.stream import StreamFixture

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format

MADE = {
    "t": ["CREATE TABLE t (id int PRIMARY KEY, p pair, l int[], ps pair[], d date)",
          "INSERT INTO t VALUES (1, (1, 'x'), '{1}', ARRAY[(1, 'x')::pair], '2026-01-31')"],
    "parts": ["CREATE TABLE parts (id int PRIMARY KEY, l numeric(10, 2)[])", "INSERT INTO parts VALUES (1, '{1.5}')"],
    "wide": ["CREATE TABLE wide (id int PRIMARY KEY, n numeric(10, 2))", "INSERT INTO wide VALUES (1, 1.5)"],
    "bag": ["CREATE TABLE bag (i int, v varchar(5))", "ALTER TABLE bag REPLICA IDENTITY FULL",
            "INSERT INTO bag SELECT g, 'b' FROM generate_series(1, 6) g"],
}  # fmt: skip
CHANGED = {
    "t": ["ALTER TYPE pair ADD ATTRIBUTE z text", "ALTER TABLE t ALTER l TYPE bigint[], ADD stamps timestamp[]",
          "INSERT INTO t VALUES (2, (2, 'y', 'z'), ARRAY[1::bigint << 40], ARRAY[(2, 'y', 'z')::pair], NULL)",
          "UPDATE t SET stamps = '{2026-03-29 02:30}' WHERE id = 2"],
    "parts": ["ALTER TABLE parts ALTER l TYPE numeric[]", "INSERT INTO parts VALUES (2, '{1.23456789}')"],
    "wide": ["ALTER TABLE wide ALTER n TYPE numeric(12, 4)", "INSERT INTO wide VALUES (2, 1.2345)"],
    "bag": ["ALTER TABLE bag ALTER i TYPE bigint, ALTER v TYPE text", "DELETE FROM bag WHERE i = 1"],
}  # fmt: skip
REFUSED = {"delta": {"public.parts"}, "iceberg": {"public.parts", "public.wide"}}


@pytest.mark.whole
@pytest.mark.parametrize(("form", "tables"), [("delta", ("t", "parts")), ("iceberg", ("t", "parts", "wide", "bag"))])
def test_types_become_wider_in_place_or_by_the_hint(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format, tables: tuple[str, ...]
) -> None:
    stream.sql("CREATE TYPE pair AS (a int, b text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    mirror = cdc.mirror("*", catalog, form)

    def run(*statements: str) -> set[str]:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        return set(mirror.published().quarantined)

    assert not run(*(each for name in tables for each in MADE[name]))
    later = ["ALTER TABLE t ALTER d TYPE timestamp"] if form == "delta" else []  # Iceberg has no such widening
    refused = run(*later, *(each for name in tables for each in CHANGED[name]))
    assert refused == REFUSED[form]
    rows = mirror.as_of()["public.t"].orderBy("id").select("p", "l", "ps").collect()
    assert [row.asDict(recursive=True) for row in rows] == [
        {"p": {"a": 1, "b": "x", "z": None}, "l": [1], "ps": [{"a": 1, "b": "x", "z": None}]},
        {"p": {"a": 2, "b": "y", "z": "z"}, "l": [1 << 40], "ps": [{"a": 2, "b": "y", "z": "z"}]},
    ]
    for name in refused:
        cdc.spark.sql(f"DROP TABLE {catalog}.{name.replace('.', '_')}")  # the hint
    with cdc.snapshot(stream.dsn, ["public.parts"]) as snapshot:
        mirror.load(snapshot)
    if "public.wide" in refused:
        run_cdcd(daemon, "snapshot", "public.wide")  # the hint's other way
        daemon.wait_until_confirmed()
        mirror = cdc.mirror("*", catalog, form)
        mirror.run_once()
    assert not mirror.published().quarantined
    report = cdc.verify(stream.dsn, [f"public.{name}" for name in tables], mirror)
    assert report.ok, report.as_text()


@pytest.mark.whole
@pytest.mark.parametrize("form", FORMATS)
def test_a_renamed_attribute_is_refused_until_the_lake_has_its_new_name(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format
) -> None:
    stream.sql("CREATE TYPE pair AS (a int, b text)", "CREATE TABLE t (id int PRIMARY KEY, p pair, ps pair[])")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)

    def refusal(*statements: str) -> str:
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror = cdc.mirror("*", catalog, form)
        mirror.run_once()
        return mirror.published().quarantined.get("public.t", "")

    assert not refusal("INSERT INTO t VALUES (1, (1, 'x'), ARRAY[(1, 'x')::pair])")
    stream.sql("ALTER TYPE pair RENAME ATTRIBUTE b TO c")
    daemon.kill()
    daemon.start()  # PostgreSQL does not report this change: a daemon sees it when it looks the type up again
    said = refusal("INSERT INTO t VALUES (2, (2, 'y'), ARRAY[(2, 'y')::pair])")
    for place in "p", "ps.element":
        assert f"the attribute {place}.b went and c came" in said
        [commands] = re.findall(r"If it was renamed: (.*?)\. If not", said)
        for command in commands.split("; "):
            cdc.spark.sql(command)
        said = refusal()
    assert not said
    rows = cdc.spark.table(f"{catalog}.public_t").orderBy("id").select("p.c", "ps.c").collect()
    assert [tuple(row) for row in rows] == [("x", ["x"]), ("y", ["y"])]
