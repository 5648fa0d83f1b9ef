"""A real schema registry on loopback: Apicurio, which serves Confluent's API, and keeps its schemas in memory.

Before: `jars` fetches the program that `registry.lock` lists.
After: the fixture `schema_registry` in `tests/support/fix_registry.py`; `connect`'s Avro converter.
Source: Apicurio Registry 3.0, "Confluent Schema Registry API compatibility".
"""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

from servers.jars import Say, find_java, install_archive, say_on_stderr
from servers.processes import Server

VERSION = "3.0.9"
LOCK = Path(__file__).with_name("registry.lock")


class SchemaRegistry(Server):
    """One registry. Its schemas are gone when it ends."""

    def __init__(
        self,
        home: Path | None = None,
        *,
        port: int | None = None,
        python: str = sys.executable,
        say: Say = say_on_stderr,
    ) -> None:
        super().__init__(f"registry-{VERSION}", home=home, data=None, port=port, python=python, say=say)

    @property
    def url(self) -> str:
        """Where it serves Confluent's API."""
        return f"http://127.0.0.1:{self.port}/apis/ccompat/v7"

    @property
    def apicurio_url(self) -> str:
        """Where it serves Apicurio's own API, for the converter of `servers.connect`."""
        return f"http://127.0.0.1:{self.port}/apis/registry/v2"

    def _prepare(self) -> list[str]:
        name = f"registry-{VERSION}"
        program = install_archive(name, self.home, lock=LOCK, python=self.python, say=self.say)
        [runner] = program.glob("*-runner.jar")
        flags = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        settings = {"quarkus.http.host": "127.0.0.1", "quarkus.http.port": str(self.port)}
        options = [f"-D{name}={value}" for name, value in settings.items()]
        return [find_java(self.python), *flags, *options, "-jar", str(runner)]

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=2.0) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False
