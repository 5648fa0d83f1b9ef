"""Tables that cannot be followed for now: the others go on without them. Each is tried again from time to time.

Before: `planner` or a merge meets an error that one table alone has.
After: the table stays as it was published, and the run's row has the error (`MirroredTable.error`).

A person cures the cause: renames a column, drops a table, loads it again. The next try then brings the table to the
newest cut, in one run. Which tables are in quarantine is in the runs. Only the time of the next try is kept here: a new
process tries each of them at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from cdcd.errors import FatalError, Fenced, GapError
from cdcd.spark import failures
from cdcd.spark.mirror.run_log import MirroredTable

TableErrors: TypeAlias = Literal["quarantine", "stop"]

_PAUSE_S: Final = 30.0
_PAUSE_MAX_S: Final = 600.0


class Quarantine:
    """Says what becomes of a table after an error, and when it is tried again."""

    def __init__(
        self, table_errors: TableErrors, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """With "stop", every error ends the run. `say` gets a line for each table. `clock` gives seconds."""
        self._table_errors = table_errors
        self._say = say
        self._clock = clock
        self._pauses: dict[str, tuple[float, float]] = {}
        """By id: when the table is tried again, and how long it has waited for that."""

    def put(self, table: MirroredTable, error: Exception) -> MirroredTable:
        """The table as it was published, with the error. Raises the error if it is not that of one table alone."""
        if failures.FILES_GONE.search(str(error)):
            error = GapError(
                f"{table.target} no longer has the files of version {table.version}, which a run has published",
                failures.LOAD_AGAIN,
                code="mirror-load-again",
            )
        is_lasting = isinstance(error, (FatalError, *failures.LASTING)) and not isinstance(error, Fenced)
        if self._table_errors == "stop" or not is_lasting:
            raise error
        _, waited = self._pauses.get(table.id, (0.0, 0.0))
        pause = min(max(_PAUSE_S, 2 * waited), _PAUSE_MAX_S)
        self._pauses[table.id] = self._clock() + pause, pause
        text = str(error) if isinstance(error, FatalError) else str(error).strip().split("\n", 1)[0]
        self._say(f"{table.shown} is in quarantine, and the other tables go on without it: {text}")
        return replace(table, error=text)

    def due(self, tables: Iterable[MirroredTable]) -> frozenset[str]:
        """The ids of those tables in quarantine that are to be tried now."""
        in_quarantine = {table.id for table in tables if table.error is not None}
        for each in self._pauses.keys() - in_quarantine:
            del self._pauses[each]
        now = self._clock()
        return frozenset(each for each in in_quarantine if self._pauses.get(each, (0.0, 0.0))[0] <= now)
