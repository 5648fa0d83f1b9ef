"""Runs one stream after another, and acts on the error that ended the last one.

Before: `process` has signals and monitoring in place.
After: `stream_startup` and `pipeline`, until a signal or a FatalError ends the daemon.

This is the only place that acts on an error's remedy:

- RetriableError: close everything, wait, start again from the last slot record. The wait doubles from BACKOFF_MIN_S to
  BACKOFF_MAX_S. It is BACKOFF_MIN_S again once a stream has published a transaction. A daemon that has streamed retries
  without end, and so does one that waits for Kafka. Another one that has never streamed gives up after
  FIRST_STREAM_WITHIN_S, because its settings may be wrong.
- Kafka or PostgreSQL denies access: that is fatal, unless a stream had access ACCESS_RETURNS_S ago or later. An ACL, a
  certificate or a password is changed on one server after the other, and the next stream reads the files again.
- The files of TLS have changed: end the stream in order, and start again at once. A client reads them only once.
- The slot is in use: another daemon streams. Stand by, and try again every STANDBY_S. After that the wait begins at
  BACKOFF_MIN_S.
- A table cannot be published: park it, and start again.
- FatalError: say why and exit 1 (2 for a setting). Kubernetes starts the daemon again until a person has removed the
  cause. A daemon that never streamed drops the slot that it has made.
- SIGTERM, SIGINT: finish the open Kafka transaction, acknowledge it, exit 0 (`stop_signals`).
- The settings have changed: finish in the same way. `settings_reload` then lets it `renew`, and run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from random import uniform
from typing import Final

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.fallbacks import Fallbacks
from cdcd.daemon.pipeline import Pipeline
from cdcd.daemon.stream_startup import StreamStartup
from cdcd.daemon.unused_slot import drop_unused_slot
from cdcd.errors import (
    AccessDenied,
    BinaryFormatUnsupported,
    CdcdError,
    FatalError,
    KafkaUnavailable,
    RetriableError,
    TextUnconvertible,
    Unpublishable,
    sentence,
)
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import State, Status
from cdcd.sink.kafka.tls_files import naming_files
from cdcd.source.server_errors import SlotActive
from cdcd.source.table_selection import qualified_name, shell_word
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)

BACKOFF_MIN_S: Final = 0.2
BACKOFF_MAX_S: Final = 10.0
FIRST_STREAM_WITHIN_S: Final = 60.0
"""A daemon that never streamed begins no attempt later than this. The time on standby does not count."""

ACCESS_RETURNS_S: Final = 300.0
"""So long a daemon that has streamed waits for access to Kafka or PostgreSQL that it has lost."""

STANDBY_S: Final = 0.5

_OR_PARK: Final = 'Or set sink.on_unpublishable = "park": the other tables go on'

_SLOT_REMAINS: Final = (
    "This start has made the slot {}, which keeps WAL until it is read; cdcd slot drop --force drops it"
)


class Supervisor:
    """One daemon, from start to exit."""

    def __init__(
        self,
        settings: Settings,
        clients: Clients,
        status: Status,
        metrics: Metrics,
        wake: WakeupPipe,
        stopping: Callable[[], bool],
        startup: Callable[..., StreamStartup] = StreamStartup,
    ) -> None:
        """`stopping` ends the daemon; `wake` is set when it turns true. `startup` takes StreamStartup's arguments."""
        self._settings = settings
        self._clients = clients
        self._status = status
        self._metrics = metrics
        self._wake = wake
        self._stopping = stopping
        self._startup = startup
        self._has_streamed = False
        self._streamed_s = -inf
        """When the last stream ended."""
        self._slot_created = False
        self._fallbacks = Fallbacks(None if settings.source.binary == "auto" else settings.source.binary)

    def renew(self, settings: Settings, clients: Clients) -> None:
        """The next streams have these settings. What this process has learnt about the old ones is forgotten.

        A daemon that has streamed goes on trying with them, as with the old ones.
        """
        self._settings = settings
        self._clients = clients
        binary = None if settings.source.binary == "auto" else settings.source.binary
        old = self._fallbacks
        self._fallbacks = Fallbacks(binary, lost=old.lost, walsender_pid=old.walsender_pid, judgement=old.judgement)
        if self._has_streamed:
            self._streamed_s = clients.monotonic_s()

    def run(self) -> None:
        """Run until `stopping`. Raises the FatalError that ended the daemon."""
        try:
            self._attempts()
        except FatalError as error:
            if self._slot_created and not self._status.published.transactions and not self._drop_slot(error):
                error.hint = f"{error.hint.rstrip('.')}. {_SLOT_REMAINS.format(self._settings.source.slot)}"
            self._status.state = State.FAILED
            self._status.errors.add(self._clients.monotonic_s(), error)
            raise

    def close(self) -> None:
        """The daemon was stopped: say it if a slot stays that no stream has used."""
        if self._slot_created and not self._has_streamed:
            log.warning("%s", _SLOT_REMAINS.format(self._settings.source.slot))

    def _drop_slot(self, error: FatalError) -> bool:
        """If no stream came about, drop the slot that this daemon has made; returns whether nothing is left behind."""
        if self._has_streamed:
            return False
        return drop_unused_slot(self._settings, self._clients)

    def _attempts(self) -> None:
        clock = self._clients.monotonic_s
        backoff_s = BACKOFF_MIN_S
        since_s = clock()
        while not self._stopping():
            published = self._status.published.transactions
            try:
                if self._stream():
                    break
            except SlotActive as error:
                if self._status.state is not State.WAITING:
                    _log_standby(error)
                self._status.stand_by(clock())
                self._fallbacks.note(error)
                self._sleep(STANDBY_S)
                since_s = clock()
                backoff_s = BACKOFF_MIN_S  # PostgreSQL answers: the next error has another cause
            except Unpublishable as error:
                self._park_table(error)
            except (RetriableError, AccessDenied) as error:
                if isinstance(error, AccessDenied) and clock() - self._streamed_s >= ACCESS_RETURNS_S:
                    raise
                if isinstance(error, BinaryFormatUnsupported):
                    self._fall_back_to_text(error)
                elif isinstance(error, TextUnconvertible):
                    self._take_text_as_stored(error)
                else:
                    self._fallbacks.note(error)
                if self._stopping():
                    log.info("stopped; PostgreSQL will send again what Kafka has not committed: %s", error)
                    break
                if self._status.published.transactions > published:
                    backoff_s = BACKOFF_MIN_S
                self._note_restart(error)
                waits = self._has_streamed or isinstance(error, KafkaUnavailable)
                if not waits and clock() + backoff_s - since_s >= FIRST_STREAM_WITHIN_S:
                    raise _given_up(error) from error
                log.warning(
                    "starting again in %.1f s: %s", backoff_s, error, exc_info=log.isEnabledFor(logging.DEBUG) and error
                )
                self._sleep(backoff_s * uniform(0.8, 1.2))
                backoff_s = min(BACKOFF_MAX_S, backoff_s * 2)
        self._status.state = State.STOPPING

    def _stream(self) -> bool:
        """Run one stream. Returns True if no other is to follow: a signal came, or only snapshots were wanted."""
        files = self._clients.tls_files()  # as they are before this stream's clients read them
        startup = self._startup(
            self._settings,
            self._clients,
            self._fallbacks,
            self._wake,
            self._stopping,
            self._heartbeat,
            self._metrics.schema,
        )
        if self._status.state is not State.WAITING:
            self._status.state = State.STARTING
        try:
            resources = startup.open()
            if resources is None:
                return False
            self._has_streamed = True
            self._metrics.retry_backoff(self._clients.retry_backoff_s)
            self._status.begin_stream(self._clients.monotonic_s())
            clock, wall_clock_us = self._clients.monotonic_s, self._clients.wall_us
            pipeline = Pipeline(resources, self._status, self._metrics, self._wake, clock, wall_clock_us)
            pipeline.run(lambda: self._stopping() or files.have_changed)
            return not files.changed
        except CdcdError as error:
            settings = self._settings
            settings.places.fill(naming_files(error, settings.sink.librdkafka))
            raise
        finally:
            self._slot_created = self._slot_created or startup.slot_created
            if self._status.state is State.STREAMING:
                self._streamed_s = self._clients.monotonic_s()
                self._status.end_stream(self._streamed_s, self._clients.wall_us())
            startup.close()

    def _heartbeat(self) -> None:
        self._status.stages.last_loop_s = self._clients.monotonic_s()

    def _note_restart(self, error: CdcdError) -> None:
        self._status.state = State.RESTARTING
        self._status.errors.add(self._clients.monotonic_s(), error, restarts=True)
        self._metrics.restarted(error)

    def _park_table(self, error: Unpublishable) -> None:
        """Let the next stream send this table's events to the parked topic. Raises the error if the daemon must stop.

        Kafka has committed nothing of the transaction that failed. The decision is only in memory until the next slot
        record. After a crash the next daemon hits the same error, and parks the table again.
        """
        table, parking = error.table, self._fallbacks.parking
        name = qualified_name(*table) if table is not None else ""
        # If parked events were removed, every start would fail, and a stopped daemon takes no request to discard them.
        stops = self._settings.sink.on_unpublishable == "stop" and not error.gone
        if stops and table is not None and not error.keyless:
            error.hint = f"{error.hint.rstrip('.')}. {_OR_PARK}"
        if stops or table is None or table in parking.parked:
            if name not in error.message:
                error.message = f"the table {name} cannot be published: {error.message}"
            raise error
        reason = sentence(error.message, "", error.code)
        if error.unparking:
            parking.refused[table] = reason
        else:
            parking.parked |= dict.fromkeys([table, *error.others], reason)
            if error.keyless:
                parking.keyless.add(table)
        now = "still cannot be published, so it stays parked" if error.unparking else "is parked"
        hint = f"Run: cdcd unpark --discard {shell_word(name)}, which also takes a new snapshot of the table"
        if not (error.gone or error.keyless):
            hint = f"Then run: cdcd unpark {shell_word(name)}"
        own = "" if error.keyless else error.hint  # a keyless one's is for a daemon that stops
        if error.others:
            name, now = f"{name}, with {len(error.others)} more tables of its topic,", "are parked"
        why = f"the table {name} {now}: {sentence(error.message, own, None).rstrip('.')}"
        log.warning("%s", sentence(why, hint, error.code), extra={"code": error.code})
        self._note_restart(error)

    def _fall_back_to_text(self, error: BinaryFormatUnsupported) -> None:
        if self._settings.source.binary is True:
            raise FatalError(
                f"{error.message}, and source.binary = true allows no other mode",
                'Set source.binary = "auto"',
                code="binary-required",
            )
        self._fallbacks.binary = False

    def _take_text_as_stored(self, error: TextUnconvertible) -> None:
        """Let the next stream get text as it is stored: only values that have no equivalent in UTF-8 are lost then."""
        if self._clients.text_as_stored:
            raise FatalError(error.message, error.hint, code=error.code)
        if self._settings.source.binary is True:
            raise FatalError(
                f"{error.message}, and source.binary = true allows no other mode",
                'Set source.binary = "auto"',
                code="binary-required",
            )
        self._clients.text_as_stored = True
        self._fallbacks.binary = False

    def _sleep(self, seconds: float) -> None:
        """Wait, but no longer than until a signal comes."""
        until = self._clients.monotonic_s() + seconds
        while not self._stopping() and (left_s := until - self._clients.monotonic_s()) > 0:
            self._heartbeat()
            self._wake.wait(min(1.0, left_s))
            self._wake.clear()


def _log_standby(error: SlotActive) -> None:
    holder = {"slot": error.slot, "pid": error.pid, "application_name": error.application_name}
    if error.is_foreign:
        said = sentence("standing by: another program has the slot", error.hint, error.code)
        log.warning("%s", said, extra=holder | {"code": error.code})
    else:
        log.info("standing by: another daemon has the slot", extra=holder)


def _given_up(error: CdcdError) -> FatalError:
    return FatalError(
        f"no stream started within {FIRST_STREAM_WITHIN_S:.0f} s: {error.message}", error.hint, code=error.code
    )
