"""Reads a table by COPY and hashes its rows, in a thread, while its topic is read.

Before: `hash_comparison` has a snapshot of PostgreSQL.
After: `hash_comparison` compares the hashes with those of the topic.

The daemon's own encoder makes the events of a snapshot from the rows, and `row_hashes` takes these. Two threads of
Python do not work at the same time. But one works while the other waits for its server.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from select import select
from threading import Event
from typing import Final, Literal, Self

from psycopg import sql

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.snapshot.reader import copied_columns, copied_kinds
from cdcd.transaction.masked_changes import open_relation
from cdcd.verify.event_rows import row_schema
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums
from cdcd.verify.row_hashes import HashFiles, TableHashes

_ROWS: Final = 10_000
_WAIT_S: Final = 0.5


class TableHashing:
    """One table. The thread ends with the block: `with TableHashing(...) as rows`."""

    def __init__(
        self, server: Checksums, table: ChecksummedTable, files: HashFiles, numeric: Literal["decimal", "string"]
    ) -> None:
        """Start the thread, which alone uses `server` until it has ended. `numeric`: the setting `avro.numeric`."""
        relation = server.relation(table)
        self.hashes = TableHashes(files)
        encoder = AvroFormat(numeric, server.encoding).snapshot_encoder(self.hashes)
        encoder.begin_snapshot(0, 0)
        self._changes = open_relation(encoder, relation)
        codecs = codecs_for(relation.types, TypeOptions.of_database(numeric, server.encoding))
        self.schema = row_schema(json.loads(envelope_schema(relation, codecs)))
        """The schema of the rows."""
        self._kinds = copied_kinds(relation, (codec.has_binary for codec in codecs))
        self._columns = [sql.SQL("ctid"), *copied_columns([each.name for each in relation.columns], self._kinds)]
        self._server = server
        self._table = table
        self._is_over = Event()
        self._pool = ThreadPoolExecutor(1, "cdcd-table-hashing")
        self._reading = self._pool.submit(self._read)

    def has_ended(self, wait_s: float = 0.0) -> bool:
        """Whether all rows are hashed. Waits at most so long for that.

        Raises TextUnconvertible, RequestRejected, PostgresUnavailable.
        """
        is_done = bool(wait_for([self._reading], wait_s).done)
        if is_done:
            self._reading.result()
        return is_done

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._pool.shutdown()

    def _read(self) -> None:
        connection, row_filter = self._server.connection, self._server.row_filter(self._table)
        for number, heap in enumerate(self._server.heaps(self._table)):
            copy, has_ended = CopyFormat(len(self._columns)), False
            connection.start(Chunk("", heap, 0, 0, True, None), self._columns, row_filter, {})
            while not has_ended:
                messages, has_ended = connection.read(_ROWS)
                self.hashes.encode(messages, copy, self._changes, self._kinds, number)
                if self._is_over.is_set():
                    return
                if not messages and not has_ended:
                    select([connection.fileno()], [], [], _WAIT_S)
