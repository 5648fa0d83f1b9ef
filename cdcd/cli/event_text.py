"""Events as text, for `cdcd tail` and `cdcd peek`.

Before: `reading.decoder` has decoded an event. After: a person reads the text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
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


def without_schema(value: Any) -> Any:
    """The payload of a value in Connect's JSON with schemas; else the value."""
    with_schema = isinstance(value, dict) and value.keys() == {"schema", "payload"}
    return value["payload"] if with_schema and isinstance(value["schema"], dict) else value


def header_texts(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """The headers of a record as text."""
    return {name: (value or b"").decode(errors="backslashreplace") for name, value in headers}


def value_text(value: Any) -> str:
    """A value: a string of one word as it is, all else as JSON."""
    simple = plain(value)
    return word(simple) if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)
