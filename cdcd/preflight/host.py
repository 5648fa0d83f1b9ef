"""Judges what the daemon needs on its own machine: a directory for the spool, and its monitoring port. Changes nothing.

Before: a start is about to make the slot, and `check` has the settings.
After: the daemon makes its directory below this one, once it holds the slot; `check` passes the findings on.
"""

from __future__ import annotations

import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Final

from cdcd.config.settings import Settings
from cdcd.errors import SettingsError
from cdcd.monitoring.http_server import url
from cdcd.monitoring.status_request import status_body
from cdcd.preflight.findings import Finding, error, of_error, ok
from cdcd.transaction.spool_file import default_directory

_ASK_S: Final = 2.0


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
        code="spool-unusable",
    )


def judge(settings: Settings, *, is_slot_in_use: bool) -> Iterator[Finding]:
    """The findings about this machine. `is_slot_in_use`: the port may belong to the daemon that has the slot."""
    try:
        parent = spool_parent(settings.spool.directory)
        check_writable(parent)
        yield ok("spool", f"The spool can be made in {parent}")
    except SettingsError as failure:
        yield of_error("spool", failure)
    yield port(settings, is_slot_in_use=is_slot_in_use)


def port(settings: Settings, *, is_slot_in_use: bool) -> Finding:
    """Whether the daemon could listen on its monitoring port now; arguments as for `judge`."""
    host, number = settings.monitoring.host, settings.monitoring.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, number))
            listening.listen()
    except OSError as failure:
        if failure.errno == errno.EADDRINUSE and is_slot_in_use:
            return ok("monitoring", f"{host}:{number} is in use, and so is the slot: a daemon runs")
        if failure.errno == errno.EADDRINUSE and _is_this_daemon(settings):
            return ok("monitoring", f"The daemon runs, and listens on {host}:{number}")
        hint = "Change [monitoring] host or port, or stop the program that uses them"
        return error(
            "monitoring",
            f"The daemon cannot listen on {host}:{number}: {failure.strerror or failure}",
            hint,
            code="port-taken",
        )
    return ok("monitoring", f"The daemon can listen on {host}:{number}")


def _is_this_daemon(settings: Settings) -> bool:
    """Whether what listens on the port says that it is a daemon with this slot and prefix."""
    try:
        document = json.loads(
            status_body(f"{url(settings.monitoring.host, settings.monitoring.port)}status.json", _ASK_S)
        )
        found = document["source"]["slot"], document["sink"]["prefix"]
    except (OSError, HTTPException, ValueError, LookupError, TypeError, RecursionError):
        return False
    return bool(found == (settings.source.slot, settings.sink.prefix))
