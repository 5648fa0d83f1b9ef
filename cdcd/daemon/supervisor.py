"""Runs the daemon: opens a stream, and does what the error that ends it asks for. The only place that acts on a remedy.

Before: `cli.main` has read the settings.
After: `stream_startup` and `pipeline`, again and again, until a signal or a Stop.

- Restart: give everything back, wait a little, open again from the last progress record. The wait doubles from
  BACKOFF_MIN_S to BACKOFF_MAX_S and starts over once a stream has published something. A daemon that has streamed
  tries for ever; one that never did gives up after FIRST_STREAM_WITHIN_S, because its settings may be what is wrong.
- The slot is in use: another daemon streams; stand by, and look again every STANDBY_S. The wait starts over, too.
- Stop: say why and exit 1 (2 for a setting). Kubernetes starts us again, which is right: a person reads the log.
- SIGTERM, SIGINT: finish the open Kafka transaction, acknowledge, exit 0; at the latest after STOP_WITHIN_S.
"""

from __future__ import annotations

import gc
import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import uniform
from types import FrameType
from typing import Final

from cdcd import __version__
from cdcd.build_info import build
from cdcd.clock import monotonic_s, wall_us
from cdcd.config.settings import Settings
from cdcd.config.transport_security import insecure_connections
from cdcd.daemon.pipeline import Pipeline
from cdcd.daemon.slot_monitor import SlotMonitor
from cdcd.daemon.stream_startup import StreamStartup
from cdcd.errors import (
    BinaryFormatUnsupported,
    FatalError,
    KafkaUnavailable,
    RetriableError,
    StreamingUnsupported,
    Unpublishable,
)
from cdcd.lsn import INVALID
from cdcd.monitoring.http_server import MonitoringServer
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.sink.parking.wire_format import PendingParking
from cdcd.source.server_errors import SlotActive
from cdcd.source.session import dsn_parameters
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
FIRST_STREAM_WITHIN_S: Final = 60.0
"""No first attempt begins later than this. Standing by for another daemon does not count."""

_LEFT_BEHIND: Final = "This start has made the slot {}, which keeps WAL until it is read; cdcd slot drop removes it"

STANDBY_S: Final = 0.5
STOP_WITHIN_S: Final = 9.0


class _TooLateError(BaseException):
    """Stopping took too long: leave at once. What is not committed is sent again, so nothing is lost."""


