#!/usr/bin/env python3
"""Checks the status page in a browser: axe-core's rules, keys, a phone's width, light and dark, no script.

    python tests/browser/check.py

It needs Chromium, and Node.js with npm, which fetches what package.json names. It starts PostgreSQL, Kafka and the
installed daemon, and looks at three pages: one of a daemon that streams and has had an error, one of a snapshot under
way, and one of a daemon whose Kafka is gone. The pictures stay in the folder of --pictures. The exit code is 0 if all
held, otherwise 1.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]

import psycopg  # noqa: E402
import servers  # noqa: E402
from support.stream import StreamFixture, Writer, eventually, port_of  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def fetch(url: str) -> str:
    """The page."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        return str(answer.read().decode())


class Browser:
    """Looks at pages."""

    def __init__(self, folder: Path, pictures: Path) -> None:
        self._chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
        if self._chromium is None or shutil.which("npm") is None:
            sys.exit("the check needs Chromium, and Node.js with npm")
        for name in ("package.json", "check.mjs"):
            shutil.copy(HERE / name, folder)
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=folder, check=True)
        self._folder = folder
        self._pictures = pictures

    def look(self, url: str, name: str) -> Iterator[bool]:
        """Look at a page; say and give what held."""
        command = ["node", "check.mjs", str(self._chromium), url, name, str(self._pictures)]
        done = subprocess.run(command, cwd=self._folder, stdout=subprocess.PIPE, text=True, timeout=240, check=False)
        for line in done.stdout.splitlines():
            found = json.loads(line)
            more = f": {found['more']}" if found["more"] else ""
            print(f"{'held  ' if found['ok'] else 'FAILED'} {found['what']}{more}", flush=True)
            yield found["ok"]
        yield done.returncode == 0


def check(folder: Path, pictures: Path) -> bool:
    """Start the servers, and look at the three pages."""
    held: list[bool] = []
    with ExitStack() as stack:
        postgres, kafka = stack.enter_context(servers.PostgreSQL()), stack.enter_context(servers.Kafka())
        with psycopg.connect(postgres.dsn(), autocommit=True) as connection:
            connection.execute("CREATE DATABASE browser TEMPLATE template0")
        stream = stack.enter_context(StreamFixture(postgres.dsn("browser"), kafka.bootstrap, "browser", folder))
        browser = Browser(folder, pictures)
        stream.sql(Writer.TABLE, "CREATE TABLE large (id int PRIMARY KEY, v text)")
        stream.sql('CREATE TABLE "a name that is longer than most, with blanks, <b>&amp;</b>" (id int PRIMARY KEY)')
        stream.sql("INSERT INTO large SELECT n, repeat('x', 900) FROM generate_series(1, 300000) n")
        daemon = stream.daemon(snapshot={"mode": "initial", "workers": 1, "chunk_bytes": 1 << 20}).start()
        url = f"http://127.0.0.1:{port_of(daemon)}/"
        stack.enter_context(Writer(stream.dsn, rows=5, pause_s=0.05))
        kafka.pause()
        eventually(lambda: "Kafka lost" in fetch(url), "a page that says what is lost", 40)
        held += browser.look(url, "kafka-is-gone")
        kafka.resume()
        eventually(lambda: "<progress" in fetch(url), "a snapshot", 60)
        held += browser.look(url, "snapshot")
        stream.sql('INSERT INTO "a name that is longer than most, with blanks, <b>&amp;</b>" VALUES (1)')
        pid = eventually(stream.walsender, "walsender")
        stream.sql(f"SELECT pg_terminate_backend({pid})")
        eventually(lambda: "administrator command" in fetch(url) and "<svg" in fetch(url), "an error and a plot", 60)
        held += browser.look(url, "streaming")
        print(f"{sum(held)} of {len(held)} held; the pictures are in {pictures}")
        daemon.stop(30)
    return all(held)


def main() -> int:
    """Check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, metavar="FOLDER", help="where to leave the pictures")
    given = parser.parse_args()
    pictures = given.pictures or Path(tempfile.mkdtemp(prefix="cdcd-page-"))
    with tempfile.TemporaryDirectory(prefix="cdcd-browser-") as folder:
        return 0 if check(Path(folder), pictures.resolve()) else 1


if __name__ == "__main__":
    sys.exit(main())
