"""Avro single-object encoding: the first ten bytes of a value name the schema that wrote it.

Before: `schema` has made a schema's JSON text. `schema_store` sends the same text to Kafka under its fingerprint.
After: `event_encoder` writes the header before each key and value; `reading.decoder` splits it off.
Source: Avro specification, "Single-object encoding" and "Schema fingerprints".

The fingerprint is CRC-64-AVRO of the schema's JSON text exactly as it is published, not of Avro's parsing canonical
form. The canonical form drops `scale` and `precision`: numeric(10,2) and numeric(12,4) would share a fingerprint, and a
reader would read 1.23 as 0.0123. Readers look schemas up by fingerprint, and never compute it from a canonical form.

The fingerprint's bytes are in little-endian order, as Java writes them. Its hex digits are those bytes in that order.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

MARKER: Final = b"\xc3\x01"
"""The two bytes that open a single-object value. Confluent's wire format opens with a zero byte."""

HEADER_SIZE: Final = 10
"""Bytes before the Avro payload: marker and fingerprint."""

_EMPTY: Final = 0xC15D213AA4D7A795


_SEVEN_BYTES: Final[i64] = 0x00FF_FFFF_FFFF_FFFF


def _signed(crc: int) -> int:
    """The same 64 bits as a number that fits into an i64."""
    return crc - (1 << 64) if crc >> 63 else crc


def _table() -> list[int]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ _EMPTY if crc & 1 else crc >> 1
        table.append(_signed(crc))
    return table


_TABLE: Final = _table()


def fingerprint(text: str) -> bytes:
    """The eight bytes of CRC-64-AVRO over `text` (a schema's JSON, as published) in UTF-8, little-endian."""
    crc: i64 = _signed(_EMPTY)  # with an int, each byte would make two large numbers
    for byte in text.encode():
        index: i64 = (crc ^ byte) & 0xFF
        entry: i64 = _TABLE[index]
        crc = (crc >> 8 & _SEVEN_BYTES) ^ entry
    return int(crc).to_bytes(8, "little", signed=True)


def header(schema_fingerprint: bytes) -> bytes:
    """The ten bytes before a payload whose schema has this fingerprint (eight bytes)."""
    if len(schema_fingerprint) != 8:
        raise ValueError(f"a fingerprint has 8 bytes, not {len(schema_fingerprint)}")
    return MARKER + schema_fingerprint


def split(value: bytes) -> tuple[str, int]:
    """The fingerprint of the schema that wrote `value`, in 16 hex digits, and where the payload starts.

    Raises ValueError (the writer's fault: this is another format) if `value` does not open with the header.
    """
    if len(value) < HEADER_SIZE or value[:2] != MARKER:
        raise ValueError(
            f"single-object encoding opens with c301 and 8 more bytes, not with {value[:10].hex() or 'nothing'}"
        )
    return value[2:HEADER_SIZE].hex(), HEADER_SIZE
