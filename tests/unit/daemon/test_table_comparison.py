"""What is done about the differences of a table after a gap."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.daemon.table_comparison import DIFFERENCES_MAX, Compared, judged
from cdcd.errors import RequestRejected
from cdcd.progress.repair_records import RepairKeys
from cdcd.verify.comparison import CHANGED, Difference, TableResult

FOUND = Difference("public.t", CHANGED, {"id": "1"})
RESULT = TableResult("public.t", "p.public.t", 0x500, 9, 9, 9, False, (FOUND,), (), "public", "t", ("id",))


def test_rows_that_differ_are_repaired() -> None:
    assert judged(RESULT) == Compared(0x500, [RepairKeys(("id",), (("1",),))], 9, 1)


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (replace(RESULT, key=()), "no key"),
        (replace(RESULT, other_keys=(("a",),)), "key of public.t has changed"),
        (replace(RESULT, differences=(), other_keys=(("a",),)), "key of public.t has changed"),
        (replace(RESULT, differences=(Difference("public.t", CHANGED, {"id": None}),)), "row without a key"),
        (replace(RESULT, differences=(), oldest_events_gone=True), "retention has removed the oldest events"),
        (replace(RESULT, differences=(FOUND,) * (DIFFERENCES_MAX + 1)), "100,001 rows of public.t differ"),
        (replace(RESULT, differences=(Difference("public.t", CHANGED, {"id": "x" * 100_000}),)), "too long"),
    ],
)
def test_a_table_whose_rows_cannot_be_repaired_one_by_one_is_refused(result: TableResult, why: str) -> None:
    with pytest.raises(RequestRejected, match=why):
        judged(result)


def test_a_table_without_a_key_that_is_equal_needs_nothing() -> None:
    assert judged(replace(RESULT, key=(), differences=())) == Compared(0x500, [], 9, 0)
