"""Rows without a key are found again after a column of theirs has become wider: their hashes are of the old values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from support.stream import StreamFixture

if TYPE_CHECKING:
    from cdcd.spark import Cdc
    from cdcd.spark.packages import Format


@pytest.mark.whole
@pytest.mark.parametrize(("form", "wider"), [("iceberg", "float8"), ("delta", "numeric(12, 4)")])
def test_rows_without_a_key_are_found_again_after_a_column_became_wider(
    stream: StreamFixture, cdc: Cdc, lake: Callable[[str], str], form: Format, wider: str
) -> None:
    stream.sql(f"CREATE TABLE bag (i int, v {'real' if wider == 'float8' else 'numeric(10, 2)'})")
    stream.sql("ALTER TABLE bag REPLICA IDENTITY FULL")
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    mirror = cdc.mirror("*", lake(form), form, table_errors="stop")
    steps = "INSERT INTO bag SELECT g, 1.1 FROM generate_series(1, 3) g", f"ALTER TABLE bag ALTER v TYPE {wider}"
    for statements in (steps[0],), (steps[1], "DELETE FROM bag WHERE i = 1"), ("DELETE FROM bag WHERE i = 2",):
        stream.sql(*statements)
        daemon.wait_until_confirmed()
        mirror.run_once()
        report = cdc.verify(stream.dsn, "public.bag", mirror)
        assert report.ok, report.as_text()
