"""Asks a daemon for its status document.

Before: `http_server` answers, in another process. After: `cdcd status` and `cdcd check` judge what answered.

Whatever answers at the port is not trusted: its answer is bounded.
"""

from __future__ import annotations

import urllib.request
from typing import Final

ANSWER_BYTES_MAX: Final = 16 << 20

_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""The daemon is on this machine, or where the user says: a proxy for the web has no part in it."""


def status_body(target: str, within_s: float) -> bytes:
    """Return what a GET of the URL `target` gives; nothing if that is more than ANSWER_BYTES_MAX.

    Raises what `urllib.request` raises: OSError, HTTPException, ValueError.
    """
    with _OPENER.open(target, timeout=within_s) as answer:
        body: bytes = answer.read(ANSWER_BYTES_MAX + 1)
    return body if len(body) <= ANSWER_BYTES_MAX else b""
