"""Lets one thing grow, and prints how much memory that took: `python tests/property/growth.py subtransactions`.

Before: `test_memory` runs each in a process of its own.
After: one JSON object: what was counted, by how much the process grew (both in bytes), and why it was refused.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.assembly import Catalog

from cdcd.avro.codecs.lookup import TypeOptions
from cdcd.avro.event_encoder import EventEncoder
from cdcd.avro.schema_store import FingerprintStore
from cdcd.errors import SpoolFull
from cdcd.pgoutput import messages as m
from cdcd.sink.batches import BatchBuilder, TableBatch
from cdcd.sink.parking import wire_format
from cdcd.transaction.change_router import ChangeRouter
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

MEBIBYTE = 1 << 20
MEMORY_BYTES = 8 * MEBIBYTE
TOP = 4_294_900_000
"""The xids wrap around while the transaction runs."""


def row(number: int, size: int = 100) -> bytes:
    """A frame."""
    return number.to_bytes(8, "big") + bytes(size - 8)


def table(oid: int, name: str) -> m.Relation:
    """A table of twelve columns."""
    return m.Relation(0, oid, "public", name, "d", tuple(m.Column(at == 0, f"column_{at}", 23, -1) for at in range(12)))


def subtransactions(spool: Spool) -> None:
    """A PL/pgSQL block with EXCEPTION a row, in one transaction."""
    spooled = spool.open(True, TOP)
    for number in range(300_000):
        spooled.append((TOP + 1 + number) % (1 << 32), row(number))
    count = 0
    for piece in spooled.frames():
        assert piece[0] == row(count)
        count += len(piece)
    assert count == 300_000


def rolled_back_subtransactions(spool: Spool) -> None:
    """Every second one is rolled back, and in the end all but one."""
    spooled = spool.open(True, TOP)
    for number in range(200_000):
        xid = (TOP + 1 + number) % (1 << 32)
        spooled.append(xid, row(number))
        if number % 2:
            spooled.roll_back(xid)
    for number in range(199_999, 0, -2):
        spooled.roll_back((TOP + 1 + number) % (1 << 32))
        spooled.roll_back((TOP + number) % (1 << 32))
    assert sum(map(len, spooled.frames())) <= 2


def relations(spool: Spool) -> None:
    """A transaction that touches ever more tables."""
    spooled = spool.open(True, TOP)
    for oid in range(100_000):
        spooled.announce(oid, table(oid, f"t{oid}"), bytes(300))
        spooled.append(TOP, row(oid))


def messages(spool: Spool) -> None:
    """A logical message in each of ever more subtransactions."""
    spooled = spool.open(True, TOP)
    for number in range(200_000):
        spooled.append_message(row(number))
        spooled.append((TOP + 1 + number) % (1 << 32), row(number))


def transactions(spool: Spool) -> None:
    """Ever more transactions in progress."""
    for xid in range(100_000):
        spool.open(True, xid).append(xid, row(xid))


def large_rows(spool: Spool) -> None:
    """Rows that are as large as all memory of the spool."""
    spooled = spool.open(True, TOP)
    for number in range(8):
        spooled.append(TOP, row(number, MEMORY_BYTES))
    for piece in spooled.frames():
        del piece


def prepared_transactions(spool: Spool) -> None:
    """Ever more prepared transactions, between which ever more tables become known."""
    router = ChangeRouter(Relations(Catalog()), _encoder(), {})
    for oid in range(400):
        router.open_relation(table(oid, f"t{oid}"))
    for xid in range(20_000):
        if xid % 10 == 0:
            router.open_relation(table(xid % 400, f"t{xid % 400}"))
        spool.open(False, xid).rely_on(router.known())


def tables_of_one_name(spool: Spool) -> None:
    """A table that is dropped and made again, as a nightly load does."""
    router = ChangeRouter(Relations(Catalog()), _encoder(), {})
    for oid in range(10_000):
        router.open_relation(table(oid, "staging"))


def parked_parts(spool: Spool) -> None:
    """One value of 64 MB that goes to the parked topic."""
    batch = TableBatch("public", "t")
    batch.messages.append({"key": b"k", "value": bytes(64 * MEBIBYTE)})
    batch.ops.append(99)
    given = 0
    for piece in wire_format.pieces(wire_format.records(b"k", "too large", batch)):
        given += len(piece)
    assert given == -(-64 * MEBIBYTE // wire_format.PART_BYTES)


GROWTHS: dict[str, Callable[[Spool], None]] = {
    each.__name__: each
    for each in (
        subtransactions, rolled_back_subtransactions, relations, messages, transactions, large_rows,
        prepared_transactions, tables_of_one_name, parked_parts,
    )
}  # fmt: skip


def _encoder() -> EventEncoder:
    batches = BatchBuilder(tombstones=False)
    return EventEncoder(batches, FingerprintStore(batches), TypeOptions())


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    """Let it grow, until its end or until the spool is full."""
    with TemporaryDirectory() as folder:
        spool = Spool(SpoolDirectory(Path(folder) / "spool"), MEMORY_BYTES, 1 << 30)
        before = _peak_bytes()
        refused = ""
        try:
            GROWTHS[sys.argv[1]](spool)
        except SpoolFull as error:
            refused = str(error)
        print(json.dumps({"counted": spool.memory_bytes, "grown": _peak_bytes() - before, "refused": refused}))
        spool.close()


if __name__ == "__main__":
    main()
