from __future__ import annotations

import gc
import http.client
import logging
import resource
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http import HTTPStatus

import pytest

from cdcd.errors import SettingsError
from cdcd.monitoring import http_server
from cdcd.monitoring.http_server import (
    ANSWERS_MAX,
    REQUEST_BYTES_MAX,
    REQUEST_TIMEOUT_S,
    REQUESTS_MAX,
    Answer,
    MonitoringServer,
)

LARGE = b"x" * (8 << 20)
"""More than the buffers of two sockets hold."""


def answer(target: str) -> Answer:
    if target == "/fail":
        raise ZeroDivisionError
    return Answer(HTTPStatus.OK, "text/plain", LARGE if target == "/large" else f"{target}\n".encode())


@pytest.fixture
def server() -> Iterator[MonitoringServer]:
    with closing(MonitoringServer("127.0.0.1", 0, answer)) as server:
        yield server


def connect(server: MonitoringServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def say(server: MonitoringServer, request: bytes) -> bytes:
    with connect(server) as client:
        client.sendall(request)
        return b"".join(iter(lambda: client.recv(65536), b""))


def ask(server: MonitoringServer, path: str, method: str = "GET", host: str = "") -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    connection.request(method, path, headers={"Host": host} if host else {})
    return connection.getresponse()


def probe(server: MonitoringServer) -> float:
    """Ask as Kubernetes does, and return how long the answer took."""
    began = time.monotonic()
    assert ask(server, "/healthz").read() == b"/healthz\n"
    return time.monotonic() - began


def test_an_answer_has_its_type_and_its_length_and_the_connection_ends(server: MonitoringServer) -> None:
    assert say(server, b"GET /a?b HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 200 OK\r\n")
    got = ask(server, "/a?b")
    assert (got.headers["Content-Type"], got.headers["Content-Length"]) == ("text/plain; charset=utf-8", "5")
    assert got.headers["Connection"] == "close"
    assert got.read() == b"/a?b\n"


def test_no_other_site_may_frame_an_answer_or_take_it_for_another_type(server: MonitoringServer) -> None:
    headers = ask(server, "/").headers
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]


def test_head_gets_the_headers_alone(server: MonitoringServer) -> None:
    got = ask(server, "/healthz", "HEAD")
    assert (got.status, got.headers["Content-Length"], got.read()) == (200, "9", b"")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "get"])
def test_no_other_method_is_answered(server: MonitoringServer, method: str) -> None:
    got = ask(server, "/healthz", method)
    assert (got.status, got.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "request_",
    [b"\r\n\r\n", b"GET /\r\n\r\n", b"GET / x HTTP/1.1\r\n\r\n", b"GET / SSH-2.0\r\n\r\n", b"\x16\x03\r\n\r\n"],
)
def test_what_is_no_request_is_refused(server: MonitoringServer, request_: bytes) -> None:
    assert say(server, request_).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:80", "localhost", "LOCALHOST:9", "[::1]:9478", "localhost."])
def test_on_loopback_addresses_and_localhost_are_right_names(server: MonitoringServer, host: str) -> None:
    assert ask(server, "/", host=host).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9478", "localhost.evil.example", "127.0.0.1.evil.example"]
)
def test_on_loopback_another_sites_name_is_refused(server: MonitoringServer, host: str) -> None:
    assert ask(server, "/", host=host).status == 421


def test_on_other_addresses_any_name_is_right() -> None:
    with closing(MonitoringServer("0.0.0.0", 0, answer)) as server:  # as in a pod
        assert ask(server, "/", host="cdcd.cdc.svc:9478").status == 200


def test_an_answer_that_fails_is_an_error_of_the_server_and_the_next_one_comes(server: MonitoringServer) -> None:
    assert ask(server, "/fail").status == 500
    probe(server)


def test_a_large_request_is_refused(server: MonitoringServer) -> None:
    with connect(server) as client:
        client.sendall(b"GET / HTTP/1.1\r\n" + b"x" * REQUEST_BYTES_MAX)
        assert client.recv(100).startswith(b"HTTP/1.1 431 ")
    probe(server)


