"""Every pgoutput message as literal bytes, written by hand from the protocol's documentation, not by cdcd's encoder.

A sample has the bytes that the server sends (`frame`), two facts that the bytes do not say (`in_stream`, `parallel`),
and the message that the bytes mean.
Source: PostgreSQL, "Logical Replication Message Formats".
"""

from __future__ import annotations

from dataclasses import dataclass

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.tuples import TupleData


@dataclass(frozen=True)
class Sample:
    name: str
    frame: bytes
    message: m.Message
    in_stream: bool = False
    parallel: bool = False


def row(hexadecimal: str) -> TupleData:
    """TupleData from its literal bytes."""
    data = bytes.fromhex(hexadecimal)
    return TupleData(data, 0, len(data), int.from_bytes(data[:2], "big"))


LSN = "00000016B374D848"  # 16/B374D848
END = "00000016B374D878"
TIME = "0002BC4A3D9E5F40"
XID = "000002F1"
SUBXID = "000002F3"
OID = "00004003"
ONE_TEXT = "0001 74 00000001 31"  # one column: '1'
ONE_NULL = "0001 6E"
MIXED = "0004 6E 75 74 00000002 4869 62 00000004 0000002A"  # null, unchanged TOAST, text 'Hi', binary int4 42
EMPTY = "0000"
GID = "676964 00"  # 'gid'

lsn, end, time, xid, subxid, oid = 0x16B374D848, 0x16B374D878, 0x2BC4A3D9E5F40, 753, 755, 16387

_RELATION_BODY = (
    f"{OID} 7075626C696300 7400 64 0002"  # public, t, default, two columns
    " 01 696400 00000017 FFFFFFFF"  # key, id, int4, -1
    " 00 616D6F756E7400 000006A4 000C0006"  # amount, numeric, (12,2)
)
_COLUMNS = (m.Column(True, "id", 23, -1), m.Column(False, "amount", 1700, 0x000C0006))


def _sample(name: str, hexadecimal: str, message: m.Message, in_stream: bool = False, parallel: bool = False) -> Sample:
    return Sample(name, bytes.fromhex(hexadecimal), message, in_stream, parallel)


