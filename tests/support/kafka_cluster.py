"""What a cluster of brokers is asked and told, and a cluster with proxies between its brokers.

Before: `servers` starts the brokers. After: the chaos runs, and tests that break brokers or part them from each other.

Brokers and controllers find each other through the proxies. A proxy asks the kernel which broker has connected to it.
So the network between two brokers can be cut, while both reach the third.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import servers
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from servers.jars import ServerError

from support import kafka_requests
from support.proxy import Proxy

TRANSACTION_STATE = "__transaction_state"


class ClusterView:
    """Asks and tells a cluster that runs. Each method raises KafkaException or OSError if it does not answer."""

    def __init__(self, cluster: servers.KafkaCluster) -> None:
        self.cluster = cluster
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition; -1 without one."""
        found = self._metadata(topic).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def leaders_by_another(self, node_id: int, topic: str) -> dict[int, int]:
        """The leaders as brokers other than this one know them. A client keeps to a broker that is cut off."""
        others = [broker.bootstrap for broker in self.cluster.brokers if broker.node_id != node_id]
        found = _fresh_client(",".join(others)).list_topics(topic, timeout=5).topics[topic].partitions
        return {number: partition.leader for number, partition in found.items()}

    def coordinator(self, transactional_id: str) -> int:
        """The broker that coordinates a producer's transactions: it leads a partition of Kafka's own topic."""
        leaders = self.leaders(TRANSACTION_STATE)
        return leaders[abs(_hash(transactional_id)) % len(leaders)]

    def controller(self) -> int:
        """The controller that is active."""
        if not self.cluster.brokers[0].is_kraft:
            return int(self._metadata(TRANSACTION_STATE).controller_id)
        return self._ask(kafka_requests.active_controller)

    def wait_until_in_sync(self, timeout_s: float = 90.0) -> None:
        """Wait until every broker says that every replica of every partition is in sync. Raises TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while lacking := self._lacking():
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in sync within {timeout_s:.0f} s: {lacking}")
            time.sleep(0.3)

    def _lacking(self) -> str:
        """Which partition lacks replicas in sync; empty if none does.

        Every broker is asked: one that was cut off says for a moment what it knew before.
        """
        for broker in self.cluster.brokers:
            try:
                topics = _fresh_client(broker.bootstrap).list_topics(timeout=5).topics
            except KafkaException as error:
                return f"broker {broker.node_id}: {error}"
            for name, topic in topics.items():
                for number, partition in topic.partitions.items():
                    if len(partition.isrs) < len(partition.replicas):
                        return f"{name} {number} has {partition.isrs} of {partition.replicas}"
        return ""

    def move_leadership(self, topics: Collection[str]) -> None:
        """Make the second replica of each partition of these topics its leader."""
        self._lead(topics, lambda replicas: replicas[1:] + replicas[:1])

    def prefer(self, node_id: int, topics: Collection[str]) -> None:
        """Make this broker the leader of all partitions of these topics."""
        self._lead(topics, lambda replicas: sorted(replicas, key=lambda replica: replica != node_id))

    def _lead(self, topics: Collection[str], order: Callable[[list[int]], list[int]]) -> None:
        known = self._metadata().topics
        wanted = {
            (name, number): order(partition.replicas)
            for name in topics
            for number, partition in known[name].partitions.items()
        }
        self._ask(lambda address: kafka_requests.reassign(address, wanted))
        self._ask(lambda address: kafka_requests.elect_preferred(address, wanted))

    def set_features(self, levels: Mapping[str, int]) -> None:
        """Raise features of the cluster to these levels."""
        self._ask(lambda address: kafka_requests.set_features(address, levels))

    def _metadata(self, topic: str | None = None) -> Any:
        return self.admin.list_topics(topic, timeout=5) if topic else self.admin.list_topics(timeout=5)

    def _ask(self, question: Callable[[str], Any]) -> Any:
        """Ask the brokers one after the other, until one answers."""
        problem: OSError | None = None
        for broker in self.cluster.brokers:
            try:
                return question(broker.bootstrap)
            except OSError as error:
                problem = error
        assert problem is not None
        raise problem


class ProxiedCluster(ClusterView):
    """Three brokers, with a proxy in front of each for clients, and proxies between them."""

    def __init__(self, cluster: servers.KafkaCluster, stack: ExitStack) -> None:
        """Start everything; `stack` ends it. The brokers have the listeners PROXIED and BROKERS."""
        super().__init__(cluster)
        self.to_clients = [stack.enter_context(Proxy(broker.port_of("PROXIED"))) for broker in cluster.brokers]
        """What clients pass that know the cluster by `bootstrap`, in the order of the brokers."""
        self._between = {
            broker.node_id: [
                stack.enter_context(Proxy(port, self._sender))
                for port in (broker.port_of("BROKERS"), broker.controller_port)
            ]
            for broker in cluster.brokers
        }
        controllers = {node_id: proxy.port for node_id, (_, proxy) in self._between.items()}
        for broker, proxy in zip(cluster.brokers, self.to_clients, strict=True):
            between, _ = self._between[broker.node_id]
            broker.controllers = controllers
            broker.settings["inter.broker.listener.name"] = "BROKERS"
            advertised = {name: broker.address(name) for name in broker.listeners}
            advertised |= {"PLAINTEXT": broker.bootstrap, "PROXIED": f"127.0.0.1:{proxy.port}"}
            advertised["BROKERS"] = f"127.0.0.1:{between.port}"
            if broker.is_kraft:
                # Without it, a new controller names its own port to the others, and they pass the proxy by.
                advertised["CONTROLLER"] = f"127.0.0.1:{controllers[broker.node_id]}"
            broker.settings["advertised.listeners"] = ",".join(f"{name}://{at}" for name, at in advertised.items())
        stack.enter_context(cluster)

    @property
    def bootstrap(self) -> str:
        """The addresses of the proxies for clients."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.to_clients)

    def part(self, node_id: int, others: Collection[int], *, reset: bool) -> None:
        """Cut the network between a broker and `others`; `reset` ends their connections, else nothing passes."""
        for proxy in self._between[node_id]:
            proxy.part(others, reset=reset)
        for other in others:
            for proxy in self._between[other]:
                proxy.part({node_id}, reset=reset)

    def join(self) -> None:
        """Mend the network between all brokers."""
        for proxies in self._between.values():
            for proxy in proxies:
                proxy.part(())

    def _sender(self, port: int, to_port: int) -> int:
        """The node id of the broker that has connected from one port to another; 0 if none has."""
        processes = {}
        for broker in self.cluster.brokers:
            with suppress(ServerError):  # it does not run now
                processes[broker.node_id] = broker.pid
        return sender_of(port, to_port, processes)


