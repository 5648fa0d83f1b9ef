"""Which keys have several events in a batch: only these events need to be collapsed.

Before: the mirror has read a batch, and knows the schemas of its keys.
After: `collapse` groups the events of these keys. Each other event is the state of its key, as it is.

Spark sorts all rows to collapse them, because they hold texts. To count the keys it needs their hashes alone. These are
of the keys' bytes in Kafka, which nothing has to decode. So keys of one schema alone can be told apart, and only types
whose equal values have equal bytes. (Two keys that differ may have one hash: then they are collapsed in vain.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from cdcd.spark.state.collapse import KEY_HASH, collapse, key_hash, single_rows

_BROADCAST_KEYS_MAX: Final = 500_000
"""Hashes that each executor can hold."""


class RepeatedKeys:
    """The hashes of the keys that have several records."""

    def __init__(self, hashes: DataFrame, count: int) -> None:
        self._hashes = f.broadcast(hashes)
        self.count = count

    def collapse(self, events: DataFrame, columns: Sequence[dict[str, Any]], unchanged: Sequence[str]) -> DataFrame:
        """As `collapse.collapse`."""
        if not self.count:
            return single_rows(events, columns)
        single, several = (events.join(self._hashes, KEY_HASH, how) for how in ("left_anti", "left_semi"))
        return single_rows(single, columns).unionByName(collapse(several, columns, unchanged))


@contextmanager
def repeated_keys(records: DataFrame) -> Iterator[RepeatedKeys | None]:
    """Those of the records, whose keys have one schema. None: some record has no key, or too many are repeated.

    Inside the `with` block Spark keeps the hashes.
    """
    counted = records.groupBy(key_hash().alias(KEY_HASH)).agg(f.count("*").alias("records"))
    hashes = counted.where(f"records > 1 OR {KEY_HASH} IS NULL").select(KEY_HASH).persist()
    try:
        [found] = hashes.agg(f.count("*").alias("all"), f.count(KEY_HASH).alias("known")).collect()
        is_usable = found["all"] == found["known"] <= _BROADCAST_KEYS_MAX
        yield RepeatedKeys(hashes, found["known"]) if is_usable else None
    finally:
        hashes.unpersist()
