"""The CPU nanoseconds that each component takes for a row: 12-column inserts, binary, 100 rows a transaction.

    python tests/bench/hot_path.py [--rows 200000]

No server takes part: this file makes the frames. The CPU time of this thread counts; each figure is the median of five
passes over all rows.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import struct
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore, SchemaStores
from cdcd.build_info import build
from cdcd.clock import wall_ns
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.modes import Modes
from cdcd.json_events.json_format import JsonFormat
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.pgoutput.tuples import BINARY, Binary, ColumnValue
from cdcd.sink.batches import BatchBuilder
from cdcd.sink.partitioner import split
from cdcd.snapshot.copy_format import SIGNATURE, TableRows
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.event_format import EventFormat
from cdcd.transaction.headed_events import HeadedFormat
from cdcd.transaction.record_headers import CLOUDEVENTS, FIELDS, HeaderChoice
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

sys.path[:0] = [str(Path(__file__).resolve().parents[1])]
from bench.measuring import refuse_uncompiled_import  # noqa: E402

COLUMNS = [
    ("id", 20, "int8", -1),
    ("customer", 23, "int4", -1),
    ("status", 25, "text", -1),
    ("city", 25, "text", -1),
    ("amount", 1700, "numeric", 786438),
    ("placed", 1184, "timestamptz", -1),
    ("due", 1082, "date", -1),
    ("paid", 16, "bool", -1),
    ("details", 3802, "jsonb", -1),
    ("tracking", 2950, "uuid", -1),
    ("weight", 701, "float8", -1),
    ("remark", 25, "text", -1),
]
BURST = 1000


class Catalog:
    """The types of COLUMNS."""

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {oid: PgType(oid, "pg_catalog", name) for _, oid, name, _ in COLUMNS}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return ()

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
        return


def row(i: int) -> list[ColumnValue]:
    """One row in PostgreSQL's binary form."""
    cents = i % 100_000
    return [
        Binary(struct.pack(">q", i)),
        Binary(struct.pack(">i", i % 5000)),
        Binary(b"shipped"),
        Binary(f"city {i % 300}".encode()),
        Binary(struct.pack(">hhHhhh", 2, 0, 0, 2, cents // 100, cents % 100 * 100)),
        Binary(struct.pack(">q", 800_000_000_000_000 + i)),
        Binary(struct.pack(">i", 9000 + i % 365)),
        Binary(b"\1" if i % 2 else b"\0"),
        Binary(b'\1{"n": %d, "tags": ["a", "b"]}' % i),
        Binary(uuid.UUID(int=i).bytes),
        Binary(struct.pack(">d", i * 0.25)),
        Binary(f"remark number {i}".encode()),
    ]


RELATION = m.Relation(
    0, 7, "public", "orders", "d", tuple(m.Column(name == "id", name, oid, typmod) for name, oid, _, typmod in COLUMNS)
)


def copied_row(i: int) -> bytes:
    """One row in COPY's binary format."""
    values = [column.data for column in row(i) if isinstance(column, Binary)]
    return struct.pack(">h", len(values)) + b"".join(struct.pack(">i", len(value)) + value for value in values)


def frames(rows: int) -> list[bytes]:
    """The stream of `rows` inserts, 100 a transaction."""
    messages: list[m.Message] = [m.Begin(1, 0, 5), RELATION, m.Commit(1, 2, 0)]
    for i in range(rows):
        if i % 100 == 0:
            messages.append(m.Begin(100 + i, 0, 5))
        messages.append(m.Insert(0, 7, tuple_of(row(i))))
        if i % 100 == 99 or i == rows - 1:
            messages.append(m.Commit(100 + i - i % 100, 101 + i - i % 100, 0))
    return [XLogData(5, 5, 0, encode(message)).encode() for message in messages]


def measure(name: str, rows: int, work: Callable[[], object]) -> None:
    """Print the CPU time a row: the median of five passes, and the least and the greatest."""
    passes = []
    for _ in range(5):
        began = time.thread_time()
        work()
        passes.append((time.thread_time() - began) / rows * 1e9)
    print(f"{name:40} {statistics.median(passes):8.0f} ns a row   ({min(passes):.0f} to {max(passes):.0f})", flush=True)


def main() -> None:
    """Measure each component, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000, help="rows of a pass (default: 200000)")
    parser.add_argument("--uncompiled", action="store_true", help="measure cdcd even if it is not compiled")
    given = parser.parse_args()
    rows = given.rows
    gc.set_threshold(50_000, 20, 20)  # as `cli.main`
    refuse_uncompiled_import(allowed=given.uncompiled)
    print(f"{rows:,} rows, {build()}")
    stream = frames(rows)
    print(f"{sum(map(len, stream)) / rows:.0f} bytes of frames a row")
    decoder = Decoder()
    inserts = [frame for frame in stream if frame[25] == m.INSERT]
    with tempfile.TemporaryDirectory() as folder:

        def pipeline(headers: tuple[str, ...] = (), *, in_json: bool = False) -> tuple[Assembler, BatchBuilder]:
            batches = BatchBuilder(tombstones=False)
            events: EventFormat = AvroFormat("decimal", "UTF8")
            if in_json:
                events = JsonFormat(AvroFormat("decimal", "UTF8"), with_schemas=False)
            if headers:
                events = HeadedFormat(events, HeaderChoice(headers, "shop", "cdcd", "application/avro"))
            encoder = events.stream_encoder(batches)
            spool = Spool(SpoolDirectory(Path(folder) / "spool"), 1 << 26, 1 << 30)
            return Assembler(decoder, Relations(Catalog()), encoder, spool), batches

        def feed(burst: int, headers: tuple[str, ...] = (), *, in_json: bool = False) -> None:
            assembler, batches = pipeline(headers, in_json=in_json)
            for at in range(0, len(stream), burst):
                assembler.feed(stream[at : at + burst])
                batches.build()

        measure("pgoutput: decode to messages", rows, lambda: [decoder.decode(frame, 25) for frame in inserts])
        for burst in (100, 500, 1000, 4000):
            measure(f"transaction + avro, bursts of {burst}", rows, lambda: feed(burst))  # noqa: B023
        measure(f"transaction + avro + json, bursts of {BURST}", rows, lambda: feed(BURST, in_json=True))
        for headers in (("op", "table"), ("lsn",), FIELDS, (*FIELDS, CLOUDEVENTS)):
            name = f"the same, bursts of {BURST}, headers: {len(headers)} of {len(FIELDS) + 1}"
            measure(name, rows, lambda: feed(BURST, headers))  # noqa: B023

        def debezium(stores: SchemaStores | None) -> None:
            batches = BatchBuilder(tombstones=False)
            events = DebeziumFormat(Modes(), ("shop", "shop"), "UTF8", wall_ns, stores=stores)
            spool = Spool(SpoolDirectory(Path(folder) / "spool"), 1 << 26, 1 << 30)
            assembler = Assembler(decoder, Relations(Catalog()), events.stream_encoder(batches), spool)
            for at in range(0, len(stream), BURST):
                assembler.feed(stream[at : at + BURST])
                batches.build()

        measure(f"transaction + debezium/avro, bursts of {BURST}", rows, lambda: debezium(SchemaStores()))
        measure(f"transaction + debezium/json, bursts of {BURST}", rows, lambda: debezium(None))
        copied = [copied_row(i) for i in range(rows)]

        def copy() -> None:
            batches = BatchBuilder(tombstones=False)
            encoder = EventEncoder(batches, FingerprintStore(batches), TypeOptions())
            encoder.begin_snapshot(1, 1)
            table = TableRows(
                encoder.open_relation(Relations(Catalog()).resolve(RELATION)), bytes([BINARY]) * len(COLUMNS)
            )
            form = table.begin_copy()
            form.row_at(SIGNATURE + bytes(8))
            for at in range(0, rows, BURST):
                table.encode(copied[at : at + BURST], form, 1)
                batches.build()

        measure("snapshot + avro", rows, copy)
        assembler, batches = pipeline()
        taken = []
        for at in range(0, len(stream), BURST):
            assembler.feed(stream[at : at + BURST])
            taken.append(batches.build())
        tables = [table for batch in taken for table in batch.tables]
        measure("sink: split among 4 partitions", rows, lambda: [split(t.messages, t.everywhere, 4) for t in tables])


if __name__ == "__main__":
    main()
