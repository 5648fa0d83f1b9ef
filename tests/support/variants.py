"""The markers `in_turns` and `whole`: what the usual run leaves out, and `tests/run real -- --whole` plays.

A test `in_turns` says the same of many statements and servers: the usual run plays a part of its variants. Each starts
a daemon, and all of them together would take longer than everything else. A test marked `whole` takes long, and its
subject seldom changes.
"""

from __future__ import annotations

from collections import defaultdict
from zlib import crc32

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take `--whole`."""
    parser.addoption("--whole", action="store_true", help="play every test, and every variant of it")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", "in_turns(n): the usual run plays every n-th variant of the test, one at least")
    config.addinivalue_line("markers", "whole: the usual run does not play the test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not to be played. What the command line names or selects is played."""
    if config.getoption("whole") or config.getoption("keyword") or any("::" in word for word in config.args):
        return
    variants: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: item.nodeid):
        if item.get_closest_marker("in_turns"):
            variants[item.nodeid.partition("[")[0]].append(item)
    left_out = {item for item in items if item.get_closest_marker("whole")}
    for test, of_test in variants.items():
        marker = of_test[0].get_closest_marker("in_turns")
        assert marker is not None
        step = min(marker.args[0], len(of_test))
        first = crc32(test.encode()) % step  # so the tests do not all begin with the oldest server
        left_out |= set(of_test) - set(of_test[first::step])
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]
