"""A relation whose name another table has got: most often it was dropped, and never changes again.

Before: `change_router` puts it in the place of what took the relation's changes.
After: the same consumer, as soon as a change comes all the same.
Source: `get_rel_sync_entry`, `rel_sync_cache_relation_cb` and `maybe_send_schema` in pgoutput.c.

The server does not announce every new name. It announces the root of a partition once for each partition, and so not
again when the root is renamed; PostgreSQL 14 does not either when a schema is renamed. And a transaction that began
before a rename may announce the old name after it. So no relation is forgotten while the connection lasts. (The
server's session does not forget any either.) One that is dormant takes some hundred bytes.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from cdcd.pgoutput import messages
from cdcd.pgoutput.decoder import Decoder
from cdcd.pgoutput.encoder import encode
from cdcd.source.requests_table import is_requests
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.column_masks import RelationMasking
from cdcd.transaction.masked_changes import MaskedChanges, open_relation
from cdcd.transaction.relations import Relations
from cdcd.transaction.request_rows import RequestRows


def open_changes(
    relations: Relations, consumer: ChangeConsumer, message: messages.Relation, known_as: RelationChanges | None = None
) -> RelationChanges:
    """Open the relation that `message` announces. `known_as`: what the router knows, if not what is returned."""
    if is_requests(message.nspname, message.relname):
        return RequestRows(consumer, message, relations.takes_requests(message.relation_oid))
    relation = relations.resolve(message)
    changes = open_relation(consumer, relation)
    relations.opened(message, relation, changes if known_as is None else known_as)
    return changes


def masking_of(changes: RelationChanges) -> RelationMasking | None:
    """What is to be done with the frames of these changes, for a spool that keeps them; None: nothing."""
    if isinstance(changes, DormantRelation):
        return changes.masking()
    return changes.masking if isinstance(changes, MaskedChanges) else None


@final
class DormantRelation(RelationChanges):
    """Opens the relation at its next change."""

    def __init__(self, relations: Relations, consumer: ChangeConsumer, message: messages.Relation) -> None:
        self._relations = relations
        self._consumer = consumer
        self._message = encode(message)
        self._is_streamed = message.xid != 0
        self._changes: RelationChanges | None = None

    def is_event(self, kind: i64) -> bool:
        return self._opened().is_event(kind)

    def insert(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._opened().insert(frame, at, lsn)

    def update(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._opened().update(frame, at, lsn)

    def delete(self, frame: bytes, at: i64, lsn: i64) -> None:
        self._opened().delete(frame, at, lsn)

    def truncate(self, lsn: i64, cascade: bool, restart_identity: bool) -> None:
        self._opened().truncate(lsn, cascade, restart_identity)

    def masking(self) -> RelationMasking | None:
        """As `masking_of`."""
        return self._relations.rules.masking(self._announced())

    def _opened(self) -> RelationChanges:
        if self._changes is None:
            self._changes = open_changes(self._relations, self._consumer, self._announced(), self)
        return self._changes

    def _announced(self) -> messages.Relation:
        message = Decoder().decode(self._message, 0, self._is_streamed)
        assert isinstance(message, messages.Relation)
        return message
