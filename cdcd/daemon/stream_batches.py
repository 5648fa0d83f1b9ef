"""Makes what gathers the records of a stream, as the settings say.

Before: `wiring` knows the settings. After: the encoders of a format give it records.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cdcd.config.settings import Settings
from cdcd.sink.batches import BatchBuilder


def batch_builder(settings: Settings) -> Callable[[], BatchBuilder]:
    """Makes what gathers the records of a stream, or those of its snapshots."""
    names = settings.topic_names()
    if settings.sink.format == "cdcd":
        return partial(BatchBuilder, settings.sink.tombstones, shared_topic=names.shared_topic)
    tombstones = settings.debezium.tombstones
    if settings.sink.format == "row":
        tombstones = settings.row.delete_tombstone_handling_mode == "rewrite-with-tombstone"
    return partial(BatchBuilder, tombstones, truncate_key=None, shared_topic=names.shared_topic)
