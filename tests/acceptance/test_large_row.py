"""A large row passes, or is parked, in a few times its own size of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.stream import StreamFixture

MEBIBYTE = 1 << 20
ROW_BYTES = 64 * MEBIBYTE
TIMES_MAX = 5
"""As the README's sum of the memory says."""


def peak_bytes(pid: int) -> int:
    """The process's largest resident set so far."""
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_a_row_that_is_parked_takes_at_most_five_times_its_size(stream: StreamFixture, streaming: str) -> None:
    stream.sql("CREATE TABLE t (id bigint PRIMARY KEY, body text)")
    daemon = stream.daemon(source={"streaming": streaming}, sink={"on_unpublishable": "park"})
    daemon.start().wait_for_log("going on")
    stream.sql("INSERT INTO t VALUES (0, 'small')")
    daemon.wait_until_confirmed()
    before = peak_bytes(daemon.pid)
    # Text that no compression makes small enough for the topic.
    stream.sql(f"INSERT INTO t SELECT 1, string_agg(md5(n::text), '') FROM generate_series(1, {ROW_BYTES // 32}) n")
    stream.sql("INSERT INTO t VALUES (2, 'small')")
    daemon.wait_for_log("is parked", 60)
    daemon.wait_until_confirmed()
    grown = peak_bytes(daemon.pid) - before
    assert daemon.stop() == 0
    assert grown <= TIMES_MAX * ROW_BYTES, f"{grown / ROW_BYTES:.1f} times its size"
