"""Reads from one of Debezium's events, or from a flat row, where its transaction stands, without parsing all of it.

Before: `event_encoder` has written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress.
"""

from __future__ import annotations

import re
from typing import Final

from cdcd.avro.envelope_head import after_long, read_long
from cdcd.debezium.avro_form import SOURCE_BEGIN

_SEQUENCE: Final = b',"sequence":"[\\"'
_DIGITS_MAX: Final = 20
_LSN: Final = re.compile(rb'"__lsn":(\d{1,20})[,}]')
_SEQUENCE_IN_AVRO: Final = re.compile(rb'\["([0-9]{1,20})","[0-9]{1,20}"\]')
_BEFORE_SEQUENCE: Final = ("string", "long", "long", "string", "string")
"""The fields of `source` between SOURCE_BEGIN and `sequence`; one more before that of `snapshot`: its branch."""
_BEHIND_SEQUENCE: Final = (
    "?long", "?long", "string", "string", "?long", "?long", "?long", "?string", "?long",  # the rest of `source`
    "?transaction", "string", "?long", "?long", "?long",  # the rest of the event
)  # fmt: skip
"""The fields behind it; `?`: which may be null."""


def last_commit(value: bytes) -> int | None:
    """Where the transaction before the event's own ends: an LSN. None if it does not say, as the rows of snapshots.

    `value`: an event in JSON.
    """
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


def last_commit_in_avro(value: bytes) -> int | None:
    """As `last_commit`, of the event of a row in Avro. `source` stands behind the rows, and begins with known bytes."""
    at = value.rfind(SOURCE_BEGIN)
    while at >= 0:
        try:
            sequence, end = _sequence(value, at + len(SOURCE_BEGIN))
        except IndexError:
            sequence, end = b"", -1
        if end == len(value):  # else a name of a table or of an origin has these bytes
            found = _SEQUENCE_IN_AVRO.fullmatch(sequence)
            return int(found[1]) if found else None
        at = value.rfind(SOURCE_BEGIN, 0, at + len(SOURCE_BEGIN) - 1)
    return None


def _sequence(value: bytes, at: int) -> tuple[bytes, int]:
    """The field `sequence` of the source whose `name` is at `at`, and where the event ends.

    Raises IndexError if this is not the rest of an event.
    """
    for kind in _BEFORE_SEQUENCE:
        at = _end_of(kind, value, at)
    begin, at = at, _end_of("?string", value, at)
    sequence = value[begin + 2 : at]  # behind the branch and the length, which is below 64
    for kind in _BEHIND_SEQUENCE:
        at = _end_of(kind, value, at)
    return sequence, at


def _end_of(kind: str, value: bytes, at: int) -> int:
    """Where the field ends. Raises IndexError if none does."""
    if kind.startswith("?"):
        branch = value[at]
        at += 1
        if branch == 0:
            return at
        if branch != 2:
            raise IndexError("no branch of a union")
        kind = kind[1:]
    if kind == "transaction":
        return int(after_long(value, after_long(value, _end_of("string", value, at))))
    if kind == "long":
        return int(after_long(value, at))
    size, at = int(read_long(value, at)), int(after_long(value, at))
    if not 0 <= size <= len(value) - at:
        raise IndexError("no length")
    return at + size
