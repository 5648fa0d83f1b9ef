"""The files that a spool lays transactions down in: bytes to the disk and back.

Before: `spool` decides what goes to disk. After: the file system. Raises OSError as that does; `spool` names it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

_READ_BYTES = 1 << 20


class SpoolDirectory:
    """A directory that is the spool's alone."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def make_empty(self) -> None:
        """Make it, or remove what an earlier run has left in it."""
        self.remove()
        self.path.mkdir(mode=0o700, parents=True)

    def remove(self) -> None:
        """Remove it with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)

    def file(self, number: int) -> SpoolFile:
        """The file of one transaction; made by the first `append`."""
        return SpoolFile(self.path / f"{number}.spool")


class SpoolFile:
    """One transaction's file. Open only while it is written or read: there may be thousands."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, data: bytes) -> None:
        """Write all of `data` behind what is there. After an error the file's end is not to be trusted."""
        with self.path.open("ab", buffering=0) as file:
            written = 0
            while written < len(data):
                written += file.write(memoryview(data)[written:]) or 0

    def read(self) -> Iterator[bytes]:
        """The whole content, a megabyte at a time."""
        with self.path.open("rb", buffering=0) as file:
            while chunk := file.read(_READ_BYTES):
                yield chunk

    def truncate(self, size: int) -> None:
        """Keep the first `size` bytes only; without any there is no file."""
        if size:
            os.truncate(self.path, size)
        else:
            self.path.unlink()

    def remove(self) -> None:
        """Remove it, if it is there."""
        self.path.unlink(missing_ok=True)
