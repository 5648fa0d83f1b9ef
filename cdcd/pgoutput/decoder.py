"""Bytes in, one message out: all of protocol versions 1 to 4.

Before: `source` delivers frames; `transaction.assembler` knows whether a stream block is open.
After: the result is one of the `messages`; `encoder` turns it into bytes again.

The meaning of the bytes depends on two facts that are not in them:

- Between Stream Start and Stream Stop the messages R, Y, I, U, D, T and M carry an xid after their type byte, and
  elsewhere they do not: the caller says which. (An M that is not transactional never comes inside.)
- Stream Abort carries an LSN and a time if, and only if, replication was started with `streaming 'parallel'`. Protocol
  version 4 alone does not make it so.

Source: PostgreSQL, "Logical Replication Message Formats"; `logicalrep_read_*` in proto.c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from librt.strings import read_i64_be
from mypy_extensions import i64

from cdcd.pgoutput import messages as m
from cdcd.pgoutput.cursor import Cursor, short
from cdcd.pgoutput.tuples import TupleData, read_tuple


@final
class Decoder:
    """Turns frames into messages. It holds the stream's options and nothing else, so several streams may share one."""

    def __init__(
        self, streaming_parallel: bool = False, to_text: Callable[[bytes], str] | None = None, lsn_base: i64 = 0
    ) -> None:
        """`streaming_parallel`: replication was started with `streaming 'parallel'` (PostgreSQL 16 and later).

        `to_text` gives names that come in the database's own encoding; None: they come as UTF-8. `lsn_base` is added to
        every LSN of this server (`cdcd.lsn`), but not to those of its replication origins.
        """
        self.streaming_parallel: Final = streaming_parallel
        self.lsn_base: i64 = lsn_base
        self._to_text = to_text

    def position(self, frame: bytes) -> i64:
        """The position in the header of an XLogData frame, with `lsn_base`."""
        return read_i64_be(frame, 1) + self.lsn_base

    def decode(self, frame: bytes, at: i64 = 0, in_stream: bool = False) -> m.Message:
        """Read the message that starts at `at` (0 or more) and ends where `frame` ends.

        In an XLogData frame `at` is 25, after the header. `in_stream`: a stream block is open.
        Rows are not copied: the message keeps the frame. Raises DecodeError (the server's fault), and nothing else, for
        bytes that are not exactly one message.
        """
        if at >= len(frame):
            raise short("pgoutput message", "type", 0, 1, 0)
        kind: i64 = frame[at]
        message: m.Message
        # The frequent messages save the look-up of their name, which only errors need.
        if kind == m.INSERT:
            cursor = Cursor(frame, at, "Insert")
            message = _insert(cursor, in_stream)
        elif kind == m.UPDATE:
            cursor = Cursor(frame, at, "Update")
            message = _update(cursor, in_stream)
        elif kind == m.DELETE:
            cursor = Cursor(frame, at, "Delete")
            message = _delete(cursor, in_stream)
        elif kind == m.BEGIN:
            cursor = Cursor(frame, at, "Begin")
            cursor.lsn_base = self.lsn_base
            message = m.Begin(cursor.lsn("final_lsn"), cursor.int64("commit_time"), cursor.xid("xid"))
        elif kind == m.COMMIT:
            cursor = Cursor(frame, at, "Commit")
            cursor.lsn_base = self.lsn_base
            cursor.flags("flags", 0)
            message = m.Commit(cursor.lsn("commit_lsn"), cursor.lsn("end_lsn"), cursor.int64("commit_time"))
        else:
            cursor = Cursor(frame, at, m.NAMES.get(kind, "pgoutput message"))
            cursor.to_text = self._to_text
            cursor.lsn_base = self.lsn_base
            message = self._rarer(cursor, kind, in_stream)
        cursor.finish()
        return message

    def _rarer(self, cursor: Cursor, kind: i64, in_stream: bool) -> m.Message:
        if kind == m.ORIGIN:
            return m.Origin(cursor.lsn_or_zero("origin_lsn"), cursor.string("name"))
        if kind == m.RELATION:
            return _relation(cursor, in_stream)
        if kind == m.TYPE:
            xid = _xid(cursor, in_stream)
            return m.Type(xid, cursor.oid("type_oid"), cursor.namespace("nspname"), cursor.string("typname"))
        if kind == m.TRUNCATE:
            return _truncate(cursor, in_stream)
        if kind == m.MESSAGE:
            return _logical_message(cursor, in_stream)
        if kind == m.STREAM_ABORT:
            return _stream_abort(cursor, self.streaming_parallel)
        return _stream(cursor, kind)


def _xid(cursor: Cursor, in_stream: bool) -> i64:
    return cursor.xid("xid") if in_stream else 0


def _insert(cursor: Cursor, in_stream: bool) -> m.Insert:
    xid = _xid(cursor, in_stream)
    relation_oid = cursor.oid("relation_oid")
    _new_follows(cursor)
    return m.Insert(xid, relation_oid, read_tuple(cursor, "new tuple"))


def _update(cursor: Cursor, in_stream: bool) -> m.Update:
    xid = _xid(cursor, in_stream)
    relation_oid = cursor.oid("relation_oid")
    old_kind = cursor.byte("tuple kind")
    old: TupleData | None = None
    if old_kind == m.NEW:
        old_kind = m.NO_OLD
    elif old_kind in (m.KEY, m.OLD):
        old = read_tuple(cursor, "old tuple")
        _new_follows(cursor)
    else:
        raise cursor.unexpected("tuple kind", "K, O or N")
    return m.Update(xid, relation_oid, old_kind, old, read_tuple(cursor, "new tuple"))


