"""A port that is taken is an error, unless this very daemon has it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cdcd.config.settings import Settings
from cdcd.preflight import host
from cdcd.preflight.findings import Finding, Level


@contextmanager
def answering(body: bytes) -> Iterator[int]:
    """Listen on a port of this machine, and answer every request with this."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@pytest.fixture
def look(tmp_path: Path) -> Callable[[int], Finding]:
    def found(port: int) -> Finding:
        settings = Settings(
            source={"dsn": "d", "slot": "mine"},
            sink={"bootstrap_servers": "b", "prefix": "p"},
            spool={"directory": str(tmp_path)},
            monitoring={"host": "127.0.0.1", "port": port},
        )
        return list(host.judge(settings, is_slot_in_use=False))[-1]

    return found


def test_the_port_of_this_very_daemon_is_no_error(look: Callable[[int], Finding]) -> None:
    with answering(json.dumps({"source": {"slot": "mine"}, "sink": {"prefix": "p"}}).encode()) as port:
        assert look(port).message == f"The daemon runs, and listens on 127.0.0.1:{port}"
        assert look(port).level is Level.OK


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"source": {"slot": "other"}, "sink": {"prefix": "p"}}).encode(),
        b"<html>",
        b"[1]",
        b'{"source": 1}',
        b"\xff" * 100,
        b"[" * 100_000,
    ],
)
def test_the_port_of_another_program_is_taken(look: Callable[[int], Finding], body: bytes) -> None:
    with answering(body) as port:
        assert look(port).code == "port-taken"
