from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from cdcd.clock import monotonic_s, wall_us
from cdcd.errors import SettingsError
from cdcd.monitoring.http_server import CONNECTIONS_MAX, REQUEST_TIMEOUT_S, MonitoringServer
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.stall_detection import STALLED_AFTER_S
from cdcd.monitoring.status import State, Status


@pytest.fixture
def status() -> Status:
    return Status("1.0", "slot", "pub", monotonic_s())


def serve(status: Status, evict_after_s: float = REQUEST_TIMEOUT_S) -> MonitoringServer:
    def exposition() -> bytes:
        return Metrics("pure").exposition(status, monotonic_s(), wall_us())

    return MonitoringServer("127.0.0.1", 0, status, exposition, evict_after_s)


@pytest.fixture
def server(status: Status) -> Iterator[MonitoringServer]:
    server = serve(status)
    yield server
    server.close()


def ask(server: MonitoringServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_healthz_says_whether_what_waits_moves(server: MonitoringServer, status: Status) -> None:
    status.begin_stream(monotonic_s())
    assert ask(server, "/healthz")[::2] == (200, "alive: streaming\n")
    status.stages.last_loop_s -= STALLED_AFTER_S + 1
    assert ask(server, "/healthz")[::2] == (503, "stalled: nothing moves at the loop for 121 s\n")


def test_readyz_says_whether_changes_flow(server: MonitoringServer, status: Status) -> None:
    assert ask(server, "/readyz")[::2] == (503, "starting\n")
    status.begin_stream(monotonic_s())
    assert ask(server, "/readyz")[::2] == (200, "streaming\n")


def test_a_hot_standby_says_so_is_alive_and_available_but_not_ready(server: MonitoringServer, status: Status) -> None:
    status.stand_by(monotonic_s())
    said = "waiting for the slot, which another daemon uses\n"
    assert ask(server, "/healthz")[::2] == (200, f"alive: {said}")
    assert ask(server, "/readyz")[::2] == (503, said)
    assert ask(server, "/availablez")[::2] == (200, said)
    status.state = State.RESTARTING
    assert ask(server, "/availablez")[::2] == (503, "restarting\n")


def test_metrics_and_the_page_are_served_in_their_types(server: MonitoringServer) -> None:
    code, kind, text = ask(server, "/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'cdcd_info{build="pure",publication="pub",slot="slot",version="1.0"} 1.0' in text
    code, kind, text = ask(server, "/?anything")
    assert (code, kind) == (200, "text/html; charset=utf-8")
    assert text.startswith("<!doctype html>")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_only_get_is_answered(server: MonitoringServer, method: str) -> None:
    assert ask(server, "/healthz", method)[0] == 501


def test_another_path_is_not_found(server: MonitoringServer) -> None:
    assert ask(server, "/../etc/passwd")[0] == 404


def test_slow_clients_cost_a_bounded_number_of_threads(server: MonitoringServer) -> None:
    before = threading.active_count()
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS_MAX + 8)]
    try:
        refused = 0
        for client in slow[CONNECTIONS_MAX:]:
            client.settimeout(5)
            refused += client.recv(1) == b""
        assert refused == 8
        assert threading.active_count() - before <= CONNECTIONS_MAX
    finally:
        for client in slow:
            client.close()


def test_slow_clients_that_have_had_their_time_make_room(status: Status) -> None:
    server = serve(status, evict_after_s=0.0)
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS_MAX * 2)]
    try:
        assert ask(server, "/readyz")[0] == 503
    finally:
        for client in slow:
            client.close()
        server.close()


def test_a_taken_port_is_a_settings_error_with_a_hint(server: MonitoringServer, status: Status) -> None:
    with pytest.raises(SettingsError, match=f"Cannot listen on 127.0.0.1:{server.port}.*monitoring"):
        MonitoringServer("127.0.0.1", server.port, status, bytes)


def test_after_close_the_port_is_free(status: Status) -> None:
    first = MonitoringServer("127.0.0.1", 0, status, bytes)
    first.close()
    MonitoringServer("127.0.0.1", first.port, status, bytes).close()


def test_a_daemon_started_again_gets_its_port_while_old_connections_linger(status: Status) -> None:
    # Found by chaos: the side that closes first keeps the connection for a minute (TIME_WAIT), and an answer of
    # HTTP/1.0 is closed by the server.
    first = serve(status)
    with socket.create_connection(("127.0.0.1", first.port), timeout=5) as client:
        client.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        while client.recv(4096):
            pass
    first.close()
    MonitoringServer("127.0.0.1", first.port, status, lambda: b"").close()
