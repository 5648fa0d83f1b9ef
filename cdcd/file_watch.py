"""Watches files that somebody else renews while a client goes on with what it has read: certificates, keys, CAs.

Before: whoever makes such a client names the files, before it makes the client.
After: it makes another client once they have changed.
Source: Kubernetes, "Secrets": a mounted Secret is a symbolic link to a folder, which is replaced as a whole.

A look costs one stat a file. Only a stat that differs lets the content be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Final, TypeAlias

from cdcd.clock import monotonic_s
from cdcd.errors import CdcdError

LOOK_EVERY_S: Final = 5.0

Stats: TypeAlias = "dict[str, tuple[int, int, int, int] | None]"

log = logging.getLogger(__name__)


class FileWatch:
    """The files as they were when this object was made. For any thread."""

    def __init__(
        self,
        files: Mapping[str, str],
        try_out: Callable[[], None],
        clock: Callable[[], float] = monotonic_s,
        effect: str = "new clients read it",
    ) -> None:
        """`files`: path by the setting that names it; they need not exist.

        `try_out` raises CdcdError if no client can be made of the files as they are now. `effect`: what the log says of
        files that have changed.
        """
        self._files = files
        self._try_out = try_out
        self._clock = clock
        self._effect = effect
        self._lock = Lock()
        self._seen = self._stats()
        self._digests = self._contents()
        self._last = self._seen
        """As the last look found them: files that differ are still being written."""
        self._refused: Stats | None = None
        """As they were when they could not be used: this is said once."""
        self._due_s = float("-inf")
        self.changed: tuple[str, ...] = ()
        """The settings whose files have changed, once all files can be used together."""

    @property
    def have_changed(self) -> bool:
        """Whether the files have another content, and a client can be made of it. Looks every LOOK_EVERY_S."""
        if not self._files:
            return False
        with self._lock:
            now_s = self._clock()
            if not self.changed and now_s >= self._due_s:
                self._due_s = now_s + LOOK_EVERY_S
                self._look()
            return bool(self.changed)

    def _look(self) -> None:
        stats = self._stats()
        is_settled, self._last = stats == self._last, stats
        if stats == self._seen or not is_settled:
            return
        digests = self._contents()
        changed = tuple(setting for setting in self._files if digests[setting] != self._digests[setting])
        if not changed:
            self._seen = stats
            return
        try:
            self._try_out()
        except CdcdError as error:
            if stats != self._refused:
                log.warning("%s changed, but cannot be used yet: %s", self._paths(changed), error)
            self._refused = stats
            return
        log.info("%s changed: %s", self._paths(changed), self._effect)
        self.changed = changed

    def _paths(self, settings: tuple[str, ...]) -> str:
        return ", ".join(self._files[setting] for setting in settings)

    def _stats(self) -> Stats:
        return {setting: _stat(Path(path)) for setting, path in self._files.items()}

    def _contents(self) -> dict[str, bytes]:
        return {setting: _digest(Path(path)) for setting, path in self._files.items()}


def _stat(path: Path) -> tuple[int, int, int, int] | None:
    """Return what a write to the file changes; None without a file. A symbolic link is followed."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size


def _digest(path: Path) -> bytes:
    """Tells two contents apart. For a folder of certificates these are its names and their stats."""
    try:
        if path.is_dir():
            return sha256(repr(sorted((each.name, _stat(each)) for each in path.iterdir())).encode()).digest()
        return sha256(path.read_bytes()).digest()
    except OSError:
        return b""
