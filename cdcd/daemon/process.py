"""The process of `cdcd run`: signals, monitoring and memory around the supervisor.

Before: `cli.main` has loaded the settings.
After: `settings_reload` runs the streams under the settings in force; `monitoring` shows what they do.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import sys
from contextlib import ExitStack

from cdcd.build_info import build
from cdcd.config.loading import Loaded
from cdcd.config.settings import Settings
from cdcd.daemon.clients import Clients
from cdcd.daemon.freed_memory import keep_freed_memory
from cdcd.daemon.settings_reload import Reloading
from cdcd.daemon.settings_watch import SettingsWatch
from cdcd.daemon.stop_signals import StopSignals, StopTookTooLong
from cdcd.monitoring.http_answers import HttpAnswers
from cdcd.monitoring.http_server import MonitoringServer, url
from cdcd.monitoring.identity import identity_of
from cdcd.monitoring.metrics import Metrics
from cdcd.monitoring.status import Status
from cdcd.wakeup import WakeupPipe

log = logging.getLogger(__name__)


def run(loaded: Loaded) -> Settings:
    """Run the daemon until it is told to stop. Returns the settings that were in force then.

    Raises FatalError, with the hint, if it cannot.
    """
    # A failed assertion of librdkafka ends the process by SIGABRT: only the stacks tell what the daemon did.
    faulthandler.enable()
    keep_freed_memory()
    monitoring = loaded.settings.monitoring
    clients, wake = Clients(loaded.settings), WakeupPipe()
    status = Status(identity_of(loaded.settings), clients.monotonic_s())
    metrics = Metrics(build())
    gc.freeze()
    answers = HttpAnswers(status, lambda: metrics.exposition(status, clients.monotonic_s(), clients.wall_us()))
    watch = SettingsWatch(loaded, wake.set)
    signals = StopSignals(wake, None if sys.stderr.isatty() else watch.request)
    reloading = Reloading(clients, status, metrics, wake, watch, lambda: signals.received)
    with ExitStack() as stack:
        try:
            with signals.handled():
                server = MonitoringServer(monitoring.host, monitoring.port, answers)
                stack.callback(server.close)
                reloading.run(loaded.settings, url(monitoring.host, server.port))
        except StopTookTooLong:
            log.warning(
                "left at once, because stopping took too long: the server sends again what Kafka has not committed"
            )
    return watch.settings
