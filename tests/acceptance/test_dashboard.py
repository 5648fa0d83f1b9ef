"""A real Prometheus scrapes real daemons, and every query of the dashboard returns data."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import servers
import yaml
from servers.processes import free_port
from support.stream import StreamFixture, Writer, eventually, port_of

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRAPE_S = 1

pytestmark = pytest.mark.skipif(not shutil.which("prometheus"), reason="needs prometheus (apt install prometheus)")


class Prometheus:
    """A Prometheus server with the rules of `deploy/`, which scrapes some ports of this machine."""

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.port = free_port()
        config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        config["global"] = {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"}
        config["rule_files"] = [str(DEPLOY / "prometheus" / "alerts.yml")]
        config["scrape_configs"][0]["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in ports]}]
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        self._log = (folder / "prometheus.log").open("wb")
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"],
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def query(self, expression: str) -> list[dict[str, Any]]:
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout=5) as answer:
            document = json.load(answer)
        assert document["status"] == "success", document
        found: list[dict[str, Any]] = document["data"]["result"]
        return found

    def up(self) -> bool:
        try:
            return bool(self.query("cdcd_info"))
        except OSError:
            return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def queries() -> Iterator[tuple[str, str]]:
    """The title and the expression of every target, with values in place of Grafana's variables."""
    for panel in json.loads((DEPLOY / "grafana" / "cdcd.json").read_text())["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$namespace", ".*").replace("$job", "cdcd")
            yield panel["title"], expression.replace("$__rate_interval", "15s")


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
            missing = dict(queries())

            def all_there() -> bool:
                for title, expression in queries():
                    if title in missing and prometheus.query(expression):
                        del missing[title]
                return not missing

            try:
                eventually(all_there, "data for every query", 30)
            except AssertionError:
                raise AssertionError(f"no data for {missing}") from None
            for title, expression in queries():
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
