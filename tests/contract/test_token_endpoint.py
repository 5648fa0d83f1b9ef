"""A token endpoint that fails is named, and passes: the brokers have refused nobody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cdcd.errors import KafkaUnavailable
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection, Property
from cdcd.sink.kafka.cluster_facts import gather
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.token_endpoint import endpoint_error


class Endpoint(BaseHTTPRequestHandler):
    """Answers each request with the status that stands in the path."""

    def do_POST(self) -> None:
        self.send_response(int(self.path.rpartition("/")[2]))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def properties(url: str) -> dict[str, Property]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "cdcd",
        "sasl.oauthbearer.client.secret": "verysecret",
        "sasl.oauthbearer.token.endpoint.url": url,
        "log_level": 0,
    }


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("status", [500, 503])
def test_every_question_names_an_endpoint_that_fails(endpoint: str, status: int) -> None:
    connection = KafkaConnection("127.0.0.1:1", "c", properties(f"{endpoint}/{status}"))
    probe = ClusterProbe(connection, "t")
    for ask in (
        lambda: KafkaAdmin(connection, timeout_s=0.5).cluster_id(),
        lambda: gather(KafkaAdmin(connection, timeout_s=0.5), []),
        probe.ask,
    ):
        with pytest.raises(
            KafkaUnavailable, match=rf"token endpoint http://127.*/{status} answers {status}"
        ) as failure:
            ask()
        assert "sasl.oauthbearer.token.endpoint.url" in failure.value.hint
        assert "verysecret" not in str(failure.value)
    probe.close()


def test_an_endpoint_that_is_not_there_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    error = endpoint_error(properties(f"http://user:verysecret@127.0.0.1:{port}/"), "asking")
    assert error is not None
    assert f"http://127.0.0.1:{port}/ does not answer" in error.message


@pytest.mark.parametrize("status", [200, 400, 401, 405])
def test_an_endpoint_that_refuses_a_request_without_credentials_works(endpoint: str, status: int) -> None:
    assert endpoint_error(properties(f"{endpoint}/{status}"), "asking") is None


def test_without_an_endpoint_nothing_is_asked() -> None:
    assert endpoint_error({}, "asking") is None
    assert endpoint_error({"sasl.oauthbearer.token.endpoint.url": "file:///etc/passwd"}, "asking") is None
