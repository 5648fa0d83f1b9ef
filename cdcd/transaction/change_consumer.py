"""Takes changes: the interface between transactions and snapshots on one side and an event format on the other.

Before: `assembler` and `change_router` call it in commit order, one transaction at a time; `snapshot.encoder` calls
another consumer with the rows of a snapshot.
After: `avro.event_encoder` implements it.

A change comes as the frame that holds it and an offset, not as values: the encoder reads PostgreSQL's bytes where they
lie.
"""

from __future__ import annotations

from mypy_extensions import i64

from cdcd.transaction.relations import ResolvedRelation


class RelationChanges:
    """Takes the changes of one relation in one of its versions.

    `frame` is one CopyData payload, which ends where the message ends. `at` is the offset in it of the byte after the
    relation's OID. `lsn` is the WAL position of the change. All raise DecodeError if the frame is malformed.
    """

    def is_event(self, kind: i64) -> bool:
        """Whether every change of this kind is published as an event: an Insert, Update, Delete or Truncate of
        `pgoutput.messages`.
        """
        return True

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        """Take a new row: `frame[at]` is the N of its tuple."""
        raise NotImplementedError

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        """Take a changed row: `frame[at]` is the K or O of the old tuple, or the N of the new one."""
        raise NotImplementedError

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        """Take a deleted row: `frame[at]` is the K or O of its tuple."""
        raise NotImplementedError

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        """Take a truncate of the table. The flags say whether the statement had CASCADE or RESTART IDENTITY."""
        raise NotImplementedError

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        """Take a row of a snapshot: from `row[at]` on, each column's length and value as COPY has them.

        `kinds` says for each column whether its value is BINARY or TEXT. Raises DecodeError if the row is cut off, or
        goes on after its last column.
        """
        raise NotImplementedError


class ChangeConsumer:
    """Takes whole transactions in commit order, or the rows of a snapshot."""

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        """Prepare for the changes of `relation`. Called again when a Relation message has changed it."""
        raise NotImplementedError

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        """Start a transaction; `commit_ts` is in microseconds since 1970-01-01 UTC."""
        raise NotImplementedError

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        """Start the rows of a snapshot, which belong to no transaction. Their `seq` continues over all its tables.

        `commit_lsn`: where they stand among the transactions. `taken_us`: when the snapshot was taken, in microseconds
        since 1970-01-01 UTC.
        """
        raise NotImplementedError

    def origin(self, name: str, lsn: i64 = 0) -> None:
        """Note that the open transaction was replicated to this server from the replication origin `name`.

        `lsn`: where it was there; 0: unknown.
        """
        raise NotImplementedError

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        """Take a logical decoding message. One that is not transactional is alone in the open transaction."""
        raise NotImplementedError

    def request(self, values: dict[str, str]) -> None:
        """Take a request to the daemon, which is part of the open transaction. `values`: its columns."""
        raise NotImplementedError

    def commit(self, end_lsn: i64) -> None:
        """End the open transaction; `end_lsn` is the first byte after its commit record."""
        raise NotImplementedError


class ChangeForwarder(ChangeConsumer):
    """Stands before another consumer. A subclass opens relations, and changes what it is about; the rest passes."""

    def __init__(self, consumer: ChangeConsumer) -> None:
        self.consumer = consumer

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        self.consumer.begin(commit_lsn, commit_ts, xid)

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        self.consumer.begin_snapshot(commit_lsn, taken_us)

    def origin(self, name: str, lsn: i64 = 0) -> None:
        self.consumer.origin(name, lsn)

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: i64) -> None:
        self.consumer.message(prefix, content, transactional, lsn)

    def request(self, values: dict[str, str]) -> None:
        self.consumer.request(values)

    def commit(self, end_lsn: i64) -> None:
        self.consumer.commit(end_lsn)
