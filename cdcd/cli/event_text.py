"""Events as text, for `cdcd tail` and `cdcd peek`.

Before: `reading.decoder` has decoded an event. After: a person reads the text.
"""

from __future__ import annotations

import json
from typing import Any, Final

from cdcd.reading.decoder import plain
from cdcd.terminal.visible_text import word

OPERATIONS: Final = {
    "c": "insert", "u": "update", "d": "delete", "r": "snapshot", "t": "truncate", "m": "message",
}  # fmt: skip
"""The operation in words, by the event's field `op`."""


def columns_text(row: Any) -> str:
    """A row as `id=1 name="two words"`; "" for None. A key or value that is not a record is shown by itself."""
    if not isinstance(row, dict):
        return "" if row is None else value_text(row)
    return " ".join(f"{word(name)}={value_text(value)}" for name, value in row.items())


def value_text(value: Any) -> str:
    """A value: a string of one word as it is, all else as JSON."""
    simple = plain(value)
    return word(simple) if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)
