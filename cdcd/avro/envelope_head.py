"""Reads the position of an event without its schema: every event begins with the same fields.

Before: `event_encoder` has written the event, perhaps in an earlier life of the daemon.
After: `sink.kafka.committed_rows` compares it with the progress.
Source: Apache Avro specification, "Binary Encoding"; `envelope_fields` has the order of the fields.
"""

from __future__ import annotations

from typing import Final

from cdcd.avro.single_object import HEADER_SIZE, MARKER

_OPS: Final = b"crudtm"
_CONFLUENT_HEADER_SIZE: Final = 5
_LONG_SIZE_MAX: Final = 10


def commit_lsn(value: bytes) -> int | None:
    """The commit LSN of an event; None if the value does not begin as an event does."""
    at = HEADER_SIZE if value[:2] == MARKER else _CONFLUENT_HEADER_SIZE if value[:1] == b"\x00" else len(value)
    op, found = value[at : at + 2], 0
    if len(op) < 2 or op[0] != 2 or op[1] not in _OPS:  # a string of one character
        return None
    for shift, byte in enumerate(value[at + 2 : at + 2 + _LONG_SIZE_MAX]):
        found |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1)
    return None
