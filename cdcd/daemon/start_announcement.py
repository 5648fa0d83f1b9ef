"""Says at a start where the daemon stands, and which of its connections are not protected.

Before: `process` has the monitoring port; `service_watch` asks the servers. After: a person, or the log.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Final

from cdcd.config.settings import Settings
from cdcd.monitoring.identity import lines
from cdcd.monitoring.status import Status
from cdcd.preflight import connections
from cdcd.terminal.visible_text import visible

SERVERS_WITHIN_S: Final = 2.0
"""How long a start on a terminal waits for the servers to say their versions."""

log = logging.getLogger(__name__)


def say_where(settings: Settings, status: Status, page: str, wait_for_servers: Callable[[float], None]) -> None:
    """Say it to a person in five lines, and to a log in one. `page` is the URL of the page.

    `wait_for_servers` waits until the servers have said what they are, for some seconds at most.
    """
    if sys.stderr.isatty() and settings.log.format == "text":
        wait_for_servers(SERVERS_WITHIN_S)
        for line in lines(status.identity, status.servers, page):
            sys.stderr.write(f"{visible(line)}\n")
        sys.stderr.flush()
    else:
        log.info("starting", extra={**status.identity.fields(), "url": page})


def warn_of_insecure_connections(settings: Settings) -> None:
    """Say which connections lack TLS, or the verification of the server."""
    for finding in connections.judge(settings):
        log.warning("%s", finding, extra={"code": finding.code})
