"""Runs the streams of a daemon under the settings in force, and under new ones once they have come.

Before: `process` has signals and monitoring in place; `settings_watch` says that there are new settings.
After: `supervisor` runs the streams, `service_watch` asks the services.

A stream under old settings ends in order: its Kafka transaction is committed and acknowledged. The next one goes on
from the last slot record, as after a restart of the process. So a reload can neither lose a transaction nor repeat one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.service_watch import ServiceWatch, services
from cdcd.daemon.settings_watch import SettingsWatch
from cdcd.daemon.start_announcement import say_where, warn_of_insecure_connections
from cdcd.daemon.supervisor import Supervisor
from cdcd.errors import CdcdError
from cdcd.monitoring import log_setup
from cdcd.monitoring.identity import Servers, identity_of
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.reachability import Reachability
from cdcd.monitoring.status import Status
from cdcd.wakeup import WakeupPipe


class Reloading:
    """The streams of one process."""

    def __init__(
        self,
        clients: Clients,
        status: Status,
        metrics: Metrics,
        wake: WakeupPipe,
        watch: SettingsWatch,
        stopping: Callable[[], bool],
    ) -> None:
        """`clients` are for the first settings. `stopping` ends the daemon; `wake` is set when it turns true."""
        self._clients = clients
        self._status = status
        self._metrics = metrics
        self._wake = wake
        self._watch = watch
        self._stopping = stopping
        self._services: ServiceWatch | None = None

    def run(self, settings: Settings, page: str) -> None:
        """Run until `stopping`. `page` is the URL of the page, for the first words of the daemon.

        Raises FatalError, with the hint, if the daemon cannot go on.
        """
        self._status.stages.stalled_after_s = settings.monitoring.stalled_after_s
        supervisor = Supervisor(settings, self._clients, self._status, self._metrics, self._wake, self._ends)
        with closing(self._watch):
            self._watch.start(self._apply, self._judged)
            while self._run_once(settings, supervisor, page):
                settings, page = self._watch.take(), ""
                renewed = Clients(settings)
                renewed.copy_rate = self._clients.copy_rate  # `_apply` has given it the limits
                self._clients = renewed
                supervisor.renew(settings, self._clients)
        supervisor.close()

    def _run_once(self, settings: Settings, supervisor: Supervisor, page: str) -> bool:
        """Run until `stopping`, or until there are new settings. Returns whether there are."""
        self._show(settings)
        self._services = ServiceWatch(settings, self._clients, self._status, self._metrics, self._wake.set)
        with closing(self._services):
            if page:
                say_where(settings, self._status, page, self._services.wait_for_servers)
            warn_of_insecure_connections(settings)
            supervisor.run()
            self._services.raise_failure()
        return self._watch.is_due and not self._stopping()

    def _ends(self) -> bool:
        """Whether the stream must end, in order."""
        has_failed = self._services is not None and self._services.has_failed
        return self._stopping() or self._watch.is_due or has_failed

    def _show(self, settings: Settings) -> None:
        status, sink, spool = self._status, settings.sink, settings.spool
        status.identity, status.servers = identity_of(settings), Servers()
        status.reachability = Reachability(services(settings), status.errors.add)
        self._metrics.bounds(sink.queue_bytes_max, spool.memory_bytes, spool.bytes_max)

    def _apply(self, settings: Settings) -> None:
        """Apply the settings that need no new stream."""
        log_setup.set_up(settings.log.level, settings.log.format)
        self._status.stages.stalled_after_s = settings.monitoring.stalled_after_s
        self._clients.copy_rate.limit(settings.snapshot.rows_per_second, settings.snapshot.bytes_per_second)

    def _judged(self, error: CdcdError | None) -> None:
        """Changed settings cannot be used because of an error, or they can."""
        self._metrics.settings(refused=error is not None)
        if error is not None:
            self._status.errors.add(self._clients.monotonic_s(), error)
