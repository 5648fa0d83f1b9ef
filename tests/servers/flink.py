"""Flink SQL in one process: statements in, the changes that its queries give out.

Before: PyPI's `apache-flink` (828 MB, Python 3.12 or older, Java 17 or 21) in its own environment, and the jars
of `flink.lock`. After: the tests of topics that Flink reads.
Source: Flink 2.2 "Table API: TableResult.collect", "Apache Kafka SQL Connector".
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from servers.jars import Say, ServerError, find_java, install, install_jars, say_on_stderr
from servers.processes import default_home

VERSION = "2.2.1"
JARS = "flink-jars-2.2"
LOCK = Path(__file__).with_name("flink.lock")
WITHIN_S = 900.0
"""On two cores under a load of 20, ten queries took six minutes."""

_PROGRAM = """
import json, sys
from pathlib import Path
from pyflink.table import EnvironmentSettings, TableEnvironment
flink = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
flink.get_config().set("pipeline.jars", ";".join(path.as_uri() for path in Path(sys.argv[1]).glob("*.jar")))
flink.get_config().set("parallelism.default", "1")
flink.get_config().set("table.local-time-zone", "UTC")
for statement in json.load(sys.stdin):
    if statement.startswith("SET "):
        flink.get_config().set(*statement[4:].replace("'", "").split(" = "))
    elif statement.startswith("SELECT"):
        for row in flink.execute_sql(statement).collect():
            values = [v.hex() if isinstance(v, (bytes, bytearray)) else v if v is None else str(v) for v in row]
            print(json.dumps([statement, row.get_row_kind().name, values]), flush=True)
    else:
        flink.execute_sql(statement)
"""

Change = tuple[str, tuple[str | None, ...]]


def execute(
    statements: Sequence[str],
    *,
    home: Path | None = None,
    python: str = sys.executable,
    say: Say = say_on_stderr,
) -> dict[str, list[Change]]:
    """Execute SET, CREATE and SELECT statements one after another; returns the changes by SELECT.

    Each source of a query must be bounded. A change is its kind ("INSERT", "UPDATE_BEFORE", "UPDATE_AFTER", "DELETE")
    and the row: each value as Python's text, bytes in hex. Raises ServerError with Flink's last lines.
    """
    home = home or default_home()
    own = _install(home, python, say) / "bin" / "python"
    jars = install_jars(JARS, home, lock=LOCK, python=python, say=say)
    java = Path(find_java(python)).resolve().parents[1]
    done = subprocess.run(
        [str(own), "-c", _PROGRAM, str(jars)], input=json.dumps(statements), capture_output=True, text=True,
        check=False, timeout=WITHIN_S, env=os.environ | {"JAVA_HOME": str(java)},
    )  # fmt: skip
    if done.returncode != 0:
        causes = [line for line in done.stderr.splitlines() if not line.lstrip().startswith("at ")]
        raise ServerError("\n".join(["Flink has ended:", *causes[-30:]]))
    found: dict[str, list[Change]] = {each: [] for each in statements if each.startswith("SELECT")}
    for line in done.stdout.splitlines():
        if not line.startswith("["):
            continue  # Flink's own log
        statement, kind, values = json.loads(line)
        found[statement].append((kind, tuple(values)))
    return found


def _install(home: Path, python: str, say: Say) -> Path:
    def unpack(target: Path) -> None:
        say(f"fetching Flink {VERSION} (PyPI, 828 MB) into {target}")
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "-q", f"apache-flink=={VERSION}"]
        for command in ([python, "-m", "venv", str(target)], pip):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise ServerError(f"cannot fetch Flink {VERSION}: {done.stderr[-1_000:]}")

    return install(home, f"flink-{VERSION}", unpack)
