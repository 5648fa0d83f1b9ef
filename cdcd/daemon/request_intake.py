"""Decides which requests the daemon takes. All others are named in the log, and passed over.

Before: `stream_reader` has the rows of the table of requests that stand in the stream, and the tables that the stream
announces. `recopies` says which of them need a new snapshot.
After: the batch with their transactions carries the requests that are taken to `sink.publisher`; requests for snapshots
go to the snapshot coordinator, too.

A row may come again after a restart, so it is decided anew each time. The progress passes its position together with
what it asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Container, Iterable, Mapping

from cdcd.daemon.recopies import Table
from cdcd.errors import sentence
from cdcd.progress.daemon_requests import DISCARD, SNAPSHOT, STOP, Request, read_request
from cdcd.progress.repair_records import RepairKeys
from cdcd.sink.batches import AnnouncedTable

log = logging.getLogger(__name__)


class RequestIntake:
    """The intake of one stream. For the thread that owns the stream."""

    def __init__(
        self,
        slot: str,
        published: Callable[[], Collection[tuple[str, str]]],
        request_snapshot: Callable[[str, str], None],
        parked: Callable[[], Container[tuple[str, str]]] = frozenset,
        announce: Callable[[Iterable[AnnouncedTable]], list[Table]] = lambda _: [],
        request_repair: Callable[[str, str, RepairKeys], None] = lambda _, __, ___: None,
        pause_snapshots: Callable[[bool], None] = lambda _: None,
        stop_snapshot: Callable[[str, str], None] = lambda _, __: None,
    ) -> None:
        """`published` asks for the published tables: their schemas and names.

        `request_snapshot` takes the schema and name of a table. `parked` returns the parked tables: the events of such
        a table can be given up even if the table is not published any more. `request_repair` takes the schema, the name
        and the keys. `announce` takes the tables whose events come next, in order. It returns those that get a new
        snapshot because of it. `pause_snapshots` takes whether the snapshots are paused from now on.
        `stop_snapshot` takes the schema and name of a table; it raises ValueError if there is nothing to stop.
        """
        self._slot = slot
        self._published = published
        self._request_snapshot = request_snapshot
        self._parked = parked
        self._announce = announce
        self._request_repair = request_repair
        self._pause_snapshots = pause_snapshots
        self._stop_snapshot = stop_snapshot

    def take(self, rows: Iterable[Mapping[str, str]], announced: Iterable[AnnouncedTable] = ()) -> list[Request]:
        """Return the requests for this slot that the daemon takes, and those that it makes itself.

        `announced`: the tables whose events come next, in order. Raises what `announce` raises.
        """
        own = [row for row in rows if row.get("slot") == self._slot]  # the others are for other daemons
        published = frozenset(self._published() if own else ())  # asked once, because the stream waits
        taken = []
        for row in own:
            try:
                request = read_request(row)
                gives_up = request.action == DISCARD and request.table in self._parked()
                if request.is_about_a_topic_alone and request.table not in self._parked():
                    raise ValueError("no topic of this name is parked")
                if request.needs_published_table and request.table not in published and not gives_up:
                    raise ValueError("the publication does not have this table")
                if request.action == STOP:
                    self._stop_snapshot(*request.table)
            except ValueError as refused:
                code = "request-passed-over"
                said = sentence(f"passed over a request: {refused}", "", code)
                log.warning("%s", said, extra={**_named(row), "code": code})
                continue
            log.info("took a request", extra=_named(row))
            if request.wants_snapshot:
                self._request_snapshot(*request.table)
            if request.repair is not None:
                self._request_repair(*request.table, request.repair)
            if request.pauses_snapshots is not None:
                self._pause_snapshots(request.pauses_snapshots)
            taken.append(request)
        return taken + [Request(SNAPSHOT, table) for table in self._announce(announced)]


def _named(row: Mapping[str, str]) -> dict[str, str]:
    table = f"{row.get('table_schema', '')}.{row.get('table_name', '')}"
    return {
        "action": row.get("action", ""),
        "table": "" if table == "." else table,
        "by": row.get("requested_by", ""),
    }
