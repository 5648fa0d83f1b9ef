"""A take-over of what cdcd has already must not forget what cdcd has not done yet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdcd.errors import RequestRejected
from cdcd.migration.likeness import check_finished
from cdcd.progress.snapshot_records import DONE, RUNNING, STOPPED, WANTED, TableSnapshot


@pytest.mark.parametrize("state", [WANTED, RUNNING, STOPPED])
def test_a_snapshot_that_cdcd_has_not_finished_is_not_declared_done(state: str) -> None:
    done = TableSnapshot("shop", "shop.public.a", "public", "a", DONE, 5)
    left = TableSnapshot("shop", "shop.public.b", "public", "b", state, 0)
    tables = [("public", "a"), ("public", "b")]
    with pytest.raises(RequestRejected, match=r"has not finished the snapshot of public\.b"):
        check_finished({each.topic: each for each in (done, left)}, tables)
    check_finished({each.topic: each for each in (done, replace(left, state=DONE))}, tables)
    check_finished({each.topic: each for each in (done, left)}, tables[:1])
