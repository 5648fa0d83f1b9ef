"""What the quickstart shows of events."""

from __future__ import annotations

import io
import time
from typing import Any

from demo import screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def event(op: str = "c", **row: Any) -> dict[str, Any]:
    return {"op": op, "source": {"commit_ts": int((time.time() - 2) * 1e6)}, "before": None, "after": row}


def test_each_topic_has_its_count_and_its_last_event() -> None:
    out = io.StringIO()
    shown = screen.Screen(out, ["shop.public.orders", "shop.public.customers"])
    shown.add("shop.public.orders", event(id=1, note=None))
    shown.add("shop.public.orders", event("u", id=2, status="paid"))
    shown.show([], at_once=True)
    head, orders, customers = out.getvalue().splitlines()
    assert head.split() == ["topic", "rows", "rows/s", "lag", "last", "event"]
    assert orders.split() == ["shop.public.orders", "2", "0.4", *orders.split()[3:5], "update", "id=2", "status=paid"]
    assert customers.split() == ["shop.public.customers", "0", "0.0"]


def test_a_delete_shows_the_row_that_was() -> None:
    assert screen.describe({"op": "d", "before": {"id": 7}, "after": None}) == "delete id=7"


def test_the_lag_counts_from_the_commit_in_either_form() -> None:
    for commit in (int((time.time() - 2) * 1e6), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 2))):
        latency_s = screen.latency_s({"source": {"commit_ts": commit}})
        assert latency_s is not None
        assert 2 <= latency_s < 4
    assert screen.latency_s({}) is None


def test_a_terminal_is_drawn_in_place_and_no_line_wraps() -> None:
    out = Terminal()
    shown = screen.Screen(out, ["t"])
    shown.add("t", event(id="x" * 1000))
    shown.show(["footer"])
    first = out.getvalue()
    shown.show(["footer"])
    again = out.getvalue()[len(first) :]
    assert first.count("\n") == 4
    assert again.startswith("\x1b[4F")
    assert max(len(line) for line in first.splitlines()) < 1000


def test_without_a_terminal_lines_come_now_and_then() -> None:
    out = io.StringIO()
    shown = screen.Screen(out, ["t"])
    shown.show(["footer"])
    assert out.getvalue() == ""
    shown.show(["footer"], at_once=True)
    assert out.getvalue().startswith("topic")
    assert "footer" not in out.getvalue()


def test_without_a_terminal_nothing_is_printed_twice_at_the_end() -> None:
    out = io.StringIO()
    shown = screen.Screen(out, ["t"])
    shown.add("t", event(id=1))
    shown.show([], at_once=True)
    shown.show([], at_once=True)
    assert out.getvalue().count("topic") == 1
    shown.add("t", event(id=2))
    shown.show([], at_once=True)
    assert out.getvalue().count("topic") == 2
