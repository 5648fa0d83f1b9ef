"""The record of where a slot's stream begins."""

from __future__ import annotations

import pytest

from cdcd.errors import GapError
from cdcd.progress.slot_beginnings import SlotBeginning, parse_beginning

RECORD = SlotBeginning("cdcd", "7300000000000000001", 16_384, 0x1_0000_0028)


def test_what_is_written_is_read_back() -> None:
    assert parse_beginning(RECORD.key(), RECORD.value()) == RECORD
    assert b"/" not in RECORD.key()


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"[]", b"{}", b'{"version":2}', b"[" * 100_000),
        *(RECORD.value().replace(b"1/28", b"x"), RECORD.value().replace(b'"1/28"', b"7")),
    ],
)
def test_a_record_that_cannot_be_understood_is_a_gap(value: bytes) -> None:
    with pytest.raises(GapError, match="the record with the key 'cdcd' on the snapshots topic cannot be read"):
        parse_beginning(b"cdcd", value)
