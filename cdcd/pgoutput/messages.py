"""The vocabulary of pgoutput: one small class for each message, its fields in PostgreSQL's own words.

Before: `decoder` makes the messages from bytes (`tuples` describes the rows of Insert, Update and Delete).
After: `transaction.assembler` dispatches on them; `encoder` turns them into bytes again.

The vocabulary is complete, though the daemon does not need all of it: it never makes an Insert, Update or Delete, but
transcodes rows in their frames (`transaction.change_router`, `avro.event_encoder`). Tests write and compare them.

Units: an LSN is an int, 0 to 2**63 - 1; a time is microseconds since 2000-01-01 UTC, signed; an OID or xid is unsigned,
below 2**32. In R, Y, I, U, D, T and M the `xid` is that of the (sub)transaction if the message came inside a stream
block, and 0 if it did not. Messages are values: nothing changes them, equal fields make equal messages, and no `repr`
shows a row's values or a message's content.

Source: PostgreSQL, "Logical Replication Message Formats"; `src/include/replication/logicalproto.h`.
"""

from __future__ import annotations

from typing import ClassVar, Final, final

from mypy_extensions import i64, mypyc_attr

from cdcd.lsn import format_lsn
from cdcd.pgoutput.tuples import TupleData

# The type bytes, for dispatching before decoding.
BEGIN: Final = 0x42  # 'B'
COMMIT: Final = 0x43  # 'C'
ORIGIN: Final = 0x4F  # 'O'
RELATION: Final = 0x52  # 'R'
TYPE: Final = 0x59  # 'Y'
INSERT: Final = 0x49  # 'I'
UPDATE: Final = 0x55  # 'U'
DELETE: Final = 0x44  # 'D'
TRUNCATE: Final = 0x54  # 'T'
MESSAGE: Final = 0x4D  # 'M'
STREAM_START: Final = 0x53  # 'S', since protocol 2, as the next three
STREAM_STOP: Final = 0x45  # 'E'
STREAM_COMMIT: Final = 0x63  # 'c'
STREAM_ABORT: Final = 0x41  # 'A'
BEGIN_PREPARE: Final = 0x62  # 'b', since protocol 3, as the rest
PREPARE: Final = 0x50  # 'P'
COMMIT_PREPARED: Final = 0x4B  # 'K'
ROLLBACK_PREPARED: Final = 0x72  # 'r'
STREAM_PREPARE: Final = 0x70  # 'p'

NAMES: Final[dict[int, str]] = {
    BEGIN: "Begin",
    COMMIT: "Commit",
    ORIGIN: "Origin",
    RELATION: "Relation",
    TYPE: "Type",
    INSERT: "Insert",
    UPDATE: "Update",
    DELETE: "Delete",
    TRUNCATE: "Truncate",
    MESSAGE: "Message",
    STREAM_START: "Stream Start",
    STREAM_STOP: "Stream Stop",
    STREAM_COMMIT: "Stream Commit",
    STREAM_ABORT: "Stream Abort",
    BEGIN_PREPARE: "Begin Prepare",
    PREPARE: "Prepare",
    COMMIT_PREPARED: "Commit Prepared",
    ROLLBACK_PREPARED: "Rollback Prepared",
    STREAM_PREPARE: "Stream Prepare",
}
"""The name of each message, in PostgreSQL's documentation and in cdcd's errors."""

# The kinds of tuples in an Update or Delete.
NO_OLD: Final = 0
KEY: Final = 0x4B  # 'K': the replica identity's columns; the others are null
OLD: Final = 0x4F  # 'O': all columns (REPLICA IDENTITY FULL)
NEW: Final = 0x4E  # 'N'


class Message:
    """Any pgoutput message; `__match_args__` names its fields, in the order of its constructor."""

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _fields(self) -> list[object]:
        return [getattr(self, name) for name in type(self).__match_args__]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(self) is type(other) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((type(self), *self._fields()))

    def __repr__(self) -> str:
        shown = [f"{name}={_show(name, getattr(self, name))}" for name in type(self).__match_args__]
        return f"{type(self).__name__}({', '.join(shown)})"


def _show(name: str, value: object) -> str:
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, int) and name.endswith("lsn"):
        return format_lsn(value)
    return repr(value)


# Transactions


@final
class Begin(Message):
    """B: a transaction starts. It has committed already: `final_lsn` is the LSN of its commit record."""

    __match_args__ = ("final_lsn", "commit_time", "xid")

    def __init__(self, final_lsn: i64, commit_time: i64, xid: i64) -> None:
        self.final_lsn: Final[i64] = final_lsn
        self.commit_time: Final[i64] = commit_time
        self.xid: Final[i64] = xid


