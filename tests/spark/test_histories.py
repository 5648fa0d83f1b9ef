"""Changelogs have every event once, tables of versions every state once, whatever dies when."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from support.fix_spark import FORMATS, ICEBERG_WHOLE
from support.rendering import content
from support.stream import StreamFixture

from cdcd.errors import RequestRejected

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format

BIG = "repeat('x', 9000)"
PARTS: list[tuple[list[str], list[tuple[str, int | None, int | None]], int]] = [
    ([f"INSERT INTO t VALUES (1, 1, {BIG}), (2, 2, {BIG}), (3, 3, {BIG})"], [("c", 1, 1), ("c", 2, 2), ("c", 3, 3)], 3),
    (
        [
            "UPDATE t SET v = 10 WHERE id = 1", "UPDATE t SET v = 11 WHERE id = 1", "DELETE FROM t WHERE id = 2",
            "BEGIN; INSERT INTO t VALUES (4, 4); UPDATE t SET v = 5 WHERE id = 4; DELETE FROM t WHERE id = 4; COMMIT",
            "UPDATE t SET id = 30 WHERE id = 3",
        ],
        [
            *[("u", 1, 10), ("u", 1, 11), ("d", 2, None), ("c", 4, 4), ("u", 4, 5), ("d", 4, None)],
            *[("d", 3, None), ("c", 30, 3)],
        ],
        3,
    ),
    (
        [
            "ALTER TABLE t ADD w int DEFAULT 7", "UPDATE t SET v = 12 WHERE id = 1",
            "INSERT INTO t VALUES (2, 2, 'y', 8)",
        ],
        [("u", 1, 12), ("c", 2, 2)],
        2,
    ),
    (
        ["UPDATE t SET v = 13 WHERE id = 1", "TRUNCATE t", "INSERT INTO t VALUES (1, 14, 'z', 9), (5, 5, 'z', 9)"],
        [("u", 1, 13), ("t", None, None), ("c", 1, 14), ("c", 5, 5)],
        3,
    ),
    (
        [
            "BEGIN; DELETE FROM t WHERE id = 1; INSERT INTO t VALUES (1, 15, 'z', 9); COMMIT",
            "DELETE FROM t WHERE id = 5",
        ],
        [("d", 1, None), ("c", 1, 15), ("d", 5, None)],
        1,
    ),
]  # fmt: skip
"""Statements, the events of a changelog (op, id, v), and how many new versions there are."""


class Crash(Exception):
    """Stands for the death of the process."""


@pytest.mark.whole
@pytest.mark.parametrize("large_min", [1, 10_000])
@pytest.mark.parametrize("form", FORMATS)
def test_histories_have_every_event_and_state_once_through_crashes(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
    large_min: int,
) -> None:
    monkeypatch.setattr("cdcd.spark.mirror.new_rows._APPENDED_ROWS_MIN", large_min)
    monkeypatch.setattr("cdcd.spark.mirror.batches.SMALL_MAX", min(large_min - 1, 5_000))
    columns = "(id int PRIMARY KEY, v int, body text)"
    tables = "versions", "events", "today"
    stream.sql(
        *(f"CREATE TABLE {name} {columns}" for name in tables),
        *(f"ALTER TABLE {name} ALTER body SET STORAGE EXTERNAL" for name in tables),
        "CREATE TABLE bag (v int)", "ALTER TABLE bag REPLICA IDENTITY FULL", "INSERT INTO bag VALUES (1)",
    )  # fmt: skip
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    stream.sql("INSERT INTO bag VALUES (2)")
    catalog = lake(form)
    per_table = [
        {"match": "public.versions", "kind": "scd2"}, {"match": "public.events", "kind": "changelog"},
        {"match": "public.bag", "kind": "scd2"},
    ]  # fmt: skip
    steps: list[str] = []
    crashes = {"at": 0}

    def step(what: str) -> None:
        steps.append(what)
        if len(steps) == crashes["at"]:
            raise Crash(what)

    seen: list[tuple[int, Any]] = []
    events: list[tuple[str, int | None, int | None]] = []
    versions = 0
    mirror = cdc.mirror("public.*", catalog, form, per_table=per_table)
    for number, (statements, changes, made) in enumerate(PARTS):
        for name in tables:
            stream.sql(*(re.sub(r"\bt\b", name, each) for each in statements))
        daemon.wait_until_confirmed()
        for crashes["at"] in ((2, 4, 6, 7, 8)[number], 0):
            steps.clear()
            mirror = cdc.mirror("public.*", catalog, form, per_table=per_table, on_step=step, parallel=1)
            with suppress(Crash):
                mirror.run_once()
        assert list(mirror.published().quarantined) == ["public.bag"]
        assert "has no key, which tells the versions" in mirror.published().quarantined["public.bag"]
        found = mirror.as_of()
        ignored = "_row_hash", "_duplicate", "_valid_to_lsn", "_valid_to"
        seen.append((mirror.published_lsn(), stream.content("public", "versions")))
        assert content(found["public.today"], ignore=ignored) == stream.content("public", "today")
        for lsn, rows in seen:
            then = found["public.versions"].where(
                f"_commit_lsn < {lsn} AND (_valid_to_lsn IS NULL OR _valid_to_lsn >= {lsn})"
            )
            if number >= 2 and len(seen) > 2 and lsn in [each for each, _ in seen[:2]]:
                then = then.drop("w")
            assert content(then, ignore=ignored) == rows, (number, lsn)
        events, versions = events + changes, versions + made
        log = found["public.events"].orderBy("_commit_lsn", "_seq").collect()
        assert [(row["_op"], row["id"], None if row["_op"] == "d" else row["v"]) for row in log] == events
        assert all(row["_commit_ts"] for row in log)
        assert found["public.versions"].count() == versions
    report = cdc.verify(stream.dsn, ["public.versions", "public.events", "public.today"], mirror)
    assert report.ok, report.as_text()
    assert {table.table for table in report.tables} == {"public.versions", "public.today"}
    with cdc.snapshot(stream.dsn, ["public.events"]) as snapshot, pytest.raises(RequestRejected, match="has a history"):
        mirror.load(snapshot)
    stream.sql("INSERT INTO versions VALUES (6, 6, 'x', 6)")
    daemon.wait_until_confirmed()
    other = cdc.mirror(["public.*", "!public.bag"], catalog, form)
    other.run_once()
    assert 'is of kind = "scd2"' in other.published().quarantined["public.versions"]


@pytest.mark.parametrize("form", ICEBERG_WHOLE)
def test_all_kinds_of_one_table_come_from_one_read_through_crashes(
    stream: StreamFixture,
    cdc: Cdc,
    lake: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    form: Format,
) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY, v int, body text)", "ALTER TABLE t ALTER body SET STORAGE EXTERNAL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    catalog, topic, reads = lake(form), f"{stream.prefix}.public.t", list[str]()
    ranges = cdc.topics.kafka.ranges

    def counted(wanted: Any, *more: Any) -> Any:
        reads.extend(wanted)
        return ranges(wanted, *more)

    monkeypatch.setattr(cdc.topics.kafka, "ranges", counted)
    per_table = [{"match": "public.t", "kind": ["mirror", "changelog", "scd2"]}]
    dies_at: list[str] = []

    def step(what: str) -> None:
        if what in dies_at:
            raise Crash(what)

    mirror = cdc.mirror("public.t", catalog, form, per_table=per_table)
    events: list[tuple[str, int | None, int | None]] = []
    versions = 0
    for number, (statements, changes, made) in enumerate(PARTS):
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        further = f"{catalog}.`public_t_{('changelog', 'scd2')[number % 2]}`"
        for dies_at[:] in ([f"{('merge', 'merged')[number // 2 % 2]} {further}"], []):
            mirror = cdc.mirror("public.t", catalog, form, per_table=per_table, on_step=step, parallel=3)
            reads.clear()
            with suppress(Crash):
                mirror.run_once()
            assert reads.count(topic) == 1
        found = mirror.as_of()
        assert set(found) == {"public.t", "public.t as changelog", "public.t as scd2"}
        events, versions = events + changes, versions + made
        assert content(found["public.t"]) == stream.content("public", "t")
        log = found["public.t as changelog"].orderBy("_commit_lsn", "_seq").collect()
        assert [(row["_op"], row["id"], None if row["_op"] == "d" else row["v"]) for row in log] == events
        assert found["public.t as scd2"].count() == versions
    report = cdc.verify(stream.dsn, ["public.t"], mirror)
    assert report.ok, report.as_text()
    assert {table.table for table in report.tables} == {"public.t", "public.t as scd2"}
    before = {each.shown: each.version for each in mirror.published().tables}
    with cdc.snapshot(stream.dsn, ["public.t"]) as snapshot:
        mirror.load(snapshot)
    after = {each.shown: each.version for each in mirror.published().tables}
    assert {name for name in before if before[name] != after[name]} == {"public.t"}, "a load leaves the histories"
