"""Hashes the rows of one table, in a process of its own: it works while the other process reads the topic.

Before: `table_hashing` starts it, and sends what COPY gives. After: `table_hashing` reads the result, and the files.

The process opens no connection and knows no password. It reads its standard input: first a task, then parts of COPYs.
At the end of the input it writes the result, or the error, to its standard output. The input also ends with the other
process, however that ends: so this one never stays behind.

The daemon's own encoder makes the events of a snapshot from the rows, and `row_hashes` takes these.
"""

from __future__ import annotations

import marshal
import pickle
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import IO, Final, Literal

from cdcd.avro.avro_format import AvroFormat
from cdcd.snapshot.copy_format import CopyFormat
from cdcd.transaction.masked_changes import open_relation
from cdcd.transaction.relations import ResolvedRelation
from cdcd.verify.row_hashes import HashFiles, KeyedHash, TableHashes

PROGRAM: Final = "import sys; sys.path[:] = sys.argv[1:]; from cdcd.verify import table_process; table_process.main()"
"""Its arguments are the `sys.path` of the process that starts this one."""

_SIZE: Final = Struct("<Q")
_NO_HEAP: Final = -1


@dataclass(frozen=True)
class Task:
    """What to hash."""

    relation: ResolvedRelation
    """Its rows come masked."""
    kinds: bytes
    """For each column BINARY or TEXT."""
    numeric: Literal["decimal", "string"]
    """The setting `avro.numeric`."""
    encoding: str
    """The database's, by PostgreSQL's name."""
    secret: int
    """That of KeyedHash."""
    folder: Path
    """Where the files of hashes go."""


@dataclass(frozen=True)
class HashedRows:
    """The result."""

    rows: int
    without_key: int
    """Of these, the rows that have no key."""


def start(task: Task, out: IO[bytes]) -> None:
    """Send the task."""
    _write(pickle.dumps(task), out)


def send(heap: int, messages: list[bytes], out: IO[bytes]) -> None:
    """Send the next messages of the COPY of a heap, which is known by its number."""
    _write(marshal.dumps((heap, messages)), out)


def finish(out: IO[bytes]) -> None:
    """Say that there are no more rows."""
    send(_NO_HEAP, [], out)
    out.flush()


def result(output: bytes) -> HashedRows | None:
    """What the process has written; None if it ended before. Raises its error."""
    found = pickle.loads(output) if output else None  # noqa: S301 - it comes from our own process
    if isinstance(found, BaseException):
        raise found
    assert found is None or isinstance(found, HashedRows)
    return found


def main() -> None:
    """Do the task that comes on standard input."""
    # It ends with its input: a signal to the whole group ends the process that sends the input.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # nobody reads the result: this process ends, and says nothing
    try:
        found: HashedRows | Exception | None = _hashed(sys.stdin.buffer)
    except Exception as error:  # noqa: BLE001 - raised by the process that reads it
        found = error
    if found is not None:
        pickle.dump(found, sys.stdout.buffer)


def _hashed(source: IO[bytes]) -> HashedRows | None:
    """None if the input ends before the task does."""
    if (data := _read(source)) is None:
        return None
    task: Task = pickle.loads(data)  # noqa: S301 - it comes from our own process
    files = HashFiles(task.folder, "table")
    hashes = TableHashes(files, KeyedHash(task.secret), bool(task.relation.shared_topic))
    encoder = AvroFormat(task.numeric, task.encoding).snapshot_encoder(hashes)
    encoder.begin_snapshot(0, 0)
    changes = open_relation(encoder, task.relation)
    copying, copy = _NO_HEAP, CopyFormat(0)
    while (data := _read(source)) is not None:
        heap, messages = marshal.loads(data)  # noqa: S302 - it comes from our own process
        if heap == _NO_HEAP:
            files.flush()
            return HashedRows(int(hashes.rows), int(hashes.without_key))
        if heap != copying:
            copying, copy = heap, CopyFormat(1 + len(task.kinds))
        hashes.encode(messages, copy, changes, task.kinds, heap)
    return None


def _write(data: bytes, out: IO[bytes]) -> None:
    out.write(_SIZE.pack(len(data)) + data)  # one write: after each, a thread waits for its turn


def _read(source: IO[bytes]) -> bytes | None:
    """The next piece that `_write` has written; None if the input ends before the piece does."""
    if len(size := source.read(_SIZE.size)) < _SIZE.size:
        return None
    [length] = _SIZE.unpack(size)
    data = source.read(length)
    return data if len(data) == length else None
