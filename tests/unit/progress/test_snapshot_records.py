from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from cdcd.errors import GapError
from cdcd.progress.records import SnapshotState
from cdcd.progress.snapshot_records import (
    COMPARE,
    DONE,
    ROWS,
    RUNNING,
    CompletedRange,
    TableSnapshot,
    parse_snapshot_record,
    wanted_snapshot,
)

COPY = TableSnapshot(
    "s",
    "p.public.t",
    "public",
    "t",
    RUNNING,
    0x1600000000,
    7,
    1 << 40,
    (CompletedRange(5, 6, 0, 100),),
    starts_with_truncate=True,
    where="id > 1",
)


def test_a_record_reads_back_as_it_was_written() -> None:
    assert parse_snapshot_record(COPY.key(), COPY.value()) == COPY


def test_a_table_to_be_compared_is_one_to_be_copied_for_a_reader_that_does_not_know_comparisons() -> None:
    for repair in (COMPARE, ROWS):
        record = replace(wanted_snapshot("s", "p.public.t", "public", "t"), repair=repair)
        assert parse_snapshot_record(record.key(), record.value()) == record
        assert not record.wants_all_rows
        document = json.loads(record.value())
        assert document.pop("repair") == repair
        assert parse_snapshot_record(record.key(), json.dumps(document).encode()).wants_all_rows


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"{}", b"[]", b"null", b"[" * 100_000, json.dumps({"version": 1}).encode()),
        COPY.value().replace(b'"rows"', b'"repair":"x","rows"'),
        *(COPY.value().replace(b"running", b"x"), re.sub(rb'"lsn":"[^"]*"', b'"lsn":7', COPY.value())),
    ],
)
def test_a_record_that_cannot_be_understood_is_refused(value: bytes) -> None:
    with pytest.raises(GapError, match=r"p\.public\.t"):
        parse_snapshot_record(COPY.key(), value)


def test_neighbouring_ranges_become_one_and_others_stay_apart() -> None:
    copy = replace(COPY, done=())
    for first, end in ((10, 20), (0, 10), (30, 40), (20, 25)):
        copy = copy.with_range(CompletedRange(5, 6, first, end))
    copy = copy.with_range(CompletedRange(9, 6, 25, 30))
    assert copy.done == (CompletedRange(5, 6, 0, 25), CompletedRange(5, 6, 30, 40), CompletedRange(9, 6, 25, 30))


def test_a_range_of_a_heap_that_was_rewritten_is_no_neighbour() -> None:
    copy = replace(COPY, done=(CompletedRange(5, 6, 0, 10),)).with_range(CompletedRange(5, 7, 10, 20))
    assert len(copy.done) == 2


def test_readers_are_told_whether_the_copy_is_whole() -> None:
    assert COPY.snapshot == SnapshotState(0x1600000000, False, 7, where="id > 1")
    assert replace(COPY, state=DONE).snapshot.done
