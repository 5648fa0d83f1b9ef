"""A real Prometheus scrapes real daemons, and every query of the dashboard returns data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import psycopg
import servers
from support.prometheus import SCRAPE_S, Prometheus, needs_prometheus, queries
from support.stream import StreamFixture, Writer, eventually, port_of

pytestmark = needs_prometheus


def test_prometheus_scrapes_two_daemons_and_every_query_of_the_dashboard_returns_data(
    on_restartable_postgres: StreamFixture, restartable_postgres: servers.PostgreSQL, tmp_path: Path
) -> None:
    stream = on_restartable_postgres
    with psycopg.connect(restartable_postgres.dsn(), autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET max_slot_wal_keep_size = '10GB'")
        admin.execute("SELECT pg_reload_conf()")
    stream.sql(Writer.TABLE, "CREATE TABLE large (id int PRIMARY KEY, v text)")
    stream.sql("INSERT INTO large VALUES (0, 'x')")
    settings: dict[str, dict[str, Any]] = {"sink": {"on_unpublishable": "park"}, "snapshot": {"mode": "initial"}}
    first = stream.daemon(**settings).start()
    first.wait_for_log("going on")
    second = stream.daemon(**settings).start()
    second.wait_for_log("standing by")
    prometheus = Prometheus(tmp_path, [port_of(first), port_of(second)])
    try:
        with Writer(stream.dsn, rows=3):
            eventually(prometheus.up, "a first scrape", 30)
            pid = eventually(stream.walsender, "walsender")
            stream.sql(f"SELECT pg_terminate_backend({pid})")
            large = "SELECT {}, string_agg(md5(n::text), '') FROM generate_series(1, 60000) n"
            stream.sql(f"INSERT INTO large {large.format(1)}")
            eventually(lambda: prometheus.query("cdcd_parked_tables > 0"), "a parked table", 30)
            for number in range(2, 5):
                stream.sql(f"INSERT INTO large VALUES ({number}, 'x')")
                time.sleep(SCRAPE_S)
            missing = dict(queries("cdcd.json"))

            def all_there() -> bool:
                for title, expression in queries("cdcd.json"):
                    if title in missing and prometheus.query(expression):
                        del missing[title]
                return not missing

            try:
                eventually(all_there, "data for every query", 30)
            except AssertionError:
                raise AssertionError(f"no data for {missing}") from None
            for title, expression in queries("cdcd.json"):
                found = prometheus.query(expression)
                assert found, f"{title}: {expression}"
                assert all(sample["value"][1] != "NaN" for sample in found), f"{title}: {expression}"
            [streaming] = prometheus.query("sum by (job) (cdcd_streaming)")
            [standby] = prometheus.query("sum by (job) (cdcd_standby)")
            assert (streaming["value"][1], standby["value"][1]) == ("1", "1")
            eventually(lambda: prometheus.query('ALERTS{alertname="CdcdTableParked", alertstate="firing"}'), "an alert")
            assert not prometheus.query('ALERTS{alertname!="CdcdTableParked"}'), "pending or firing"
    finally:
        prometheus.close()
        with psycopg.connect(restartable_postgres.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM RESET max_slot_wal_keep_size")
            admin.execute("SELECT pg_reload_conf()")
    assert first.stop() == second.stop() == 0
