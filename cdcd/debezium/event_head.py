"""Reads from one of Debezium's events, or from a flat row, where its transaction stands, without parsing all of it.

Before: `event_encoder` has written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress.
"""

from __future__ import annotations

import re
from typing import Final

_SEQUENCE: Final = b',"sequence":"[\\"'
_DIGITS_MAX: Final = 20
_LSN: Final = re.compile(rb'"__lsn":(\d{1,20})[,}]')


def last_commit(value: bytes) -> int | None:
    """Where the transaction before the event's own ends: an LSN. None if it does not say, as the rows of snapshots."""
    at = value.rfind(_SEQUENCE)  # the row, which stands before, may have a column of this name
    if at < 0:
        return None
    digits = value[at + len(_SEQUENCE) :][: _DIGITS_MAX + 1].partition(b"\\")[0]
    return int(digits) if digits.isdigit() else None


def row_lsn(value: bytes) -> int | None:
    """The LSN of the change that a flat row is of; None if it does not have the field by its usual name.

    What a text of the row says is no such field: its quotes have a backslash.
    """
    found = _LSN.findall(value)
    return int(found[-1]) if found else None
