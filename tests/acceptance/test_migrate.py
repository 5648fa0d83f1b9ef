"""`cdcd migrate debezium` on real servers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from support import daemon as installed
from support.daemon import environment
from support.stream import StreamFixture

CLASS = "io.debezium.connector.postgresql.PostgresConnector"
JSON = "org.apache.kafka.connect.json.JsonConverter"


def cdcd(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*installed.command(), *arguments], capture_output=True, text=True, timeout=60, check=False, cwd=folder,
        env=environment(),
    )  # fmt: skip


def connector(stream: StreamFixture, **options: str) -> dict[str, str]:
    """A connector for the stream's database, slot and prefix."""
    server = conninfo_to_dict(stream.dsn)
    found: dict[str, Any] = {
        "connector.class": CLASS,
        "database.hostname": server["host"],
        "database.port": str(server["port"]),
        "database.user": server["user"],
        "database.password": "s3cret",
        "database.dbname": server["dbname"],
        "topic.prefix": stream.prefix,
        "slot.name": stream.slot,
        "plugin.name": "pgoutput",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "table.include.list": "public.t",
        "key.converter": JSON,
        "key.converter.schemas.enable": "false",
        "value.converter": JSON,
        "value.converter.schemas.enable": "false",
    }
    return found | options


@pytest.mark.parametrize("form", ["json", "properties"])
def test_cdcd_check_takes_what_a_connector_was_converted_to(stream: StreamFixture, tmp_path: Path, form: str) -> None:
    stream.sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION debezium FOR TABLE t")
    stream.sql(f"SELECT pg_create_logical_replication_slot('{stream.slot}', 'pgoutput')")
    options = connector(stream)
    text = "".join(f"{name}={value}\n" for name, value in options.items())
    path = tmp_path / f"connector.{form}"
    path.write_text(json.dumps({"name": "shop", "config": options}) if form == "json" else text)
    made = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", stream.broker)
    assert made.returncode == 0, made.stderr
    assert "secret    database.password: put it into ~/.pgpass" in made.stdout
    assert "s3cret" not in made.stdout + made.stderr + (tmp_path / "cdcd.toml").read_text()
    again = cdcd(tmp_path, "migrate", "debezium", str(path), "--brokers", "other:9092")
    assert again.returncode == 2
    assert "cdcd.toml exists already" in again.stderr
    checked = cdcd(tmp_path, "check")
    assert checked.returncode == 0, checked.stdout + checked.stderr
