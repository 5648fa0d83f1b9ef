"""An assembler that gets the stream of one table, for tests without servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.sink.batches import Batch, BatchBuilder
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.stream_messages import PrimaryKeepalive, XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.sent_again import SentAgain
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

INT4 = PgType(23, "pg_catalog", "int4")


class Catalog:
    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {23: INT4}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        return {}

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return {}

    def position(self) -> int:
        return 1

    def expect(self, relation_oids: Iterable[int]) -> None:
        return

    def takes_requests(self, relation_oid: int) -> bool:
        return True

    def forget(self) -> None:
        pass


class OneTableStream:
    """Feeds an assembler with one table: oid 7, the one column `id`."""

    def __init__(self, folder: Path, durable_lsn: int = 0, memory_bytes: int = 1 << 20) -> None:
        self.batches = BatchBuilder(tombstones=False)
        encoder = EventEncoder(self.batches, FingerprintStore(self.batches), TypeOptions())
        self.assembler = Assembler(
            Decoder(),
            Relations(Catalog()),
            encoder,
            Spool(SpoolDirectory(folder), memory_bytes, 1 << 30),
            SentAgain(durable_lsn),
        )

    def feed(self, *messages: m.Message, lsn: int = 5) -> None:
        self.assembler.feed([XLogData(lsn, lsn, 0, encode(message)).encode() for message in messages])

    def keepalive(self, wal_end: int, reply: bool = False) -> None:
        self.assembler.feed([PrimaryKeepalive(wal_end, 0, reply).encode()])

    def take(self) -> Batch:
        return self.batches.build()


RELATION = m.Relation(0, 7, "public", "t", "d", (m.Column(True, "id", 23, -1),))


def begin(commit_lsn: int) -> m.Begin:
    return m.Begin(commit_lsn, 1_000_000, 600)


def commit(commit_lsn: int) -> m.Commit:
    return m.Commit(commit_lsn, commit_lsn + 10, 1_000_000)


def insert(value: int, oid: int = 7) -> m.Insert:
    return m.Insert(0, oid, tuple_of([str(value).encode()]))
