"""The status page of a real daemon, as a browser shows it. `tests/browser` looks closer, with axe-core."""

from __future__ import annotations

import shutil
import struct
import subprocess
import urllib.request
from pathlib import Path

import pytest
from support.stream import StreamFixture, Writer, eventually, port_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def page(stream: StreamFixture) -> str:
    """Give the URL of a status page that has seen some traffic and an error."""
    stream.sql(Writer.TABLE)
    daemon = stream.daemon().start()
    daemon.wait_for_log("going on")
    url = f"http://127.0.0.1:{port_of(daemon)}/"
    with Writer(stream.dsn, rows=5):
        pid = eventually(stream.walsender, "walsender")
        stream.sql(f"SELECT pg_terminate_backend({pid})")
        eventually(lambda: "<svg" in fetch(url), "a plot", 20)
        eventually(lambda: 'class="state streaming"' in fetch(url), "a stream")
    return url


def fetch(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        text: str = answer.read().decode()
    return text


def test_the_page_says_where_the_daemon_stands_and_what_has_happened(page: str) -> None:
    text = fetch(page)
    for words in (
        "<p>Nothing: changes flow.</p>", "public.t", "WAL that the server keeps for it", "Last errors",
        "administrator command", "(PostgreSQL ", "(cluster ", "Lag: now ",
    ):  # fmt: skip
        assert words in text, words


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_the_page_without_a_message_on_its_console(page: str, tmp_path: Path) -> None:
    width, height = 1280, 1400
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    places = [f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", f"--window-size={width},{height}"]
    done = subprocess.run(
        [str(CHROMIUM), *options, *places, page], capture_output=True, text=True, timeout=90, check=True
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, height)
    assert len(data) > 20_000, "an empty page"
    print(f"\n{picture}")
