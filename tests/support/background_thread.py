"""A thread that works while a `with` lasts, such as a writer while the test restarts a server."""

from __future__ import annotations

import threading
from typing import Self


class BackgroundThread(threading.Thread):
    """Runs while a `with` lasts. `run` must return soon after `_done` is set."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._done = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self.join(30)
