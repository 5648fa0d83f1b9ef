"""A real Prometheus, and the queries of the dashboards for it.

Before: a test has the ports of what serves metrics. After: the test asks the queries, and looks at the answers.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from servers.processes import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
SCRAPE_S = 1

needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="needs prometheus (apt install prometheus)"
)


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

    def up(self, metric: str = "cdcd_info") -> bool:
        """Whether it has scraped this metric."""
        try:
            return bool(self.query(metric))
        except OSError:
            return False

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


def queries(dashboard: str) -> Iterator[tuple[str, str]]:
    """The title and the expression of every target of a dashboard, with values in place of Grafana's variables."""
    for panel in json.loads((DEPLOY / "grafana" / dashboard).read_text())["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"].replace("$namespace", ".*").replace("$job", "cdcd")
            yield panel["title"], expression.replace("$__rate_interval", "15s")
