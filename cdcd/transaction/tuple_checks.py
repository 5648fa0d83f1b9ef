"""Finds the tuples of a change in its frame, and says what is wrong with a frame, or with a row of COPY.

Before: `change_consumer` hands an event format frames, whose messages were not read.
After: the format's encoders read the tuples in place. They check nothing more.
Source: PostgreSQL, "Logical Replication Message Formats", Insert, Update, Delete.

Hot path, compiled. All methods raise DecodeError, the server's fault, if the frame is malformed. `commit_lsn` is for
the error: where the transaction commits.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.errors import BUG_HINT, DecodeError
from cdcd.lsn import format_lsn
from cdcd.pgoutput.messages import KEY, NEW, OLD
from cdcd.pgoutput.tuples import tuple_end
from cdcd.transaction.relations import IDENTITY_FULL, ResolvedRelation

PARTITION_HINT: Final = (
    "A partition may have a smaller replica identity than its root. Run cdcd check and the SQL it prints. Changes "
    "already in the WAL lack the key: recreate the slot and take a new snapshot. "
    "If cdcd check finds no such partition, this is a bug: report it"
)
"""The server checks only the columns of the partition's own index for nulls, not those of the root's index."""


@final
class TupleChecks:
    """The checks of one relation in one version."""

    def __init__(self, relation: ResolvedRelation) -> None:
        self._relation = relation
        self._width: i64 = len(relation.columns)
        # A partition may have a smaller identity than its root, which the stream names. Its own key need not have the
        # columns of a key of the settings: an update would not tell the old key, and a delete none at all.
        self._needs_old_row = relation.has_chosen_key and relation.identity == IDENTITY_FULL

    def inserted(self, frame: bytes, at: i64, commit_lsn: i64) -> i64:
        """Return where the tuple of an Insert is; `frame[at]` is its N."""
        return self._new(frame, at, "Insert", commit_lsn)

    def old_of_update(self, frame: bytes, at: i64, commit_lsn: i64) -> i64:
        """Return where the old tuple of an Update is, not checked yet; 0 if it has none."""
        if at >= len(frame):
            raise self._malformed(frame, "Update", "is cut off before its tuples", commit_lsn)
        kind: i64 = frame[at]
        if kind != OLD and self._needs_old_row:
            raise self._without_old_row("Update", commit_lsn)
        return at + 1 if kind == KEY or kind == OLD else 0

    def new_of_update(self, frame: bytes, at: i64, old: i64, commit_lsn: i64) -> i64:
        """Check both tuples of an Update, and return where the new one is; `old`: as `old_of_update` gives it."""
        if old != 0:
            at = tuple_end(frame, old, self._width, "Update", "old tuple")
        return self._new(frame, at, "Update", commit_lsn)

    def deleted(self, frame: bytes, at: i64, commit_lsn: i64) -> i64:
        """Return where the tuple of a Delete is; `frame[at]` is its K or O."""
        if at >= len(frame) or (frame[at] != KEY and frame[at] != OLD):
            raise self._malformed(frame, "Delete", "has neither a key nor an old tuple", commit_lsn)
        if frame[at] == KEY and self._needs_old_row:
            raise self._without_old_row("Delete", commit_lsn)
        end = tuple_end(frame, at + 1, self._width, "Delete", "old tuple")
        if end != len(frame):
            raise self._malformed(frame, "Delete", f"has {len(frame) - end} bytes too many", commit_lsn)
        return at + 1

    def malformed_row(self, row: bytes, what: str) -> DecodeError:
        """Return the error of a row of COPY; `what` is wrong with it."""
        relation = f"{self._relation.schema}.{self._relation.name}"
        return DecodeError(f"a row of COPY of {len(row)} bytes for {relation} {what}", BUG_HINT)

    def _new(self, frame: bytes, at: i64, message: str, commit_lsn: i64) -> i64:
        if at >= len(frame) or frame[at] != NEW:
            raise self._malformed(frame, message, "lacks its N tuple", commit_lsn)
        end = tuple_end(frame, at + 1, self._width, message, "new tuple")
        if end != len(frame):
            raise self._malformed(frame, message, f"has {len(frame) - end} bytes too many", commit_lsn)
        return at + 1

    def _without_old_row(self, message: str, commit_lsn: i64) -> DecodeError:
        relation, key = self._relation, ", ".join(self._relation.key)
        return DecodeError(
            f"{message} for {relation.schema}.{relation.name}, in the transaction that commits at "
            f"{format_lsn(commit_lsn)}, comes without the old row, which has the key ({key}) of [[table]]",
            PARTITION_HINT,
            code="partition-identity-lesser",
        )

    def _malformed(self, frame: bytes, message: str, what: str, commit_lsn: i64) -> DecodeError:
        relation, commit = f"{self._relation.schema}.{self._relation.name}", format_lsn(commit_lsn)
        return DecodeError(
            f"{message} of {len(frame)} bytes for {relation}, in the transaction that commits at {commit}, {what}",
            BUG_HINT,
        )
