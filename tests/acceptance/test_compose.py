"""What the file for `docker compose` runs besides the servers: the shop, its check, the daemon with its settings."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import yaml
from psycopg.conninfo import conninfo_to_dict
from support.daemon import command, environment
from support.stream import StreamFixture, eventually

COMPOSE = Path(__file__).parents[2] / "deploy" / "compose"


def test_the_shop_is_busy_and_the_daemon_publishes_it(stream: StreamFixture, tmp_path: Path) -> None:
    services = yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"]
    shop = services["shop"]
    dsn = conninfo_to_dict(stream.dsn)
    database = {f"PG{name.upper()}": str(dsn[key]) for name, key in CONNECTION.items() if key in dsn}
    assert database.keys() <= {*shop["environment"], "PGPORT"}
    python = {**environment(), **database, "PYTHONPATH": str(COMPOSE / "../../tests")}
    variables = {
        **environment(),
        "CDCD_SOURCE__DSN": stream.dsn,
        "CDCD_SOURCE__SLOT": stream.slot,
        "CDCD_SINK__BOOTSTRAP_SERVERS": stream.broker,
        "CDCD_SINK__PREFIX": stream.prefix,
        "CDCD_SPOOL__DIRECTORY": str(tmp_path / "spool"),
        "CDCD_MONITORING__PORT": "0",
    }
    log = tmp_path / "log"
    program: list[str] = [*shop["entrypoint"][1:], *shop["command"]]
    check: list[str] = shop["healthcheck"]["test"][2:]
    with log.open("wb") as output, subprocess.Popen([sys.executable, *program], env=python) as busy:
        try:
            eventually(lambda: run([sys.executable, *check], python) == 0, "healthy shop")
            arguments = [*command(), "run", "--config", str(COMPOSE / "cdcd.toml")]
            with subprocess.Popen(arguments, stdout=output, stderr=output, env=variables) as daemon:
                try:
                    eventually(lambda: "published" in log.read_text(), "published rows")
                    eventually(lambda: "the snapshot is complete" in log.read_text(), "snapshot")
                    [(orders,)] = stream.sql("SELECT count(*) FROM orders")
                    eventually(lambda: stream.sql("SELECT max(id) FROM orders")[0][0] > orders + 5, "more orders")
                    assert busy.poll() is None
                    busy.kill()
                    busy.wait()
                    eventually(lambda: stream.confirmed() >= stream.written(), "confirmation")
                    daemon.send_signal(signal.SIGTERM)
                    assert daemon.wait(20) == 0
                finally:
                    daemon.kill()
        finally:
            busy.kill()
    orders_topic = stream.topics.by_table()["public", "orders"]
    events = [event for event in stream.events() if event.topic == orders_topic]
    placed = {event.value["after"]["id"] for event in events if event.value and event.value["after"]}
    assert {number for (number,) in stream.sql("SELECT id FROM orders")} <= placed


CONNECTION = {"HOST": "host", "PORT": "port", "DATABASE": "dbname", "USER": "user", "PASSWORD": "password"}


def run(words: list[str], variables: dict[str, str]) -> int:
    return subprocess.run(words, env=variables, capture_output=True, check=False).returncode
