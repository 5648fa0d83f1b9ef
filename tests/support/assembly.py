"""An assembler between messages that a test writes and the events that come out, decoded by fastavro.

Before: the tests of `transaction`, which say what the server sends. After: `avro.envelope` and `sink.batches` as they
are: what the assembler hands on is seen as readers would see it.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.column_rules import NO_RULES, ColumnRules
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

INT4 = PgType(23, "pg_catalog", "int4")
TEXT = PgType(25, "pg_catalog", "text")
TIME = 1_000_000


class Catalog:
    """A catalog of two types, whose primary keys a test may change."""

    def __init__(self) -> None:
        self.keys: dict[int, tuple[str, ...]] = {}
        self.asked = 0
        self.expected: list[list[int]] = []
        """The tables of each question about several."""
        self.more_types: dict[int, PgType] = {}
        self.trusts = True
        """A trusted role owns the table of requests."""

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        self.asked += 1
        return {23: INT4, 25: TEXT} | self.more_types

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return self.keys.get(relation_oid, ("id",))

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        return {}

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return {}

    def position(self) -> int:
        return 1

    def expect(self, relation_oids: Iterable[int]) -> None:
        self.expected.append(list(relation_oids))

    def takes_requests(self, relation_oid: int) -> bool:
        return self.trusts

    def forget(self) -> None:
        pass


class Event(NamedTuple):
    """What a test compares: `row` is the new row, or the old one of a delete."""

    table: str
    op: str
    row: tuple[Any, ...]
    commit_lsn: int
    seq: int


class Assembly:
    """One stream. `feed` takes messages and goes on until nothing waits; `events` gives what came out since."""

    def __init__(
        self,
        folder: Path,
        *,
        durable_lsn: int = 0,
        sent_again: SentAgain | None = None,
        memory_bytes: int = 1 << 20,
        bytes_max: int = 1 << 30,
        parallel: bool = False,
        rules: ColumnRules = NO_RULES,
    ) -> None:
        self.folder = folder / "spool"
        self.catalog = Catalog()
        self.spool = Spool(SpoolDirectory(self.folder), memory_bytes, bytes_max)
        self.batches = BatchBuilder(tombstones=False)
        self._schemas: dict[str, Any] = {}
        self.assembler = Assembler(
            Decoder(streaming_parallel=parallel),
            Relations(self.catalog, rules=rules),
            EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions()),
            self.spool,
            SentAgain(durable_lsn) if sent_again is None else sent_again,
        )

    def feed(self, *messages: m.Message, lsn: int = 5) -> None:
        """Hand the messages over in one burst, and go on until the last of them is done."""
        self.start(*messages, lsn=lsn)
        self.feed_on()

    def start(self, *messages: m.Message, lsn: int = 5) -> None:
        """Hand them over, and go on no further than `feed` does by itself."""
        self.assembler.feed([XLogData(lsn, lsn, 0, encode(message)).encode() for message in messages])

    def feed_on(self) -> None:
        """Go on until the last of them is done."""
        while self.assembler.is_busy:
            self.assembler.proceed()

    def take(self) -> Batch:
        """What was gathered, undecoded."""
        batch = self.batches.build()
        self._schemas.update((name, fastavro.parse_schema(json.loads(text))) for name, text in batch.schemas)
        return batch

    def records(self) -> list[tuple[str, bytes | None, dict[str, Any]]]:
        """Table, key and envelope of every event that was gathered, in the order of their positions."""
        found: list[tuple[str, bytes | None, dict[str, Any]]] = []
        for table in self.take().tables:
            for message in table.messages:
                value = message["value"]
                assert value is not None
                schema = self._schemas[value[2:10].hex()]
                envelope: Any = fastavro.schemaless_reader(io.BytesIO(value[10:]), schema, None)
                found.append((table.name, message.get("key"), envelope))
        return sorted(found, key=lambda each: (each[2]["source"]["commit_lsn"], each[2]["source"]["seq"]))  # fmt: skip

    def events(self) -> list[Event]:
        """The same, brief."""
        return [
            Event(name, value["op"], tuple((value["after"] or value["before"] or {}).values()),
                  value["source"]["commit_lsn"], value["source"]["seq"])
            for name, _, value in self.records()
        ]  # fmt: skip

    def rows(self) -> list[Any]:
        """The first column of every event's row: what most tests are about."""
        return [event.row[0] if event.row else event.op for event in self.events()]

    @property
    def spooled_bytes(self) -> int:
        """What the spool takes, in memory and on disk."""
        return self.spool.memory_bytes + self.spool.disk_bytes

    def files(self) -> list[Path]:
        """The spool's files."""
        return sorted(self.folder.iterdir())


# What the server sends. `xid` is that of the (sub)transaction inside a stream block, and 0 outside.


def relation(
    xid: int = 0, oid: int = 7, name: str = "t", more: tuple[str, ...] = (), identity: str = "d"
) -> m.Relation:
    """Table `name` with the key `id` and `more` columns of integers."""
    columns = [m.Column(identity == "d", "id", 23, -1), *(m.Column(False, column, 23, -1) for column in more)]
    return m.Relation(xid, oid, "public", name, identity, tuple(columns))


def insert(value: int, xid: int = 0, oid: int = 7, more: tuple[int, ...] = ()) -> m.Insert:
    return m.Insert(xid, oid, tuple_of([str(each).encode() for each in (value, *more)]))


def truncate(xid: int = 0, *oids: int, cascade: bool = False, restart_identity: bool = False) -> m.Truncate:
    return m.Truncate(xid, oids or (7,), cascade, restart_identity)


def message(content: bytes, xid: int = 0, lsn: int = 5, transactional: bool = True) -> m.LogicalMessage:
    return m.LogicalMessage(xid, transactional, lsn, "p", content)


def block(xid: int, *inside: m.Message, first: bool = False) -> list[m.Message]:
    """A stream block of the top-level transaction `xid`."""
    return [m.StreamStart(xid, first), *inside, m.StreamStop()]


def stream_commit(xid: int, commit_lsn: int) -> m.StreamCommit:
    return m.StreamCommit(xid, commit_lsn, commit_lsn + 10, TIME)


def begin(commit_lsn: int, xid: int = 600) -> m.Begin:
    return m.Begin(commit_lsn, TIME, xid)


def commit(commit_lsn: int) -> m.Commit:
    return m.Commit(commit_lsn, commit_lsn + 10, TIME)


def begin_prepare(xid: int, lsn: int, gid: str = "g") -> m.BeginPrepare:
    return m.BeginPrepare(lsn, lsn + 10, TIME, xid, gid)


def prepare(xid: int, lsn: int, gid: str = "g") -> m.Prepare:
    return m.Prepare(lsn, lsn + 10, TIME, xid, gid)


def stream_prepare(xid: int, lsn: int, gid: str = "g") -> m.StreamPrepare:
    return m.StreamPrepare(lsn, lsn + 10, TIME, xid, gid)


def commit_prepared(xid: int, commit_lsn: int, gid: str = "g") -> m.CommitPrepared:
    return m.CommitPrepared(commit_lsn, commit_lsn + 10, TIME, xid, gid)


def rollback_prepared(xid: int, lsn: int, gid: str = "g") -> m.RollbackPrepared:
    return m.RollbackPrepared(lsn - 10, lsn, TIME, TIME, xid, gid)
