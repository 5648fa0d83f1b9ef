"""The faults of Kafka: of one broker, or of a cluster of three.

Before: `run` has started the brokers. After: `faults` deals these kinds among the others.

A cluster is whole again before it gets its next fault: all replicas are in sync. So each kind shows the outage that it
causes by itself, and no fault takes more than it says.
"""

from __future__ import annotations

import random
import resource
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import servers
from confluent_kafka import KafkaException
from servers.jars import ServerError
from support.kafka_cluster import ProxiedCluster
from support.proxy import Link, Proxy, is_end_of_transaction
from support.shifted_clock import ShiftedClock

FILE_SIZE = 65_536
"""The largest file that a broker may write, in bytes, while its disk is "full"."""
CLOCK_OFF_S = 3_500
"""An hour, nearly: Kafka refuses records whose time is more than an hour ahead of the broker's clock."""
STARTS_MAX = 3
GONE_S = 30.0

Repair = Callable[[], None] | None
"""What is waited for before the next fault of Kafka: this is not part of the fault any more."""
Kind = tuple[str, int, Callable[[random.Random], Repair]]
"""The target, how often the kind is in a deck, and what does it."""
T = TypeVar("T")


class MissedError(Exception):
    """The fault had no target: no commit came, or the server was away."""


class OneBroker:
    """A broker, and the proxy in front of it."""

    def __init__(self, kafka: servers.Kafka, proxy: Proxy) -> None:
        self._kafka = kafka
        self.proxies = [proxy]
        self.bootstrap = f"127.0.0.1:{proxy.port}"
        self.unproxied = kafka.bootstrap

    def proxy_of_commits(self, dice: random.Random) -> Proxy:
        """The proxy that commits pass."""
        return self.proxies[0]

    def kinds(self) -> Mapping[str, Kind]:
        """The kinds of faults, by name."""
        return {
            "kafka: SIGKILL": ("kafka", 1, self._kill),
            "kafka: SIGKILL inside a commit": ("kafka", 1, self._kill_in_commit),
            "kafka: restart in order": ("kafka", 1, self._restart),
            "kafka: SIGSTOP, SIGCONT": ("kafka", 2, self._pause),
        }

    def _kill(self, dice: random.Random) -> None:
        self._kafka.kill()
        self._kafka.start()

    def _restart(self, dice: random.Random) -> None:
        self._kafka.restart()

    def _kill_in_commit(self, dice: random.Random) -> None:
        wait_for_commit(self.proxies[0])
        time.sleep(dice.choice([0, 0, 0.001, 0.003]))
        self._kill(dice)

    def _pause(self, dice: random.Random) -> None:
        self._kafka.pause()
        try:
            time.sleep(dice.choice([0.5, 2, 6, 15]))
        finally:
            self._kafka.resume()


