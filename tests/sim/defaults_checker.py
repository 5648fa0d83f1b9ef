"""Judges what the schemas say of added columns: a default that Kafka has is in every later schema of the table.

Before: `replica.SimCatalog` tells a default a few times, and has forgotten it then, as after VACUUM FULL.
After: `checker` shows it each event of the stream, with the snapshot records that are durable.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from sim.sql import Event

from cdcd.progress.snapshot_records import TableSnapshot


class DefaultsChecker:
    """One world's judge. `demand` raises if its first argument does not hold."""

    def __init__(self, demand: Callable[[bool, str], None]) -> None:
        self._demand = demand
        self._told: dict[str, tuple[int, set[str]]] = {}
        """Of the Kafka transaction: by topic, the table of its last event, and the columns with a default."""

    def judge(self, topic: str, event: Event, schema: str, before: TableSnapshot | None) -> None:
        """Take an event of the stream. `before`: the snapshot record of the topic before this Kafka transaction."""
        if event.op not in ("c", "u", "d"):
            return
        columns = _columns(json.loads(schema))
        told = {name for name, value in columns.items() if value is not None}
        if _is_of(before, event.oid):
            assert before is not None
            lost = (before.added.keys() & columns.keys()) - told
            self._demand(not lost, f"{topic}: the schema of an event has no default of {lost}, and Kafka knows it")
        self._told[topic] = event.oid, told

    def end(self, records: Mapping[str, TableSnapshot]) -> None:
        """End the Kafka transaction. `records`: the snapshot records since, by topic."""
        for topic, (oid, told) in self._told.items():
            record = records.get(topic)
            if _is_of(record, oid):
                assert record is not None
                self._demand(told <= record.added.keys(), f"{topic}: the defaults of {told} are not recorded")
        self._told.clear()


def _is_of(record: TableSnapshot | None, oid: int) -> bool:
    return record is not None and record.incarnation is not None and record.incarnation.oid == oid


def _columns(envelope: dict[str, Any]) -> dict[str, str | None]:
    """PostgreSQL's names of the columns of an event's schema, each with its default."""
    [before] = [each for each in envelope["fields"] if each["name"] == "before"]
    return {each.get("pg_name", each["name"]): each.get("pg_missing_value") for each in before["type"][1]["fields"]}
