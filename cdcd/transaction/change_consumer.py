"""What takes the changes of committed transactions: the seam between this room and the encoder.

Before: `assembler` calls these in commit order, one transaction at a time.
After: `avro.envelope` implements them.

A change is handed on as the frame that holds it and an offset, not as values: the encoder reads PostgreSQL's bytes
where they lie.
"""

from __future__ import annotations

from mypy_extensions import i64

from cdcd.transaction.relations import ResolvedRelation


class RelationChanges:
    """Takes the changes of one relation in one of its versions.

    Throughout: `frame` is one CopyData payload whose end is the message's end, `at` the offset in it of the byte after
    the relation's OID, `lsn` the WAL position of the change. All raise DecodeError if the frame is not well formed.
    """

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        """A new row: `frame[at]` is the N of its tuple."""
        raise NotImplementedError

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        """A changed row: `frame[at]` is the K or O of the old tuple, or the N of the new one."""
        raise NotImplementedError

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        """A row that is gone: `frame[at]` is the K or O of its tuple."""
        raise NotImplementedError

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        """All rows are gone; the statement said CASCADE, RESTART IDENTITY."""
        raise NotImplementedError


class ChangeConsumer:
    """Takes whole transactions in commit order."""

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        """Make ready for the changes of `relation`; called again when a Relation message changed it."""
        raise NotImplementedError

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        """A transaction starts; `commit_ts` is in microseconds since 1970-01-01 UTC."""
        raise NotImplementedError

    def origin(self, name: str) -> None:
        """The open transaction was replicated to this server from the replication origin `name`."""
        raise NotImplementedError

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        """A logical decoding message of the open transaction; one that is not transactional is the whole of it."""
        raise NotImplementedError

    def commit(self, end_lsn: i64) -> None:
        """The open transaction is whole; `end_lsn` is the first byte after its commit record."""
        raise NotImplementedError
