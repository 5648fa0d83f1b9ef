"""Judges what the daemon needs on its own machine: a directory for the spool, and its monitoring port. Changes nothing.

Before: a start is about to make the slot, and `check` has the settings.
After: the daemon makes its directory below this one, once it holds the slot; `check` passes the findings on.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from cdcd.config.settings import Settings
from cdcd.errors import SettingsError
from cdcd.preflight.findings import Finding, error, of_error, ok
from cdcd.transaction.spool_file import default_directory


def spool_parent(directory: str | None) -> Path:
    """The directory of the spools of all slots. `directory`: the setting `spool.directory`.

    Raises SettingsError if neither the setting nor the environment names one.
    """
    return Path(directory) if directory else default_directory(os.environ)


def check_writable(parent: Path) -> None:
    """Raise SettingsError if this process cannot make files in `parent`, or cannot make `parent`."""
    nearest = next(path for path in (parent, *parent.parents) if os.path.lexists(path) or path == path.parent)
    if nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK):
        return
    why = "may not be written by the user of this process" if nearest.is_dir() else "is no directory"
    raise SettingsError(
        f"The spool cannot be made in {parent}: {nearest} {why}",
        "Set spool.directory to a directory that this user may write to",
    )


def judge(settings: Settings, *, is_slot_in_use: bool) -> Iterator[Finding]:
    """The findings about this machine. `is_slot_in_use`: the port may belong to the daemon that has the slot."""
    try:
        parent = spool_parent(settings.spool.directory)
        check_writable(parent)
        yield ok("spool", f"The spool can be made in {parent}")
    except SettingsError as failure:
        yield of_error("spool", failure)
    yield _port(settings.monitoring.host, settings.monitoring.port, is_slot_in_use=is_slot_in_use)


def _port(host: str, port: int, *, is_slot_in_use: bool) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, port))
            listening.listen()
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE and is_slot_in_use:
            return ok("monitoring", f"{host}:{port} is in use, and so is the slot: a daemon runs")
        hint = "Change [monitoring] host or port, or stop the program that uses them"
        return error("monitoring", f"The daemon cannot listen on {host}:{port}: {failure.strerror or failure}", hint)
    return ok("monitoring", f"The daemon can listen on {host}:{port}")
