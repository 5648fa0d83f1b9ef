"""A stream that real servers sent, damaged anywhere: events or an error of ours, soon, and in bounded memory."""

from __future__ import annotations

import os
import time
import tracemalloc
from random import Random

import pytest
from property import damaged

from cdcd.errors import CdcdError
from cdcd.source.stream_messages import XLOGDATA_HEADER_BYTES

PORTIONS = int(os.environ.get("CDCD_TEST_DAMAGES", "100")) // 25
SECONDS_MAX = 20.0
"""One stream takes a tenth of a second; this is for machines that do other things, too."""
BYTES_MAX = 64 << 20


@pytest.mark.parametrize("portion", range(PORTIONS))
def test_a_damaged_stream_gives_events_or_an_error_of_ours(portion: int) -> None:
    for seed in range(25 * portion, 25 * (portion + 1)):
        began = time.monotonic()
        damaged.one(seed)
        assert time.monotonic() - began < SECONDS_MAX, f"seed {seed} took too long"


def test_the_damage_is_noticed_where_it_can_be() -> None:
    named = [damaged.one(seed) for seed in range(1_000_000, 1_000_040)]
    assert sum(error is not None for error in named) > 15, "the damage does not reach the decoders"


def test_a_size_that_lies_makes_nobody_take_the_memory() -> None:
    made, stream = damaged.STREAMS[0]
    frames = stream.frames[: damaged.FRAMES]
    rng = Random(1)
    tracemalloc.start()
    try:
        for number in range(0, len(frames), 20):
            frame = bytearray(frames[number])
            at = rng.randrange(XLOGDATA_HEADER_BYTES + 1, len(frame))
            frame[at : at + 4] = (2**31 - 1).to_bytes(4, "big")
            try:
                damaged.play(made, stream, [*frames[:number], bytes(frame)], 1_000)
            except CdcdError:
                pass
            assert tracemalloc.get_traced_memory()[1] < BYTES_MAX, f"frame {number}"
    finally:
        tracemalloc.stop()
