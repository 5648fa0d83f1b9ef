"""Somebody who does what a page of the manual says, one block after the other, on the servers of a test.

Before: `pages` has the blocks, and which test executes each. After: the acceptance tests of the manual.

A page names servers that everybody would name so (`localhost:9092`, `shop`). The reader puts those of the test in their
place, and changes nothing else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Self

import servers
from servers.jars import KAFKA, find_java, install_jars, install_kafka

from support import daemon as installed
from support.pages import Block, blocks, executes
from support.stream import StreamFixture

READERS = f"readers-{KAFKA}"
LOCK = Path(servers.__file__).with_name("readers.lock")

KAFKA_COMMANDS = {
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
}
"""Kafka's commands, and the classes that its own scripts start."""


class PageReader:
    """Executes the blocks of one page that are said to be executed by this test. At the end none may be left."""

    def __init__(self, page: str, test: str, stream: StreamFixture, folder: Path, others: Mapping[str, str]) -> None:
        """`test` is the test's name in `BLOCKS`; `others` are further words of the page, and what they are here."""
        mine = [block for block in blocks(page) if executes(block) == test]
        assert mine, f"no block of {page} is said to be executed by {test}"
        self.stream = stream
        self.folder = folder
        self._blocks = iter(mine)
        dsn = stream.dsn
        self._names = {
            **others,
            r"host=localhost dbname=shop user=\w+": dsn,
            r"localhost:9092": stream.broker,
            r'prefix = "shop"': f'prefix = "{stream.prefix}"',
            r"\bshop(?=[. ]public|\.schemas|\.progress|\.parked)": stream.prefix,
        }
        self._environment = installed.environment() | {
            "PATH": f"{commands(folder)}:{os.environ['PATH']}",
            "CDCD_MONITORING__PORT": "0",  # tests run side by side
            "CDCD_SOURCE__STATUS_INTERVAL_S": "1",  # they cannot wait for ten seconds
            "XDG_STATE_HOME": str(folder),
        }

    def next(self, language: str) -> Block:
        """The next block, with the names of these servers in place of the page's."""
        block = next(self._blocks)
        assert block.language == language, block.text
        return Block(block.page, block.language, self._here(block.text))

    def _here(self, text: str) -> str:
        for there, here in self._names.items():
            text = re.sub(there, here.replace("\\", r"\\"), text)
        return text

    def sql(self) -> None:
        """Execute the next block in the database."""
        self.stream.sql(*filter(str.strip, self.next("sql").text.split(";")))

    def write(self, language: str, name: str = "cdcd.toml") -> Path:
        """Write the next block into a file: the one that its first line names, or else `name`."""
        block = self.next(language)
        if named := re.match(r"(?:#|//) (\w+\.\w+)", block.text):
            name = named[1]
        path = self.folder / name
        path.write_text(block.text)
        return path

    def begin(self) -> None:
        """Write the settings of the tutorial, from which a page goes on."""
        [settings] = [block.text for block in blocks("tutorial") if block.language == "toml"]
        (self.folder / "cdcd.toml").write_text(self._here(settings))

    def add(self, language: str) -> None:
        """Add the next block to `cdcd.toml`."""
        with (self.folder / "cdcd.toml").open("a") as settings:
            settings.write(f"\n{self.next(language).text}")

    @contextmanager
    def shell(self, commands: str) -> Iterator[subprocess.Popen[str]]:
        """Start commands in a shell; they do not outlive the `with`."""
        with (
            (self.folder / "stderr").open("a") as log,
            subprocess.Popen(
                ["bash", "-euc", commands],
                cwd=self.folder, env=self._environment, text=True, start_new_session=True,
                stdout=subprocess.PIPE, stderr=log,
            ) as process,
        ):  # fmt: skip
            try:
                yield process
            finally:
                _signal(process, signal.SIGKILL)

    def start(self) -> AbstractContextManager[subprocess.Popen[str]]:
        """Start the next commands."""
        return self.shell(self.next("sh").text)

    def run(self, code: int = 0, timeout_s: float = 60.0) -> str:
        """Run the next commands to their end, with this exit code; returns what they printed."""
        with self.start() as process:
            said, _ = process.communicate(timeout=timeout_s)
            assert process.returncode == code, said + self.log()[-3000:]
            return said

    def interrupt(self, process: subprocess.Popen[str]) -> None:
        """Press Ctrl-C."""
        _signal(process, signal.SIGINT)

    def stop(self, process: subprocess.Popen[str]) -> None:
        """Press Ctrl-C, and wait for an end in order."""
        self.interrupt(process)
        assert process.wait(30) == 0, self.log()[-3000:]

    def log(self) -> str:
        """What the commands have written to standard error."""
        return (self.folder / "stderr").read_text()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            left = [block.first_line for block in self._blocks]
            assert left == [], f"not executed, although the list says so: {left}"


Open = Callable[..., PageReader]
"""Makes a reader of a page, for this test: the fixture `open_page`."""


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Signal a shell and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def commands(folder: Path) -> Path:
    """A directory of the commands that pages call."""
    there = folder / "bin"
    there.mkdir(exist_ok=True)
    home = servers.default_home()
    jars = [install_kafka(home, KAFKA), install_jars(READERS, home, lock=LOCK)]
    log = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    java = f"{find_java()} {' '.join(servers.FAST_START)} {log}"
    classes = ":".join(f"{each}/*" for each in jars)
    programs = {"cdcd": f"{sys.executable} -P -m cdcd", "python": sys.executable}
    programs |= {name: f"{java} -cp '{classes}' {main}" for name, main in KAFKA_COMMANDS.items()}
    programs["java"] = java
    for name, program in programs.items():
        (there / name).write_text(f'#!/bin/sh\nexec {program} "$@"\n')
        (there / name).chmod(0o755)
    (folder / "jars").mkdir(exist_ok=True)
    for jar in (jar for each in jars for jar in each.glob("*.jar")):
        if not (link := folder / "jars" / jar.name).exists():
            link.symlink_to(jar)
    return there
