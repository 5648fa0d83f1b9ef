"""The order of Java's HashMap, in which Debezium and Connect write maps.

Before: `values.nested` and `avro_data` have the keys. After: they write the pairs in this order.
Source: Java's HashMap and String.hashCode.
"""

from __future__ import annotations

from typing import Final

_TABLE_MIN: Final = 16


def hash_map_order(keys: list[str]) -> list[str]:
    """Return the keys in the order in which Java's HashMap has them, if none of its buckets has more than eight."""
    capacity = _TABLE_MIN
    while len(keys) > capacity * 3 // 4:
        capacity *= 2
    return sorted(keys, key=lambda key: _spread_hash(key) & (capacity - 1))


def _spread_hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (code * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return code ^ code >> 16
