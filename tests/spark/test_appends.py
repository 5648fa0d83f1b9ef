"""Rows that a target lacks are appended and not merged, exactly once, and only if the target does lack them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.rendering import content
from support.stream import StreamFixture

from cdcd.spark.mirror.targets.target import Tag

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdcd.spark import Cdc
    from cdcd.spark.mirror.mirror import Mirror
    from cdcd.spark.packages import Format

FORMATS = ("delta", "iceberg")
DELTA_WHOLE = (pytest.param("delta", marks=pytest.mark.whole), "iceberg")
"""The usual run plays the format that is quicker."""
MIN = "cdcd.spark.mirror.table_write.APPENDED_ROWS_MIN"


class Crash(Exception):
    """Stands for the death of the process."""


class Writes:
    """Notes what is written into the mirrored tables, and dies before or after a write if it is told to."""

    def __init__(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        from cdcd.spark.mirror.targets.delta import Delta
        from cdcd.spark.mirror.targets.iceberg import Iceberg

        self.made: list[str] = []
        self.dies = ""
        execute = spark.sql

        def sql(statement: str) -> Any:
            if statement.startswith("MERGE INTO") and "cdcd_runs" not in statement:
                return self._write("merge", lambda: execute(statement))
            return execute(statement)

        monkeypatch.setattr(spark, "sql", sql)
        for target in (Delta, Iceberg):
            self._watch(target, monkeypatch)

    def _watch(self, target: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        append = target.append

        def watched(self_: Any, table: str, *given: Any) -> Any:
            if "cdcd_runs" in table:
                return append(self_, table, *given)
            return self._write("append", lambda: append(self_, table, *given))

        monkeypatch.setattr(target, "append", watched)

    def _write(self, kind: str, write: Callable[[], Any]) -> Any:
        if self.dies == f"before {kind}":
            raise Crash(self.dies)
        done = write()
        self.made.append(kind)
        if self.dies == f"after {kind}":
            raise Crash(self.dies)
        return done


def check(mirror: Mirror, stream: StreamFixture) -> None:
    """Assert that the published table equals the server's present one."""
    rows, wanted = content(mirror.as_of()["public.t"]), stream.content("public", "t")
    assert rows - wanted == wanted - rows == Counter()


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_rows_that_the_target_lacks_are_appended_and_others_merged(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes = Writes(cdc.spark, monkeypatch)
    mirror = cdc.mirror(["*"], catalog, form)

    def run(*statements: str) -> list[str]:
        writes.made = []
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        check(mirror, stream)
        return writes.made

    assert run("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 6) n") == ["append"]
    assert run("INSERT INTO t VALUES (7, 'x'), (8, NULL)") == ["append"]
    assert run(
        "UPDATE t SET v = 'changed' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
        "INSERT INTO t VALUES (9, 'new')",
        "BEGIN; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (3, 'again'); COMMIT",
        "UPDATE t SET id = 10 WHERE id = 4",
        "INSERT INTO t VALUES (11, 'short-lived')",
        "DELETE FROM t WHERE id = 11",
        "INSERT INTO t VALUES (12, 'new')",
        "UPDATE t SET v = 'newer' WHERE id = 12",
    ) == ["append", "merge"]
    cdc.spark.sql(f"INSERT INTO {catalog}.public_t (id, v) VALUES (20, 'by hand'), (21, 'by hand')")
    assert run("INSERT INTO t VALUES (20, 'of the source'), (21, 'y'), (22, 'z')") == ["merge"]
    cdc.spark.sql(f"INSERT INTO {catalog}.public_t (id, v) VALUES (23, 'by hand')")
    assert run("INSERT INTO t VALUES (23, 'x'), (24, 'y')", "DELETE FROM t WHERE id = 23") == ["merge"]
    assert run("TRUNCATE t", "INSERT INTO t VALUES (1, 'after')") == ["merge"]


def test_keys_that_are_repeated_are_told_by_their_bytes(spark: SparkSession) -> None:
    from cdcd.spark.mirror.new_rows import has_repeated_keys

    keys = spark.createDataFrame([(bytearray(b"a"),), (bytearray(b"b"),)], "key binary").selectExpr("struct(key) kafka")
    assert not has_repeated_keys(keys)
    assert has_repeated_keys(keys.union(keys.where("kafka.key = 'b'")))
    assert has_repeated_keys(keys.union(spark.sql("SELECT struct(CAST(null AS binary) AS key) AS kafka")))


@pytest.mark.parametrize("form", FORMATS)
def test_a_death_at_any_write_neither_doubles_nor_loses_a_row(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes = Writes(cdc.spark, monkeypatch)
    deaths = {  # what the process after it writes
        "after append": [],
        "before append": ["append", "merge"],
        "before merge": ["merge"],
        "after merge": [],
    }
    for number, (dies, rest) in enumerate(deaths.items()):
        first = 1 + number * 10
        stream.sql(
            f"INSERT INTO t SELECT n, 0 FROM generate_series({first}, {first + 9}) n",
            f"UPDATE t SET v = v + 1 WHERE id BETWEEN {first - 5} AND {first + 1}",
            f"DELETE FROM t WHERE id = {first - 6}",
        )
        daemon.wait_until_confirmed()
        writes.dies = dies
        with pytest.raises(Crash):
            cdc.mirror(["*"], catalog, form).run_once()
        writes.dies, writes.made = "", []
        mirror = cdc.mirror(["*"], catalog, form)
        mirror.run_once()
        assert writes.made == rest, dies
        check(mirror, stream)


@pytest.mark.parametrize("form", FORMATS)
def test_two_processes_that_append_by_one_plan_add_the_rows_once(
    spark: SparkSession, lake: Callable[[str], str], form: str
) -> None:
    from cdcd.spark.mirror.targets.delta import Delta
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target = {"delta": Delta, "iceberg": Iceberg}[form](spark, {})
    table = f"{lake(form)}.t"
    target.create(table, "id int")
    spark.sql(f"INSERT INTO {table} VALUES (0)")
    for number, is_half in enumerate([True, False], 1):
        tag = Tag("m", f"token{number}")
        seen = target.seen(table)
        for _ in range(2):  # both looked before either wrote
            with target.tagging(tag), suppress(Exception):
                rows = spark.range(number, number + 1).selectExpr("int(id) id")
                target.append(table, rows, seen, tag if is_half else None)
        assert spark.table(table).count() == 1 + number
        assert (target.tagged(table, tag), target.appended(table, tag)) == (not is_half, is_half)


def test_keys_that_are_equal_are_found_and_bounded(spark: SparkSession) -> None:
    from cdcd.spark.mirror.new_rows import has_equal_keys, has_keys_of, keys_where

    keys = spark.createDataFrame([(3, "x"), (None, "z"), (1, "z")], "a int, b string")
    assert not has_equal_keys(keys)
    assert has_equal_keys(keys.union(keys.where("a = 1")))
    [known] = keys_where(keys, ["a", "b"], "true")
    assert (known.rows, known.bounds) == (3, {"b": ("x", "z")}), "the null lies outside all bounds"
    rows = spark.createDataFrame([(3, "y"), (None, "z"), (1, "a")], "a int, b string")
    assert has_keys_of(rows, keys, ["a", "b"], known), "the null is a key of both"
    assert not has_keys_of(rows.where("a IS NOT NULL"), keys, ["a", "b"], known)
    mixed = spark.createDataFrame([(1, "c"), (5, "u"), (9, "c")], "a int, op string")
    new, old = keys_where(mixed, ["a"], "op = 'c'", "op <> 'c'")
    assert (new.rows, new.bounds, old.rows, old.bounds) == (2, {"a": (1, 9)}, 1, {"a": (5, 5)})
