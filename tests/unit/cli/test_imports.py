"""A start is mostly imports: a command brings no library that it does not use."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from cdcd.cli.main import main
main(sys.argv[1:])
"""

DAEMON = """
import sys
import cdcd.cli.commands.run, cdcd.cli.main, cdcd.config.loading
print(*sys.modules, file=sys.stderr)
"""

NOT_FOR_WORDS = {
    "asyncio", "confluent_kafka", "fastavro", "prometheus_client", "psycopg", "pyspark", "sqlite3", "ssl",
    "cdcd.avro.event_encoder",
}  # fmt: skip
NOT_FOR_SETTINGS = NOT_FOR_WORDS - {"asyncio", "ssl"}  # pydantic-settings brings both
NOT_FOR_PAGES = NOT_FOR_WORDS | {"pydantic", "pydoc", "importlib.metadata", "importlib.resources", "cdcd.config"}
NOT_FOR_THE_DAEMON = {
    "authlib", "botocore", "confluent_kafka.schema_registry", "fastavro", "httpx", "pydoc", "pyspark", "shtab",
    "cdcd.cli.commands.snapshot", "cdcd.manual.explanations", "cdcd.spark",
}  # fmt: skip


def imported(program: str, *arguments: str) -> set[str]:
    """The modules that a process has imported when it ends."""
    command = [sys.executable, "-P", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "not_used"),
    [
        (["--help"], NOT_FOR_PAGES),
        (["help", "events"], NOT_FOR_PAGES),
        (["explain", "slot-lost"], NOT_FOR_PAGES),
        (["files"], NOT_FOR_PAGES),
        (["completion", "bash"], NOT_FOR_PAGES - {"importlib.metadata", "importlib.resources"}),  # shtab's
        (["config", "--reference"], NOT_FOR_SETTINGS),
        (["--version"], NOT_FOR_WORDS - {"asyncio", "confluent_kafka", "psycopg", "ssl"} | {"pydantic"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_only_what_it_uses(arguments: list[str], not_used: set[str]) -> None:
    found = imported(PROGRAM, *arguments)
    assert "cdcd.cli.parser" in found
    assert found & not_used == set()


def test_the_daemon_imports_only_what_it_uses() -> None:
    found = imported(DAEMON)
    assert "cdcd.daemon.supervisor" in found
    assert found & NOT_FOR_THE_DAEMON == set()