def test_a_request_that_comes_byte_by_byte_has_one_deadline() -> None:
    with closing(MonitoringServer("127.0.0.1", 0, answer, request_timeout_s=0.3)) as server, connect(server) as client:
        began = time.monotonic()
        with suppress(OSError):  # a reset, or a broken pipe
            while time.monotonic() < began + 5:
                client.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < 2


def test_more_half_sent_requests_than_there_are_places_delay_no_probe(server: MonitoringServer) -> None:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert files == resource.RLIM_INFINITY or files > 800, "this test needs more open files"
    threads = threading.active_count()
    with ExitStack() as stack:
        for number in range(REQUESTS_MAX + 50):
            client = stack.enter_context(connect(server))
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
            if number % 10 == 0:
                assert probe(server) < REQUEST_TIMEOUT_S - 1
        assert max(probe(server) for _ in range(20)) < REQUEST_TIMEOUT_S - 1
        assert threading.active_count() == threads


def test_a_connection_that_waits_longest_gives_way(server: MonitoringServer) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(REQUESTS_MAX + 1)]
        assert clients[0].recv(1) == b""
        clients[-1].sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert clients[-1].recv(4) == b"HTTP"


def test_clients_that_do_not_read_delay_no_probe_and_take_bounded_memory(server: MonitoringServer) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(ANSWERS_MAX * 3)]
        for client in clients:
            client.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        assert probe(server) < REQUEST_TIMEOUT_S - 1
        assert len(server._connections._reading._taken) <= ANSWERS_MAX


def test_clients_that_reset_their_connection_leave_nothing_behind_and_no_line_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = [
        b"",
        b"GET /",
        b"GET /large HTTP/1.1\r\n\r\n",
        b"x" * 2 * REQUEST_BYTES_MAX,
        b"GET / HTTP/1.1\r\n\r\nmore",
    ]
    server = MonitoringServer("127.0.0.1", 0, answer)
    try:
        for number in range(200):
            with connect(server) as client, suppress(OSError):
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # reset at close
                client.sendall(requests[number % len(requests)])
        places = server._connections
        until = time.monotonic() + 5
        while places._asking._taken or places._reading._taken:
            assert time.monotonic() < until
            probe(server)
        with connect(server), connect(server) as half:
            half.sendall(b"GET /")
            probe(server)
    finally:
        server.close()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.levelno > logging.INFO] == []


def test_close_does_not_wait_for_a_slow_client_and_says_nothing_about_it(caplog: pytest.LogCaptureFixture) -> None:
    server = MonitoringServer("127.0.0.1", 0, answer)
    with connect(server) as half, connect(server) as deaf:
        half.sendall(b"GET /")
        deaf.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        time.sleep(0.1)
        began = time.monotonic()
        server.close()
        assert time.monotonic() - began < 1.0
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_a_taken_port_is_a_settings_error_with_a_hint(server: MonitoringServer) -> None:
    with pytest.raises(SettingsError, match=f"Cannot listen on 127.0.0.1:{server.port}.*monitoring"):
        MonitoringServer("127.0.0.1", server.port, answer)


def test_after_close_the_port_is_free() -> None:
    first = MonitoringServer("127.0.0.1", 0, answer)
    first.close()
    MonitoringServer("127.0.0.1", first.port, answer).close()


def test_a_daemon_started_again_gets_its_port_while_old_connections_linger() -> None:
    # Found by chaos: the side that closes first keeps the connection for a minute (TIME_WAIT).
    first = MonitoringServer("127.0.0.1", 0, answer)
    assert say(first, b"GET /healthz HTTP/1.0\r\n\r\n")
    first.close()
    MonitoringServer("127.0.0.1", first.port, answer).close()


def test_the_bounds_leave_room_among_the_files_of_a_process() -> None:
    assert http_server.REQUESTS_MAX + http_server.ANSWERS_MAX < 512
