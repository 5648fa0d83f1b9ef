"""Reads a table by COPY, in a thread, and has its rows hashed by a process of its own, while its topic is read.

Before: `hash_comparison` has a snapshot of PostgreSQL.
After: `table_process` hashes the rows; `hash_comparison` compares the hashes with those of the topic.

Two threads of Python do not work at the same time. To hash a row costs more than to read it and to pass it on.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import suppress
from pathlib import Path
from select import select
from subprocess import PIPE, Popen
from threading import Event
from typing import IO, Final, Literal, Self

from psycopg import sql

from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema
from cdcd.errors import RetriableError
from cdcd.snapshot.chunks import Chunk
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.snapshot.reader import copied_columns, copied_kinds
from cdcd.source.table_selection import qualified_name
from cdcd.transaction.column_masks import RelationMasking
from cdcd.verify import table_process
from cdcd.verify.event_rows import row_schema
from cdcd.verify.postgres_checksums import ChecksummedTable, Checksums

_ROWS: Final = 10_000
_CTID_BYTES: Final = 10
_SENT_BYTES: Final = 1 << 19
"""Rows are passed on in pieces of about this size. After each, the thread waits until the other one, which reads the
topic, lets it run: up to 5 ms."""
_WAIT_S: Final = 0.5


class TableHashing:
    """One table. Thread and process end with the block: `with TableHashing(...) as rows`."""

    def __init__(
        self,
        server: Checksums,
        table: ChecksummedTable,
        folder: Path,
        secret: int,
        numeric: Literal["decimal", "string"],
    ) -> None:
        """Start both. The thread alone uses `server` until it has ended.

        `folder` and `secret`: as in `table_process.Task`. `numeric`: the setting `avro.numeric`. Raises RetriableError
        if the process cannot be started.
        """
        relation = server.relation(table)
        codecs = codecs_for(relation.types, TypeOptions.of_database(numeric, server.encoding))
        self.schema = row_schema(json.loads(envelope_schema(relation, codecs)))
        """The schema of the rows."""
        self.messages = 0
        """How many messages of COPY were read: about the number of rows."""
        kinds = copied_kinds(relation, (codec.has_binary for codec in codecs))
        self._columns = [sql.SQL("ctid"), *copied_columns([each.name for each in relation.columns], kinds)]
        self._task = table_process.Task(relation, kinds, numeric, server.encoding, secret, folder)
        self._server = server
        self._table = table
        self._is_over = Event()
        try:
            command = [sys.executable, "-I", "-c", table_process.PROGRAM, *sys.path]
            # In a session of its own: Ctrl-C is for this process, which then ends the other one.
            self._process = Popen(command, stdin=PIPE, stdout=PIPE, start_new_session=True)  # noqa: S603 - Python
        except OSError as error:
            raise self._failed(f"cannot be started: {error.strerror}") from error
        self._pool = ThreadPoolExecutor(1, "cdcd-table-hashing")
        self._reading = self._pool.submit(self._read)

    def result(self, wait_s: float = 0.0) -> table_process.HashedRows | None:
        """The result, once all rows are hashed; None before. Waits at most so long for it.

        Raises TextUnconvertible, RequestRejected, PostgresUnavailable, and RetriableError if the process was ended.
        """
        return self._reading.result() if wait_for([self._reading], wait_s).done else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._process.kill()
        self._pool.shutdown()
        with self._process, suppress(BrokenPipeError):
            self._input.close()

    @property
    def _input(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _read(self) -> table_process.HashedRows:
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # the process has ended: its output tells why
            table_process.start(self._task, self._input)
            self._send_rows()
            table_process.finish(self._input)
        found = table_process.result(self._process.stdout.read())
        if found is None:
            status = self._process.wait()
            raise self._failed(f"was killed by signal {-status}" if status < 0 else f"ended with status {status}")
        return found

    def _send_rows(self) -> None:
        connection, row_filter = self._server.connection, self._server.row_filter(self._table)
        masking = self._task.relation.masking
        for number, heap in enumerate(self._server.heaps(self._table)):
            copy, waiting, size, has_ended = CopyFormat(len(self._columns)), list[bytes](), 0, False
            connection.start(Chunk("", heap, 0, 0, True, None), self._columns, row_filter, {})
            while not has_ended:
                messages, has_ended = connection.read(_ROWS)
                if self._is_over.is_set():
                    return
                if not messages and not has_ended:
                    select([connection.fileno()], [], [], _WAIT_S)
                waiting += messages if masking is None else _masked(messages, copy, masking)
                size += sum(map(len, messages))
                self.messages += len(messages)
                if has_ended or size >= _SENT_BYTES:
                    table_process.send(number, waiting, self._input)
                    waiting, size = [], 0

    def _failed(self, how: str) -> RetriableError:
        return RetriableError(
            f"the process that hashes the rows of {qualified_name(self._table.schema, self._table.name)} {how}",
            "A system that is short of memory kills processes: if this comes back, give it more memory",
            code="process-ended",
        )


def _masked(messages: list[bytes], copy: CopyFormat, masking: RelationMasking) -> list[bytes]:
    """The messages of one COPY with the values masked, so that the other process needs no secret."""
    found = list[bytes]()
    for message in messages:
        at = copy.row_at(message)
        found.append(masking.row(message, at + _CTID_BYTES) if at else message)
    return found
