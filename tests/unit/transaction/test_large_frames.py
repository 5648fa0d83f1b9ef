"""What a large row takes in memory, from its frame to its message: tracemalloc counts what Python allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from support.assembly import Assembly, begin, commit, stream_commit

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import TupleData
from cdcd.source.stream_messages import XLogData

MEBIBYTE = 1 << 20
ROW_BYTES = 16 * MEBIBYTE - 4096
"""A BytesWriter doubles its space. What it does not use is not resident, but tracemalloc counts it."""
TIMES_MAX = 2.2
"""A frame and its event, or the event twice. libpq's buffer is the third copy that the manual counts."""

TABLE = m.Relation(0, 7, "public", "t", "f", (m.Column(True, "id", 23, -1), m.Column(False, "body", 25, -1)))


def frame(message: m.Message) -> bytes:
    return XLogData(5, 5, 0, encode(message)).encode()


def row(key: bytes, letter: bytes) -> TupleData:
    return tuple_of([key, letter * ROW_BYTES])


def update(xid: int) -> m.Message:
    return m.Update(xid, 7, m.OLD, row(b"1", b"a"), row(b"1", b"b"))


CHANGES: dict[str, Callable[[int], m.Message]] = {
    "insert": lambda xid: m.Insert(xid, 7, row(b"1", b"a")),
    "update under FULL": update,
    "delete under FULL": lambda xid: m.Delete(xid, 7, m.OLD, row(b"1", b"a")),
    "change of the key under FULL": lambda xid: m.Update(xid, 7, m.OLD, row(b"1", b"a"), row(b"2", b"b")),
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["committed", "streamed"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_large_change_is_there_twice_at_most(tmp_path: Path, change: str, is_streamed: bool) -> None:
    it = Assembly(tmp_path)
    if is_streamed:
        before = [m.StreamStart(9, True), m.Relation(9, 7, "public", "t", "f", TABLE.columns)]
        after: list[m.Message] = [m.StreamStop(), stream_commit(9, 100)]
    else:
        before, after = [begin(100), TABLE], [commit(100)]
    it.assembler.feed([frame(message) for message in before])
    tracemalloc.start()
    try:
        frames = [frame(CHANGES[change](9 if is_streamed else 0))]
        size = len(frames[0])
        tracemalloc.reset_peak()
        it.assembler.feed(frames)
        del frames
        batches = [it.batches.build()]
        it.assembler.feed([frame(message) for message in after])
        while it.assembler.is_busy:
            batches.append(it.batches.build())
            it.assembler.proceed()
        batches.append(it.batches.build())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(int(batch.bytes) for batch in batches) > size * 0.99
    assert peak <= TIMES_MAX * size, f"{peak / size:.1f} times its size"
