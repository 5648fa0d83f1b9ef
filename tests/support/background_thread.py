"""A thread that works while a `with` lasts: who writes to a server while a test does something else."""

from __future__ import annotations

import threading
from typing import Self


class Meanwhile(threading.Thread):
    """`run` looks at `_done`, which is set at the end of the `with`."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(30)
