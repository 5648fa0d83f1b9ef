"""What `cdcd init` warns of in the settings that it makes: connections without verification, a port that is taken.

Before: `first_settings` has made them. After: `commands.init` shows the warnings, and writes the file all the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdcd.config.settings import Settings
from cdcd.preflight import connections, host
from cdcd.preflight.findings import Finding, Level, warning


def problems(settings: Settings) -> Iterator[Finding]:
    """The warnings. The port is this machine's; the daemon may run elsewhere."""
    yield from connections.judge(settings)
    found = host.port(settings, is_slot_in_use=False)
    if found.level is not Level.OK:
        hint = "Name another one with --port, unless the daemon runs on another machine"
        yield warning(found.about, found.message, hint, code="port-taken")
