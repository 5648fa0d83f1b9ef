"""Kafka on loopback: one broker, or a cluster of several, of each pinned release.

Before: `jars` fetches the programs, `processes` runs them. After: the fixtures, the chaos runs and the quickstart.
Source: Kafka 4.3 "KRaft"; Kafka 2.8 and ZooKeeper 3.5 administrator's guides.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar, Self

from servers.jars import KAFKA, Say, find_java, install, install_kafka, pinned_kafka, say_on_stderr
from servers.processes import START_S, Server, free_port

FAST_START = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
"""JVM flags for a quick start. Benchmarks pass `jvm=()`: without the C2 compiler, the broker would be the limit."""

CLUSTER_ID = "cdcd-test-cluster-0001"  # 22 characters of base64, as a UUID must be
_LOG = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true")


class ZooKeeper(Server):
    """The ZooKeeper of brokers of a release before 3.3."""

    def __init__(self, kafka: str, home: Path | None, *, data: Path | None, python: str, say: Say) -> None:
        """`kafka` is the release whose jars are run."""
        super().__init__(f"zookeeper-of-kafka-{kafka}", home=home, data=data, port=None, python=python, say=say)
        self._kafka = kafka

    def holds(self, node: str) -> bool:
        """Whether a session that has not ended holds this ephemeral node."""
        return node in self._ask("dump").split()

    def _prepare(self) -> list[str]:
        jars = install_kafka(self.home, self._kafka, python=self.python, say=self.say)
        settings = {
            "tickTime": "500",
            "dataDir": str(self.directory / "data"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,dump",
        }
        properties = self.directory / "zookeeper.properties"
        properties.write_text(_lines(settings))
        java = [find_java(self.python), "-Xmx128m", *FAST_START, *_LOG, "-cp", f"{jars}/*"]
        return [*java, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(properties)]

    def _ready(self) -> bool:
        return "Mode: standalone" in self._ask("srvr")

    def _ask(self, command: str) -> str:
        answer = b""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(command.encode())
                while part := connection.recv(4096):
                    answer += part
        except OSError:
            return ""
        return answer.decode()


class Kafka(Server):
    """A broker, PLAINTEXT on loopback. It creates no topic by itself.

    With KRaft it is the controller, too, unless a KafkaCluster says otherwise. Before 3.3 it has its own ZooKeeper.
    `heap_mb` is the JVM's -Xmx, `jvm` its other flags. `settings` are server properties, which win over SETTINGS; they
    count at the next start. So does `version`.
    """

    SETTINGS: ClassVar[Mapping[str, str]] = {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "auto.create.topics.enable": "false",
        "default.replication.factor": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "log.cleaner.dedupe.buffer.size": str(16 << 20),  # the default takes 128 MB of the heap
    }

    def __init__(
        self,
        version: str | None = None,
        home: Path | None = None,
        *,
        node_id: int = 1,
        data: Path | None = None,
        port: int | None = None,
        heap_mb: int = 384,
        jvm: Sequence[str] = FAST_START,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        zookeeper: ZooKeeper | None = None,
        features: Mapping[str, int] | None = None,
        has_acls: bool = False,
        cluster_id: str = CLUSTER_ID,
        python: str = sys.executable,
        say: Say = say_on_stderr,
    ) -> None:
        """Take the settings. A port that is not given is a free one.

        `version` is a pinned release, such as "3.9" (default: CDCD_TEST_KAFKA, or else the newest). `listeners` are
        further listeners, name to protocol, such as {"TLS": "SASL_SSL"}; `address` gives their ports. `features` are
        the levels with which a new KRaft cluster begins, if not the newest, such as {"transaction.version": 0}. With
        `has_acls` only the `super.users` of the settings may do what no ACL allows.
        """
        self.version = pinned_kafka(version or os.environ.get("CDCD_TEST_KAFKA") or KAFKA)
        super().__init__(f"kafka-{self.version}", home=home, data=data, port=port, python=python, say=say)
        self.node_id = node_id
        self.controller_port = free_port()
        self.controllers: Mapping[int, int] = {node_id: self.controller_port}
        """The controllers of the cluster, node id to the port where this broker finds it."""
        self.flags = [f"-Xmx{heap_mb}m", *jvm]
        self._has_archive = jvm == FAST_START and self.is_kraft
        self.settings = {**self.SETTINGS, **(settings or {})}
        self.data = self.directory / "data"
        self.zookeeper = zookeeper
        self._owns_zookeeper = zookeeper is None and not self.is_kraft
        if self._owns_zookeeper:
            folder = None if data is None else data / "zookeeper"
            self.zookeeper = ZooKeeper(self.version, home, data=folder, python=python, say=say)
        self._features = features or {}
        self._cluster_id = cluster_id
        self._has_acls = has_acls
        self.listeners: Mapping[str, tuple[str, int]] = {
            name: (protocol, free_port()) for name, protocol in (listeners or {}).items()
        }

    @property
    def is_kraft(self) -> bool:
        """Whether the release has controllers of its own, and needs no ZooKeeper."""
        return tuple(map(int, self.version.split("."))) >= (3, 3)

    def port_of(self, listener: str) -> int:
        """Return the port of one of the further `listeners`."""
        return self.listeners[listener][1]

    def address(self, listener: str) -> str:
        """Return the address, host:port, of one of the further `listeners`."""
        return f"127.0.0.1:{self.port_of(listener)}"

    @property
    def bootstrap(self) -> str:
        """The broker's address, host:port."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """End the broker at once, and its own ZooKeeper; remove their data if their directories are temporary."""
        super().close()
        if self.zookeeper is not None and self._owns_zookeeper:
            self.zookeeper.close()

    def _prepare(self) -> list[str]:
        jars = install_kafka(self.home, self.version, python=self.python, say=self.say)
        archive = [f"-XX:SharedArchiveFile={self._class_archive()}"] if self._has_archive else []
        java = [find_java(self.python), *self.flags, *archive, *_LOG, "-cp", f"{jars}/*"]
        more = "".join(f",{name}://127.0.0.1:{port}" for name, (_, port) in self.listeners.items())
        protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in self.listeners.items())
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}{more}",
            "log.dirs": str(self.data),
            **self.settings,
            "listener.security.protocol.map": self.settings["listener.security.protocol.map"] + protocols,
        }
        settings = {**(self._of_kraft(settings) if self.is_kraft else self._of_zookeeper()), **settings}
        properties = self.directory / "server.properties"
        properties.write_text(_lines(settings))
        if self.is_kraft and not (self.data / "meta.properties").exists():
            levels = [word for name, level in self._features.items() for word in ("--feature", f"{name}={level}")]
            how = ["-t", self._cluster_id, "-c", str(properties), *levels]
            self._run([*java, "kafka.tools.StorageTool", "format", *how])
        return [*java, "kafka.Kafka", str(properties)]

    def _class_archive(self) -> Path:
        """Return the archive of the broker's loaded classes, with which a start takes 2.2 s of CPU, and not 3.6.

        It is made once, by a broker that is started and stopped. Another Java than that broker's ignores it.
        """

        def unpack(target: Path) -> None:
            flags = [*FAST_START, f"-XX:ArchiveClassesAtExit={target / 'classes.jsa'}"]
            with Kafka(self.version, self.home, jvm=flags, python=self.python, say=self.say) as broker:
                broker.stop()

        return install(self.home, f"kafka-{self.version}-classes", unpack) / "classes.jsa"

    def _of_kraft(self, settings: dict[str, str]) -> dict[str, str]:
        """Return the properties that only KRaft has, and give the controller its listener."""
        is_controller = self.node_id in self.controllers
        if is_controller:
            settings["listeners"] += f",CONTROLLER://127.0.0.1:{self.controller_port}"
        return {
            "process.roles": "broker,controller" if is_controller else "broker",
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{port}" for n, port in self.controllers.items()),
            "broker.heartbeat.interval.ms": "500",
            "broker.session.timeout.ms": "6000",  # after a kill, the broker may register again only after this time
            **self._authorizer("org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        }

    def _authorizer(self, name: str) -> dict[str, str]:
        return {"authorizer.class.name": name} if self._has_acls else {}

    def _of_zookeeper(self) -> dict[str, str]:
        assert self.zookeeper is not None
        self.zookeeper.start()
        # A broker that was killed is there until its session has ended. Its next process would end itself.
        node, deadline = f"/brokers/ids/{self.node_id}", time.monotonic() + START_S
        while self.zookeeper.holds(node) and time.monotonic() < deadline:
            time.sleep(0.1)
        return {
            "broker.id": str(self.node_id),
            "zookeeper.connect": f"127.0.0.1:{self.zookeeper.port}",
            "zookeeper.session.timeout.ms": "6000",
            **self._authorizer("kafka.security.authorizer.AclAuthorizer"),
        }

    def _ready(self) -> bool:
        """Whether the answer to a Metadata request has a broker: the socket listens before the broker serves."""
        request = struct.pack(">hhih4si", 3, 0, 1, 4, b"cdcd", 0)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2.0) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(4096)
        except OSError:
            return False
        return len(answer) >= 12 and int.from_bytes(answer[8:12]) >= 1


class KafkaCluster:
    """Several brokers. All topics, Kafka's own too, have up to three replicas; of three, two must be in sync.

    With KRaft every broker is a controller, too, unless `controllers` is less: the first ones are then.
    """

    def __init__(
        self,
        version: str | None = None,
        *,
        brokers: int = 3,
        controllers: int | None = None,
        heap_mb: int = 256,
        jvm: Sequence[str] = FAST_START,
        settings: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        features: Mapping[str, int] | None = None,
        has_acls: bool = False,
    ) -> None:
        """Take the settings; they are those of Kafka, for every broker."""
        given = {**_replication(brokers), **(settings or {})}
        self.zookeeper: ZooKeeper | None = None
        self.brokers: list[Kafka] = []
        for node_id in range(1, brokers + 1):
            broker = Kafka(
                version, node_id=node_id, settings=given, heap_mb=heap_mb, jvm=jvm, listeners=listeners,
                features=features, has_acls=has_acls, zookeeper=self.zookeeper,
            )  # fmt: skip
            self.zookeeper = broker.zookeeper
            self.brokers.append(broker)
        ports = {broker.node_id: broker.controller_port for broker in self.brokers[: controllers or brokers]}
        for broker in self.brokers:
            broker.controllers = ports

    def __getitem__(self, node_id: int) -> Kafka:
        """Return the broker with this id; the first has 1."""
        return self.brokers[node_id - 1]

    @property
    def home(self) -> Path:
        """The directory of the downloads."""
        return self.brokers[0].home

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> Self:
        """Start the brokers that do not run, at once: one alone is not ready before a majority of controllers is."""
        if self.zookeeper is not None:
            self.zookeeper.start()
        self.each(Kafka.start)
        return self

    def each(self, do: Callable[[Kafka], object], brokers: Iterable[Kafka] | None = None) -> None:
        """Do this with all these brokers (default: every one) at the same time."""
        chosen = list(self.brokers if brokers is None else brokers)
        with ThreadPoolExecutor(len(chosen)) as pool:
            list(pool.map(do, chosen))

    def close(self) -> None:
        """End all at once, and remove their data."""
        for broker in reversed(self.brokers):  # the first one owns ZooKeeper
            broker.close()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:  # no __exit__ follows
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()


def _replication(brokers: int) -> dict[str, str]:
    replicas, in_sync = str(min(3, brokers)), "2" if brokers >= 3 else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _lines(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())
