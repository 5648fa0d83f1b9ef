"""The hash of a key that decides its partition: the one of Kafka's Java clients.

Before: an encoder of keys, or `sink.partitioner`, has the bytes.
After: `sink.partitioner` takes the remainder of the number of partitions.
Source: `org.apache.kafka.common.utils.Utils.murmur2` (Kafka's Java client).

Hot path, compiled.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

_MASK: Final[i64] = 0xFFFF_FFFF
_SEED: Final[i64] = 0x9747_B28C
_M: Final[i64] = 0x5BD1_E995
"""Below 2**31, so that its product with 32 unsigned bits stays inside a signed 64-bit integer, compiled or not."""


def murmur2(key: bytes) -> i64:
    """Return Kafka's 32-bit murmur2 of `key`, as an unsigned number (Java prints the same bits signed)."""
    size: i64 = len(key)
    whole: i64 = size & ~3
    h: i64 = _SEED ^ size
    at: i64 = 0
    while at < whole:
        word = i64(read_i32_le(key, at))
        k: i64 = ((word & _MASK) * _M) & _MASK
        k ^= k >> 24
        k = (k * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
        at += 4
    tail = size - whole
    if tail:
        if tail == 3:
            h ^= key[whole + 2] << 16
        if tail >= 2:
            h ^= key[whole + 1] << 8
        h ^= key[whole]
        h = (h * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    return h ^ (h >> 15)