@final
class Commit(Message):
    """C: the transaction ends. It is acknowledged by `end_lsn`."""

    __match_args__ = ("commit_lsn", "end_lsn", "commit_time")

    def __init__(self, commit_lsn: i64, end_lsn: i64, commit_time: i64) -> None:
        self.commit_lsn: Final[i64] = commit_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.commit_time: Final[i64] = commit_time


@final
class Origin(Message):
    """O, after Begin or Stream Start: the transaction came from `name`, where it was at `origin_lsn` (0: unknown)."""

    __match_args__ = ("origin_lsn", "name")

    def __init__(self, origin_lsn: i64, name: str) -> None:
        self.origin_lsn: Final[i64] = origin_lsn
        self.name: Final = name


# Schema


@final
class Column:
    """One column of a Relation. `is_key`: it is part of the replica identity (with FULL every column is)."""

    def __init__(self, is_key: bool, name: str, type_oid: i64, typmod: i64) -> None:
        self.is_key: Final = is_key
        self.name: Final = name
        self.type_oid: Final[i64] = type_oid
        self.typmod: Final[i64] = typmod

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Column):
            return False
        same_name = self.name == other.name and self.is_key == other.is_key
        return same_name and self.type_oid == other.type_oid and self.typmod == other.typmod

    def __hash__(self) -> int:
        return hash((self.is_key, self.name, self.type_oid, self.typmod))

    def __repr__(self) -> str:
        return f"Column(is_key={self.is_key}, name={self.name!r}, type_oid={self.type_oid}, typmod={self.typmod})"


@final
class Relation(Message):
    """R: a table, as it is for the rows that follow.

    `replica_identity` is `relreplident`: d default, n nothing, f full, i index.
    """

    __match_args__ = ("xid", "relation_oid", "nspname", "relname", "replica_identity", "columns")

    def __init__(
        self,
        xid: i64,
        relation_oid: i64,
        nspname: str,
        relname: str,
        replica_identity: str,
        columns: tuple[Column, ...],
    ) -> None:
        self.xid: Final[i64] = xid
        self.relation_oid: Final[i64] = relation_oid
        self.nspname: Final = nspname
        self.relname: Final = relname
        self.replica_identity: Final = replica_identity
        self.columns: Final = columns


@final
class Type(Message):
    """Y: the name of a type that is not built in. A domain has its own OID, but the name of its *base* type."""

    __match_args__ = ("xid", "type_oid", "nspname", "typname")

    def __init__(self, xid: i64, type_oid: i64, nspname: str, typname: str) -> None:
        self.xid: Final[i64] = xid
        self.type_oid: Final[i64] = type_oid
        self.nspname: Final = nspname
        self.typname: Final = typname


# Changes


@final
@mypyc_attr(free_list_len=1)
class Insert(Message):
    """I: a new row."""

    __match_args__ = ("xid", "relation_oid", "new")

    def __init__(self, xid: i64, relation_oid: i64, new: TupleData) -> None:
        self.xid: Final[i64] = xid
        self.relation_oid: Final[i64] = relation_oid
        self.new: Final = new


@final
class Update(Message):
    """U: a changed row. `old_kind` is NO_OLD (`old` is None), KEY (sent if the key changed or is TOASTed) or OLD."""

    __match_args__ = ("xid", "relation_oid", "old_kind", "old", "new")

    def __init__(self, xid: i64, relation_oid: i64, old_kind: i64, old: TupleData | None, new: TupleData) -> None:
        self.xid: Final[i64] = xid
        self.relation_oid: Final[i64] = relation_oid
        self.old_kind: Final[i64] = old_kind
        self.old: Final = old
        self.new: Final = new


@final
class Delete(Message):
    """D: a deleted row. `old_kind` is KEY or OLD."""

    __match_args__ = ("xid", "relation_oid", "old_kind", "old")

    def __init__(self, xid: i64, relation_oid: i64, old_kind: i64, old: TupleData) -> None:
        self.xid: Final[i64] = xid
        self.relation_oid: Final[i64] = relation_oid
        self.old_kind: Final[i64] = old_kind
        self.old: Final = old


@final
class Truncate(Message):
    """T: one command emptied these tables, including those that CASCADE reached."""

    __match_args__ = ("xid", "relation_oids", "cascade", "restart_identity")

    def __init__(self, xid: i64, relation_oids: tuple[int, ...], cascade: bool, restart_identity: bool) -> None:
        self.xid: Final[i64] = xid
        self.relation_oids: Final = relation_oids
        self.cascade: Final = cascade
        self.restart_identity: Final = restart_identity


@final
class LogicalMessage(Message):
    """M: a message of `pg_logical_emit_message` at `lsn`. It is part of a transaction only if `transactional`."""

    __match_args__ = ("xid", "transactional", "lsn", "prefix", "content")

    def __init__(self, xid: i64, transactional: bool, lsn: i64, prefix: str, content: bytes) -> None:
        self.xid: Final[i64] = xid
        self.transactional: Final = transactional
        self.lsn: Final[i64] = lsn
        self.prefix: Final = prefix
        self.content: Final = content


