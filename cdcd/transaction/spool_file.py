"""The files in which a spool keeps transactions: bytes to the disk and back, in a directory that no other user enters.

Before: `spool_segments` decides what goes to disk.
After: the file system. OSErrors pass through; the callers turn them into errors that name the file.
Source: openat(2), "Rationale for openat"; XDG Base Directory Specification; systemd.exec(5), StateDirectory.

The directory is opened once, and its owner and mode are those of this user alone. From then on everything is done
through that handle: whoever renames a directory above it, or puts a link in its place, reaches no file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Final

from cdcd.errors import SettingsError

_PRIVATE: Final = 0o700
_OTHERS: Final = 0o077
_SUFFIX: Final = ".spool"


def default_directory(environment: Mapping[str, str]) -> Path:
    """Where spools go if no setting says it: below this user's own state, never below a directory that users share.

    Raises SettingsError if the environment names no such place.
    """
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    if given:
        return Path(given) / "spool"
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state.startswith("/"):
        return Path(state) / "cdcd" / "spool"
    if home.startswith("/"):
        return Path(home) / ".local" / "state" / "cdcd" / "spool"
    raise SettingsError(
        "spool.directory is not set, and the environment names no place for it",
        "Set spool.directory to one that only this user may write to",
        code="spool-unusable",
    )


class SpoolDirectory:
    """A directory that only one spool uses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1
        # The files of a daemon that lost the slot, and does not know it yet, have other names.
        self._token = token_hex(4)

    def make_empty(self) -> None:
        """Make the directory, or remove the spool files that an earlier run has left in it.

        Raises OSError if it cannot be made, or is not this user's.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.path.mkdir(mode=_PRIVATE)
        except FileExistsError:
            pass
        self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._fd)
        if found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, f"it belongs to the user with the id {found.st_uid}")
        if found.st_mode & _OTHERS:
            os.fchmod(self._fd, _PRIVATE)
        self._unlink(_SUFFIX)

    def remove(self) -> None:
        """Remove the files of this spool, and the directory unless something else is in it."""
        if self._fd < 0:
            return
        try:
            self._unlink(f"-{self._token}{_SUFFIX}")
            self.path.rmdir()
        except OSError:
            pass  # the next spool removes what is left
        finally:
            os.close(self._fd)
            self._fd = -1

    def file(self, number: int) -> SpoolFile:
        """The file of transaction `number`. The first `append` makes it."""
        return SpoolFile(self, f"{number}-{self._token}{_SUFFIX}")

    def open_file(self, name: str, flags: int) -> int:
        """Open a file of the directory. Returns its descriptor."""
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=self._fd)

    def unlink(self, name: str) -> None:
        """Remove a file of the directory."""
        os.unlink(name, dir_fd=self._fd)

    def _unlink(self, ending: str) -> None:
        with os.scandir(self._fd) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(ending)]
        for name in names:
            self.unlink(name)


class SpoolFile:
    """One transaction's file. It is open only while it is written or read: there may be thousands of files."""

    def __init__(self, directory: SpoolDirectory, name: str) -> None:
        self._directory = directory
        self._name = name
        self._identity: tuple[int, int] | None = None
        """Device and inode, once it exists."""

    @property
    def path(self) -> Path:
        """Where it lies, for messages."""
        return self._directory.path / self._name

    def append(self, parts: Sequence[bytes]) -> None:
        """Append all bytes of `parts`. After an error the file has an unknown part of them."""
        made = os.O_CREAT | os.O_EXCL if self._identity is None else 0
        descriptor = self._open(os.O_WRONLY | os.O_APPEND | made)
        try:
            for part in parts:
                rest = memoryview(part)
                while rest:
                    written = os.write(descriptor, rest)
                    if not written:
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    rest = rest[written:]
        finally:
            os.close(descriptor)

    def read(self, at: int, size: int) -> bytes:
        """The `size` bytes from `at` on; fewer if the file ends before."""
        descriptor = self._open(os.O_RDONLY)
        try:
            data = os.pread(descriptor, size, at)
            while len(data) < size and (more := os.pread(descriptor, size - len(data), at + len(data))):
                data += more
            return data
        finally:
            os.close(descriptor)

    def size(self) -> int:
        """How long the file is, in bytes."""
        descriptor = self._open(os.O_RDONLY)
        try:
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes only; with `size` 0, remove the file."""
        if not size:
            self._directory.unlink(self._name)
            self._identity = None
            return
        descriptor = self._open(os.O_WRONLY)
        try:
            os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self._identity = None
        try:
            self._directory.unlink(self._name)
        except FileNotFoundError:
            pass

    def _open(self, flags: int) -> int:
        descriptor = self._directory.open_file(self._name, flags)
        found = os.fstat(descriptor)
        identity = found.st_dev, found.st_ino
        if not stat.S_ISREG(found.st_mode) or self._identity not in (None, identity):
            os.close(descriptor)
            raise OSError(errno.ESTALE, "another file is in its place")
        self._identity = identity
        return descriptor
