"""Declares at a start that changes are missing, and what makes the topics right again: new snapshots, or comparisons.

Before: `kafka_takeover` has found that the slot does not have what Kafka lacks, and the settings accept it.
After: the snapshot coordinator and `gap_repairs` find in the records which tables to copy, and which to compare.

One Kafka transaction records the gap, where the stream goes on, and what each table wants. A daemon that dies before it
declares the gap again at its next start; after it, the gap is behind the progress.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace

from cdcd.config.settings import Settings
from cdcd.daemon.kafka_session import KafkaSession
from cdcd.daemon.recopies import Table
from cdcd.lsn import format_lsn
from cdcd.progress.continuity import Server
from cdcd.progress.records import SlotRecord
from cdcd.progress.snapshot_records import DONE
from cdcd.source.table_selection import count_and_names

log = logging.getLogger(__name__)


def declare_gap(
    settings: Settings, kafka: KafkaSession, server: Server, tables: Collection[Table], now: float
) -> KafkaSession:
    """Record the gap before the position of the slot of `server`. `tables`: the published ones, by schema and name.

    Returns the result of the take-over as it is then. Raises as `Publisher.declare_gap`.
    """
    publisher, last = kafka.publisher, kafka.publisher.last
    begin, end = server.confirmed_lsn if last is None else last.lsn, server.confirmed_lsn
    compared: set[Table] = set()
    if last is None or end <= last.lsn:
        # Records of the progress are lost. So nothing tells which of the slot's changes Kafka has, and the daemon
        # publishes none of them.
        end = server.wal_lsn
    elif settings.source.on_slot_lost == "repair" and settings.snapshot.mode != "only":
        compared = comparable(settings, kafka, last, tables)
    parked, forbids = publisher.parked, settings.snapshot_rules().forbids
    left = {table for table in tables if table not in compared and forbids(*table)}
    log.warning(
        "changes are missing: taking new snapshots of tables, or comparing them with their topics",
        extra={
            "from": format_lsn(begin),
            "to": format_lsn(end),
            "snapshots": count_and_names(
                [each for each in tables if each not in compared | left and each not in parked]
            ),
            "compared": count_and_names([table for table in compared if table not in parked]),
            "snapshots_after_unpark": count_and_names(
                [table for table in tables if table in parked and table not in left]
            ),
            **({"lacking_rows": count_and_names(left)} if left else {}),
        },
    )
    wanted = publisher.declare_gap(begin, end, tables, now, compared)
    snapshots = {**kafka.snapshots, **{each.topic: each for each in wanted}}
    return replace(kafka, snapshots=snapshots, begins_at=end)


def comparable(settings: Settings, kafka: KafkaSession, last: SlotRecord, tables: Collection[Table]) -> set[Table]:
    """Return those of `tables` (schema, name) that can be compared with their topics.

    The others are copied: a table whose topic the slot has not written to, or whose snapshot was not complete or had a
    condition, and one with events on the parked topic. A table that the settings forbid to copy would come whole by a
    comparison, too, if it was never copied.
    """
    names, forbids = settings.topic_names(), settings.snapshot_rules().forbids
    known, incomplete = kafka.publisher.written_tables, {(each.schema, each.table) for each in last.incomplete}
    found = set()
    for table in tables:
        topic = names.topic(*table)
        snapshot = kafka.snapshots.get(topic)
        if snapshot is None:
            is_whole = not forbids(*table)
        else:
            is_whole = (snapshot.state == DONE and not snapshot.where) or bool(snapshot.repair)
        if topic in known and table not in incomplete and is_whole:
            found.add(table)
    return found
