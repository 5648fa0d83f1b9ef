"""Compares one table with its topic, in a thread, while the stream goes on.

Before: `gap_repairs` wants to know which rows the topic lacks after a gap.
After: it records the repairs of these rows.

The comparison is that of `cdcd verify`: each side is read once. A table whose rows cannot be repaired one by one is
refused, and then copied.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from math import inf
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from cdcd.config.settings import Settings
from cdcd.daemon.recopies import Table
from cdcd.errors import AccessDenied, CdcdError, RequestRejected, RetriableError
from cdcd.preflight.host import spool_parent
from cdcd.progress.repair_records import RepairKeys
from cdcd.source.server_errors import NoSlotFree
from cdcd.source.table_selection import qualified_name
from cdcd.terminal.progress_bar import ProgressBar

if TYPE_CHECKING:
    from cdcd.verify.comparison import Comparison, TableResult

log = logging.getLogger(__name__)

DIFFERENCES_MAX: Final = 100_000
"""A table in which more rows differ is copied."""
RETRY_S: Final = 5.0
"""After what keeps PostgreSQL or Kafka from an answer for now."""

_PROCESS: Final = token_hex(4)


@dataclass(frozen=True)
class Compared:
    """The result of comparing one table."""

    lsn: int = 0
    """The table was compared at this LSN."""
    repairs: Sequence[RepairKeys] = ()
    """The rows that differ."""
    rows: int = 0
    differences: int = 0
    refused: str = ""
    """Why its rows cannot be repaired one by one; empty if they can."""


class _Over(Exception):
    """The stream has ended."""


class TableComparison:
    """One comparison."""

    def __init__(self, settings: Settings, table: Table, system_id: str, wake: Callable[[], None]) -> None:
        """Start the thread. `table`: schema and name. `wake` is called when it is done, and while it waits for Kafka.

        `system_id`: the server's, so that the files of this slot are known.
        """
        self._settings = settings
        self._table = table
        self._wake = wake
        self._of_slot = f"{settings.source.slot}-{system_id}-compared-"
        self._files = f"{self._of_slot}{_PROCESS}-"
        self._closed = Event()
        self._done: Future[Compared] = Future()
        self._comparison: Comparison | None = None
        Thread(target=self._run, name="cdcd-table-comparison", daemon=True).start()

    @property
    def found(self) -> Compared | None:
        """The result; None while there is none. Raises what the thread raised."""
        return self._done.result() if self._done.done() else None

    @property
    def waits(self) -> bool:
        """It waits until Kafka has everything before the LSN of its snapshot."""
        comparison = self._comparison
        return comparison is not None and comparison.is_waiting

    def close(self) -> None:
        """Give the comparison up. The thread ends by itself."""
        self._closed.set()

    def _run(self) -> None:
        try:
            self._done.set_result(self._compare())
        except _Over:
            return
        except BaseException as error:  # noqa: BLE001 - handed to the thread that asks
            self._done.set_exception(error)
        self._wake()

    def _compare(self) -> Compared:
        while True:
            try:
                return judged(self._result())
            except (RetriableError, NoSlotFree, AccessDenied) as error:
                log.warning("the comparison of %s waits: %s", qualified_name(*self._table), error)
            except CdcdError as error:
                return Compared(refused=error.message)
            if self._closed.wait(RETRY_S):
                raise _Over

    def _result(self) -> TableResult:
        from cdcd.verify.comparison import Comparison  # here: few streams compare a table

        self._comparison = Comparison(self._settings, _Watch(self._look), files=self._folder() / self._files)
        [result] = self._comparison.run([qualified_name(*self._table)], inf, of_gap=True)
        return result

    def _folder(self) -> Path:
        """Where the files of a comparison lie: beside the spool. Those of a process that was killed are removed."""
        parent = spool_parent(self._settings.spool.directory)
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{self._of_slot}*"):
            if not left.name.startswith(self._files):
                rmtree(left, ignore_errors=True)
        return parent

    def _look(self) -> None:
        """Called all the time. Raises _Over once the stream has ended."""
        if self._closed.is_set():
            raise _Over
        if self.waits:
            self._wake()


class _Watch(ProgressBar):
    """Shows nothing. The comparison calls `show` all the time."""

    def __init__(self, look: Callable[[], None]) -> None:
        super().__init__(sys.stderr)
        self.on = False
        self._look = look

    def show(self, text: str, share: float | None = None) -> None:
        self._look()


def judged(result: TableResult) -> Compared:
    """What to do about the differences. Raises RequestRejected if they cannot be repaired one by one."""
    from cdcd.verify.repair_keys import check_repairable, repair_keys  # here, as the comparison

    found = result.differences
    if result.oldest_events_gone:
        # A reader may have a row whose events are gone, and which was deleted in the gap.
        raise RequestRejected(f"retention has removed the oldest events of {result.topic}", code="events-expired")
    if found or result.other_keys:
        check_repairable(result)
    if len(found) > DIFFERENCES_MAX:
        raise RequestRejected(f"{len(found):,} rows of {result.table} differ", code="repair-impossible")
    return Compared(result.lsn, repair_keys(result, found), result.rows, len(found))
