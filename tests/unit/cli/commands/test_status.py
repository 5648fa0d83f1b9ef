"""What answers at the port need not be a daemon."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from threading import Thread

import pytest
from servers.processes import free_port
from support.json_server import JsonHandler

from cdcd.cli.commands.status import NoAnswer, Page, fetch
from cdcd.errors import FatalError, SettingsError
from cdcd.monitoring.identity import Identity
from cdcd.monitoring.status import Status
from cdcd.monitoring.status_report import report

DOCUMENT = report(Status(Identity("1.0", "slot", "pub"), 1000.0), 1002.0, 0)


@contextmanager
def answering(document: object, code: int = 200) -> Iterator[str]:
    """A server whose every answer is this; the URL of its page."""

    class Handler(JsonHandler):
        def get(self) -> tuple[int, object]:
            return code, document

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()


def test_the_status_of_a_daemon_is_what_it_said() -> None:
    with answering(DOCUMENT) as url:
        assert fetch(Page(url)) == DOCUMENT


@pytest.mark.parametrize(
    "document",
    [
        None, 7, [], {}, {"format": 1}, {**DOCUMENT, "flow": {}}, {**DOCUMENT, "tables": [1]}, {**DOCUMENT, "next": 1},
        {**DOCUMENT, "history": [[1, "x"], [2, 3]]}, {**DOCUMENT, "daemon": {**DOCUMENT["daemon"], "running_s": "x"}},
    ],
)  # fmt: skip
def test_another_program_at_the_port_is_named_as_one(document: object) -> None:
    with answering(document) as url, pytest.raises(FatalError, match="answers, but not as a daemon of cdcd does"):
        fetch(Page(url))
    with answering(DOCUMENT, 404) as url, pytest.raises(FatalError, match="HTTP status 404"):
        fetch(Page(url))


def test_a_daemon_of_another_version_is_named_as_one() -> None:
    with answering({**DOCUMENT, "format": 2}) as url, pytest.raises(FatalError, match="of another version of cdcd"):
        fetch(Page(url))


def test_nobody_at_the_port_has_a_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pytest.raises(NoAnswer, match=r"no daemon answers at http://127\.0\.0\.1:.*Connection refused") as error:
        fetch(Page(f"http://127.0.0.1:{free_port()}/"))
    assert "cdcd run" in error.value.hint


@pytest.mark.parametrize("url", ["file:///etc/passwd", "127.0.0.1:9478", "http://127.0.0.1:x/"])
def test_what_is_no_url_of_a_daemon_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="is no URL of a daemon"):
        fetch(Page(url))


def test_the_daemon_of_another_slot_or_prefix_is_not_taken_for_the_one_of_the_settings() -> None:
    with answering({**DOCUMENT, "sink": {**DOCUMENT["sink"], "prefix": "shop"}}) as url:
        assert fetch(Page(url, "slot", "shop"))["source"]["slot"] == "slot"
        with pytest.raises(
            FatalError, match="its slot is slot and its prefix shop, but the settings name other and shop"
        ):
            fetch(Page(url, "other", "shop"))
        with pytest.raises(FatalError, match=r"is another one.*monitoring-foreign") as error:
            fetch(Page(url, "slot", "stock"))
        assert f"cdcd status --url {url}" in error.value.hint
