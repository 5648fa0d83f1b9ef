"""What a look tells of a slot that is not there yet, is there, and is gone."""

from __future__ import annotations

from contextlib import closing

from prometheus_client.parser import text_string_to_metric_families
from support.fix_postgres import Database

from cdcd.clock import wall_us
from cdcd.config.settings import SourceSettings
from cdcd.daemon.slot_monitor import SlotMonitor
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status


def test_a_slot_that_was_there_and_is_gone_is_lost(database: Database) -> None:
    status, metrics = Status(Identity("1", "w", "p"), 0.0), Metrics("pure")

    def shown() -> dict[str, float]:
        families = text_string_to_metric_families(metrics.exposition(status, 0.0, 0).decode())
        return {s.name: s.value for family in families for s in family.samples if not s.labels}

    source = SourceSettings(dsn=database.dsn, slot="w", application_name="watch")
    with closing(SlotMonitor(source, status, metrics, wall_us)) as monitor:
        monitor.look()
        assert (shown()["cdcd_slot_active"], shown()["cdcd_slot_lost"]) == (0, 0)
        database.execute("SELECT pg_create_logical_replication_slot('w', 'pgoutput')")
        monitor.look()
        assert status.slot_state is not None
        database.execute("CREATE TABLE t AS SELECT generate_series(1, 1000)")
        monitor.look()
        assert shown()["cdcd_slot_retained_bytes"] > 50_000
        assert shown()["cdcd_slot_lag_bytes"] > 50_000
        assert shown()["cdcd_slot_safe_wal_bytes"] == float("inf")
        assert status.positions.wal.beyond_us(status.slot_state.confirmed_flush_lsn or 0) > 0
        database.execute("SELECT pg_drop_replication_slot('w')")
        monitor.look()
        assert shown()["cdcd_slot_lost"] == 1
        assert status.slot_state is None
        assert shown()["cdcd_slot_safe_wal_bytes"] == 0