SAMPLES = [
    # Protocol 1
    _sample("begin", f"42 {LSN} {TIME} {XID}", m.Begin(lsn, time, xid)),
    _sample("begin before 2000", f"42 {LSN} FFFFFFFFFFFFFFFF FFFFFFFF", m.Begin(lsn, -1, 0xFFFFFFFF)),
    _sample("commit", f"43 00 {LSN} {END} {TIME}", m.Commit(lsn, end, time)),
    _sample("origin", f"4F {LSN} 6E6F64652D6100", m.Origin(lsn, "node-a")),
    _sample("origin without LSN", "4F 0000000000000000 C3A900", m.Origin(0, "é")),
    _sample("relation", f"52 {_RELATION_BODY}", m.Relation(0, oid, "public", "t", "d", _COLUMNS)),
    _sample(
        "relation of pg_catalog",
        f"52 FFFFFFFE 00 7400 66 {EMPTY}",
        m.Relation(0, 2**32 - 2, "pg_catalog", "t", "f", ()),
    ),
    _sample("type", f"59 {OID} 7075626C696300 6D6F6F6400", m.Type(0, oid, "public", "mood")),
    _sample("type of a domain", f"59 {OID} 00 696E743400", m.Type(0, oid, "pg_catalog", "int4")),
    _sample("insert", f"49 {OID} 4E {MIXED}", m.Insert(0, oid, row(MIXED))),
    _sample("insert without columns", f"49 {OID} 4E {EMPTY}", m.Insert(0, oid, row(EMPTY))),
    _sample("update", f"55 {OID} 4E {MIXED}", m.Update(0, oid, m.NO_OLD, None, row(MIXED))),
    _sample(
        "update of the key", f"55 {OID} 4B {ONE_TEXT} 4E {MIXED}", m.Update(0, oid, m.KEY, row(ONE_TEXT), row(MIXED))
    ),
    _sample(
        "update, identity full",
        f"55 {OID} 4F {ONE_NULL} 4E {ONE_TEXT}",
        m.Update(0, oid, m.OLD, row(ONE_NULL), row(ONE_TEXT)),
    ),
    _sample("delete by key", f"44 {OID} 4B {ONE_TEXT}", m.Delete(0, oid, m.KEY, row(ONE_TEXT))),
    _sample("delete, identity full", f"44 {OID} 4F {MIXED}", m.Delete(0, oid, m.OLD, row(MIXED))),
    _sample("truncate", f"54 00000002 03 {OID} FFFFFFFF", m.Truncate(0, (oid, 2**32 - 1), True, True)),
    _sample("truncate, cascade", f"54 00000001 01 {OID}", m.Truncate(0, (oid,), True, False)),
    _sample("truncate, restart identity", f"54 00000001 02 {OID}", m.Truncate(0, (oid,), False, True)),
    _sample("message", f"4D 01 {LSN} 6D7900 00000003 00FF61", m.LogicalMessage(0, True, lsn, "my", b"\0\xffa")),
    _sample("message outside of transactions", f"4D 00 {LSN} 00 00000000", m.LogicalMessage(0, False, lsn, "", b"")),
    # Protocol 2: the same messages inside a stream block, with the xid of their (sub)transaction
    _sample(
        "streamed relation",
        f"52 {SUBXID} {_RELATION_BODY}",
        m.Relation(subxid, oid, "public", "t", "d", _COLUMNS),
        True,
    ),
    _sample("streamed type", f"59 {SUBXID} {OID} 7300 6E00", m.Type(subxid, oid, "s", "n"), True),
    _sample("streamed insert", f"49 {SUBXID} {OID} 4E {MIXED}", m.Insert(subxid, oid, row(MIXED)), True),
    _sample("streamed insert, high xid", f"49 FFFFFFFF {OID} 4E {EMPTY}", m.Insert(2**32 - 1, oid, row(EMPTY)), True),
    _sample(
        "streamed update",
        f"55 {XID} {OID} 4B {ONE_TEXT} 4E {MIXED}",
        m.Update(xid, oid, m.KEY, row(ONE_TEXT), row(MIXED)),
        True,
    ),
    _sample("streamed delete", f"44 {XID} {OID} 4F {ONE_TEXT}", m.Delete(xid, oid, m.OLD, row(ONE_TEXT)), True),
    _sample("streamed truncate", f"54 {XID} 00000001 00 {OID}", m.Truncate(xid, (oid,), False, False), True),
    _sample(
        "streamed message", f"4D {XID} 01 {LSN} 7000 00000001 78", m.LogicalMessage(xid, True, lsn, "p", b"x"), True
    ),
    _sample("streamed origin", f"4F {LSN} 6100", m.Origin(lsn, "a"), True),
    _sample("stream start", f"53 {XID} 01", m.StreamStart(xid, True)),
    _sample("stream start again", f"53 {XID} 00", m.StreamStart(xid, False)),
    _sample("stream stop", "45", m.StreamStop(), True),
    _sample("stream commit", f"63 {XID} 00 {LSN} {END} {TIME}", m.StreamCommit(xid, lsn, end, time)),
    _sample("stream abort", f"41 {XID} {SUBXID}", m.StreamAbort(xid, subxid)),
    # Protocol 3
    _sample("begin prepare", f"62 {LSN} {END} {TIME} {XID} {GID}", m.BeginPrepare(lsn, end, time, xid, "gid")),
    _sample("prepare", f"50 00 {LSN} {END} {TIME} {XID} {GID}", m.Prepare(lsn, end, time, xid, "gid")),
    _sample("commit prepared", f"4B 00 {LSN} {END} {TIME} {XID} {GID}", m.CommitPrepared(lsn, end, time, xid, "gid")),
    _sample(
        "rollback prepared",
        f"72 00 {LSN} {END} {TIME} 0000000000000001 {XID} {GID}",
        m.RollbackPrepared(lsn, end, time, 1, xid, "gid"),
    ),
    _sample("stream prepare", f"70 00 {LSN} {END} {TIME} {XID} {GID}", m.StreamPrepare(lsn, end, time, xid, "gid")),
    # Protocol 4 with streaming 'parallel'
    _sample(
        "parallel stream abort", f"41 {XID} {SUBXID} {LSN} {TIME}", m.StreamAbort(xid, subxid, lsn, time), parallel=True
    ),
    _sample(
        "parallel stream abort after a crash",
        f"41 {XID} {XID} 0000000000000000 {TIME}",
        m.StreamAbort(xid, xid, 0, time),
        parallel=True,
    ),
]