class ThreeBrokers:
    """A cluster, and its proxies."""

    def __init__(self, proxied: ProxiedCluster, prefix: str, slot: str, topics: Collection[str], folder: Path) -> None:
        """`prefix` and `slot` are the daemons', `topics` their busiest ones; `folder` is for files."""
        self._proxied = proxied
        self._transactional_ids = [f"{prefix}-{slot}", f"{prefix}-{slot}.2"]
        self._topics = [f"{prefix}.progress", *topics]
        self._clock = ShiftedClock(folder)
        self.proxies = proxied.to_clients
        self.bootstrap = proxied.bootstrap
        self.unproxied = proxied.cluster.bootstrap

    def proxy_of_commits(self, dice: random.Random) -> Proxy:
        """The proxy of the coordinator of one of the daemon's producers."""
        return self.proxies[self._coordinator(dice).node_id - 1]

    def kinds(self) -> Mapping[str, Kind]:
        """The kinds of faults, by name."""
        roles = {"a leader": self._leader, "a coordinator": self._coordinator, "the controller": self._controller}
        return {
            **{f"kafka: SIGKILL of {role}": ("kafka", 2, self._kill(find)) for role, find in roles.items()},
            **{f"kafka: SIGSTOP, SIGCONT of {role}": ("kafka", 1, self._pause(find)) for role, find in roles.items()},
            "kafka: SIGKILL of a coordinator inside a commit": ("kafka", 2, self._kill_in_commit),
            "kafka: SIGKILL of two": ("kafka", 2, self._kill_many(2)),
            "kafka: SIGKILL of all": ("kafka", 1, self._kill_many(3)),
            "kafka: rolling restart": ("kafka", 1, self._roll),
            "kafka: leadership moved": ("kafka", 2, self._move),
            "kafka: disk of a leader full": ("kafka", 1, self._fill_disk),
            "kafka: clock of a leader an hour ahead": ("kafka", 1, self._shift_clock(CLOCK_OFF_S)),
            "kafka: clock of a leader an hour behind": ("kafka", 1, self._shift_clock(-CLOCK_OFF_S)),
            "network between brokers: a leader cut off": ("kafka", 2, self._part(self._leader, 2)),
            "network between brokers: a coordinator cut off": ("kafka", 2, self._part(self._coordinator, 2)),
            "network between brokers: two do not reach each other": ("kafka", 2, self._part(self._leader, 1)),
        }

    # Who

    def _leader(self, dice: random.Random) -> servers.Kafka:
        leaders = asked(lambda: self._proxied.leaders(dice.choice(self._topics)))
        if not leaders:  # nothing was written into the topic so far
            raise MissedError
        return self._broker(dice.choice(list(leaders.values())))

    def _coordinator(self, dice: random.Random) -> servers.Kafka:
        return self._broker(asked(lambda: self._proxied.coordinator(dice.choice(self._transactional_ids))))

    def _controller(self, dice: random.Random) -> servers.Kafka:
        return self._broker(asked(self._proxied.controller))

    def _broker(self, node_id: int) -> servers.Kafka:
        if node_id < 1:
            raise MissedError
        return self._proxied.cluster[node_id]

    def _others(self, broker: servers.Kafka) -> list[int]:
        return [each.node_id for each in self._proxied.cluster.brokers if each is not broker]

    # What

    def _repair(self) -> None:
        try:
            self._proxied.wait_until_in_sync()
        except (KafkaException, TimeoutError):
            pass  # the next fault comes to a cluster that is not whole: that may happen, too

    def _kill(self, find: Callable[[random.Random], servers.Kafka]) -> Callable[[random.Random], Repair]:
        def do(dice: random.Random) -> Repair:
            broker = find(dice)
            broker.kill()
            time.sleep(dice.choice([0, 3, 12]))
            start(broker)
            return self._repair

        return do

    def _kill_in_commit(self, dice: random.Random) -> Repair:
        broker = self._coordinator(dice)
        wait_for_commit(self.proxies[broker.node_id - 1])
        time.sleep(dice.choice([0, 0, 0.001, 0.003]))
        broker.kill()
        start(broker)
        return self._repair

    def _kill_many(self, count: int) -> Callable[[random.Random], Repair]:
        def do(dice: random.Random) -> Repair:
            chosen = dice.sample(self._proxied.cluster.brokers, count)
            self._proxied.cluster.each(servers.Kafka.kill, chosen)
            time.sleep(dice.choice([0, 3, 10]))
            self._proxied.cluster.each(start, chosen)
            return self._repair

        return do

    def _pause(self, find: Callable[[random.Random], servers.Kafka]) -> Callable[[random.Random], Repair]:
        def do(dice: random.Random) -> Repair:
            broker = find(dice)
            broker.pause()
            try:
                time.sleep(dice.choice([0.5, 3, 9, 20]))
            finally:
                broker.resume()
            return self._repair

        return do

    def _roll(self, dice: random.Random) -> Repair:
        for broker in dice.sample(self._proxied.cluster.brokers, 3):
            broker.stop()
            start(broker)
            self._repair()
        return None

    def _move(self, dice: random.Random) -> Repair:
        for _ in range(dice.choice([1, 3])):
            asked(lambda: self._proxied.move_leadership([*self._topics, "__transaction_state"]))
            time.sleep(dice.uniform(0.2, 2))
        return self._repair

    def _fill_disk(self, dice: random.Random) -> Repair:
        broker = self._leader(dice)
        hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)[1]
        resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_SIZE, hard))
        deadline = time.monotonic() + GONE_S
        while broker.running:  # a broker that cannot write ends itself
            if time.monotonic() > deadline:
                resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (hard, hard))
                raise MissedError
            time.sleep(0.1)
        time.sleep(dice.choice([0, 5]))
        start(broker)
        return self._repair

    def _shift_clock(self, seconds: int) -> Callable[[random.Random], Repair]:
        def do(dice: random.Random) -> Repair:
            broker = self._leader(dice)
            for shift in (seconds, 0):
                self._clock.shift(broker, shift)
                broker.stop()
                start(broker)
                self._repair()
                asked(lambda: self._proxied.prefer(broker.node_id, [*self._topics, "__transaction_state"]))
                time.sleep(dice.uniform(5, 12))
            return self._repair

        return do

    def _part(self, find: Callable[[random.Random], servers.Kafka], count: int) -> Callable[[random.Random], Repair]:
        """Cut the network between this broker and `count` others. Clients reach all of them."""

        def do(dice: random.Random) -> Repair:
            broker = find(dice)
            others = dice.sample(self._others(broker), count)
            self._proxied.part(broker.node_id, others, reset=dice.random() < 0.5)
            try:
                time.sleep(dice.choice([2, 9, 25]))
            finally:
                self._proxied.join()
            return self._repair

        return do


def wait_for_commit(proxy: Proxy) -> None:
    """Wait until a commit passes the proxy."""
    seen = threading.Event()

    def notice(_: Link) -> bool:
        seen.set()
        return True

    armed = proxy.arm(is_end_of_transaction, notice)
    if not seen.wait(8):
        proxy.disarm(armed)
        raise MissedError


def start(broker: servers.Kafka) -> None:
    """Start a broker as Kubernetes does: one that ends itself while the others are still away is started again."""
    for _ in range(STARTS_MAX - 1):
        try:
            broker.start()
        except ServerError:
            continue
        return
    broker.start()


def asked(question: Callable[[], T]) -> T:
    """The cluster's answer; raises MissedError if there is none."""
    try:
        return question()
    except (KafkaException, OSError, KeyError):
        raise MissedError from None
