"""Reads from an event in JSON where its transaction stands, without parsing all of it.

Before: the encoders have written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress.
"""

from __future__ import annotations

import re
from typing import Final

_HEAD: Final = re.compile(rb'(?:\A|,"payload":)\{"op":"[crudtm]","source":\{"commit_lsn":([0-9]{1,19}),')


def commit_lsn(value: bytes) -> int | None:
    """The commit LSN of an event; with or without a schema before it; None if the value is none of cdcd's in JSON."""
    found = _HEAD.search(value)
    return int(found[1]) if found is not None else None
