"""The status page of a real daemon, as a browser shows it and as a screen reader reads it."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import urllib.request
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.stream import StreamFixture, Writer, eventually, port_of

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Outline(HTMLParser):
    """The tags and attributes of a page, which assistive technology uses."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


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


def test_the_page_says_everything_in_words_and_loads_nothing_from_elsewhere(page: str) -> None:
    text = fetch(page)
    outline = Outline(text)
    assert outline.all("html") == [{"lang": "en"}]
    assert len(outline.all("h1")) == len(outline.all("main")) == len(outline.all("title")) == 1
    assert all(cell.get("scope") in ("row", "col") for cell in outline.all("th"))
    assert all(plot.get("role") == "img" and plot.get("aria-label") for plot in outline.all("svg"))
    assert [link["href"] for link in outline.all("a")] == ["/?still", "/metrics"]
    assert not outline.all("script")
    assert not re.search(r"https?://", text)
    assert 'http-equiv="refresh"' in text
    assert 'http-equiv="refresh"' not in fetch(f"{page}?still")
    for words in ("streaming", "public.t", "WAL that the server keeps for it", "Last errors", "administrator command"):
        assert words in text, words


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize(("width", "height"), [(500, 1400), (1280, 1400)], ids=["phone", "desk"])
def test_a_browser_shows_the_page_without_a_message_on_its_console(
    page: str, tmp_path: Path, width: int, height: int
) -> None:
    picture = tmp_path / "page.png"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"]
    places = [f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}", f"--window-size={width},{height}"]
    done = subprocess.run(
        [str(CHROMIUM), *options, *places, f"{page}?still"], capture_output=True, text=True, timeout=90, check=True
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    data = picture.read_bytes()
    assert struct.unpack(">II", data[16:24]) == (width, height)
    assert len(data) > 20_000, "an empty page"
    print(f"\n{picture}")
