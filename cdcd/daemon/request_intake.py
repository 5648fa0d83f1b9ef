"""Decides which requests the daemon takes. All others are named in the log, and passed over.

Before: `stream_reader` has the rows of the table of requests that stand in the stream.
After: the batch with their transactions carries the requests that are taken to `sink.publisher`; requests for snapshots
go to the snapshot coordinator, too.

A row may come again after a restart, so it is decided anew each time. The progress passes its position together with
what it asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping

from cdcd.progress.daemon_requests import DISCARD, Request, read_request

log = logging.getLogger(__name__)


class RequestIntake:
    """The intake of one stream. For the thread that owns the stream."""

    def __init__(
        self,
        slot: str,
        published: Callable[[], Collection[tuple[str, str]]],
        request_snapshot: Callable[[str, str], None],
        parked: Callable[[], Container[tuple[str, str]]] = frozenset,
    ) -> None:
        """`published` asks for the published tables: their schemas and names.

        `request_snapshot` takes the schema and name of a table. `parked` returns the parked tables: the events of such
        a table can be given up even if the table is not published any more.
        """
        self._slot = slot
        self._published = published
        self._request_snapshot = request_snapshot
        self._parked = parked

    def take(self, rows: Iterable[Mapping[str, str]]) -> list[Request]:
        """Return the requests for this slot that the daemon takes."""
        own = [row for row in rows if row.get("slot") == self._slot]  # the others are for other daemons
        published = frozenset(self._published() if own else ())  # asked once, because the stream waits
        taken = []
        for row in own:
            try:
                request = read_request(row)
                gives_up = request.action == DISCARD and request.table in self._parked()
                if request.wants_snapshot and request.table not in published and not gives_up:
                    raise ValueError("the publication does not have this table")
            except ValueError as refused:
                log.warning("passed over a request: %s", refused, extra=_named(row))
                continue
            log.info("took a request", extra=_named(row))
            if request.wants_snapshot:
                self._request_snapshot(*request.table)
            taken.append(request)
        return taken


def _named(row: Mapping[str, str]) -> dict[str, str]:
    return {
        "action": row.get("action", ""),
        "table": f"{row.get('table_schema', '')}.{row.get('table_name', '')}",
        "by": row.get("requested_by", ""),
    }
