"""Which partition a record goes to: the partition that Kafka's Java clients would pick for its key.

Before: `batches` gathers the records of a table in commit order.
After: `publisher` hands each partition's list to the producer, one call per topic and partition.
Source: `org.apache.kafka.common.utils.Utils.murmur2` and `BuiltInPartitioner.partitionForKey` (Kafka's Java client).

Hot path, compiled: a hash and a list append a record.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_le
from mypy_extensions import i64

from cdcd.sink.batches import Message

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


def partition_for(key: bytes, partitions: i64) -> i64:
    """Return the partition, 0 to `partitions` - 1, of a record with this key."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions


def split(messages: list[Message], everywhere: list[int], partitions: i64) -> list[list[Message]]:
    """Return the records of each partition of one table, in the order of `messages`.

    A record without a key goes to partition 0. `everywhere` holds the ascending indexes of the records that go to every
    partition; they keep their place in the order. The lists are new; the messages in them are shared.
    """
    if partitions == 1:
        return [messages.copy()]
    lists: list[list[Message]] = [[] for _ in range(partitions)]
    following: i64 = 0
    broadcasts: i64 = len(everywhere)
    for at, message in enumerate(messages):
        if following < broadcasts and everywhere[following] == at:
            following += 1
            for each in lists:
                each.append(message)
        else:
            key = message.get("key")
            if key is None:
                lists[0].append(message)
            else:
                lists[partition_for(key, partitions)].append(message)
    return lists
