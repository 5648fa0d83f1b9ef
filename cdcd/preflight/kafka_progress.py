"""Reads the progress in Kafka for `cdcd check`, and looks whether the topics still hold what it says. Changes nothing.

Before: `check` knows the topics of the published tables.
After: `progress` judges the slot record; `check` passes the findings on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from contextlib import closing

from cdcd.config.settings import Settings
from cdcd.errors import GapError
from cdcd.preflight import progress
from cdcd.preflight.findings import Finding, of_error, warning
from cdcd.progress.topic_evidence import describe
from cdcd.reading.slot_progress import kafka_cluster, progress_store
from cdcd.sink.kafka.topic_check import TopicCheck


def findings(settings: Settings, published: Collection[str] | None, *, slot_exists: bool | None) -> Iterator[Finding]:
    """Yield the findings; what `cdcd run` would refuse is an error. `published`: topics of tables; None: not known.

    Raises as Kafka's readers do.
    """
    resnapshot = settings.sink.on_topic_lost == "resnapshot"
    with closing(kafka_cluster(settings)) as kafka:
        store = progress_store(settings, kafka)
        last = store.last_record()
        yield from progress.judge(last, slot_exists=slot_exists)
        check = TopicCheck(kafka, store, published, time.sleep, resnapshot=resnapshot)
        try:
            check.check(last)
        except GapError as failure:
            yield of_error("topics", failure)
        if check.lost and resnapshot:
            yield warning("topics", describe(check.lost), "Run: cdcd run. It takes new snapshots of these tables")