@contextmanager
def proxied_cluster(
    version: str | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    listeners: Mapping[str, str] | None = None,
    has_acls: bool = False,
) -> Iterator[ProxiedCluster]:
    """Start three brokers with proxies. The arguments are those of servers.KafkaCluster."""
    every = {"PROXIED": "PLAINTEXT", "BROKERS": "PLAINTEXT", **(listeners or {})}
    with ExitStack() as stack:
        cluster = servers.KafkaCluster(version, settings=settings, listeners=every, has_acls=has_acls)
        stack.callback(cluster.close)
        yield ProxiedCluster(cluster, stack)


def sender_of(port: int, to_port: int, processes: Mapping[int, int]) -> int:
    """Which of these processes, node id to process id, has the connection between these loopback ports; 0 if none."""
    ports = [port, to_port]
    inode = next(
        (row[9] for row in _connections() if [int(end.rpartition(":")[2], 16) for end in row[1:3]] == ports), ""
    )
    for node_id, pid in processes.items():
        with suppress(OSError):  # it closes files, or has ended
            for file in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    if str(file.readlink()) == f"socket:[{inode}]":
                        return node_id
    return 0


def _connections() -> Iterator[list[str]]:
    for family in ("tcp", "tcp6"):  # Java's sockets are of IPv6
        for line in Path(f"/proc/net/{family}").read_text().splitlines()[1:]:
            yield line.split()


def _fresh_client(bootstrap: str) -> AdminClient:
    """A client that asks one of these brokers: it knows of no other yet."""
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _hash(text: str) -> int:
    """Java's String.hashCode."""
    found = 0
    for letter in text.encode("ascii"):
        found = (31 * found + letter) & 0xFFFFFFFF
    return found - (1 << 32) if found >> 31 else found
