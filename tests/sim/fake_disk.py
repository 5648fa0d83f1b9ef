"""The spool's disk in memory: it fills, and it forgets.

Before: `transaction.spool` writes files. After: `world` makes the disk full, or lets it tear a write.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
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

    def truncate(self, path: Path, size: int) -> None:
        """Keep `size` bytes of a file; 0 removes it. A disk that copies on writing needs room for that, too."""
        if self.full and self.rng.random() < 0.5:
            raise OSError(errno.ENOSPC, "No space left on device")
        if size:
            file = self.files[path]
            file += bytes(max(0, size - len(file)))
            del file[size:]
        else:
            del self.files[path]


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
        return DiskFile(self, f"{number}.spool", self._disk)


class DiskFile(SpoolFile):
    """Plays a file of it."""

    def __init__(self, directory: SpoolDirectory, name: str, disk: Disk) -> None:
        super().__init__(directory, name)
        self._disk = disk

    def append(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._disk.write(self.path, part)

    def read(self, at: int, size: int) -> bytes:
        return self._content()[at : at + size]

    def size(self) -> int:
        return len(self._content())

    def truncate(self, size: int) -> None:
        self._disk.truncate(self.path, size)

    def remove(self) -> None:
        self._disk.files.pop(self.path, None)

    def _content(self) -> bytes:
        return bytes(self._disk.files.get(self.path, b""))
