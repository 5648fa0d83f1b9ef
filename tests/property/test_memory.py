"""Whatever grows, memory has a bound, and what is counted is what is taken: each growth in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from property.growth import GROWTHS, MEBIBYTE, MEMORY_BYTES

SCRIPT = Path(__file__).with_name("growth.py")

SLACK_BYTES = 12 * MEBIBYTE
"""What a segment takes while it is written or read, and what the allocator keeps."""

MORE_BYTES = {
    # The row that comes, the one that is read back, and the segment that it is in.
    "large_rows": 3 * MEMORY_BYTES,
    # The value itself, and one piece of it with its base64.
    "parked_parts": 64 * MEBIBYTE,
}
REFUSED = {"relations", "messages", "transactions", "prepared_transactions"}
"""What stays in memory, and therefore makes the spool full in the end."""


@pytest.mark.parametrize("name", GROWTHS)
def test_memory_stays_within_its_bound(name: str) -> None:
    command = [sys.executable, str(SCRIPT), name]
    made = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert made["counted"] <= MEMORY_BYTES
    assert made["grown"] <= MEMORY_BYTES + SLACK_BYTES + MORE_BYTES.get(name, 0)
    assert made["grown"] - MORE_BYTES.get(name, 0) <= 2 * made["counted"] + SLACK_BYTES, "it takes more than it counts"
    assert bool(made["refused"]) == (name in REFUSED)
    assert not made["refused"] or "spool.memory_bytes" in made["refused"]
