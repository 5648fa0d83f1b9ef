from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Iterator

import pytest

from cdcd.clock import monotonic_s
from cdcd.errors import SettingsError
from cdcd.health import CONNECTIONS_MAX, HealthServer
from cdcd.metrics import Metrics
from cdcd.status import ALIVE_WITHIN_S, State, Status


@pytest.fixture
def status() -> Status:
    return Status("1.0", "slot", "pub", monotonic_s())


@pytest.fixture
def server(status: Status) -> Iterator[HealthServer]:
    health = HealthServer("127.0.0.1", 0, status, Metrics("1.0", "pure").exposition)
    yield health
    health.close()


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, str, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_healthz_says_whether_the_loop_turned_lately(server: HealthServer, status: Status) -> None:
    status.state = State.STREAMING
    assert ask(server, "/healthz")[::2] == (200, "alive\n")
    status.turned_s -= ALIVE_WITHIN_S + 1
    code, _, text = ask(server, "/healthz")
    assert code == 503
    assert text.startswith("stuck for 61 s")


def test_readyz_says_whether_changes_flow(server: HealthServer, status: Status) -> None:
    assert ask(server, "/readyz")[::2] == (503, "starting\n")
    status.state = State.STREAMING
    assert ask(server, "/readyz")[::2] == (200, "streaming\n")


def test_metrics_and_the_page_are_served_in_their_types(server: HealthServer) -> None:
    code, kind, text = ask(server, "/metrics")
    assert (code, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert 'cdcd_info{rooms="pure",version="1.0"} 1.0' in text
    code, kind, text = ask(server, "/?anything")
    assert (code, kind) == (200, "text/html; charset=utf-8")
    assert text.startswith("<!doctype html>")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "HEAD"])
def test_only_get_is_answered(server: HealthServer, method: str) -> None:
    assert ask(server, "/healthz", method)[0] == 501


def test_another_path_is_not_found(server: HealthServer) -> None:
    assert ask(server, "/../etc/passwd")[0] == 404


def test_slow_clients_cost_a_bounded_number_of_threads(server: HealthServer) -> None:
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


def test_a_taken_port_is_a_settings_error_with_a_cure(server: HealthServer, status: Status) -> None:
    with pytest.raises(SettingsError, match=f"Cannot listen on 127.0.0.1:{server.port}.*monitoring"):
        HealthServer("127.0.0.1", server.port, status, bytes)


def test_after_close_the_port_is_free(status: Status) -> None:
    first = HealthServer("127.0.0.1", 0, status, bytes)
    first.close()
    HealthServer("127.0.0.1", first.port, status, bytes).close()
