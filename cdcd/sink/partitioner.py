"""Which partition a record goes to: the partition that Kafka's Java clients would pick for its key.

The settings may say another one, see `column_rules.PartitionChoice`: then the record brings a hash of its own.

Before: `batches` gathers the records of a table in commit order.
After: `publisher` hands each partition's list to the producer, one call per topic and partition.
Source: `org.apache.kafka.clients.producer.internals.BuiltInPartitioner.partitionForKey` (Kafka's Java client).

Hot path, compiled: a hash and a list append a record.
"""

from __future__ import annotations

from mypy_extensions import i64

from cdcd.sink.batches import Message
from cdcd.transaction.key_hash import murmur2


def partition_for(key: bytes, partitions: i64) -> i64:
    """Return the partition, 0 to `partitions` - 1, of a record with this key."""
    return _partition(murmur2(key), partitions)


def _partition(key_hash: i64, partitions: i64) -> i64:
    return (key_hash & 0x7FFF_FFFF) % partitions


def split(
    messages: list[Message], everywhere: list[int], partitions: i64, has_hashes: bool = False
) -> list[list[Message]]:
    """Return the records of each partition of one table, in the order of `messages`.

    A record without a key goes to partition 0. `has_hashes`: some records may bring a hash. `everywhere` holds the
    ascending indexes of the records that go to every partition; they keep their place in the order. The lists are new;
    the messages in them are shared.
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
            elif has_hashes and "hash" in message:
                lists[_partition(message["hash"], partitions)].append(message)
            else:
                lists[partition_for(key, partitions)].append(message)
    return lists
