from __future__ import annotations

import io
import json
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import pytest

from cdcd.cli.commands.migrate import execute
from cdcd.config.settings import Settings
from cdcd.errors import RequestRejected
from cdcd.migration.conversion import convert

OPTIONS = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "db",
    "database.user": "dbz",
    "database.dbname": "shop",
    "topic.prefix": "shop",
    "plugin.name": "pgoutput",
    "producer.override.bootstrap.servers": "kafka:9092",
    "provide.transaction.metadata": "true",
}


@dataclass
class Loaded:
    settings: Settings


def test_a_take_over_with_metadata_of_transactions_is_refused_before_any_server_is_asked(tmp_path: Path) -> None:
    connector = tmp_path / "connector.json"
    connector.write_text(json.dumps(OPTIONS))
    loaded = Loaded(convert(OPTIONS, None).settings)
    args = Namespace(connector=str(connector), take_over=True, back=False)
    with pytest.raises(RequestRejected, match="provide_transaction_metadata is true") as refused:
        execute(args, lambda: loaded, io.StringIO())  # type: ignore[arg-type, return-value]
    assert refused.value.code == "connector-differs"
