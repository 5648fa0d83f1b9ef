"""Requests that librdkafka's admin client does not have, as bytes.

Before: tests and chaos runs that change a cluster. After: a broker, which hands them on to the active controller.
Source: Kafka protocol guide, DescribeQuorum, AlterPartitionReassignments, ElectLeaders, UpdateFeatures,
DescribeProducers, AlterClientQuotas.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Mapping, Sequence

_ELECT_LEADERS, _REASSIGN, _DESCRIBE_QUORUM, _UPDATE_FEATURES, _DESCRIBE_PRODUCERS = 43, 45, 55, 57, 61
_ALTER_QUOTAS = 49
_TIMEOUT_MS = 10_000
_NO_TAGS = b"\0"


def active_controller(address: str) -> int:
    """The node id of the active controller of a KRaft cluster, as this broker knows it."""
    metadata = b"\x02" + _string("__cluster_metadata") + b"\x02" + struct.pack(">i", 0) + _NO_TAGS * 3
    answer = _Answer(_ask(address, _DESCRIBE_QUORUM, 0, metadata))
    answer.raise_error("DescribeQuorum")
    assert answer.count() == 1
    answer.string()
    assert answer.count() == 1
    answer.integer(">i")
    answer.raise_error("DescribeQuorum")
    return answer.integer(">i")


def reassign(address: str, wanted: Mapping[tuple[str, int], Sequence[int]]) -> None:
    """Give partitions these replicas, the preferred leader first. (Before 3.3, `address` must be the controller's.)"""
    body = struct.pack(">i", _TIMEOUT_MS) + _of_topics(
        {
            place: struct.pack(">b", len(replicas) + 1) + struct.pack(f">{len(replicas)}i", *replicas) + _NO_TAGS
            for place, replicas in wanted.items()
        }
    )
    answer = _Answer(_ask(address, _REASSIGN, 0, body + _NO_TAGS))
    answer.integer(">i")
    answer.raise_error("AlterPartitionReassignments")


def elect_preferred(address: str, places: Mapping[tuple[str, int], object]) -> None:
    """Make the first replica of these partitions their leader."""
    by_topic = itertools.groupby(sorted(places), key=lambda place: place[0])
    topics = [(name, [number for _, number in found]) for name, found in by_topic]
    body = b"\0" + struct.pack(">b", len(topics) + 1)
    for name, numbers in topics:
        body += _string(name) + struct.pack(f">b{len(numbers)}i", len(numbers) + 1, *numbers) + _NO_TAGS
    answer = _Answer(_ask(address, _ELECT_LEADERS, 2, body + struct.pack(">i", _TIMEOUT_MS) + _NO_TAGS))
    answer.integer(">i")
    answer.raise_error("ElectLeaders")


def set_features(address: str, levels: Mapping[str, int]) -> None:
    """Raise features of the cluster, such as metadata.version, to these levels."""
    body = struct.pack(">ib", _TIMEOUT_MS, len(levels) + 1)
    for name, level in levels.items():
        body += _string(name) + struct.pack(">hb", level, 1) + _NO_TAGS
    answer = _Answer(_ask(address, _UPDATE_FEATURES, 1, body + b"\0" + _NO_TAGS))
    answer.integer(">i")
    answer.raise_error("UpdateFeatures")


def set_quota(address: str, name: str, value: float | None) -> None:
    """Give each client id that has no quota of its own this one; None: take it away."""
    entity = b"\x02" + _string("client-id") + b"\0" + _NO_TAGS
    change = b"\x02" + _string(name) + struct.pack(">d?", value or 0.0, value is None) + _NO_TAGS
    answer = _Answer(_ask(address, _ALTER_QUOTAS, 1, b"\x02" + entity + change + _NO_TAGS + b"\0" + _NO_TAGS))
    answer.integer(">i")
    assert answer.count() == 1
    answer.raise_error("AlterClientQuotas")


def active_producers(address: str, topic: str, partition: int) -> list[int]:
    """The producer ids that the leader of a partition knows. `address` must be the leader's."""
    body = b"\x02" + _string(topic) + struct.pack(">bi", 2, partition) + _NO_TAGS * 2
    answer = _Answer(_ask(address, _DESCRIBE_PRODUCERS, 0, body))
    answer.integer(">i")
    assert answer.count() == 1
    answer.string()
    assert answer.count() == 1
    answer.integer(">i")
    answer.raise_error("DescribeProducers")
    answer.string()
    found = []
    for _ in range(answer.count()):
        found.append(answer.integer(">q"))
        for form in (">i", ">i", ">q", ">i", ">q", ">b"):
            answer.integer(form)
    return found


class _Answer:
    """Reads an answer from its start."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def integer(self, form: str) -> int:
        (value,) = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return int(value)

    def count(self) -> int:
        return self.integer(">B") - 1  # all answers here are short

    def string(self) -> str:
        size = self.count()
        self._at += max(size, 0)
        return self._data[self._at - size : self._at].decode() if size > 0 else ""

    def raise_error(self, what: str) -> None:
        """Read an error code; raises OSError unless it is 0."""
        if code := self.integer(">h"):
            raise OSError(f"{what} failed with Kafka's error {code}: {self._data[self._at :]!r}")


def _of_topics(values: Mapping[tuple[str, int], bytes]) -> bytes:
    by_topic = itertools.groupby(sorted(values), key=lambda place: place[0])
    topics = [(name, [number for _, number in found]) for name, found in by_topic]
    body = struct.pack(">b", len(topics) + 1)
    for name, numbers in topics:
        body += _string(name) + struct.pack(">b", len(numbers) + 1)
        for number in numbers:
            body += struct.pack(">i", number) + values[name, number]
        body += _NO_TAGS
    return body


def _string(text: str) -> bytes:
    return struct.pack(">B", len(text) + 1) + text.encode()


def _ask(address: str, request: int, version: int, body: bytes) -> bytes:
    """Return the answer, from behind its header. Raises OSError if the broker does not answer."""
    host, _, port = address.rpartition(":")
    message = struct.pack(">hhih4sb", request, version, 1, 4, b"cdcd", 0) + body
    with socket.create_connection((host, int(port)), timeout=_TIMEOUT_MS / 1000 + 5) as connection:
        connection.sendall(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", _read(connection, 4))
        return _read(connection, size)[5:]


def _read(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError("the broker has ended the connection")
        data += part
    return data
