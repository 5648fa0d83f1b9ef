"""The three messages inside a replication stream: written then read is the same, and no bytes break a decoder."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.errors import DecodeError
from cdcd.source.stream_messages import (
    XLOGDATA_HEADER_BYTES,
    PrimaryKeepalive,
    StatusUpdate,
    XLogData,
    decode_keepalive,
    decode_server,
    decode_status_update,
    decode_xlogdata,
)

lsns = st.integers(0, 2**64 - 1)
times = st.integers(-(2**63), 2**63 - 1)

xlogdata = st.builds(XLogData, lsns, lsns, times, st.binary(max_size=200))
keepalives = st.builds(PrimaryKeepalive, lsns, times, st.booleans())
status_updates = st.builds(StatusUpdate, lsns, lsns, lsns, times, st.booleans())


@given(st.one_of(xlogdata, keepalives))
def test_what_a_server_writes_is_read_back(message: XLogData | PrimaryKeepalive) -> None:
    assert decode_server(message.encode()) == message


@given(status_updates)
def test_what_a_standby_writes_is_read_back(message: StatusUpdate) -> None:
    assert decode_status_update(message.encode()) == message


@given(st.one_of(st.binary(max_size=60), st.builds(bytes.__add__, st.sampled_from([b"w", b"k", b"r"]), st.binary())))
def test_any_bytes_give_a_message_or_a_decode_error(frame: bytes) -> None:
    for decode in (decode_server, decode_xlogdata, decode_keepalive, decode_status_update):
        try:
            message = decode(frame)
        except DecodeError:
            continue
        assert message.encode() == frame


@given(st.one_of(xlogdata, keepalives), st.data())
def test_a_message_cut_short_is_never_taken_for_a_whole_one(
    message: XLogData | PrimaryKeepalive, data: st.DataObject
) -> None:
    frame = message.encode()
    header = XLOGDATA_HEADER_BYTES if isinstance(message, XLogData) else len(frame)
    with pytest.raises(DecodeError):
        decode_server(frame[: data.draw(st.integers(0, header - 1))])