def _delete(cursor: Cursor, in_stream: bool) -> m.Delete:
    xid = _xid(cursor, in_stream)
    relation_oid = cursor.oid("relation_oid")
    old_kind = cursor.byte("tuple kind")
    if old_kind not in (m.KEY, m.OLD):
        raise cursor.unexpected("tuple kind", "K or O")
    return m.Delete(xid, relation_oid, old_kind, read_tuple(cursor, "old tuple"))


def _new_follows(cursor: Cursor) -> None:
    if cursor.byte("tuple kind") != m.NEW:
        raise cursor.unexpected("tuple kind", "N")


def _relation(cursor: Cursor, in_stream: bool) -> m.Relation:
    xid = _xid(cursor, in_stream)
    relation_oid = cursor.oid("relation_oid")
    nspname = cursor.namespace("nspname")
    relname = cursor.string("relname")
    replica_identity = chr(cursor.byte("replica_identity"))
    if replica_identity not in "dnfi":
        raise cursor.unexpected("replica_identity", "d, n, f or i")
    natts = cursor.count16("natts")
    columns: list[m.Column] = []
    for _ in range(natts):
        is_key = cursor.flags("column flags", 1) != 0
        columns.append(m.Column(is_key, cursor.string("attname"), cursor.oid("atttypid"), cursor.int32("atttypmod")))
    return m.Relation(xid, relation_oid, nspname, relname, replica_identity, tuple(columns))


def _truncate(cursor: Cursor, in_stream: bool) -> m.Truncate:
    xid = _xid(cursor, in_stream)
    nrelids = cursor.count32("nrelids")
    flags = cursor.flags("options", 3)
    # However large the number is, the frame's end stops it.
    relation_oids: list[int] = [cursor.oid("relation_oid") for _ in range(nrelids)]
    return m.Truncate(xid, tuple(relation_oids), flags & 1 != 0, flags & 2 != 0)


def _logical_message(cursor: Cursor, in_stream: bool) -> m.LogicalMessage:
    xid = _xid(cursor, in_stream)
    transactional = cursor.flags("flags", 1) != 0
    lsn = cursor.lsn_or_zero("lsn") + cursor.lsn_base
    prefix = cursor.string_of_any_encoding("prefix")
    return m.LogicalMessage(xid, transactional, lsn, prefix, cursor.counted("content"))


def _stream_abort(cursor: Cursor, parallel: bool) -> m.StreamAbort:
    xid = cursor.xid("xid")
    subxid = cursor.xid("subxid")
    if not parallel:
        return m.StreamAbort(xid, subxid)
    lsn = cursor.lsn_or_zero("abort_lsn") + cursor.lsn_base
    return m.StreamAbort(xid, subxid, lsn, cursor.int64("abort_time"))


def _stream(cursor: Cursor, kind: i64) -> m.Message:
    if kind == m.STREAM_START:
        return m.StreamStart(cursor.xid("xid"), cursor.flags("first_segment", 1) != 0)
    if kind == m.STREAM_STOP:
        return m.StreamStop()
    if kind == m.STREAM_COMMIT:
        xid = cursor.xid("xid")
        cursor.flags("flags", 0)
        return m.StreamCommit(xid, cursor.lsn("commit_lsn"), cursor.lsn("end_lsn"), cursor.int64("commit_time"))
    return _two_phase(cursor, kind)


def _two_phase(cursor: Cursor, kind: i64) -> m.Message:
    if kind == m.BEGIN_PREPARE:
        lsn, end_lsn, time = cursor.lsn("prepare_lsn"), cursor.lsn("end_lsn"), cursor.int64("prepare_time")
        return m.BeginPrepare(lsn, end_lsn, time, cursor.xid("xid"), cursor.string("gid"))
    if kind == m.PREPARE:
        cursor.flags("flags", 0)
        lsn, end_lsn, time = cursor.lsn("prepare_lsn"), cursor.lsn("end_lsn"), cursor.int64("prepare_time")
        return m.Prepare(lsn, end_lsn, time, cursor.xid("xid"), cursor.string("gid"))
    if kind == m.STREAM_PREPARE:
        cursor.flags("flags", 0)
        lsn, end_lsn, time = cursor.lsn("prepare_lsn"), cursor.lsn("end_lsn"), cursor.int64("prepare_time")
        return m.StreamPrepare(lsn, end_lsn, time, cursor.xid("xid"), cursor.string("gid"))
    if kind == m.COMMIT_PREPARED:
        cursor.flags("flags", 0)
        lsn, end_lsn, time = cursor.lsn("commit_lsn"), cursor.lsn("end_lsn"), cursor.int64("commit_time")
        return m.CommitPrepared(lsn, end_lsn, time, cursor.xid("xid"), cursor.string("gid"))
    if kind == m.ROLLBACK_PREPARED:
        return _rollback_prepared(cursor)
    raise cursor.unexpected("type", "one of BCORYIUDTM, SEcA or bPKrp")


def _rollback_prepared(cursor: Cursor) -> m.RollbackPrepared:
    cursor.flags("flags", 0)
    prepare_end_lsn = cursor.lsn("prepare_end_lsn")
    rollback_end_lsn = cursor.lsn("rollback_end_lsn")
    prepare_time = cursor.int64("prepare_time")
    rollback_time = cursor.int64("rollback_time")
    xid, gid = cursor.xid("xid"), cursor.string("gid")
    return m.RollbackPrepared(prepare_end_lsn, rollback_end_lsn, prepare_time, rollback_time, xid, gid)
