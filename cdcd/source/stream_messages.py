"""The messages that travel inside CopyData while a slot streams, from and to bytes.

Before: `replication_stream` reads frames off the connection.
After: `transaction` and `pgoutput` read what follows an XLogData's header.
Source: PostgreSQL, "Streaming Replication Protocol", START_REPLICATION.

    server  XLogData           w  start uint64  wal_end uint64  sent_us int64  data ...
            PrimaryKeepalive   k  wal_end uint64  sent_us int64  reply byte
    client  StatusUpdate       r  written uint64  flushed uint64  applied uint64  sent_us int64  reply byte

All integers are big-endian. LSNs are unsigned and end-exclusive (see `cdcd.lsn`); times are microseconds since
2000-01-01 UTC. Both directions are here, so that the tests' server uses the same code.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from cdcd.errors import DecodeError

POSTGRES_EPOCH_US: Final = 946_684_800_000_000
"""2000-01-01 UTC in microseconds since 1970-01-01 UTC."""

XLOGDATA: Final = 0x77
KEEPALIVE: Final = 0x6B
STATUS_UPDATE: Final = 0x72

XLOGDATA_HEADER_BYTES: Final = 25
"""Where the output plugin's message starts in an XLogData frame. The hot path reads it there, without a copy."""

_XLOGDATA: Final = Struct("!BQQq")  # tag 1, start 8, wal_end 8, sent_us 8
_KEEPALIVE: Final = Struct("!BQqB")  # tag 1, wal_end 8, sent_us 8, reply 1
_STATUS_UPDATE: Final = Struct("!BQQQqB")  # tag 1, written 8, flushed 8, applied 8, sent_us 8, reply 1


@dataclass(frozen=True)
class XLogData:
    """One message of the output plugin. `start`: its LSN; 0 where it has none (Relation, Type).

    A logical walsender sets `wal_end` to `start`; only a keepalive tells how far the server has got.
    """

    start: int
    wal_end: int
    sent_us: int
    data: bytes

    def encode(self) -> bytes:
        """The frame, as a walsender writes it."""
        return _XLOGDATA.pack(XLOGDATA, self.start, self.wal_end, self.sent_us) + self.data


@dataclass(frozen=True)
class PrimaryKeepalive:
    """How far the server has got. `reply`: it wants a status update at once, or `wal_sender_timeout` may fire.

    `wal_end`: the server has decoded and sent everything that concerns this slot up to this LSN.
    """

    wal_end: int
    sent_us: int
    reply: bool

    def encode(self) -> bytes:
        """The frame, as a walsender writes it."""
        return _KEEPALIVE.pack(KEEPALIVE, self.wal_end, self.sent_us, self.reply)


@dataclass(frozen=True)
class StatusUpdate:
    """Positions of the client. The server drops WAL below `flushed`, and releases COMMITs that wait for this standby.

    `written`, `flushed`, `applied`: LSN of the last byte + 1. `reply`: the server is to send a keepalive at once.
    """

    written: int
    flushed: int
    applied: int
    sent_us: int
    reply: bool

    def encode(self) -> bytes:
        """The frame, as a standby writes it. Raises `struct.error` (the caller's fault) if a number does not fit."""
        return _STATUS_UPDATE.pack(STATUS_UPDATE, self.written, self.flushed, self.applied, self.sent_us, self.reply)


def decode_server(frame: bytes) -> XLogData | PrimaryKeepalive:
    """Read an XLogData or a keepalive. Raises DecodeError (the server's fault) for anything else."""
    tag = frame[0] if frame else -1
    if tag == XLOGDATA:
        return decode_xlogdata(frame)
    if tag == KEEPALIVE:
        return decode_keepalive(frame)
    raise _unknown(tag, "XLogData 'w' or PrimaryKeepalive 'k'")


def decode_xlogdata(frame: bytes) -> XLogData:
    """Read an XLogData, and copy its data. Raises DecodeError if the frame is none."""
    if len(frame) < XLOGDATA_HEADER_BYTES:
        raise DecodeError(f"XLogData: header at offset 0 wants {XLOGDATA_HEADER_BYTES} bytes, got {len(frame)}")
    tag, start, wal_end, sent_us = _XLOGDATA.unpack_from(frame)
    if tag != XLOGDATA:
        raise _unknown(tag, "XLogData 'w'")
    return XLogData(start, wal_end, sent_us, frame[XLOGDATA_HEADER_BYTES:])


def decode_keepalive(frame: bytes) -> PrimaryKeepalive:
    """Read a primary keepalive. Raises DecodeError if the frame is none."""
    if len(frame) != _KEEPALIVE.size:
        raise DecodeError(f"PrimaryKeepalive: wants {_KEEPALIVE.size} bytes, got {len(frame)}")
    tag, wal_end, sent_us, reply = _KEEPALIVE.unpack(frame)
    if tag != KEEPALIVE:
        raise _unknown(tag, "PrimaryKeepalive 'k'")
    return PrimaryKeepalive(wal_end, sent_us, _flag("PrimaryKeepalive", 17, reply))


def decode_status_update(frame: bytes) -> StatusUpdate:
    """Read a standby's status update, as a server would. Raises DecodeError if the frame is none."""
    if len(frame) != _STATUS_UPDATE.size:
        raise DecodeError(f"StatusUpdate: wants {_STATUS_UPDATE.size} bytes, got {len(frame)}")
    tag, written, flushed, applied, sent_us, reply = _STATUS_UPDATE.unpack(frame)
    if tag != STATUS_UPDATE:
        raise _unknown(tag, "StatusUpdate 'r'")
    return StatusUpdate(written, flushed, applied, sent_us, _flag("StatusUpdate", 33, reply))


def _flag(message: str, offset: int, value: int) -> bool:
    if value > 1:
        raise DecodeError(f"{message}: reply at offset {offset} wants 0 or 1, got {value}")
    return value == 1


def _unknown(tag: int, wanted: str) -> DecodeError:
    got = "an empty frame" if tag < 0 else f"{chr(tag)!r}" if 0x20 < tag < 0x7F else f"0x{tag:02X}"
    return DecodeError(f"replication stream: message type at offset 0 wants {wanted}, got {got}")
