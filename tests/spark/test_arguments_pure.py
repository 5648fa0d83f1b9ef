"""What people give to `cdcd.spark`: patterns as a text or a list, excludes, LSNs and times; and what is refused."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

pytest.importorskip("pyspark")

from cdcd.errors import SettingsError
from cdcd.spark.arguments import TableList, lsn_or_time
from cdcd.spark.mirror.wiring import MirrorOptions, make_mirror

TABLES = [("public", "orders"), ("public", "log_a"), ("public", "log_kept"), ("sales", "orders")]


@pytest.mark.parametrize(
    ("patterns", "selected"),
    [
        ("public.orders", [("public", "orders")]),
        (["public.*"], TABLES[:3]),
        (["public.*", "!public.log_*"], [("public", "orders")]),
        (["public.*", "!public.log_*", "public.log_kept"], [("public", "orders"), ("public", "log_kept")]),
        (["!public.*"], []),
        ([], []),
    ],
)
def test_the_last_pattern_that_matches_counts(patterns: Any, selected: list[tuple[str, str]]) -> None:
    assert [table for table in TABLES if TableList.of(patterns).matches(*table)] == selected


def test_patterns_that_match_no_table_are_told_with_the_nearest_one() -> None:
    wanted = TableList.of(["public.order", "!public.log_*", "nobody.*"])
    assert wanted.idle(TABLES) == ["public.order (did you mean public.orders?)", "nobody.*"]


@pytest.mark.parametrize("tables", [[7], ["public.*", None], "", ["!"]])
def test_what_is_no_pattern_is_refused(tables: Any) -> None:
    with pytest.raises(SettingsError, match="is no pattern of tables"):
        TableList.of(tables)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (36896080, 36896080),
        ("0/232FD50", 36896080),
        ("2026-11-25 05:00", datetime(2026, 11, 25, 5, tzinfo=UTC)),
        ("2026-11-25T05:00:00+02:00", datetime(2026, 11, 25, 3, tzinfo=UTC)),
        ("2026-11-25", datetime(2026, 11, 25, tzinfo=UTC)),
        (date(2026, 11, 25), datetime(2026, 11, 25, tzinfo=UTC)),
        (datetime(2026, 11, 25, 5), datetime(2026, 11, 25, 5, tzinfo=UTC)),  # without a zone
        (datetime(2026, 11, 25, 5, tzinfo=timezone(timedelta(hours=1))), datetime(2026, 11, 25, 4, tzinfo=UTC)),
    ],
)
def test_a_position_is_an_lsn_or_a_time(given: Any, meant: Any) -> None:
    assert lsn_or_time(given) == meant


@pytest.mark.parametrize("given", ["public.t", "", "yesterday", "2026-13-01", -1, True, 1.5, ["0/1"]])
def test_what_is_no_position_is_refused_by_its_value(given: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{given!r} is neither an LSN nor a time")):
        lsn_or_time(given)


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        ("hudi", {}, "no table format 'hudi'"),
        ("delta", {"deletes": "sofft"}, "no deletes 'sofft'"),
        ("delta", {"schema_changes": "widen"}, "no schema_changes 'widen'"),
        ("delta", {"table_errors": "ignore"}, "no table_errors 'ignore'"),
        ("delta", {"table_names": "upper"}, "no table_names 'upper'"),
        ("delta", {"name": "my mirror"}, "no name for a mirror"),
        ("delta", {"parallel": 0}, "parallel = 0 is below 1"),
        ("delta", {"rows_max": -1}, "rows_max = -1 is below 1"),
        ("delta", {"per_table": ["public.t"]}, "'public.t' is no entry"),
        ("delta", {"views": "lake.shop"}, "views = 'lake.shop' has the tables themselves"),
        ("delta", {"tags": True}, "Delta has no tags"),
    ],
)
def test_an_option_that_a_mirror_cannot_have_is_refused(form: Any, options: Any, message: str) -> None:
    nothing: Any = None
    with pytest.raises(SettingsError, match=message):
        make_mirror(nothing, nothing, "public.*", "lake.shop", form, MirrorOptions(**options))
