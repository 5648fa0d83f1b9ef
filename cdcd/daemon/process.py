"""The process of `cdcd run`: signals, monitoring and memory around the supervisor.

Before: `cli.main` has loaded the settings.
After: `supervisor` runs the streams; `monitoring` shows what they do.
"""

from __future__ import annotations

import gc
import logging
from contextlib import ExitStack

from cdcd import __version__
from cdcd.build_info import build
from cdcd.config.settings import Settings
from cdcd.config.transport_security import insecure_connections
from cdcd.daemon.clients import Clients
from cdcd.daemon.service_watch import ServiceWatch, services
from cdcd.daemon.stop_signals import StopSignals, StopTookTooLong
from cdcd.daemon.supervisor import Supervisor
from cdcd.monitoring.http_answers import HttpAnswers
from cdcd.monitoring.http_server import MonitoringServer
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.reachability import Reachability
from cdcd.monitoring.status import Status
from cdcd.source.session import dsn_parameters
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Run the daemon until it is told to stop. Raises FatalError, with the hint, if it cannot."""
    clients, wake = Clients(settings), WakeupPipe()
    status, metrics = _monitored(settings, clients)
    # A row is a dict and two bytes objects. None of these can be part of a cycle, but the collector counts each dict:
    # by default it would examine all young objects every 700 rows.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    monitoring = settings.monitoring
    answers = HttpAnswers(status, lambda: metrics.exposition(status, clients.monotonic_s(), clients.wall_us()))
    signals = StopSignals(wake)
    with ExitStack() as stack:
        try:
            with signals.handled():
                stack.callback(MonitoringServer(monitoring.host, monitoring.port, answers).close)
                watch = ServiceWatch(settings, clients, status, metrics, wake.set)
                stack.callback(watch.close)
                _warn_of_insecure_connections(settings)
                stopping = lambda: signals.received or watch.has_failed  # noqa: E731
                Supervisor(settings, clients, status, metrics, wake, stopping).run()
                watch.raise_failure()
        except StopTookTooLong:
            log.warning(
                "left at once, because stopping took too long: the server sends again what Kafka has not committed"
            )


def _monitored(settings: Settings, clients: Clients) -> tuple[Status, Metrics]:
    source, sink, spool = settings.source, settings.sink, settings.spool
    stalled_after_s = settings.monitoring.stalled_after_s
    status = Status(__version__, source.slot, source.publication, clients.monotonic_s(), stalled_after_s)
    status.reachability = Reachability(services(settings), status.errors.add)
    metrics = Metrics(build())
    metrics.bounds(sink.queue_bytes_max, spool.memory_bytes, spool.bytes_max)
    return status, metrics


def _warn_of_insecure_connections(settings: Settings) -> None:
    sink = settings.sink
    for what, hint in insecure_connections(
        dsn_parameters(settings.source.dsn), sink.bootstrap_servers, sink.librdkafka, settings.avro.registry_url
    ):
        log.warning("%s. %s", what, hint)
