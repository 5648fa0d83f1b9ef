"""The records of repairs, to JSON and back, and the keys that a request names."""

from __future__ import annotations

import json

import pytest

from cdcd.errors import GapError
from cdcd.progress.repair_records import (
    KEYS_MAX,
    RepairKeys,
    TableRepairs,
    divided,
    is_repair_record,
    parse_repair_record,
    pending_repair,
    read_keys,
)
from cdcd.progress.slot_beginnings import SlotBeginning
from cdcd.progress.snapshot_records import wanted_snapshot
from cdcd.source.requests_table import KEYS_BYTES_MAX

KEYS = RepairKeys(("a", "ü b"), (("1", 'x"\\'), ("2", "ü")))


def test_what_is_written_is_read_back() -> None:
    pending = pending_repair("s", "p.public.t", "public", "t", KEYS)
    done = TableRepairs("s", "p.public.t", 0x1_0000_0000, 3, 4)
    assert parse_repair_record(pending.key(), pending.value()) == pending
    assert parse_repair_record(done.key(), done.value()) == done
    assert read_keys(KEYS.text()) == KEYS


def test_its_keys_are_those_of_no_other_record() -> None:
    pending, done = pending_repair("s", "p.t", "public", "t", KEYS), TableRepairs("s", "p.t", 1, 0, 0)
    others = [SlotBeginning("s", "1", 1, 1).key(), wanted_snapshot("s", "p.t", "public", "t").key()]
    assert is_repair_record(pending.key())
    assert is_repair_record(done.key())
    assert not any(map(is_repair_record, others))
    assert len({pending.key(), done.key(), *others}) == 4


def test_equal_requests_have_one_record_and_others_have_others() -> None:
    assert (
        pending_repair("s", "p.t", "public", "t", KEYS).key() == pending_repair("s", "p.t", "public", "t", KEYS).key()
    )
    other = RepairKeys(KEYS.columns, KEYS.keys[:1])
    assert (
        pending_repair("s", "p.t", "public", "t", KEYS).key() != pending_repair("s", "p.t", "public", "t", other).key()
    )


def test_what_is_left_of_a_repair_keeps_its_record() -> None:
    pending = pending_repair("s", "p.t", "public", "t", KEYS)
    left = pending.with_keys([("2", "ü")])
    assert left.key() == pending.key()
    assert left.wanted == RepairKeys(KEYS.columns, (("2", "ü"),))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "[" * 5000,
        '{"columns": [], "keys": []}',
        '{"columns": ["a"], "keys": []}',
        '{"columns": ["a"], "keys": [[]]}',
        '{"columns": ["a"], "keys": [["1", "2"]]}',
        '{"columns": ["a"], "keys": [[1]]}',
        '{"columns": ["a"], "keys": [[null]]}',
        '{"columns": ["a"], "keys": [["1\\u0000"]]}',
        '{"columns": [1], "keys": [["1"]]}',
        '{"columns": 1, "keys": 1}',
        json.dumps({"columns": ["a"], "keys": [["1"]] * (KEYS_MAX + 1)}),
    ],
)
def test_nonsense_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match="keys"):
        read_keys(text)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"version": 2}', b"[" * 5000, b'{"version": 1, "keys": [1]}'])
def test_a_record_that_cannot_be_understood_ends_the_start(value: bytes) -> None:
    with pytest.raises(GapError, match="cannot be read"):
        parse_repair_record(b"s/p.t/1", value)


def test_many_keys_are_divided_so_that_each_part_fits_a_request() -> None:
    keys = [(str(number), "ü" * (number % 500)) for number in range(3000)]
    parts = list(divided(("a", "b"), keys))
    assert [key for part in parts for key in part.keys] == keys
    assert all(len(part.keys) <= KEYS_MAX and len(part.text().encode()) <= KEYS_BYTES_MAX for part in parts)
    assert len(parts) < 40
    with pytest.raises(ValueError, match="xxx"):
        list(divided(("a",), [("x" * KEYS_BYTES_MAX,)]))
