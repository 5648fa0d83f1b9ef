"""Numbers as text for people: sizes, durations, and nouns with their count.

Before: the commands, `preflight` and `monitoring.status_page` have a number. After: a person reads the text.
"""

from __future__ import annotations


def size(count: int) -> str:
    """A number of bytes as text, such as `1.5 MiB`."""
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


def duration(seconds: float) -> str:
    """A number of seconds as text, such as `0.2 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if 0 < seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def plural(count: int, noun: str) -> str:
    """A count and its noun, such as `1 table` or `2 tables`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
