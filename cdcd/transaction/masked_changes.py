"""Hands the changes of a relation on with its masks: the only way from a ResolvedRelation to a consumer.

Before: `dormant_relation`, `change_router` and `snapshot` have resolved a relation.
After: the consumer's RelationChanges (`avro.event_encoder`) get frames and rows that were masked.

The spool keeps masked frames: these pass through, known by their first byte.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.column_masks import MASKED, RelationMasking
from cdcd.transaction.relations import ResolvedRelation


def open_relation(consumer: ChangeConsumer, relation: ResolvedRelation) -> RelationChanges:
    """Prepare a consumer for the changes of a relation, behind the masks of its columns."""
    changes = consumer.open_relation(relation)
    return changes if relation.masking is None else MaskedChanges(changes, relation.masking)


@final
class MaskedChanges(RelationChanges):
    """Masks each row before the consumer sees it."""

    def __init__(self, changes: RelationChanges, masking: RelationMasking) -> None:
        self._changes = changes
        self.masking: Final = masking

    def is_event(self, kind: i64) -> bool:
        return self._changes.is_event(kind)

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._changes.insert(frame if frame[0] == MASKED else self.masking.frame(frame, at), at, lsn)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._changes.update(frame if frame[0] == MASKED else self.masking.frame(frame, at), at, lsn)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._changes.delete(frame if frame[0] == MASKED else self.masking.frame(frame, at), at, lsn)

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        self._changes.truncate(lsn, cascade, restart_identity)

    def snapshot_row(self, row: bytes, at: i64, kinds: bytes, lsn: i64) -> None:
        self._changes.snapshot_row(self.masking.row(row, at), at, kinds, lsn)
