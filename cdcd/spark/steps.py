"""Says a command's steps, and which of them is under way while no line comes: one merge may take minutes.

Before: `commands` gives it to the mirror as `on_step`. After: lines of output, the first of silence after 10 seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Final

SILENCE_S: Final = 10.0
SILENCE_MAX_S: Final = 60.0
_MERGE: Final = "merge "
_PHASES: Final = (_MERGE, "plan ", "publish ", "load ", "compact ", "wait for ", "compare ")
"""How the steps begin that take time. Each ends those before it; but tables are merged at the same time."""


class Steps:
    """A command's steps. Any thread may give one."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`say` writes a line. `clock` gives seconds."""
        self._say = say
        self._clock = clock
        self._lock = Lock()
        self._under_way: dict[str, float] = {}
        """By step: when it began."""
        self._said_at = 0.0
        self._silence_s = SILENCE_S

    def __call__(self, step: str) -> None:
        """Say a step before it is done. `merged` and `published` say that one is done."""
        with self._lock:
            self._say(step)
            self._said_at, self._silence_s = self._clock(), SILENCE_S
            verb, _, object_ = step.partition(" ")
            if verb == "merged":
                self._under_way.pop(f"{_MERGE}{object_}", None)
            elif verb == "published":
                self._under_way = {}
            elif step.startswith(_PHASES):
                self._start(step)

    def begin(self, step: str) -> None:
        """Note a step that has a line only if it takes long."""
        with self._lock:
            self._said_at, self._silence_s = self._clock(), SILENCE_S
            self._start(step)

    def tick(self) -> None:
        """Say what is under way if there was no line for 10 s; the next such lines come after 20, 40 and 60 s."""
        with self._lock:
            now = self._clock()
            if not self._under_way or now - self._said_at < self._silence_s:
                return
            self._say("; ".join(f"{step}: {now - began:.0f} s so far" for step, began in self._under_way.items()))
            self._said_at, self._silence_s = now, min(2 * self._silence_s, SILENCE_MAX_S)

    @contextmanager
    def watched(self, step: str) -> Iterator[None]:
        """While the block runs, which begins with `step`, say what takes long."""
        done = Event()

        def watch() -> None:
            while not done.wait(1.0):
                self.tick()

        self.begin(step)
        thread = Thread(target=watch, name="steps", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self._under_way = {}

    def _start(self, step: str) -> None:
        beside = self._under_way if step.startswith(_MERGE) else {}
        self._under_way = {each: at for each, at in beside.items() if each.startswith(_MERGE)} | {step: self._clock()}
