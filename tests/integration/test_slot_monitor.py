"""What the watch tells of a slot that is not there yet, is there, and is gone."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.fix_postgres import Database
from support.stream import eventually

from cdcd.daemon import slot_monitor
from cdcd.daemon.slot_monitor import SlotMonitor
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status


def test_a_slot_that_was_there_and_is_gone_is_lost(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_monitor, "INTERVAL_S", 0.05)
    status, metrics = Status("1", "w", "p", 0.0), Metrics("pure")

    def shown() -> dict[str, float]:
        families = text_string_to_metric_families(metrics.exposition(status, 0.0, 0).decode())
        return {s.name: s.value for family in families for s in family.samples if not s.labels}

    watch = SlotMonitor(database.dsn, "watch", "w", status, metrics)
    try:
        eventually(lambda: len(status.history.samples()) > 3, "a look")
        assert (shown()["cdcd_slot_active"], shown()["cdcd_slot_lost"]) == (0, 0)
        database.execute("SELECT pg_create_logical_replication_slot('w', 'pgoutput')")
        eventually(lambda: status.slot_state, "the slot")
        database.execute("CREATE TABLE t AS SELECT generate_series(1, 1000)")
        eventually(lambda: shown()["cdcd_slot_retained_bytes"] > 50_000, "retained WAL")
        assert shown()["cdcd_slot_lag_bytes"] > 50_000
        assert shown()["cdcd_slot_safe_wal_bytes"] == float("inf")
        database.execute("SELECT pg_drop_replication_slot('w')")
        eventually(lambda: shown()["cdcd_slot_lost"], "loss")
        assert status.slot_state is None
        assert shown()["cdcd_slot_safe_wal_bytes"] == 0
    finally:
        watch.close()
