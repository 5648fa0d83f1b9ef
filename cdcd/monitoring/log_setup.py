"""Sets logging up: the standard library's, one logger a module, text for people or one JSON object a line.

Before: `cli.main` calls `set_up` once.
After: each module logs through `logging.getLogger(__name__)`, and puts the facts of a line into `extra`:
`log.info("slot created", extra={"slot": slot, "lsn": format_lsn(lsn)})`.

Row values and passwords are never logged. LSNs are written `X/X`. Frequent events go through `Summary`.

A line stays a line, whatever a name or a message of a server holds: its hidden characters are made visible, and the
lines of a traceback are indented.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from cdcd.terminal.progress_bar import CLEAR
from cdcd.terminal.visible_text import visible, word

LEVELS: Final = ("debug", "info", "warning", "error")

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def set_up(level: str, form: str, stream: TextIO | None = None) -> None:
    """Write every `cdcd.*` logger to `stream` (default: standard error), from `level` on; `form` is text or json.

    A second call replaces what the first one set up.
    """
    out = stream or sys.stderr
    handler = _AboveProgressBar(out) if out.isatty() else logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger("cdcd")
    root.handlers = [handler]
    root.setLevel(level.upper())
    root.propagate = False
    logging.lastResort = handler  # a warning of a library is a line of the log, too


class _AboveProgressBar(logging.StreamHandler[TextIO]):
    """Writes a line over the progress bar of a terminal. The bar appears below it the next time it is shown."""

    def format(self, record: logging.LogRecord) -> str:
        return CLEAR + super().format(record)


class TextFormatter(logging.Formatter):
    """`2026-11-21T15:39:31.123Z INFO sink: committed rows=1200 lsn=16/B374D848`.

    The message of an error ends in its code, so `code` is a field of JSON only.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, and the record's traceback below it if there is one."""
        pairs = "".join(f" {key}={word(str(value))}" for key, value in _extra(record).items() if key != "code")
        lines = [f"{_time(record)} {record.levelname} {_component(record)}: {record.getMessage()}{pairs}"]
        if record.exc_info:
            lines += [f"    {line}" for line in self.formatException(record.exc_info).split("\n")]
        return "\n".join(map(visible, lines))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, component, message, what `extra` gave, and the code of an error."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the object. The record's traceback is its `traceback`."""
        content = {"time": _time(record), "level": record.levelname.lower(), "component": _component(record)}
        content |= {"message": record.getMessage(), **_code(record), **_extra(record)}
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return visible(json.dumps(content, ensure_ascii=False, default=str))


class Summary:
    """Adds up frequent events, and logs them at info at most once an interval.

    The first event after a quiet interval is logged at once. Later events within the interval join the next line, which
    `add` or `flush` writes when the interval is over.
    """

    def __init__(
        self, logger: logging.Logger, message: str, interval_s: float = 1.0, first_after_s: float = 0.0
    ) -> None:
        """The very first line comes `first_after_s` after the first event at the earliest."""
        self._logger = logger
        self._message = message
        self._interval_s = interval_s
        self._first_after_s = first_after_s
        self._counts: dict[str, int] = {}
        self._latest: dict[str, object] = {}
        self._due_s: float | None = None

    def add(self, now_s: float, counts: Mapping[str, int], latest: Mapping[str, object]) -> None:
        """Count an event at `now_s` (monotonic): `counts` are summed up, `latest` replaces what it had."""
        for name, count in counts.items():
            self._counts[name] = self._counts.get(name, 0) + count
        self._latest.update(latest)
        self.flush(now_s)

    def flush(self, now_s: float) -> None:
        """Write the line if it is due at `now_s` (monotonic). A loop calls it in turns without an event, too."""
        if self._counts and self._due_s is None:
            self._due_s = now_s + self._first_after_s
        if self._counts and self._due_s is not None and now_s >= self._due_s:
            self._logger.info(self._message, extra={**self._counts, **self._latest})
            self._counts.clear()
            self._latest.clear()
            self._due_s = now_s + self._interval_s


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD}


def _component(record: logging.LogRecord) -> str:
    return record.name.removeprefix("cdcd.")


def _code(record: logging.LogRecord) -> dict[str, str]:
    """The code of the error, or of the finding, that the line tells."""
    for value in record.args if isinstance(record.args, tuple) else ():
        if isinstance(code := getattr(value, "code", None), str):
            return {"code": code}
    return {}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
