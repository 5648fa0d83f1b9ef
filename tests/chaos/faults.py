"""The faults: every kind, dealt from a seeded deck, one or several at a time.

Before: `run` has the servers, the proxies and the daemons. After: `Faults.log` says which fault was when.

A fault holds its target (the daemons, PostgreSQL, Kafka, or the network to either) until it is over, so only faults of
different targets overlap. From time to time there is a calm, in which everything must recover.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import psycopg
import servers
from chaos.daemons import RestartedDaemon
from chaos.kafka_faults import Kind, MissedError, OneBroker, ThreeBrokers
from servers.processes import children
from support.proxy import Armed, Link, Proxy, is_end_of_transaction

GAP_S = (0.5, 7.0)
LONGEST_S = 600.0
"""So long a fault may last: a cluster of three brokers that is restarted one by one, on a machine with other work."""
CALM_EVERY_S = 75.0
CALM_S = 20.0
FILE_SIZE = 300_000
"""The largest spool file, in bytes, while the disk is "full"."""


@dataclass
class Fault:
    """One fault as it happened, on the monotonic clock."""

    kind: str
    start_s: float
    end_s: float = 0.0


@dataclass
class World:
    """Everything that a fault can hit."""

    postgres: servers.PostgreSQL
    kafka: OneBroker | ThreeBrokers
    to_postgres: Proxy
    daemons: list[RestartedDaemon]


class Faults(threading.Thread):
    """Makes faults until told to stop; `log` has those that are over."""

    def __init__(self, world: World, seed: int, only: str = "") -> None:
        super().__init__(daemon=True, name="faults")
        self._world = world
        self._random = random.Random(seed)
        self._only = only
        self._locks = {target: threading.Lock() for target, _, _ in self._kinds().values()}
        self._deck: list[str] = []
        self._running: list[threading.Thread] = []
        self.log: list[Fault] = []
        self.calms: list[tuple[float, float]] = []
        self.missed: Counter[str] = Counter()
        self.done = threading.Event()
        self.error: BaseException | None = None

    def _kinds(self) -> dict[str, Kind]:
        """The kinds of faults, by name."""
        return {
            "daemon: SIGKILL": ("daemon", 3, self._kill_daemon),
            "daemon: SIGSTOP, SIGCONT": ("daemon", 2, self._stop_daemon),
            "daemon: SIGTERM": ("daemon", 1, self._end_daemon),
            "daemon: new settings": ("daemon", 2, self._change_settings),
            "daemon: disk full for the spool": ("daemon", 1, self._fill_disk),
            "postgres: SIGKILL": ("postgres", 1, self._kill_postgres),
            "postgres: immediate stop": ("postgres", 1, self._stop_postgres),
            "postgres: fast restart": ("postgres", 1, self._restart_postgres),
            "postgres: SIGSTOP, SIGCONT": ("postgres", 1, self._pause_postgres),
            "postgres: walsender terminated": ("postgres", 2, self._terminate),
            **self._world.kafka.kinds(),
            "network to kafka: answer to a commit lost": ("to_kafka", 2, self._lose_answer),
            "network to kafka: commit lost": ("to_kafka", 1, self._lose_commit),
            "network to kafka: commit late": ("to_kafka", 2, self._delay_commit),
            **{
                f"network to {server}: {name}": (f"to_{server}", often, self._network(server, how))
                for server in ("postgres", "kafka")
                for name, often, how in (
                    ("cut", 1, _cut),
                    ("reset", 1, _reset),
                    ("refused for seconds", 1, _refuse),
                    ("delay", 1, _delay),
                    ("black hole", 1, _swallow),
                    ("black hole, then reset", 1, _swallow_and_reset),
                    ("half open", 1, _half_open),
                )
            },
        }

    def run(self) -> None:
        """Make faults and calms until `done`."""
        calm_s = time.monotonic() + CALM_EVERY_S
        try:
            while not self.done.wait(self._random.uniform(*GAP_S)):
                if time.monotonic() > calm_s:
                    self.calm(CALM_S)
                    calm_s = time.monotonic() + CALM_EVERY_S
                self._begin(self._deal())
        except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
            self.error = error

    def calm(self, seconds: float) -> None:
        """Wait until every fault is over, then make none for some seconds."""
        deadline = time.monotonic() + LONGEST_S
        for thread in self._running:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():  # the servers must not be closed under it
                raise TimeoutError(f"the fault {thread.name} is not over after {LONGEST_S:.0f} s")
        self._running.clear()
        began = time.monotonic()
        self.done.wait(seconds)
        self.calms.append((began, time.monotonic()))

    def finish(self) -> None:
        """Start no more faults, and wait until every fault is over."""
        self.done.set()
        self.join(LONGEST_S)
        self.calm(0)

    def _deal(self) -> str:
        if not self._deck:
            self._deck = [
                name for name, (_, often, _) in self._kinds().items() for _ in range(often) if self._only in name
            ]
            self._random.shuffle(self._deck)
        return self._deck.pop()

    def _begin(self, kind: str) -> None:
        target, _, how = self._kinds()[kind]
        dice = random.Random(self._random.random())
        if not self._locks[target].acquire(blocking=False):
            self._deck.insert(0, kind)  # its target has another fault: try later
            return
        fault = Fault(kind, time.monotonic())

        def do() -> None:
            try:
                repair = how(dice)
                fault.end_s = time.monotonic()
                self.log.append(fault)
                if repair is not None:
                    repair()
            except MissedError:
                self.missed[kind] += 1
            except BaseException as error:  # noqa: BLE001  # the run's own thread reports it
                self.error = error
            finally:
                self._locks[target].release()

        thread = threading.Thread(target=do, daemon=True, name=kind)
        thread.start()
        self._running.append(thread)

    # The daemon

    def _leader(self, dice: random.Random) -> RestartedDaemon:
        """The daemon that streams, in most cases; otherwise any daemon."""
        leaders = [daemon for daemon in self._world.daemons if daemon.holds_slot and daemon.pid]
        return dice.choice(leaders) if leaders and dice.random() < 0.85 else dice.choice(self._world.daemons)

    def _kill_daemon(self, dice: random.Random) -> None:
        for _ in range(dice.choice([1, 1, 2, 4])):
            self._leader(dice).signal(signal.SIGKILL)
            time.sleep(dice.uniform(0.1, 2.5))

    def _stop_daemon(self, dice: random.Random) -> None:
        daemon = self._leader(dice)
        daemon.suspended.set()
        daemon.signal(signal.SIGSTOP)
        try:
            time.sleep(dice.choice([0.3, 2, 5, 14]))
        finally:
            daemon.signal(signal.SIGCONT)
            daemon.suspended.clear()

    def _end_daemon(self, dice: random.Random) -> None:
        self._leader(dice).signal(signal.SIGTERM)

    def _change_settings(self, dice: random.Random) -> None:
        """Change a setting that needs a new stream; from time to time a SIGKILL comes into the change."""
        leader = self._leader(dice)
        leader.change_settings("sink", f"transaction_linger_ms = {dice.randrange(50, 500)}")
        if dice.random() < 0.3:
            time.sleep(dice.uniform(0, 0.3))
            leader.signal(signal.SIGKILL)

    def _fill_disk(self, dice: random.Random) -> None:
        for daemon in self._world.daemons:
            daemon.limit_files(FILE_SIZE)
        time.sleep(dice.uniform(5, 12))
        for daemon in self._world.daemons:
            daemon.limit_files(-1)

    # PostgreSQL

    def _kill_postgres(self, dice: random.Random) -> None:
        self._world.postgres.kill()
        time.sleep(dice.choice([0, 0, 1, 4]))
        self._world.postgres.start()

    def _stop_postgres(self, dice: random.Random) -> None:
        self._world.postgres.restart(mode="immediate")

    def _restart_postgres(self, dice: random.Random) -> None:
        self._world.postgres.restart(mode="fast")

    def _pause_postgres(self, dice: random.Random) -> None:
        server = self._world.postgres
        processes = [server.pid, *children(server.pid)]
        _signal_all(processes, signal.SIGSTOP)
        try:
            time.sleep(dice.choice([0.5, 3, 12]))
        finally:
            _signal_all(processes, signal.SIGCONT)

    def _terminate(self, dice: random.Random) -> None:
        query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        for _ in range(dice.choice([1, 1, 3])):
            try:
                with psycopg.connect(self._world.postgres.dsn(), autocommit=True, connect_timeout=2) as sql:
                    sql.execute(query)
            except psycopg.OperationalError:
                raise MissedError from None
            time.sleep(dice.uniform(0.05, 1))

    # The network

    def _lose_answer(self, dice: random.Random) -> None:
        """Kafka commits, but its answer does not reach the daemon."""

        def half(link: Link) -> bool:
            link.swallow_answers()
            return True

        self._armed(half, dice)

    def _lose_commit(self, dice: random.Random) -> None:
        """The daemon asks for a commit, but the request does not reach Kafka."""
        self._armed(Link.lose, dice)

    def _delay_commit(self, dice: random.Random) -> None:
        """The daemon asks for a commit, loses its connection, and asks again. The first request reaches Kafka later."""
        proxy = self._world.kafka.proxy_of_commits(dice)
        late = proxy.late(is_end_of_transaction)
        _wait_for_commit(proxy, late.armed)
        time.sleep(dice.choice([0.3, 1, 2]) + dice.random())
        late.hand_on()

    def _armed(self, action: Callable[[Link], bool], dice: random.Random) -> None:
        proxy = self._world.kafka.proxy_of_commits(dice)
        _wait_for_commit(proxy, proxy.arm(is_end_of_transaction, action))

    def _network(
        self, server: str, how: Callable[[list[Proxy], random.Random], None]
    ) -> Callable[[random.Random], None]:
        def do(dice: random.Random) -> None:
            proxies = [self._world.to_postgres] if server == "postgres" else self._world.kafka.proxies
            how(dice.choice([proxies, [dice.choice(proxies)]]), dice)

        return do


def _wait_for_commit(proxy: Proxy, armed: Armed) -> None:
    deadline = time.monotonic() + 8
    while armed.waiting:
        if time.monotonic() > deadline and proxy.disarm(armed):
            raise MissedError
        time.sleep(0.05)


def _signal_all(processes: list[int], number: signal.Signals) -> None:
    for pid in processes:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def _cut(proxies: list[Proxy], dice: random.Random) -> None:
    for proxy in proxies:
        proxy.cut()


def _reset(proxies: list[Proxy], dice: random.Random) -> None:
    for _ in range(dice.choice([1, 3])):
        for proxy in proxies:
            proxy.cut(reset=True)
        time.sleep(dice.uniform(0.05, 1.5))


def _refuse(proxies: list[Proxy], dice: random.Random) -> None:
    for proxy in proxies:
        proxy.refuse(True)
    time.sleep(dice.uniform(0.5, 6))
    for proxy in proxies:
        proxy.refuse(False)


def _delay(proxies: list[Proxy], dice: random.Random) -> None:
    seconds = dice.choice([0.01, 0.05, 0.2])
    for proxy in proxies:
        proxy.delay(seconds)
    time.sleep(dice.uniform(3, 10))
    for proxy in proxies:
        proxy.delay(0)


def _swallow(proxies: list[Proxy], dice: random.Random) -> None:
    for proxy in proxies:
        proxy.swallow(True)
    time.sleep(dice.choice([0.5, 3, 12]))
    for proxy in proxies:
        proxy.swallow(False)


def _swallow_and_reset(proxies: list[Proxy], dice: random.Random) -> None:
    for proxy in proxies:
        proxy.swallow(True)
    time.sleep(dice.choice([0.5, 3, 8]))
    for proxy in proxies:
        proxy.cut(reset=True)
        proxy.swallow(False)


def _half_open(proxies: list[Proxy], dice: random.Random) -> None:
    for proxy in proxies:
        proxy.half_open()
