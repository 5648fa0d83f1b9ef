"""Reads from one of Debezium's events where its transaction stands, without parsing all of it.

Before: `event_encoder` has written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress.
"""

from __future__ import annotations

from typing import Final

_SEQUENCE: Final = b',"sequence":"[\\"'
_DIGITS_MAX: Final = 20


def last_commit(value: bytes) -> int | None:
    """Where the transaction before the event's own ends: an LSN. None if it does not say, as the rows of snapshots."""
    at = value.rfind(_SEQUENCE)  # the row, which stands before, may have a column of this name
    if at < 0:
        return None
    digits = value[at + len(_SEQUENCE) :][: _DIGITS_MAX + 1].partition(b"\\")[0]
    return int(digits) if digits.isdigit() else None
