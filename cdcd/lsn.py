"""Log sequence numbers (LSNs): positions in PostgreSQL's write-ahead log, as integers, and their text `X/X`.

The rules for LSNs, against off-by-one errors:

- An LSN is the offset of a byte in the WAL. A range of WAL is end-exclusive.
- `commit_lsn` is where a transaction's commit record starts; `end_lsn` is the first byte after it.
- A transaction is acknowledged by its `end_lsn`, never by its `commit_lsn`: PostgreSQL sends a transaction again if and
  only if its `commit_lsn` is at or above the acknowledged LSN.
- The fields of a status update are "last byte + 1". That is `end_lsn` itself: add nothing.

A stream may go on at another server (`cdcd adopt`), whose LSNs begin again lower. Readers order by LSN, so the LSNs in
Kafka must never go back. Therefore a *base* is added to all LSNs of that server, and subtracted from what the daemon
confirms to it. It is a multiple of 2**32: the part behind the slash stays as the server knows it.

Source: PostgreSQL, "pg_lsn Type" and "Streaming Replication Protocol" (Standby status update).
"""

from __future__ import annotations

import re
from typing import Final

INVALID: Final = 0

BASE_STEP: Final = 1 << 32
LSN_MAX: Final = (1 << 63) - 1
"""Avro's long is signed."""

_TEXT: Final = re.compile("([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """PostgreSQL's text of `lsn` (0 to 2**64 - 1), such as `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def base_for(lsn: int, reached_lsn: int) -> int:
    """The lowest base with which `lsn`, a server's own, is not below `reached_lsn`, up to which Kafka has LSNs.

    Raises ValueError (the server's fault) if there is no room for it.
    """
    base = max(0, -(-(reached_lsn - lsn) // BASE_STEP)) * BASE_STEP
    if lsn + base > LSN_MAX:
        raise ValueError(f"there is no LSN above {format_lsn(reached_lsn)} that ends like {format_lsn(lsn)}")
    return base


def parse_lsn(text: str) -> int:
    """The LSN of PostgreSQL's text form. Raises ValueError (the caller's fault) if `text` is not an LSN."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"an LSN looks like 16/B374D848, not {text!r}")
    return int(match[1], 16) << 32 | int(match[2], 16)
