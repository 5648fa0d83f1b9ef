"""The Relation messages of one spooled transaction, as far as they were not rolled back.

Before: `spool` keeps their frames among the others, and cuts here what a rollback cuts there.
After: `spooled_transactions` opens the relations when the transaction is handed on.

They are kept as they came. Their types and keys are looked up when the transaction is handed on: while it is in
progress, other sessions do not see the tables and types that it has made.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from cdcd.pgoutput.messages import Relation

_RELATION_BYTES: Final = 800
_COLUMN_BYTES: Final = 240
"""About how much memory a Relation and each of its columns take, as measured."""


@final
class SpooledRelation:
    """One Relation message of a spooled transaction."""

    def __init__(self, position: int, arrival: int, relation: Relation, body: bytes, earlier: int) -> None:
        self.position = position
        """Its frame's number among the transaction's frames."""
        self.arrival = arrival
        """Its number among the stream's Relation messages; where the server repeated it, that of the last time."""
        self.relation = relation
        self.body = body
        """The message without type byte and xid."""
        self.earlier = earlier
        """The index of the same table's earlier message; -1 if there is none."""

    @property
    def memory_bytes(self) -> int:
        """About how much memory it takes."""
        return _RELATION_BYTES + _COLUMN_BYTES * len(self.relation.columns) + len(self.body)


@final
class SpooledRelations:
    """The Relation messages of one transaction."""

    def __init__(self) -> None:
        self.announced: list[SpooledRelation] = []
        """In order."""
        self._latest: dict[int, int] = {}
        """By OID, the index of the last message about it."""

    def announce(self, position: int, arrival: int, relation: Relation, body: bytes) -> int:
        """Note a message whose frame would be the transaction's number `position`. Returns the memory that this takes.

        After every Stream Abort the server sends all Relation messages again: 0 means that this one says nothing new.
        """
        index = self._latest.get(relation.relation_oid, -1)
        if index >= 0 and self.announced[index].body == body:
            self.announced[index].arrival = arrival
            return 0
        announced = SpooledRelation(position, arrival, relation, body, index)
        self._latest[relation.relation_oid] = len(self.announced)
        self.announced.append(announced)
        return announced.memory_bytes

    def latest(self, oid: int) -> Relation | None:
        """The last message about a table; None if there is none."""
        index = self._latest.get(oid)
        return None if index is None else self.announced[index].relation

    def cut(self, position: i64) -> int:
        """Drop the messages from frame `position` on. Returns the memory that this frees."""
        freed = 0
        while self.announced and self.announced[-1].position >= position:
            dropped = self.announced.pop()
            freed += dropped.memory_bytes
            if dropped.earlier >= 0:
                self._latest[dropped.relation.relation_oid] = dropped.earlier
            else:
                del self._latest[dropped.relation.relation_oid]
        return freed
