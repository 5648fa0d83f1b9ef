"""A broker that has just started, or stops, may name no broker: librdkafka must not end the process for it.

No real broker can be held in that state. So a socket plays one that knows two requests, ApiVersions and Metadata.
"""

from __future__ import annotations

import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest
from support.background_thread import BackgroundThread

API_VERSIONS, METADATA = 18, 3
UNSUPPORTED_VERSION, UNKNOWN_TOPIC = 35, 3

QUESTIONS = {
    "cluster_id": "admin.cluster_id()",
    "transaction_timeout_max_ms": "admin.transaction_timeout_max_ms()",
    "states": "admin.states(['a', 'b'])",
    "partitions": "admin.partitions(['a'])",
    "keeps_leader": "admin.keeps_leader('a')",
    "partitions_of_all": "admin.partitions_of_all(bool)",
    "topic_configs": "admin.topic_configs(['a'])",
    "ensure": "admin.ensure(TopicSpec('a', 1, 1))",
    "the facts of cdcd check": "gather(admin, ['a', 'b'])",
    "the probe": "ClusterProbe(connection, 'a').ask()",
    "why nothing moves": "ClusterProbe(connection, 'a').raise_if_unwritable(['a'])",
    "a producer": "KafkaProducer(connection, 'id', timeout_s=1.0).start(lambda: False)",
}

ASK = """
import sys
from cdcd.errors import CdcdError
from cdcd.sink.kafka.admin import KafkaAdmin
from cdcd.sink.kafka.client_config import KafkaConnection
from cdcd.sink.kafka.cluster_facts import gather
from cdcd.sink.kafka.cluster_probe import ClusterProbe
from cdcd.sink.kafka.producer import KafkaProducer
from cdcd.sink.topics import TopicSpec
connection = KafkaConnection(sys.argv[1], "c", {{"log_level": 0}})
admin = KafkaAdmin(connection, timeout_s=1.0)
try:
    print({question})
except CdcdError as error:
    print(type(error).__name__)
"""


class EmptyBroker(BackgroundThread):
    """Names itself in so many answers, and then nobody. It answers about a topic that it does not know, or does not."""

    def __init__(self, named: int, *, echoes: bool = True) -> None:
        super().__init__()
        self._named = named
        self._echoes = echoes
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self.port = self._socket.getsockname()[1]

    def run(self) -> None:
        clients: list[BackgroundThread] = []
        with closing(self._socket):
            while not self._done.is_set():
                try:
                    client, _ = self._socket.accept()
                except TimeoutError:
                    continue
                clients.append(_Client(self, client))
                clients[-1].__enter__()
        for each in clients:
            each.__exit__(None, None, None)

    def answer(self, request: bytes) -> bytes:
        """The answer to a request, without its size."""
        key, version, correlation = struct.unpack(">hhi", request[:8])
        head = struct.pack(">i", correlation)
        if key == API_VERSIONS:
            known = struct.pack(">i", 2) + struct.pack(">hhh", METADATA, 2, 2) + struct.pack(">hhh", API_VERSIONS, 0, 0)
            return head + struct.pack(">h", UNSUPPORTED_VERSION if version else 0) + known
        self._named -= 1
        brokers = b""
        if self._named >= 0:
            brokers = struct.pack(">i", 1) + _text("127.0.0.1") + struct.pack(">ih", self.port, -1)
        at = 8 + 2 + struct.unpack(">h", request[8:10])[0]
        topics = b""
        count = struct.unpack(">i", request[at : at + 4])[0] if self._echoes else 0
        at += 4
        for _ in range(max(count, 0)):
            (size,) = struct.unpack(">h", request[at : at + 2])
            topics += struct.pack(">h", UNKNOWN_TOPIC) + request[at : at + 2 + size] + b"\0" + struct.pack(">i", 0)
            at += 2 + size
        cluster_id = _text("cluster") if brokers else struct.pack(">h", -1)
        return b"".join(
            (head, struct.pack(">i", bool(brokers)), brokers, cluster_id, struct.pack(">ii", 1, max(count, 0)), topics)
        )


class _Client(BackgroundThread):
    def __init__(self, broker: EmptyBroker, connection: socket.socket) -> None:
        super().__init__()
        self._broker = broker
        self._connection = connection
        connection.settimeout(0.2)

    def run(self) -> None:
        data = b""
        with self._connection as connection:
            while not self._done.is_set():
                try:
                    received = connection.recv(65_536)
                except TimeoutError:
                    continue
                except OSError:
                    return
                if not received:
                    return
                data += received
                while len(data) >= 4 and len(data) >= 4 + (size := struct.unpack(">i", data[:4])[0]):
                    answer = self._broker.answer(data[4 : 4 + size])
                    data = data[4 + size :]
                    with suppress(OSError):  # the client may have left
                        connection.sendall(struct.pack(">i", len(answer)) + answer)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


@pytest.fixture(params=[*((named, True) for named in range(5)), (2, False), (3, False)])
def broker(request: pytest.FixtureRequest) -> Iterator[EmptyBroker]:
    named, echoes = request.param
    with EmptyBroker(named, echoes=echoes) as broker:
        yield broker


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_ends_the_process_while_the_cluster_names_no_broker(broker: EmptyBroker, question: str) -> None:
    script = ASK.format(question=QUESTIONS[question])
    asked = subprocess.run(
        [sys.executable, "-c", script, f"127.0.0.1:{broker.port}"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    # The socket does not know the other requests.
    answers = r"KafkaUnavailable|RequestRejected|cluster|{}|False|None|\('(cluster)?', \d\)"
    assert re.fullmatch(answers, asked.stdout.strip()), asked.stdout + asked.stderr
