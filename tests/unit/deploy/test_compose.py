"""The file for `docker compose` is one, and names what the tests run.

`acceptance/test_compose.py` runs its commands. The schema of the Compose specification comes with `tests/run chart`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from servers.jars import KAFKA, NEWEST

import cdcd
from cdcd.config.loading import load

COMPOSE = Path(__file__).parents[3] / "deploy" / "compose"
WORLD = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
SCHEMA = os.environ.get("CDCD_TEST_COMPOSE_SCHEMA", "")


@pytest.mark.skipif(not SCHEMA, reason="CDCD_TEST_COMPOSE_SCHEMA names no schema: tests/run chart fetches one")
def test_the_file_is_what_compose_takes() -> None:
    jsonschema = pytest.importorskip("jsonschema")  # kubernetes-validate needs it, too
    schema = json.loads(Path(SCHEMA).read_text())
    jsonschema.validate(WORLD, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(WORLD | {"services": {"a": {"imagine": "b"}}}, schema)


def test_its_servers_are_those_of_the_tests() -> None:
    images = {name: service["image"] for name, service in WORLD["services"].items()}
    ours = f"cdcd:{cdcd.__version__}"
    assert images == {"postgresql": f"postgres:{NEWEST}", "kafka": f"apache/kafka:{KAFKA}", "shop": ours, "cdcd": ours}


def test_its_settings_are_settings_and_name_its_services() -> None:
    settings = load(str(COMPOSE / "cdcd.toml")).settings
    services = WORLD["services"]
    assert f"host={next(iter(services))} " in settings.source.dsn
    host, _, port = settings.sink.bootstrap_servers.partition(":")
    assert f"INSIDE://{host}:{port}" in services[host]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert "./cdcd.toml:/etc/cdcd/cdcd.toml:ro" in services["cdcd"]["volumes"]
    assert "spool:/var/lib/cdcd" in services["cdcd"]["volumes"]


def test_what_it_mounts_and_builds_is_there_and_what_it_waits_for_has_a_check() -> None:
    for service in WORLD["services"].values():
        places = [each.partition(":")[0] for each in service.get("volumes", ())] + [service.get("build", ".")]
        for place in places:
            assert place in WORLD["volumes"] or (COMPOSE / place).exists(), place
        for name in service.get("depends_on", {}):
            assert "healthcheck" in WORLD["services"][name]
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "it has no password that is one"
