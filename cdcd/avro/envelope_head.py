"""Reads the beginning of an event without its schema: every event begins with the same fields.

Before: `event_encoder` has written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress; `verify.row_hashes` hashes the row behind it.
Source: Apache Avro specification, "Binary Encoding"; `envelope_fields` has the order of the fields.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from cdcd.avro.single_object import HEADER_SIZE, MARKER

_OPS: Final = b"crudtm"
_CONFLUENT_HEADER_SIZE: Final = 5
_LONG_SIZE_MAX: Final = 10


def commit_lsn(value: bytes) -> int | None:
    """The commit LSN of an event; None if the value does not begin as an event does."""
    at = header_size(value)
    op = value[at : at + 2]
    if at == 0 or len(op) < 2 or op[0] != 2 or op[1] not in _OPS:  # a string of one character
        return None
    try:
        return int(read_long(value, at + 2))
    except IndexError:
        return None


def header_size(data: bytes) -> i64:
    """How many bytes of a key or a value name its schema; 0 if it has none of the two forms."""
    if data.startswith(MARKER):
        return HEADER_SIZE
    return _CONFLUENT_HEADER_SIZE if data.startswith(b"\0") else 0


def read_long(data: bytes, at: i64) -> i64:
    """The Avro long at `at`. Raises IndexError (the writer's fault) if none ends there."""
    shift: i64 = 0
    found: i64 = 0
    while shift < 7 * _LONG_SIZE_MAX:
        byte: i64 = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((found >> 1) & 0x7FFF_FFFF_FFFF_FFFF) ^ -(found & 1)  # compiled, found may have wrapped
        shift += 7
    raise IndexError("an Avro long has ten bytes at most")


def after_long(data: bytes, at: i64) -> i64:
    """Where the Avro long at `at` ends. Raises IndexError (the writer's fault) if the data ends before."""
    while data[at] >= 0x80:
        at += 1
    return at + 1
