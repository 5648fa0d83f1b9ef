from __future__ import annotations

import io
import logging

from cdcd.monitoring import log_setup
from cdcd.terminal.progress_bar import CLEAR, ProgressBar, SnapshotBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def left(size: int, seconds: int | None) -> dict[str, object]:
    return {"tables_left": 2, "bytes_left": size, "seconds_left": seconds}


def test_a_snapshot_shows_how_far_it_is_and_how_long_it_will_take() -> None:
    out, clock = Terminal(), Clock()
    snapshot = SnapshotBar(ProgressBar(out, clock))
    snapshot.add(100.0, {"rows": 1_000}, left(40_000_000, None))
    assert out.getvalue() == "", "too early to tell"
    clock.now = 102.0
    snapshot.add(102.0, {"rows": 3_000}, left(10_000_000, 61))
    clock.now = 104.0
    snapshot.add(104.0, {"rows": 0}, left(0, 0))
    first, second = out.getvalue().split(CLEAR)[1:]
    assert first == "[###############.....] 4,000 rows, 2,000 rows/s, 2 tables and 10 MB to go, 0:01:01 left"
    assert second == "[####################] 4,000 rows, 1,000 rows/s, 2 tables and 0 MB to go, 0:00:00 left"


def test_what_comes_too_soon_is_not_drawn_and_nothing_is_where_nobody_looks() -> None:
    out, file = Terminal(), io.StringIO()
    shown = ProgressBar(out, Clock())
    shown.show("one")
    shown.show("two")
    shown.clear()
    assert out.getvalue() == f"{CLEAR}one{CLEAR}"
    ProgressBar(file).show("one")
    ProgressBar(file).clear()
    assert file.getvalue() == ""


def test_what_is_logged_takes_the_place_of_the_line() -> None:
    root = logging.getLogger("cdcd")
    before = root.handlers, root.level, root.propagate
    out = Terminal()
    try:
        log_setup.set_up("info", "text", out)
        ProgressBar(out).show("half")
        logging.getLogger("cdcd.daemon.snapshot_coordinator").info("the snapshot is complete")
    finally:
        root.handlers, root.level, root.propagate = before
    assert out.getvalue().startswith(f"{CLEAR}half{CLEAR}20")
    assert out.getvalue().endswith("the snapshot is complete\n")
