"""Text that shows what it holds: characters that steer a terminal, break a line or reorder it become escapes.

Before: values, names and messages come from PostgreSQL, Kafka, the registry and the rows. After: `output`,
`progress_bar`, the log and the status page write the text.
Source: Unicode, "Bidirectional Algorithm" (UAX 9); ECMA-48, "Control Functions for Coded Character Sets".

The escapes are those of JSON, so a JSON text stays the same JSON.
"""

from __future__ import annotations

import json
import re
from typing import Final

_CONTROLS: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL and C1: a terminal obeys them
    "\u2028\u2029"  # line and paragraph separators: some readers begin a new line
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # bidirectional marks: text shows in another order
    "\u206a-\u206f\ufeff\ufff9-\ufffb"  # deprecated formats, byte order mark, interlinear annotation
    "\ud800-\udfff"  # surrogates: no UTF-8, or bytes that Python could not decode
)
_HIDDEN: Final = re.compile(f"[{_CONTROLS}]")
_HIDDEN_IN_LINES: Final = re.compile(f"[{_CONTROLS}](?<!\n)")
_WORD: Final = re.compile(f"[^\\s\"'={_CONTROLS}]+")


def visible(text: str) -> str:
    """One line of text, with the escape that JSON has for each character that a reader would not see."""
    return _HIDDEN.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Several lines of text, as `visible`; line breaks stay."""
    return _HIDDEN_IN_LINES.sub(_escape, text)


def word(text: str) -> str:
    """A text as one word: as it is, or in quotes if it could be taken for more than one word or for another one."""
    return text if _WORD.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escape(match: re.Match[str]) -> str:
    return json.dumps(match[0])[1:-1]
