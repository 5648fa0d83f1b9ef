"""The files in which a spool keeps transactions: bytes to the disk and back.

Before: `spool` decides what goes to disk.
After: the file system. OSErrors pass through; `spool` turns them into errors that name the file.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_READ_BYTES = 1 << 20


class SpoolDirectory:
    """A directory that only one spool uses."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make_empty(self) -> None:
        """Make the directory, or remove what an earlier run has left in it."""
        self.remove()
        self.path.mkdir(mode=0o700, parents=True)

    def remove(self) -> None:
        """Remove the directory with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, number: int) -> SpoolFile:
        """The file of transaction `number`. The first `append` makes it."""
        return SpoolFile(self.path / f"{number}.spool")


class SpoolFile:
    """One transaction's file. It is open only while it is written or read: there may be thousands of files."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, data: bytes) -> None:
        """Append all of `data`. After an error the file has an unknown part of it."""
        with self.path.open("ab", buffering=0) as file:
            written = 0
            while written < len(data):
                written += file.write(memoryview(data)[written:]) or 0

    def read(self) -> Iterator[bytes]:
        """Yield the whole content, a megabyte at a time."""
        with self.path.open("rb", buffering=0) as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes only; with `size` 0, remove the file."""
        if size:
            os.truncate(self.path, size)
        else:
            self.path.unlink()

    def remove(self) -> None:
        """Remove the file, if it exists."""
        self.path.unlink(missing_ok=True)
