"""Messages in, the server's bytes out.

Before: `messages` and `tuples` are the values. Tests write the rows as lists of Python values.
After: `decoder` gives the same messages back. The tests' server sends the bytes; `avro.event_encoder` encodes the row
of a logical message.

Not a hot path. Values that no message can hold are the caller's fault and raise ValueError.

Source: PostgreSQL, "Logical Replication Message Formats"; `logicalrep_write_*` in proto.c.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.tuples import BINARY, NULL, TEXT, TOAST_UNCHANGED, Binary, ColumnValue, TupleData, Unchanged


def encode(message: m.Message) -> bytes:
    """Write `message` as the server would, its type byte first. Raises ValueError if a field does not fit its place.

    R, Y, I, U, D, T and M come out in their streamed form exactly if their `xid` is not 0, and Stream Abort in that of
    `streaming 'parallel'` exactly if it has an `abort_lsn`.
    """
    body = _transaction(message)
    if body is None:
        body = _change(message)
    if body is None:
        body = _stream(message)
    if body is None:
        body = _two_phase(message)
    if body is None:
        raise ValueError(f"{type(message).__name__} is not a pgoutput message")
    return body


def encode_tuple(values: Sequence[ColumnValue]) -> bytes:
    """Write TupleData: None as `n`, UNCHANGED as `u`, plain bytes as `t` (text form), Binary as `b`."""
    parts = [_pack(">h", len(values))]
    for value in values:
        if value is None:
            parts.append(bytes([NULL]))
        elif isinstance(value, Unchanged):
            parts.append(bytes([TOAST_UNCHANGED]))
        elif isinstance(value, Binary):
            parts.append(_pack(">Bi", BINARY, len(value.data)) + value.data)
        else:
            parts.append(_pack(">Bi", TEXT, len(value)) + value)
    return b"".join(parts)


def tuple_of(values: Sequence[ColumnValue]) -> TupleData:
    """Make the TupleData of `values` in a frame of its own: a row for an Insert, Update or Delete."""
    frame = encode_tuple(values)
    return TupleData(frame, 0, len(frame), len(values))


def _transaction(message: m.Message) -> bytes | None:
    if isinstance(message, m.Begin):
        return _pack(">BqqI", m.BEGIN, message.final_lsn, message.commit_time, message.xid)
    if isinstance(message, m.Commit):
        return _pack(">BBqqq", m.COMMIT, 0, message.commit_lsn, message.end_lsn, message.commit_time)
    if isinstance(message, m.Origin):
        return _pack(">Bq", m.ORIGIN, message.origin_lsn) + _string(message.name)
    if isinstance(message, m.Relation):
        names = _namespace(message.nspname) + _string(message.relname)
        identity = _pack(">Bh", ord(message.replica_identity), len(message.columns))
        columns = b"".join([_column(column) for column in message.columns])
        return _head(m.RELATION, message.xid) + _pack(">I", message.relation_oid) + names + identity + columns
    if isinstance(message, m.Type):
        head = _head(m.TYPE, message.xid) + _pack(">I", message.type_oid)
        return head + _namespace(message.nspname) + _string(message.typname)
    return None


def _change(message: m.Message) -> bytes | None:
    if isinstance(message, m.Insert):
        head = _head(m.INSERT, message.xid) + _pack(">I", message.relation_oid)
        return head + _row(m.NEW, message.new)
    if isinstance(message, m.Update):
        head = _head(m.UPDATE, message.xid) + _pack(">I", message.relation_oid)
        old = b"" if message.old is None else _row(message.old_kind, message.old)
        return head + old + _row(m.NEW, message.new)
    if isinstance(message, m.Delete):
        head = _head(m.DELETE, message.xid) + _pack(">I", message.relation_oid)
        return head + _row(message.old_kind, message.old)
    if isinstance(message, m.Truncate):
        flags = int(message.cascade) | int(message.restart_identity) << 1
        oids = b"".join([_pack(">I", oid) for oid in message.relation_oids])
        return _head(m.TRUNCATE, message.xid) + _pack(">iB", len(message.relation_oids), flags) + oids
    if isinstance(message, m.LogicalMessage):
        head = _head(m.MESSAGE, message.xid) + _pack(">Bq", int(message.transactional), message.lsn)
        return head + _string(message.prefix) + _pack(">i", len(message.content)) + message.content
    return None


def _stream(message: m.Message) -> bytes | None:
    if isinstance(message, m.StreamStart):
        return _pack(">BIB", m.STREAM_START, message.xid, int(message.first_segment))
    if isinstance(message, m.StreamStop):
        return bytes([m.STREAM_STOP])
    if isinstance(message, m.StreamCommit):
        head = _pack(">BIB", m.STREAM_COMMIT, message.xid, 0)
        return head + _pack(">qqq", message.commit_lsn, message.end_lsn, message.commit_time)
    if isinstance(message, m.StreamAbort):
        head = _pack(">BII", m.STREAM_ABORT, message.xid, message.subxid)
        if message.abort_lsn is None or message.abort_time is None:
            return head
        return head + _pack(">qq", message.abort_lsn, message.abort_time)
    return None


def _two_phase(message: m.Message) -> bytes | None:
    if isinstance(message, m.BeginPrepare):
        head = _pack(">Bqq", m.BEGIN_PREPARE, message.prepare_lsn, message.end_lsn)
        return head + _pack(">qI", message.prepare_time, message.xid) + _string(message.gid)
    if isinstance(message, m.Prepare):
        head = _pack(">BBqq", m.PREPARE, 0, message.prepare_lsn, message.end_lsn)
        return head + _pack(">qI", message.prepare_time, message.xid) + _string(message.gid)
    if isinstance(message, m.StreamPrepare):
        head = _pack(">BBqq", m.STREAM_PREPARE, 0, message.prepare_lsn, message.end_lsn)
        return head + _pack(">qI", message.prepare_time, message.xid) + _string(message.gid)
    if isinstance(message, m.CommitPrepared):
        head = _pack(">BBqq", m.COMMIT_PREPARED, 0, message.commit_lsn, message.end_lsn)
        return head + _pack(">qI", message.commit_time, message.xid) + _string(message.gid)
    if isinstance(message, m.RollbackPrepared):
        head = _pack(">BBqq", m.ROLLBACK_PREPARED, 0, message.prepare_end_lsn, message.rollback_end_lsn)
        return head + _pack(">qqI", message.prepare_time, message.rollback_time, message.xid) + _string(message.gid)
    return None


def _head(kind: int, xid: int) -> bytes:
    return _pack(">BI", kind, xid) if xid else bytes([kind])


def _row(kind: int, row: TupleData) -> bytes:
    return bytes([kind]) + row.frame[row.at : row.end]


def _column(column: m.Column) -> bytes:
    return bytes([int(column.is_key)]) + _string(column.name) + _pack(">Ii", column.type_oid, column.typmod)


def _namespace(name: str) -> bytes:
    return _string("" if name == "pg_catalog" else name)


def _string(text: str) -> bytes:
    data = text.encode("utf-8")
    if b"\0" in data:
        raise ValueError("a string of the protocol cannot hold a zero byte")
    return data + b"\0"


def _pack(layout: str, *fields: int) -> bytes:
    try:
        return struct.pack(layout, *fields)
    except struct.error as error:
        raise ValueError(f"a field does not fit its place: {error}") from None
