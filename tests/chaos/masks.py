"""The masks of a run, what readers see through them, and the search for what they must hide.

Before: `draws` puts `ENTRIES` into the settings. After: `topic_check` compares rows with `Masks.seen`, and searches the
records; `run` searches the logs and the spool with `leaks`.

No code of cdcd masks here: only the manual's rules.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from chaos.writers import BULK, ITEMS, NOTES, ODD, Change

SECRET = "sixteen bytes .."

HIDDEN = (b"b" * 12, "memo ñ".encode(), "clé ".encode(), b"secret of ")
"""What stands in masked columns, and nowhere else."""

ENTRIES: list[dict[str, Any]] = [
    {"match": ITEMS, "mask": {"pad": "hash", "body": {"last": 4}}},
    {"match": BULK, "mask": {"pad": {"last": 7}}},
    {"match": NOTES, "mask": {"memo": {"constant": "hidden"}, "at": "null"}},
    {"match": '"odd one".*', "mask": {"b": "hash", "day": "null"}},
    {"match": "counted.*", "mask": {"secret": "hash"}},
]

_See = Callable[[str], "str | None"]


def _hashed(text: str) -> str:
    return blake2b(text.encode(), key=SECRET.encode(), digest_size=16).hexdigest()


def _last(count: int) -> _See:
    return lambda text: "****" + (text[-count:] if len(text) > count else "")


_SEEN: dict[tuple[str, str], _See] = {
    (ITEMS, "pad"): _hashed,
    (ITEMS, "body"): _last(4),
    (BULK, "pad"): _last(7),
    (NOTES, "memo"): lambda _: "hidden",
    (NOTES, "at"): lambda _: None,
    (ODD, "b"): _hashed,
    (ODD, "day"): lambda _: None,
}


def files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder in which others remove files and folders (Path.glob may raise FileNotFoundError)."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


class Masks:
    """The masks of one run; not `on`: there are none."""

    def __init__(self, *, on: bool) -> None:
        self._on = on

    def seen(self, table: str, column: str, text: str | None) -> str | None:
        """What readers see of a value. `table`: schema.name."""
        see = _SEEN.get((table, column))
        return text if see is None or text is None or not self._on else see(text)

    def secret(self, text: str) -> str:
        """What readers see of a secret of a `counted` table."""
        return _hashed(text) if self._on else text

    def shown(self, change: Change) -> Change:
        """A change with the key that readers see."""
        if change.table != ODD or not self._on:
            return change
        name, number = change.identity
        return change._replace(identity=(_hashed(name), number))

    def leak(self, data: bytes | None) -> bytes:
        """Return what the bytes hold that must be hidden; empty: nothing."""
        if not self._on or not data:
            return b""
        return next((hidden for hidden in HIDDEN if hidden in data), b"")

    def leaks(self, paths: Iterable[Path]) -> list[str]:
        """Search the files; those that vanish meanwhile have nothing."""
        found = []
        for path in paths:
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            if hidden := self.leak(data):
                found.append(f"leak: {path.parent.name}/{path.name} holds {hidden!r}")
        return found
