"""Finds the published tables that want a snapshot, in a thread.

Before: `snapshot_coordinator` looks every few seconds. After: it takes a snapshot, or records what the catalog says.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Thread
from typing import TypeAlias

from cdcd.config.settings import Settings
from cdcd.daemon.readable_tables import ReadableTables
from cdcd.errors import CdcdError
from cdcd.progress.snapshot_records import PublishedTables
from cdcd.source.incarnations import Incarnation
from cdcd.source.session import Session

log = logging.getLogger(__name__)

Wants: TypeAlias = "Callable[[str, str, Incarnation], bool]"
"""Takes schema and name, and the table as the catalog describes it: whether it wants a snapshot."""


@dataclass(frozen=True)
class ScanResult:
    """The result of a scan."""

    wants_snapshot: bool
    """A published table wants a snapshot."""
    incarnations: PublishedTables | None
    """The published tables, by schema and name; None if the server could not be asked."""


class NewTableScan:
    """Finds out in a thread whether a published table wants a snapshot, and what became of the others."""

    def __init__(
        self,
        settings: Settings,
        wants: Wants,
        readable: ReadableTables,
        wake: Callable[[], None],
    ) -> None:
        """As SnapshotExport."""
        self._settings = settings
        self._wants = wants
        self._readable = readable
        self._wake = wake
        self._found: Future[ScanResult] = Future()
        Thread(target=self._run, name="cdcd-new-table-scan", daemon=True).start()

    @property
    def found(self) -> ScanResult | None:
        """The answer; None while there is none. If the server could not be asked, the next scan asks again.

        Raises what else the thread raised.
        """
        return self._found.result() if self._found.done() else None

    def _run(self) -> None:
        source = self._settings.source
        try:
            with Session(source.login, source.application_name) as session:
                published, wanted = self._readable.wanted(session, self._wants)
                self._found.set_result(ScanResult(bool(wanted), published))
        except CdcdError as error:
            log.debug("cannot look for new tables: %s", error)
            self._found.set_result(ScanResult(wants_snapshot=False, incarnations=None))
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asks
            self._found.set_exception(error)
        self._wake()
