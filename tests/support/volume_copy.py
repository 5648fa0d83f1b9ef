"""A copy of a server's data directory, as a snapshot of its volume is.

Before: `servers` runs the server. After: tests of a server that goes back in history.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import servers


class VolumeCopy:
    """The copy, made while the server is down."""

    def __init__(self, server: servers.PostgreSQL, folder: Path) -> None:
        """Stop the server, copy, and start it again. The copy lies in `folder`."""
        self._server = server
        self._folder = folder / "volume"
        server.stop()
        _copy(server.data, self._folder)
        server.start()

    def put_back(self) -> None:
        """Stop the server, put the copy in its place, and start it again."""
        self._server.stop()
        subprocess.run(["rm", "-rf", str(self._server.data)], check=True)
        _copy(self._folder, self._server.data)
        self._server.start()


def _copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
