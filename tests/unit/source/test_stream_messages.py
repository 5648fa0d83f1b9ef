from __future__ import annotations

import pytest

from cdcd.errors import DecodeError
from cdcd.source.stream_messages import (
    POSTGRES_EPOCH_US,
    PrimaryKeepalive,
    StatusUpdate,
    XLogData,
    decode_keepalive,
    decode_server,
    decode_status_update,
    decode_xlogdata,
)

HIGH = 0xFFFF_FFFF_FFFF_FFF0
"""An LSN whose highest bit is set: read as signed it would be negative."""


def test_an_xlogdata_is_read_as_the_document_lays_it_out() -> None:
    frame = b"w" + HIGH.to_bytes(8, "big") + (7).to_bytes(8, "big") + (-1).to_bytes(8, "big", signed=True) + b"Bdata"
    assert decode_server(frame) == XLogData(HIGH, 7, -1, b"Bdata")
    assert XLogData(HIGH, 7, -1, b"Bdata").encode() == frame


def test_a_keepalive_is_read_as_the_document_lays_it_out() -> None:
    frame = b"k" + HIGH.to_bytes(8, "big") + (848_590_694_104_396).to_bytes(8, "big") + b"\x01"
    assert decode_server(frame) == PrimaryKeepalive(HIGH, 848_590_694_104_396, True)
    assert PrimaryKeepalive(HIGH, 848_590_694_104_396, True).encode() == frame


def test_a_status_update_is_written_as_the_document_lays_it_out() -> None:
    frame = StatusUpdate(HIGH, 2, 1, 5, True).encode()
    assert frame == b"r" + b"".join(n.to_bytes(8, "big") for n in (HIGH, 2, 1, 5)) + b"\x01"
    assert len(frame) == 34


def test_the_epoch_is_the_first_of_january_2000() -> None:
    assert POSTGRES_EPOCH_US == 10_957 * 86_400 * 1_000_000


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (b"", "an empty frame"),
        (b"x" + bytes(30), "'x'"),
        (b"\x01" + bytes(30), "0x01"),
        (b"w" + bytes(23), "wants 25 bytes, got 24"),
        (b"k" + bytes(16), "wants 18 bytes, got 17"),
        (b"k" + bytes(18), "wants 18 bytes, got 19"),
        (b"k" + bytes(16) + b"\x02", "offset 17 wants 0 or 1, got 2"),
    ],
)
def test_an_error_names_what_was_wanted_and_what_was_got(frame: bytes, says: str) -> None:
    with pytest.raises(DecodeError, match=says):
        decode_server(frame)


def test_each_decoder_takes_its_own_message_only() -> None:
    status, keepalive = StatusUpdate(3, 2, 1, 0, False).encode(), PrimaryKeepalive(1, 2, False).encode()
    with pytest.raises(DecodeError, match="'r'"):
        decode_xlogdata(status)
    with pytest.raises(DecodeError):
        decode_status_update(keepalive)
    with pytest.raises(DecodeError, match="'x'"):
        decode_status_update(b"x" + status[1:])
    with pytest.raises(DecodeError, match="'x'"):
        decode_keepalive(b"x" + keepalive[1:])
