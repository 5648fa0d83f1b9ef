"""Rows that a target lacks are appended and not merged, exactly once, and only if the target does lack them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from time import sleep
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from support.daemon import Daemon
from support.fix_spark import DELTA_WHOLE, FORMATS, given, jobs
from support.rendering import content
from support.stream import StreamFixture, eventually

from cdcd.spark.mirror.batches import held
from cdcd.spark.mirror.per_table import Layout
from cdcd.spark.mirror.targets.target import ASKED_FILES_MAX, SMALL_TABLE_MAX, Staged, Tag, Target
from cdcd.spark.reading.sql_texts import sql_literal, sql_text
from cdcd.spark.state.key_bounds import Keys, keys_of_groups

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdcd.spark import Cdc
    from cdcd.spark.mirror.mirror import Mirror
    from cdcd.spark.packages import Format

MIN = "cdcd.spark.mirror.new_rows._APPENDED_ROWS_MIN"


class Crash(Exception):
    """Stands for the death of the process."""


class Writes:
    """Notes what is written into the mirrored tables, and dies before or after a write if it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cdcd.spark.mirror.targets.delta import Delta, StagedInDelta
        from cdcd.spark.mirror.targets.iceberg import Iceberg, StagedInIceberg

        self.made: list[str] = []
        self.dies = ""
        for target in (Delta, Iceberg):
            for kind in ("append", "merge"):
                self._watch(target, kind, monkeypatch)
        for staged in (StagedInDelta, StagedInIceberg):
            self._watch_publish(staged, monkeypatch)

    def _watch_publish(self, staged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        publish = staged.publish
        monkeypatch.setattr(staged, "publish", lambda self_: self._write("publish", lambda: publish(self_)))

    def _watch(self, target: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        write = getattr(target, kind)

        monkeypatch.setattr(target, kind, lambda *given, **named: self._write(kind, lambda: write(*given, **named)))

    def _write(self, kind: str, write: Callable[[], Any]) -> Any:
        if self.dies == f"before {kind}":
            raise Crash(self.dies)
        done = write()
        self.made.append(kind)
        if self.dies == f"after {kind}":
            raise Crash(self.dies)
        return done


def created(spark: SparkSession, lake: Callable[[str], str], form: str) -> tuple[Target, str]:
    """A format, and a new table of it with one column."""
    from cdcd.spark.mirror.targets.delta import Delta
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target = {"delta": Delta, "iceberg": Iceberg}[form](spark, {})
    table = f"{lake(form)}.t"
    target.create(table, "id int")
    return target, table


def check(mirror: Mirror, stream: StreamFixture) -> None:
    """Assert that the published table equals the server's present one."""
    rows, wanted = content(mirror.as_of()["public.t"]), stream.content("public", "t")
    assert rows - wanted == wanted - rows == Counter()


def runner(stream: StreamFixture, daemon: Daemon, mirror: Mirror, writes: Writes) -> Callable[..., list[str]]:
    """A function that executes statements, mirrors them, checks public.t, and returns what was written."""

    def run(*statements: str) -> list[str]:
        writes.made = []
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        check(mirror, stream)
        return writes.made

    return run


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_rows_that_the_target_lacks_are_appended_and_others_merged(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes = Writes(monkeypatch)
    run = runner(stream, daemon, cdc.mirror(["*"], catalog, form), writes)

    assert run("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 6) n") == ["publish"]
    assert run("INSERT INTO t VALUES (7, 'x'), (8, NULL)") == ["publish"]
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
    assert run("INSERT INTO t VALUES (13, 'x')") == ["append"], "the last batch was another one"
    assert run("INSERT INTO t VALUES (14, 'x')") == ["append"], "this one was read as another one, too"
    assert run("INSERT INTO t VALUES (15, 'x')") == ["append"]
    assert run("INSERT INTO t VALUES (16, 'x')") == ["publish"]
    by_hand = f"INSERT INTO {catalog}.public_t SELECT id, 'by hand', NULL, NULL, NULL, NULL FROM VALUES"
    cdc.spark.sql(f"{by_hand} (20), (21) AS made(id)")
    assert run("INSERT INTO t VALUES (20, 'of the source'), (21, 'y'), (22, 'z')") == ["merge"]
    cdc.spark.sql(f"{by_hand} (23) AS made(id)")
    assert run("INSERT INTO t VALUES (23, 'x'), (24, 'y')", "DELETE FROM t WHERE id = 23") == ["merge"]
    assert run("TRUNCATE t", "INSERT INTO t VALUES (1, 'after')") == ["merge"]


@pytest.mark.parametrize("bounds", [{"id": (1, 4)}, {}])
def test_repeated_keys_are_told_apart_by_whether_an_insert_has_them(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, bounds: dict[str, Any]
) -> None:
    from cdcd.spark.mirror.new_rows import repeated_keys
    from cdcd.spark.state.collapse import OP

    monkeypatch.setattr(MIN, 1)

    def found(*events: tuple[int, str]) -> tuple[bool, bool]:
        frame = spark.createDataFrame([((key,), op) for key, op in events], f"_key struct<id: int>, {OP} string")
        inserts = sum(op == "c" for _, op in events)
        stats: Any = SimpleNamespace(
            events=len(events), last_truncate=None, keys=Keys(len(events), bounds),
            inserted=Keys(inserts, {}), others=Keys(len(events) - inserts, {}),
        )  # fmt: skip
        repeated = repeated_keys(frame, stats)
        return repeated.of_inserts, repeated.of_others

    assert found((1, "c"), (2, "c"), (3, "u"), (4, "d")) == (False, False)
    assert found((1, "c"), (3, "u"), (3, "d")) == (False, True)
    assert found((1, "c"), (1, "u"), (3, "d")) == (True, False)
    assert found((1, "c"), (1, "c"), (3, "d")) == (True, False)
    assert found((1, "c"), (1, "d"), (3, "u"), (3, "u")) == (True, True)


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_nothing_of_a_plan_is_done_before_the_plan_is_written(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    from cdcd.spark.mirror.run_log import RunLog

    monkeypatch.setattr(MIN, 1)
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
    stream.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)" for name in ("t", "mixed", "new", "kept")))
    stream.sql("CREATE TABLE keyless (v int)", "ALTER TABLE keyless REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    writes, write = Writes(monkeypatch), RunLog.write
    kinds = [{"match": "public.kept", "kind": ["changelog", "scd2"]}]
    run = runner(stream, daemon, cdc.mirror(["*"], lake(form), form, parallel=8, per_table=kinds), writes)

    def written_late(self_: RunLog, run: Any) -> None:
        if run.state == "planned":
            sleep(2)
            write(self_, run)
            writes.made.append("plan")
        else:
            write(self_, run)

    monkeypatch.setattr(RunLog, "write", written_late)
    first = [f"INSERT INTO {name} VALUES (1, 'x'), (2, 'x')" for name in ("t", "mixed", "kept")]
    made = run(*first, "INSERT INTO keyless VALUES (1), (1)")
    assert (made[0], len(made)) == ("plan", 6), made
    made = run(
        "INSERT INTO t VALUES (3, 'y')",
        "INSERT INTO new VALUES (1, 'y')",
        "INSERT INTO mixed VALUES (3, 'y')", "UPDATE mixed SET v = 'z' WHERE id = 1",
        "INSERT INTO kept VALUES (3, 'y')",
        "DELETE FROM keyless",
        "ALTER TABLE keyless ADD w int", "INSERT INTO keyless VALUES (2, 3)",
    )  # fmt: skip
    assert (made[0], made.count("publish"), len(made)) == ("plan", 2, 8), made

    def fails(self_: RunLog, run: Any) -> None:
        sleep(2)
        raise Crash("the plan")

    monkeypatch.setattr(RunLog, "write", fails)
    with pytest.raises(Crash, match="the plan"):
        run("INSERT INTO t VALUES (4, 'y')", "INSERT INTO keyless VALUES (5, 6)")
    assert writes.made == []
    monkeypatch.setattr(RunLog, "write", write)
    assert sorted(run("UPDATE mixed SET v = 'w' WHERE id = 2")) == ["merge", "merge", "publish"]


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_keys_are_looked_up_until_all_keys_of_the_table_are_known_to_be_lower(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    from cdcd.spark.mirror.new_rows import has_keys_of

    monkeypatch.setattr(MIN, 1)
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes = Writes(monkeypatch)
    run, looked = runner(stream, daemon, cdc.mirror(["*"], catalog, form), writes), []

    def look(*given: Any) -> bool:
        looked.append(given)
        return has_keys_of(*given)

    monkeypatch.setattr("cdcd.spark.mirror.table_write.has_keys_of", look)

    def looks(*statements: str) -> bool:
        before = len(looked)
        run(*statements)
        return len(looked) > before

    assert not looks("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 6) n")
    assert looks("INSERT INTO t VALUES (7, 'x')", "UPDATE t SET v = 'y' WHERE id < 4")
    assert not looks("INSERT INTO t VALUES (10, 'x')", "UPDATE t SET v = 'y' WHERE id < 4")
    assert writes.made[-2:] == ["append", "merge"]
    assert looks("INSERT INTO t VALUES (9, 'x')", "UPDATE t SET v = 'z' WHERE id < 4"), "10 is higher"
    assert not looks("UPDATE t SET id = 50 WHERE id = 5")
    assert looks("INSERT INTO t VALUES (49, 'x')"), "50 is higher"
    assert not looks("INSERT INTO t VALUES (51, 'x')")
    assert not looks("INSERT INTO t VALUES (52, 'x')")
    assert writes.made[-1] == "publish"
    cdc.spark.sql(f"INSERT INTO {catalog}.public_t SELECT 60, 'by hand', NULL, NULL, NULL, NULL")
    assert looks("INSERT INTO t VALUES (60, 'of the source')")
    assert writes.made[-1] == "merge", "the row is there"
    assert looks("INSERT INTO t VALUES (61, 'x')"), "somebody had written"
    writes.dies = "after append"
    with pytest.raises(Crash):
        looks("INSERT INTO t VALUES (63, 'x')", "UPDATE t SET v = 'y' WHERE id < 4")
    writes.dies = ""
    assert not looks("SELECT 1")
    assert writes.made[-1] == "merge"
    assert looks("INSERT INTO t VALUES (64, 'x')", "UPDATE t SET v = 'z' WHERE id < 4"), "a run was cut short"
    assert not looks("INSERT INTO t VALUES (65, 'x')", "TRUNCATE t", "INSERT INTO t VALUES (1, 'x')")
    assert not looks("INSERT INTO t VALUES (66, 'x')", "UPDATE t SET v = 'y' WHERE id = 1")


def test_a_highest_key_is_that_of_one_column_of_numbers_or_dates(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    from cdcd.spark.mirror.highest_keys import HighestKeys

    target, table = created(spark, lake, "iceberg")
    spark.sql(f"INSERT INTO {table} VALUES (3)")
    highest = HighestKeys(target)

    def is_known(key: list[str], low: Any, high: Any) -> bool:
        return highest.are_below(table, key, Keys(1, {key[0]: (low, high)}))

    highest.learn(table, ["id"], Keys(1, {"id": (2, 2)}), spark)
    assert not is_known(["id"], 4, 4), "3 is higher than 2"
    highest.learn(table, ["id"], Keys(1, {"id": ("3", "3")}), spark)
    assert not is_known(["id"], "4", "4")
    highest.learn(table, ["id"], Keys(1, {"id": (3, 3)}), spark)
    assert not is_known(["id"], 3, 9)
    assert is_known(["id"], 4, 4)
    assert not is_known(["id", "other"], 4, 4)
    assert not is_known(["other"], 4, 4)
    assert not is_known(["id"], date(2026, 1, 1), date(2026, 1, 1))
    spark.sql(f"INSERT INTO {table} VALUES (7)")
    assert not is_known(["id"], 8, 9), "nobody has said whose commit that was"
    highest.note_commit(table, ["id"], Keys(2, {"id": (1, 7)}))
    assert not is_known(["id"], 7, 9)
    assert is_known(["id"], 8, 9)
    for number, (key, bounds) in enumerate([(["id"], {}), (["other"], {"other": (20, 20)}), ([], {})], 9):
        highest.learn(table, ["id"], Keys(1, {"id": (number, number)}), spark)
        assert is_known(["id"], 20, 20)
        spark.sql(f"INSERT INTO {table} VALUES ({number})")
        highest.note_commit(table, key, Keys(1, bounds))
        assert not is_known(["id"], 20, 20), "nobody has said which ids were written"
    highest.learn(table, ["id"], Keys(1, {"id": (15, 15)}), spark)
    spark.sql(f"INSERT INTO {table} VALUES (16)")
    spark.sql(f"INSERT INTO {table} VALUES (99)")
    highest.note_commit(table, ["id"], Keys(1, {"id": (16, 16)}))
    assert not is_known(["id"], 20, 20), "two commits are not one"


def test_a_key_that_comes_twice_is_found_among_dense_and_sparse_keys(spark: SparkSession) -> None:
    from cdcd.spark.mirror.new_rows import has_repeated_keys

    def found(*keys: Any) -> bool:
        rows = spark.createDataFrame(
            [(key, "x") for key in keys], f"k {'string' if keys[0] == 'a' else 'bigint'}, v string"
        )
        return has_repeated_keys(rows, ["k"], Keys(len(keys), {"k": (min(keys), max(keys))}))

    for edge in 0, -3, 32_767, -(2**63), 2**63 - 50:
        assert not found(*range(edge, edge + 40))
        assert found(*range(edge, edge + 40), edge + 17)
    assert not found(0, 40_000, 80_000, -(2**62))
    assert found(0, 40_000, 80_000, 40_000)
    assert (found("a", "b"), found("a", "b", "a")) == (False, True)


class Reads:
    """Notes how the batches of one table are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from cdcd.spark.mirror.batch_changes import ChangeReader
        from cdcd.spark.mirror.keyed_merge import KeyedMerges

        self.made: list[str] = []
        read, merge_as_read = ChangeReader.read, KeyedMerges.merge_as_read

        def kept(*given: Any, **named: Any) -> Any:
            self.made.append("kept")
            return read(*given, **named)

        def collapsed(*given: Any) -> Any:
            self.made.append("collapsed")
            if (made := merge_as_read(*given)) is None:
                self.made.pop()
            return made

        monkeypatch.setattr(ChangeReader, "read", kept)
        monkeypatch.setattr(KeyedMerges, "merge_as_read", collapsed)


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_events_are_collapsed_while_they_are_read_if_those_of_the_batch_before_were(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr(MIN, 1)
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v text, big text)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes, reads = Writes(monkeypatch), Reads(monkeypatch)
    run = runner(stream, daemon, cdc.mirror(["*"], catalog, form), writes)

    def reads_of(*statements: str) -> tuple[list[str], list[str]]:
        reads.made = []
        return run(*statements), reads.made

    run("INSERT INTO t SELECT n, 'first', repeat('x', 9000) FROM generate_series(1, 9) n")
    twice = [f"UPDATE t SET v = '{text}', big = 'short' WHERE id < 4" for text in ("changed", "changed again")]
    assert reads_of(*twice, "INSERT INTO t VALUES (10, 'x')") == (["append", "merge"], ["kept"])
    assert reads_of(
        *twice,
        "INSERT INTO t VALUES (11, 'x'), (12, 'x')",
        "UPDATE t SET v = 'newer' WHERE id = 11",
        "BEGIN; DELETE FROM t WHERE id = 3; INSERT INTO t VALUES (3, 'again'); COMMIT",
        "UPDATE t SET id = 13, v = 'moved' WHERE id = 2",
        "DELETE FROM t WHERE id = 12",
    ) == (["append", "merge"], ["collapsed"])
    whole = ["kept"]
    assert reads_of("UPDATE t SET v = 'without big' WHERE id IN (5, 6)") == (["merge"], whole)
    assert reads_of(*twice) == (["merge"], ["collapsed"])
    assert reads_of(*twice, "ALTER TABLE t ADD more int DEFAULT 7", "UPDATE t SET more = 8 WHERE id = 1")[1] == whole
    assert [reads_of(*twice)[1] for _ in range(2)] == [whole, ["collapsed"]], "the last batch had two schemas"
    table = f"{catalog}.public_t"
    cdc.spark.sql(f"INSERT INTO {table} BY NAME SELECT 14 AS id, * EXCEPT (id) FROM {table} WHERE id = 4")
    assert reads_of("INSERT INTO t VALUES (14, 'x')", *twice) == (["merge"], ["collapsed"])
    alone = "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (15, 'x')"
    assert [reads_of(*alone)[1], reads_of(*alone[:1], "INSERT INTO t VALUES (16, 'x')")[1]] == [["collapsed"], whole]
    assert reads_of(*twice)[1] == whole
    assert reads_of("TRUNCATE t", "INSERT INTO t VALUES (1, 'after')", *twice) == (["merge"], whole)


def test_collapsed_rows_tell_of_all_events_of_their_key(spark: SparkSession) -> None:
    from cdcd.spark.state.collapse import EVENTS, FIRST_OP, ODD, OP, UNCHANGED, collapse, without_messages

    def told(*events: tuple[str | None, int | None, bool]) -> list[tuple[Any, ...]]:
        rows: list[Any] = [
            ((number, 0), op, None, key and (key, str(number)), [], None, unkeyed, key and (key,))
            for number, (op, key, unkeyed) in enumerate(events)
        ]
        frame = spark.createDataFrame(
            rows,
            f"_order struct<lsn: bigint, seq: bigint>, {OP} string, _ts timestamp, _row struct<id: int, v: string>, "
            f"{UNCHANGED} array<string>, _lost map<string, string>, _unkeyed boolean, _key struct<id: int>",
        )
        columns = [{"name": "id", "type": "int"}, {"name": "v", "type": "string"}]
        found = collapse(without_messages(frame), columns, (), of_key=(FIRST_OP, EVENTS, ODD))
        return sorted(tuple(row) for row in found.select("id", "v", OP, FIRST_OP, EVENTS, ODD).collect())

    assert told(("c", 1, False), ("u", 2, False), ("u", 1, False), ("d", 1, False)) == [
        (1, "3", "d", "c", 3, False),
        (2, "1", "u", "u", 1, False),
    ]
    assert told(("m", 1, True), ("m", None, True)) == [], "messages, or events that a load contains"
    assert told(("m", 1, False), ("c", 1, False)) == [(1, "1", "u", "c", 1, False)]
    for op, key, unkeyed in ("t", None, True), (None, None, True), ("u", 1, True):
        assert [row[-1] for row in told((op, key, unkeyed), ("m", key, False))] == [True], op


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("read", ["kept", "collapsed"])
def test_a_death_at_any_write_neither_doubles_nor_loses_a_row(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
    read: str,
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog = lake(form)
    writes, reads = Writes(monkeypatch), Reads(monkeypatch)
    mirror = cdc.mirror(["*"], catalog, form)
    if read == "collapsed":
        monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
        stream.sql("INSERT INTO t SELECT n, 0 FROM generate_series(-9, 0) n")
        daemon.wait_until_confirmed()
        mirror.run_once()
    deaths = {  # what the process after it writes; the append of a new table is all of its batch
        "after append": [] if read == "kept" else ["merge"],
        "before append": ["append", "merge"],
        "before merge": ["merge"],
        "after merge": [],
    }
    for number, (dies, rest) in enumerate(deaths.items()):
        first = 1 + number * 10
        if read == "kept":
            mirror = cdc.mirror(["*"], catalog, form)
        else:
            stream.sql("UPDATE t SET v = v + 1 WHERE id < -7")
            daemon.wait_until_confirmed()
            mirror.run_once()
        stream.sql(
            f"INSERT INTO t SELECT n, 0 FROM generate_series({first}, {first + 9}) n",
            f"UPDATE t SET v = v + 1 WHERE id BETWEEN {first - 5} AND {first + 1}",
            f"DELETE FROM t WHERE id = {first - 6}",
        )
        daemon.wait_until_confirmed()
        writes.dies = dies
        with pytest.raises(Crash):
            mirror.run_once()
        assert reads.made[-1] == read
        writes.dies, writes.made = "", []
        mirror = cdc.mirror(["*"], catalog, form)
        mirror.run_once()
        assert writes.made == rest, dies
        check(mirror, stream)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(("dies", "rest"), [("before publish", ["publish"]), ("after publish", [])])
def test_a_death_while_inserts_are_appended_as_they_are_read_neither_doubles_nor_loses_one(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
    dies: str,
    rest: list[str],
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 0 FROM generate_series(1, 9) n")
    daemon.wait_until_confirmed()
    catalog = lake(form)
    writes = Writes(monkeypatch)
    writes.dies = dies
    with pytest.raises(Crash):
        cdc.mirror(["*"], catalog, form).run_once()
    writes.dies, writes.made = "", []
    mirror = cdc.mirror(["*"], catalog, form)
    mirror.run_once()
    assert writes.made == rest
    check(mirror, stream)


@pytest.mark.parametrize("form", DELTA_WHOLE)
def test_a_table_that_a_dead_process_made_for_a_plan_it_did_not_write_takes_another_plan(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    from cdcd.spark.mirror.run_log import RunLog

    monkeypatch.setattr(MIN, 1)
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO t SELECT n, 0 FROM generate_series(1, 9) n")
    daemon.wait_until_confirmed()
    catalog, write = lake(form), RunLog.write
    table = f"{catalog}.public_t"

    def dies(self_: RunLog, run: Any) -> None:
        eventually(lambda: cdc.spark.catalog.tableExists(table), "the new table", timeout_s=60)
        raise Crash("the plan")

    monkeypatch.setattr(RunLog, "write", dies)
    with pytest.raises(Crash, match="the plan"):
        cdc.mirror(["*"], catalog, form).run_once()
    assert cdc.spark.table(table).isEmpty(), "the process died before its rows were in the table that it made"
    monkeypatch.setattr(RunLog, "write", write)
    stream.sql("ALTER TABLE t ADD w int DEFAULT 7", "INSERT INTO t VALUES (10, 1, 2)", "DELETE FROM t WHERE id = 1")
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["*"], catalog, form)
    mirror.run_once()
    check(mirror, stream)


@pytest.mark.parametrize("form", FORMATS)
def test_staged_rows_are_no_rows_of_the_table_until_they_are_published_once(
    spark: SparkSession, lake: Callable[[str], str], form: str
) -> None:
    target, table = created(spark, lake, form)

    def stage(token: str, count: int) -> Staged:
        with target.tagging(Tag("m", token)):
            return target.stage(table, spark.range(count).selectExpr("int(id) id"), Tag("m", token), target.seen(table))

    def publish(staged: Staged, token: str) -> bool:
        with target.tagging(Tag("m", token)):
            return staged.publish()

    first, other, given_up = stage("first", 3), stage("first", 3), stage("given up", 4)  # two processes by one plan
    assert (spark.table(table).count(), first.rows.count(), given_up.rows.count()) == (0, 3, 4)
    given_up.end()
    assert (publish(first, "first"), publish(other, "first")) == (True, False)
    first.end()
    other.end()
    assert spark.table(table).count() == 3
    assert target.tagged(table, Tag("m", "first"))
    assert not target.tagged(table, Tag("m", "given up"))
    one, other = stage("second", 5), stage("second", 5)  # two processes by one plan
    assert (publish(one, "second"), publish(other, "second")) == (True, False)
    assert spark.table(table).count() == 8
    late = stage("late", 6)
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    assert publish(late, "late") == (form == "delta"), (
        "Iceberg publishes a snapshot only after the one before which it began"
    )
    late.end()
    assert spark.table(table).count() == (15 if form == "delta" else 9)
    broken = spark.range(3).selectExpr("int(raise_error('raised by the test')) id")
    with pytest.raises(Exception, match="raised by the test"):
        target.stage(table, broken, Tag("m", "failed"), target.seen(table))
    if form == "iceberg":
        names = [row["name"] for row in spark.sql(f"SELECT name FROM {table}.refs").collect()]
        assert len(names) == 2, "the process of the other one has died"
        target.remove_old_files(table, datetime.now(UTC) + timedelta(hours=1))
        assert [row["name"] for row in spark.sql(f"SELECT name FROM {table}.refs").collect()] == ["main"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_statistics_of_staged_files_tell_of_whole_numbers_what_spark_computes(
    spark: SparkSession, lake: Callable[[str], str], form: str
) -> None:
    from cdcd.spark.mirror.staged_append import _computed

    target, table = created(spark, lake, form)
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (n bigint, v string, d date, s int)")
    others = ["string(id) v", "date '2024-01-31' d", "int(if(id % 2 = 0, id, NULL)) s"]

    def stage(n: str, count: int = 5, files: int = 2) -> Staged:
        with target.tagging(Tag("m", n)):
            rows = spark.range(0, count, 1, files).selectExpr("int(id - 2) id", f"bigint({n}) n", *others)
            return target.stage(table, rows, Tag("m", n), target.seen(table))

    whole, whole_names = stage("(id - 2) * 4611686018427387903"), ["n", "id"]
    groups = whole.groups(whole_names)
    assert groups is not None
    assert len(groups) == 2, "one of each file"
    computed = keys_of_groups(whole_names, _computed(whole, whole_names))
    assert keys_of_groups(whole_names, groups) == computed
    assert computed == Keys(5, {"n": (-(2**63) + 2, 2**63 - 2), "id": (-2, 2)})
    with_null = whole.groups(["s"])
    assert with_null is None or keys_of_groups(["s"], with_null) == Keys(5, {}), "a column that is null has no bounds"
    for names in (["v"], ["d"], ["id", "v"], ["ID"], ["absent"]):
        assert whole.groups(names) is None
    assert stage("NULL").groups(["n"]) is None, "a column without a value"
    most, too_many = (stage("id", files, files).groups(["id"]) for files in (ASKED_FILES_MAX, ASKED_FILES_MAX + 1))
    assert (len(most or ()), too_many) == (ASKED_FILES_MAX, None)
    without = {
        "delta": "'delta.dataSkippingNumIndexedCols' = '0'",
        "iceberg": "'write.metadata.metrics.default' = 'none'",
    }
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({without[form]})")
    target.refresh(table)
    bare = stage("id + 1")
    assert bare.groups(["id"]) is None
    assert keys_of_groups(["id"], _computed(bare, ["id"])) == Keys(5, {"id": (-2, 2)})


def test_the_statistics_of_a_table_of_delta_whose_columns_are_mapped_are_not_asked(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    from cdcd.spark.mirror.staged_append import _computed

    target, table = created(spark, lake, "delta")
    for statement in target.rename_statements(table, "id", "old"):
        spark.sql(statement)
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (id int)")
    with target.tagging(Tag("m", "mapped")):
        rows = spark.range(3).selectExpr("int(id + 10) old", "int(id) id")
        staged = target.stage(table, rows, Tag("m", "mapped"), target.seen(table))
    assert staged.groups(["id"]) is None, "what the statistics call id is the column old"
    assert keys_of_groups(["id"], _computed(staged, ["id"])) == Keys(3, {"id": (0, 2)})


@pytest.mark.parametrize("form", FORMATS)
def test_inserts_are_appended_as_they_are_read_only_if_the_target_lacks_them_and_none_comes_twice(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, form: Format
) -> None:
    monkeypatch.setattr(MIN, 1)
    stream.sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE chosen (name text NOT NULL, v int)",
        "ALTER TABLE chosen REPLICA IDENTITY FULL",
    )
    daemon = stream.daemon(table=[{"match": "public.chosen", "key": ["name"]}]).start()
    daemon.wait_for_log("going on")
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", 0)
    catalog = lake(form)
    writes = Writes(monkeypatch)
    mirror = cdc.mirror(["*"], catalog, form, parallel=1)

    def run(*statements: str) -> list[str]:
        writes.made = []
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        return writes.made

    assert run("INSERT INTO t VALUES (1, 'x')", "INSERT INTO chosen VALUES ('a', 1), ('a', 2)") == ["append", "publish"]
    assert mirror.as_of()["public.chosen"].select("name", "v").collect() == [("a", 2)]
    cdc.spark.sql(f"INSERT INTO {catalog}.public_t SELECT 2, 'by hand', NULL, NULL, NULL, NULL")
    assert run("INSERT INTO t VALUES (2, 'of the source')") == ["merge"]
    check(mirror, stream)


@pytest.mark.parametrize("form", FORMATS)
def test_two_processes_that_append_by_one_plan_add_the_rows_once(
    spark: SparkSession, lake: Callable[[str], str], form: str
) -> None:
    target, table = created(spark, lake, form)
    spark.sql(f"INSERT INTO {table} VALUES (0)")
    for number, way in enumerate(["half", "whole", "staged"], 1):
        tag = Tag("m", f"token{number}")
        seen = target.seen(table)
        for _ in range(2):  # both looked before either wrote
            with target.tagging(tag), suppress(Exception):
                rows = spark.range(number, number + 1).selectExpr("int(id) id")
                if way == "staged":
                    target.stage(table, rows, tag, seen).publish()
                else:
                    target.append(table, rows, tag, seen, merges_next=way == "half")
        assert spark.table(table).count() == 1 + number
        assert (target.tagged(table, tag), target.appended(table, tag)) == (way != "half", way == "half")


def add_one(target: Target, table: str, *, is_own: bool) -> None:
    """Add 1 to v where the id is 7, as a batch of few events does. `is_own`: not by a copy of the session."""
    spark = target.session_for_few(table)
    assert (spark is target.spark) == is_own
    rows = spark.range(7, 8, 1, 1).selectExpr("int(id) id")
    (rows if is_own else held(rows)).createOrReplaceTempView("few")
    statement = f"MERGE INTO {table} t USING few s ON t.id = s.id WHEN MATCHED THEN UPDATE SET t.v = t.v + 1"
    target.merge(table, statement, spark)


def test_a_small_table_of_delta_is_merged_in_few_jobs_by_a_copy_of_the_session(
    spark: SparkSession, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdcd.spark.mirror.targets.delta import Delta

    target, table = Delta(spark, {}), f"{lake('delta')}.t"
    target.create(table, "id int, v int")
    spark.range(1, 101, 1, 1).selectExpr("int(id) id", "0 v").writeTo(table).append()
    before = [spark.conf.get(name, None) for name in Delta.few_settings]
    vectors: list[Any] = []
    for number, most in enumerate([SMALL_TABLE_MAX, 0]):
        monkeypatch.setattr("cdcd.spark.mirror.targets.target.SMALL_TABLE_MAX", most)
        began = jobs(spark)
        for _ in range(2):  # the second one is skipped
            with target.tagging(Tag("m", f"token{number}")):
                add_one(target, table, is_own=most == 0)
        assert most == 0 or jobs(spark) - began <= 10
        assert spark.table(table).where("id = 7 OR v > 0").collect() == [(7, 1 + number)]
        assert target.tagged(table, Tag("m", f"token{number}"))
        vectors.append(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()["operationMetrics"])
    assert [metrics["numTargetDeletionVectorsAdded"] for metrics in vectors] == ["0", "1"]
    assert [spark.conf.get(name, None) for name in Delta.few_settings] == before


def test_a_small_table_of_iceberg_keeps_one_file_and_a_larger_one_gets_deletion_vectors(
    spark: SparkSession, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target, table, chosen = Iceberg(spark, {}), f"{lake('iceberg')}.t", f"{lake('iceberg')}.chosen"
    for name, mode in (table, {}), (chosen, {"write.merge.mode": "copy-on-write"}):
        target.create(name, "id int, v int", Layout(properties=mode))
        spark.range(1, 101, 1, 1).selectExpr("int(id) id", "0 v").writeTo(name).append()
    files: dict[str, list[tuple[int, int]]] = {table: [], chosen: []}
    # The table is small; large; small, but not so that it changes back; so small that it does.
    for number, times in enumerate([1000, 0, 1.5, 1000], start=1):
        size = int(target._java(table).currentSnapshot().summary()["total-files-size"])
        most = int(times * size)
        for module in "target", "iceberg":
            monkeypatch.setattr(f"cdcd.spark.mirror.targets.{module}.SMALL_TABLE_MAX", most)
        for name in table, chosen:
            with target.tagging(Tag("m", f"token{number}")):
                add_one(target, name, is_own=most == 0)
            assert target.version(name) is not None  # the mirror asks after each merge: its session sees the change
            assert spark.table(name).where("id = 7 OR v > 0").collect() == [(7, number)]
            assert target.tagged(name, Tag("m", f"token{number}"))
            rows = spark.sql(f"SELECT content FROM {name}.files").collect()
            files[name].append((sum(row[0] == 0 for row in rows), sum(row[0] != 0 for row in rows)))
    assert files == {table: [(1, 0), (2, 1), (3, 2), (1, 0)], chosen: [(1, 0)] * 4}


def test_a_thread_that_has_no_session_appends_and_stages_by_the_copy(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target, table, tag = Iceberg(spark, {}), f"{lake('iceberg')}.t", Tag("m", "token")

    def write() -> None:
        copy = target.session_for_few(table)
        target.create(table, "id int")
        staged = target.stage(table, copy.range(1).selectExpr("int(id) id"), tag, target.seen(table))
        assert staged.publish()
        target.append(table, copy.range(1, 2).selectExpr("int(id) id"), tag, target.seen(table))

    with target.tagging(tag), ThreadPoolExecutor(1) as pool:
        pool.submit(write).result()
    assert target.version(table) is not None
    assert sorted(row.id for row in spark.table(table).collect()) == [0, 1]


def test_the_copy_of_the_session_has_the_settings_that_the_session_has_now(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target, seen, name = Iceberg(spark, {}), [], f"{lake('iceberg')}.new"
    with target.tagging(Tag("first", "token")):
        copy = target.session_for_few(name)
    for zone in "Asia/Tokyo", "Europe/Paris":
        with given(spark, {"spark.sql.session.timeZone": zone}), target.tagging(Tag("m", zone)):
            assert target.session_for_few(name) is copy
            seen.append([copy.conf.get("spark.sql.session.timeZone"), *copy.sql("SELECT current_timezone()").first()])
            assert copy.conf.get("spark.sql.iceberg.snapshot-property.cdcd.run.m") == zone
    with target.tagging(Tag("other", "token")):
        assert target.session_for_few(name) is copy
        assert copy.conf.get("spark.sql.iceberg.snapshot-property.cdcd.run.m", None) is None
        assert copy.conf.get("spark.sql.shuffle.partitions") == "1"
    assert seen == [["Asia/Tokyo"] * 2, ["Europe/Paris"] * 2]


def test_rows_that_the_driver_holds_are_the_same_and_what_is_selected_of_them_needs_no_job(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    from cdcd.spark.mirror.targets.iceberg import Iceberg

    target = Iceberg(spark, {})
    with target.tagging(Tag("m", "token")):
        few = target.session_for_few(f"{lake('iceberg')}.none")
    values = [
        *(f"date_from_unix_date({days})" for days in (-(2**31), -141_428, -141_427, 2**31 - 1)),
        *(f"timestamp_micros({micros})" for micros in (-(2**63) + 1, -12_219_292_800_000_001, -1, 2**63 - 1)),
        "timestamp_ntz'-4713-01-01 00:00:00.000001'", "timestamp_ntz'2026-03-29 02:30:00'", "9223372036854775807L",
        "double('-0.0')", "double('NaN')", "float('Infinity')", "99999999999999999999999999999999999999BD", "X'00ff'",
        "''", "array(1, NULL)", "map('a', NULL, 'b', 'x')", "struct(DATE'0001-01-01' AS d, NULL AS n)",
        "cast(NULL AS struct<a: int>)", "cast(array() AS array<decimal(3,1)>)",
    ]  # fmt: skip
    rows = few.range(2).selectExpr(*(f"{value} AS c{index}" for index, value in enumerate(values)), "id")
    same = held(rows)
    assert same.schema == rows.schema
    began = jobs(spark)
    texts = [each.where("id > 0").selectExpr("cast(struct(*) AS string) AS text") for each in (same, rows)]
    assert texts[0].collect() == texts[1].collect()
    assert jobs(spark) - began == 1, "of the rows that nobody holds"


def test_a_mirror_of_small_tables_leaves_no_readers_of_avro(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str]
) -> None:
    avro: Any = cdc.spark._jvm.org.apache.avro
    avro.generic.GenericData.get().setFastReaderEnabled(True)
    stream.sql(*(f"CREATE TABLE {name} (id int PRIMARY KEY, v int)" for name in ("t", "u")))
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql(*(f"INSERT INTO {name} VALUES (1, 1)" for name in ("t", "u")))
    daemon.wait_until_confirmed()
    mirror = cdc.mirror(["*"], lake("iceberg"), "iceberg")
    cache = avro.io.FastReaderBuilder.get().getClass().getDeclaredField("readerCache")
    cache.setAccessible(True)
    kept = cache.get(avro.generic.GenericData.get().getFastReaderBuilder())
    sizes = [kept.size()]  # other tests read events without a mirror
    mirror.run_once()
    sizes.append(kept.size())
    assert sizes[0] == sizes[1]
    check(mirror, stream)


@pytest.mark.parametrize(
    "text",
    ["${spark.app.name}", "${env:PATH}", "$${x}", "${", "it's", "\\", "\\${x}", "\\'", "\\u0041", "\n\0\x1a%_", "ä"],
)
def test_a_text_of_a_statement_is_what_it_was(spark: SparkSession, text: str) -> None:
    assert spark.sql(f"SELECT {sql_literal(text)} AS text").collect() == [(text,)]
    for is_raw in "false", "true":
        with given(spark, {"spark.sql.parser.escapedStringLiterals": is_raw}):
            assert spark.sql(f"SELECT {sql_text(text)} AS text").collect() == [(text,)]


@pytest.mark.parametrize("own", [None, "7"])
def test_delta_reads_logs_in_as_many_tasks_as_there_are_cores_unless_the_session_says_otherwise(
    spark: SparkSession, own: str | None
) -> None:
    from cdcd.spark.mirror.targets.delta import Delta

    name = "spark.databricks.delta.snapshotPartitions"
    with given(spark, {name: own or "7"}):
        if own is None:
            spark.conf.unset(name)
        with Delta(spark, {}).running():
            assert spark.conf.get(name) == (own or str(spark.sparkContext.defaultParallelism))
        assert spark.conf.get(name, None) == own


def test_delta_reads_no_log_after_a_commit_where_the_time_zone_is_not_utc(
    spark: SparkSession, lake: Callable[[str], str]
) -> None:
    target, table = created(spark, lake, "delta")
    made = []
    for zone in "UTC", "UTC", "Europe/Berlin", "Europe/Berlin":
        with given(spark, {"spark.sql.session.timeZone": zone}), target.running():
            began = jobs(spark)
            target.append(table, spark.range(1).selectExpr("int(id) id"), Tag("m", zone), target.seen(table))
            made.append(jobs(spark) - began)
    assert made == [1] * 4


def test_each_row_of_a_run_is_one_spark_job(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cdcd.spark.mirror.run_log import RunLog

    made: list[int] = []
    write = RunLog.write

    def counted(self_: RunLog, run: Any) -> None:
        group = f"row {len(made)}"  # other jobs read the batch meanwhile
        cdc.spark.sparkContext.setJobGroup(group, group)
        write(self_, run)
        made.append(len(cdc.spark.sparkContext.statusTracker().getJobIdsForGroup(group)))
        cdc.spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    monkeypatch.setattr(RunLog, "write", counted)
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror(["*"], lake("delta"), "delta")
    for number in range(3):
        stream.sql(f"INSERT INTO t VALUES ({number})")
        daemon.wait_until_confirmed()
        mirror.run_once()
    assert made[2:] == [1, 1, 1, 1]


def test_keys_of_a_batch_are_bounded_and_found_in_the_target(spark: SparkSession) -> None:
    from cdcd.spark.mirror.new_rows import has_keys_of, parted
    from cdcd.spark.state.collapse import FIRST_OP, OP

    collapsed = spark.createDataFrame(
        [(3, "x", "c", "u"), (None, "z", "c", "u"), (1, "z", "c", "d"), (5, "y", "u", "u")],
        f"a int, b string, {FIRST_OP} string, {OP} string",
    )
    parts = parted(collapsed, ["a", "b"])
    assert (parts.inserted_keys.rows, parts.new, parts.other_keys.rows) == (3, 2, 1)
    assert parts.inserted_keys.bounds == {"b": ("x", "z")}, "the null lies outside all bounds"
    assert parts.other_keys.bounds == {"a": (5, 5), "b": ("y", "y")}
    rows = spark.createDataFrame([(3, "y"), (None, "z"), (1, "a")], "a int, b string")
    assert has_keys_of(rows, parts.inserted, ["a", "b"], parts.inserted_keys), "the null is a key of both"
    assert not has_keys_of(rows.where("a IS NOT NULL"), parts.inserted, ["a", "b"], parts.inserted_keys)