class Supervisor:
    """One daemon, from start to exit."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._wake = WakeupPipe()
        self._stop = False
        self._streamed = False
        self._made_slot = False
        self._may_spool = True
        self._parking = PendingParking()
        source = settings.source
        self._binary: bool | None = None if source.binary == "auto" else source.binary
        stalled_after_s = settings.monitoring.stalled_after_s
        self.status = Status(__version__, source.slot, source.publication, monotonic_s(), stalled_after_s)
        self.metrics = Metrics(build())
        self.metrics.bounds(settings.sink.queue_bytes_max, settings.spool.memory_bytes, settings.spool.bytes_max)

    def run(self) -> None:
        """Run until a signal asks to stop. Raises the Stop that ended it."""
        monitoring = self._settings.monitoring
        health = MonitoringServer(monitoring.host, monitoring.port, self.status, self._exposition)
        source = self._settings.source
        watch = SlotMonitor(source.dsn, source.application_name, source.slot, self.status, self.metrics)
        sink, registry_url = self._settings.sink, self._settings.avro.registry_url
        for what, hint in insecure_connections(
            dsn_parameters(source.dsn), sink.bootstrap_servers, sink.librdkafka, registry_url
        ):
            log.warning("%s. %s", what, hint)
        try:
            with self._signals():
                self._attempts()
        except FatalError as error:
            if self._made_slot and self.status.positions.durable_lsn == INVALID:
                error.hint = f"{error.hint.rstrip('.')}. {_LEFT_BEHIND.format(source.slot)}"
            self.status.state = State.FAILED
            self.status.errors.add(monotonic_s(), error)
            raise
        except _TooLateError:
            log.warning("left at once, for stopping took too long: what Kafka has not committed will be sent again")
        finally:
            watch.close()
            health.close()

    def _attempts(self) -> None:
        backoff_s = BACKOFF_MIN_S
        since_s = monotonic_s()
        while not self._stop:
            published = self.status.published.transactions
            try:
                self._stream()
            except SlotActive as error:
                if self.status.state is not State.WAITING:
                    log.info("standing by: another daemon has the slot", extra={"slot": error.slot, "pid": error.pid})
                self.status.stand_by(monotonic_s())
                self._sleep(STANDBY_S)
                since_s = monotonic_s()
                backoff_s = BACKOFF_MIN_S  # PostgreSQL is well: whatever comes next is another trouble
            except Unpublishable as error:
                self._park(error)
            except RetriableError as error:
                if isinstance(error, BinaryFormatUnsupported):
                    self._fall_back_to_text(error)
                elif isinstance(error, StreamingUnsupported):
                    self._may_spool = False
                if self._stopping():
                    log.info("stopped; what Kafka has not committed will be sent again: %s", error.message)
                    break
                if self.status.published.transactions > published:
                    backoff_s = BACKOFF_MIN_S
                self.status.state = State.RESTARTING
                self.status.errors.add(monotonic_s(), error, restarts=True)
                self.metrics.restarted(error)
                if not self._streamed and monotonic_s() + backoff_s - since_s >= FIRST_STREAM_WITHIN_S:
                    raise _given_up(error) from error
                log.warning(
                    "starting again in %.1f s: %s", backoff_s, error, exc_info=log.isEnabledFor(logging.DEBUG) and error
                )
                self._sleep(backoff_s * uniform(0.8, 1.2))
                backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)
        self.status.state = State.STOPPING

    def _stream(self) -> None:
        opening = StreamStartup(
            self._settings,
            self._binary,
            self._may_spool,
            self._wake,
            self._stopping,
            self._alive,
            self.metrics.schema,
            self._parking,
        )
        if self.status.state is not State.WAITING:
            self.status.state = State.STARTING
        try:
            opened = opening.open()
            if opened is None:
                return
            self._streamed = True
            self.status.begin_stream(monotonic_s())
            Pipeline(opened, self.status, self.metrics, self._wake).run(self._stopping)
            self._stop = True  # it was asked to, or only had tables to copy
        finally:
            self._made_slot = self._made_slot or opening.made_slot
            if self.status.state is State.STREAMING:
                self.status.end_stream(monotonic_s(), wall_us())
            opening.close()

    def _stopping(self) -> bool:
        return self._stop

    def _exposition(self) -> bytes:
        return self.metrics.exposition(self.status, monotonic_s(), wall_us())

    def _alive(self) -> None:
        self.status.stages.last_loop_s = monotonic_s()

    def _park(self, error: Unpublishable) -> None:
        """Let the next stream send this table's events to the parked topic. Raises the error if it must stop instead.

        Nothing that the table had part in has been committed; until a slot record says so, only we know that it is
        parked: whoever comes after us meets the same error, and does the same.
        """
        table = error.table
        name = ".".join(table or ())
        # What is gone would be so at every start, and then nobody could be asked to give it up.
        stops = self._settings.sink.on_unpublishable == "stop" and not error.gone
        if stops or table is None or table in self._parking.parked:
            if name not in error.message:
                error.message = f"the table {name} cannot be published: {error.message}"
            raise error
        if error.unparking:
            self._parking.refused[table] = error.message
        else:
            self._parking.parked[table] = error.message
        said = "still cannot be published, so it stays parked" if error.unparking else "is parked"
        hint = f"Run: cdcd unpark --discard {name}, and it is copied afresh"
        if not error.gone:
            hint = f"Then run: cdcd unpark {name}"
        log.warning("the table %s %s: %s. %s", name, said, str(error).rstrip("."), hint)
        self.status.state = State.RESTARTING
        self.status.errors.add(monotonic_s(), error, restarts=True)
        self.metrics.restarted(error)

    def _fall_back_to_text(self, error: BinaryFormatUnsupported) -> None:
        if self._settings.source.binary is True:
            raise FatalError(
                f"{error.message}, and source.binary = true allows no other mode", 'Set source.binary = "auto"'
            )
        self._binary = False

    def _sleep(self, seconds: float) -> None:
        """Wait, but not for longer than until a signal comes."""
        until = monotonic_s() + seconds
        while not self._stop and (left_s := until - monotonic_s()) > 0:
            self.status.stages.last_loop_s = monotonic_s()
            self._wake.wait(min(1.0, left_s))
            self._wake.clear()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def stop(number: int, _: FrameType | None) -> None:
            if not self._stop:
                log.info("stopping", extra={"signal": signal.Signals(number).name})
                self._stop = True
                signal.setitimer(signal.ITIMER_REAL, STOP_WITHIN_S)
            self._wake.set()

        def too_late(_: int, __: FrameType | None) -> None:
            raise _TooLateError

        handlers = {signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGALRM: too_late}
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        wakeup_fd = signal.set_wakeup_fd(self._wake.write_fd, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.set_wakeup_fd(wakeup_fd)
            for number, handler in before.items():
                signal.signal(number, handler)


def _given_up(error: RetriableError) -> FatalError:
    hint = (
        "Check sink.bootstrap_servers, and that the brokers run" if isinstance(error, KafkaUnavailable) else error.hint
    )
    return FatalError(f"no stream came about in {FIRST_STREAM_WITHIN_S:.0f} s: {error.message}", hint)


def run(settings: Settings) -> None:
    """Run the daemon until it is told to stop. Raises FatalError, with the hint, if it cannot."""
    supervisor = Supervisor(settings)
    # A row is a dict and two bytes objects, none of which can be part of a cycle, but each counts: by default the
    # collector would look at everything young every 700 rows.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    supervisor.run()
