"""Reads the rows of some keys under an exported snapshot, in the thread that has exported it.

Before: `repair_requests` says which keys; `exported_tables` describes their tables.
After: the coordinator publishes the rows while the stream stands at the snapshot's consistent point, all in one batch.

The stream is paused meanwhile, so little is read at once. What is left follows with the next snapshot. A repair that
PostgreSQL refuses, because a key is no value of its type, is given up: it must not stop the daemon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from select import select
from typing import Final

from psycopg import sql

from cdcd.daemon.exported_tables import TableExport
from cdcd.daemon.keyed_rows import condition, found_keys, has_index, key_texts
from cdcd.errors import RequestRejected, TextUnconvertible
from cdcd.progress.repair_records import PendingRepair
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.reader import SnapshotConnection
from cdcd.snapshot.repair_events import RepairRows
from cdcd.source.heaps import Heap

READ_BYTES_MAX: Final = 8 << 20
"""No further keys are read once the rows of one snapshot have so much."""
KEYS_AT_ONCE: Final = 16
"""Keys that one COPY finds by their index: the rows of so many may be read beyond the bound."""

_MESSAGES: Final = 1_000
_WAIT_S: Final = 0.5


class RepairReader:
    """Reads the repairs of one snapshot. The caller closes the connections that it gets from `connect`."""

    def __init__(self, connect: Callable[[], SnapshotConnection], stopping: Callable[[], bool]) -> None:
        """`connect` makes a connection that shares the snapshot. `stopping` ends the reading early."""
        self._connect = connect
        self._stopping = stopping
        self._connection: SnapshotConnection | None = None
        self._bytes = 0

    def read(self, table: TableExport, repairs: Iterable[PendingRepair]) -> list[RepairRows]:
        """Read repairs of one table, as many as the bound allows.

        Raises SnapshotGone if the table was altered, PostgresUnavailable.
        """
        found = []
        for pending in repairs:
            if self.is_full:
                break
            found.append(self._read(table, pending))
        return found

    @property
    def is_full(self) -> bool:
        """The rows that were read reach the bound."""
        return self._bytes >= READ_BYTES_MAX

    def _read(self, table: TableExport, pending: PendingRepair) -> RepairRows:
        relation = table.relation
        if not relation.key or relation.key != pending.wanted.columns:
            return RepairRows(pending, refused=f"its key is ({', '.join(relation.key)})")
        if relation.has_masked_key:
            return RepairRows(pending, refused="a column of its key is masked")
        keys, copies, without = list(dict.fromkeys(pending.wanted.keys)), list[list[bytes]](), list[tuple[str, ...]]()
        size = KEYS_AT_ONCE if has_index(relation) else len(keys)
        done = 0
        try:
            while done < len(keys) and not self.is_full:
                some = keys[done : done + size]
                found: set[tuple[str, ...]] = set()
                for heap in table.heaps:
                    messages, here = self._copy(table, heap, some)
                    copies.append(messages)
                    found |= here
                    self._bytes += sum(map(len, messages))
                without += [key for key in some if key not in found]
                done += len(some)
        except (RequestRejected, TextUnconvertible) as error:
            self._connection = None  # its transaction has failed
            return RepairRows(pending, refused=error.message)
        return RepairRows(pending, relation, table.kinds, copies, without, keys[done:])

    def _copy(
        self, table: TableExport, heap: Heap, keys: Sequence[tuple[str, ...]]
    ) -> tuple[list[bytes], set[tuple[str, ...]]]:
        """The rows of these keys in one heap, and the keys that have one."""
        relation, rows = table.relation, condition(table.relation, keys)
        if table.row_filter:
            rows = f"({table.row_filter}) AND ({rows})"
        messages = self._messages(table, heap, table.columns(), rows)
        texts = self._messages(table, heap, key_texts(relation), rows)
        return messages, found_keys(texts, len(relation.key))

    def _messages(self, table: TableExport, heap: Heap, columns: list[sql.Composable], rows: str) -> list[bytes]:
        if self._connection is None:
            self._connection = self._connect()
        connection, found, has_ended = self._connection, list[bytes](), False
        chunk = Chunk(table.record.topic, heap, 0, 0, True, None)
        connection.start(chunk, columns, rows, table.column_numbers(heap))
        while not has_ended and not self._stopping():
            messages, has_ended = connection.read(_MESSAGES)
            found += messages
            if not messages and not has_ended:
                select([connection.fileno()], [], [], _WAIT_S)
        return found
