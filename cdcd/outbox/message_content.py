"""Reads the content of a logical message of the outbox: a JSON object with the fields that a row has as columns. Pure.

Before: `outbox_events` knows by the prefix that a message belongs to the outbox.
After: it publishes the fields. The text of a value that is no string is that of the message, not one written anew.
"""

from __future__ import annotations

import json
from typing import Any, Final

_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)  # of a number only the text is wanted
_SPACE: Final = " \t\n\r"


def fields_of(content: bytes) -> dict[str, str | None] | None:
    """Return the fields, and the text of each: of a string its characters, of another value its JSON; null is None.

    None if the content is no JSON object, has a field twice, or a string with half a surrogate pair.
    """
    try:
        text = content.decode()
        return _fields(text)
    except (ValueError, RecursionError):
        return None


def _fields(text: str) -> dict[str, str | None]:
    """The same. Raises ValueError if it cannot be read."""
    at = _skip(text, 0)
    found: dict[str, str | None] = {}
    separator = "{"
    while text[at : at + 1] == separator:
        at = _skip(text, at + 1)
        if not found and text[at : at + 1] == "}":
            break
        first = text[at : at + 1]
        name: Any
        name, end = _DECODER.raw_decode(text, at)
        at = _skip(text, end)
        if first != '"' or name in found or text[at : at + 1] != ":":
            raise ValueError("no name, a second value of it, or none")
        at = _skip(text, at + 1)
        value: Any
        value, end = _DECODER.raw_decode(text, at)
        found[name] = value if value is None or isinstance(value, str) else text[at:end]
        (found[name] or "").encode()  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
        at = _skip(text, end)
        separator = ","
    if text[at : at + 1] != "}" or _skip(text, at + 1) != len(text):
        raise ValueError("no object")
    return found


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in _SPACE and at < len(text):
        at += 1
    return at
