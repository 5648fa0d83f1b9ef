"""The spool's disk in memory: it fills, and it forgets.

Before: `transaction.spool` writes files. After: `world` makes the disk full, or lets it tear a write.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from random import Random

from cdcd.transaction.spool_file import SpoolDirectory, SpoolFile


class Disk:
    """One machine's."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.files: dict[Path, bytearray] = {}
        self.full = False
        self.tearing = False
        """The next write is torn, or one bit of it turned, without an error."""
        self.torn = False
        """One was."""

    def write(self, path: Path, data: bytes) -> None:
        file = self.files.setdefault(path, bytearray())
        if self.full:
            file += data[: self.rng.randrange(len(data))]
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.tearing:
            self.tearing, self.torn = False, True
            start = self.rng.randrange(len(data))
            after = data[start:]
            data = data[:start] + self.rng.choice([b"", bytes(len(after)), bytes([after[0] ^ 1]) + after[1:]])
        file += data


class DiskDirectory(SpoolDirectory):
    """Plays the spool's directory."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk

    def make_empty(self) -> None:
        self.remove()

    def remove(self) -> None:
        self._disk.files.clear()

    def file(self, number: int) -> SpoolFile:
        return DiskFile(self.path / f"{number}.spool", self._disk)


class DiskFile(SpoolFile):
    """Plays a file of it."""

    def __init__(self, path: Path, disk: Disk) -> None:
        super().__init__(path)
        self._disk = disk

    def append(self, data: bytes) -> None:
        self._disk.write(self.path, data)

    def read(self) -> Iterator[bytes]:
        data = bytes(self._disk.files.get(self.path, b""))
        at = 0
        while at < len(data):
            size = self._disk.rng.choice([1, 7, 100, 10_000])
            yield data[at : at + size]
            at += size

    def truncate(self, size: int) -> None:
        if size:
            file = self._disk.files[self.path]
            file += bytes(max(0, size - len(file)))
            del file[size:]
        else:
            del self._disk.files[self.path]

    def remove(self) -> None:
        self._disk.files.pop(self.path, None)
