"""Log sequence numbers (LSNs): positions in PostgreSQL's write-ahead log, as integers, and their text `X/X`.

The rules for LSNs, against off-by-one errors:

- An LSN is the offset of a byte in the WAL. A range of WAL is end-exclusive.
- `commit_lsn` is where a transaction's commit record starts; `end_lsn` is the first byte after it.
- A transaction is acknowledged by its `end_lsn`, never by its `commit_lsn`: PostgreSQL sends a transaction again if and
  only if its `commit_lsn` is at or above the acknowledged LSN.
- The fields of a status update are "last byte + 1". That is `end_lsn` itself: add nothing.

Source: PostgreSQL, "pg_lsn Type" and "Streaming Replication Protocol" (Standby status update).
"""

from __future__ import annotations

import re
from typing import Final

INVALID: Final = 0

_TEXT: Final = re.compile("([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """PostgreSQL's text of `lsn` (0 to 2**64 - 1), such as `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """The LSN of PostgreSQL's text form. Raises ValueError (the caller's fault) if `text` is not an LSN."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise ValueError(f"an LSN looks like 16/B374D848, not {text!r}")
    return int(match[1], 16) << 32 | int(match[2], 16)