# Transactions in progress (protocol 2)


@final
class StreamStart(Message):
    """S: a block of the top-level transaction `xid` follows. `first_segment`: it is the transaction's first."""

    __match_args__ = ("xid", "first_segment")

    def __init__(self, xid: i64, first_segment: bool) -> None:
        self.xid: Final[i64] = xid
        self.first_segment: Final = first_segment


@final
class StreamStop(Message):
    """E: the block ends."""


@final
class StreamCommit(Message):
    """c: the streamed transaction `xid` has committed."""

    __match_args__ = ("xid", "commit_lsn", "end_lsn", "commit_time")

    def __init__(self, xid: i64, commit_lsn: i64, end_lsn: i64, commit_time: i64) -> None:
        self.xid: Final[i64] = xid
        self.commit_lsn: Final[i64] = commit_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.commit_time: Final[i64] = commit_time


@final
class StreamAbort(Message):
    """A: the subtransaction `subxid` of the streamed transaction `xid` is rolled back; if both are the same, all of it.

    `abort_lsn` (0 if the server lost the transaction in a crash) and `abort_time` come with `streaming 'parallel'`
    only; otherwise they are None.
    """

    __match_args__ = ("xid", "subxid", "abort_lsn", "abort_time")

    def __init__(self, xid: i64, subxid: i64, abort_lsn: int | None = None, abort_time: int | None = None) -> None:
        self.xid: Final[i64] = xid
        self.subxid: Final[i64] = subxid
        self.abort_lsn: Final = abort_lsn
        self.abort_time: Final = abort_time


# Two-phase commit (protocol 3); `gid` is the name that PREPARE TRANSACTION gave


@final
class BeginPrepare(Message):
    """b: a prepared transaction starts."""

    __match_args__ = ("prepare_lsn", "end_lsn", "prepare_time", "xid", "gid")

    def __init__(self, prepare_lsn: i64, end_lsn: i64, prepare_time: i64, xid: i64, gid: str) -> None:
        self.prepare_lsn: Final[i64] = prepare_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.prepare_time: Final[i64] = prepare_time
        self.xid: Final[i64] = xid
        self.gid: Final = gid


@final
class Prepare(Message):
    """P: the transaction is complete, and waits for its second phase. `end_lsn` is the end of the prepare record."""

    __match_args__ = ("prepare_lsn", "end_lsn", "prepare_time", "xid", "gid")

    def __init__(self, prepare_lsn: i64, end_lsn: i64, prepare_time: i64, xid: i64, gid: str) -> None:
        self.prepare_lsn: Final[i64] = prepare_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.prepare_time: Final[i64] = prepare_time
        self.xid: Final[i64] = xid
        self.gid: Final = gid


@final
class CommitPrepared(Message):
    """K: a prepared transaction is committed."""

    __match_args__ = ("commit_lsn", "end_lsn", "commit_time", "xid", "gid")

    def __init__(self, commit_lsn: i64, end_lsn: i64, commit_time: i64, xid: i64, gid: str) -> None:
        self.commit_lsn: Final[i64] = commit_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.commit_time: Final[i64] = commit_time
        self.xid: Final[i64] = xid
        self.gid: Final = gid


@final
class RollbackPrepared(Message):
    """r: a prepared transaction is rolled back. `prepare_end_lsn` is its Prepare's `end_lsn`."""

    __match_args__ = ("prepare_end_lsn", "rollback_end_lsn", "prepare_time", "rollback_time", "xid", "gid")

    def __init__(
        self, prepare_end_lsn: i64, rollback_end_lsn: i64, prepare_time: i64, rollback_time: i64, xid: i64, gid: str
    ) -> None:
        self.prepare_end_lsn: Final[i64] = prepare_end_lsn
        self.rollback_end_lsn: Final[i64] = rollback_end_lsn
        self.prepare_time: Final[i64] = prepare_time
        self.rollback_time: Final[i64] = rollback_time
        self.xid: Final[i64] = xid
        self.gid: Final = gid


@final
class StreamPrepare(Message):
    """p: a streamed transaction is prepared: like Prepare, for what came in blocks."""

    __match_args__ = ("prepare_lsn", "end_lsn", "prepare_time", "xid", "gid")

    def __init__(self, prepare_lsn: i64, end_lsn: i64, prepare_time: i64, xid: i64, gid: str) -> None:
        self.prepare_lsn: Final[i64] = prepare_lsn
        self.end_lsn: Final[i64] = end_lsn
        self.prepare_time: Final[i64] = prepare_time
        self.xid: Final[i64] = xid
        self.gid: Final = gid
