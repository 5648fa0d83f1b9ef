"""Hands every change of a transaction on to the consumer, rows and truncates by their relation.

Before: `assembler` hands in changes as they come, `spooled_transactions` those of a spooled transaction. Each spooled
transaction has a router of its own, because a table may look different inside it.
After: a ChangeConsumer and its RelationChanges (`avro.event_encoder`); `dormant_relation` for tables that have lost
their names.

Hot path, a row: header and OID reads, one comparison (or a dict look-up where relations alternate), one virtual call.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from cdcd.errors import BUG_HINT, DecodeError
from cdcd.pgoutput import messages
from cdcd.pgoutput.cursor import short
from cdcd.source.stream_messages import XLOGDATA, XLOGDATA_HEADER_BYTES
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.dormant_relation import DormantRelation, open_changes
from cdcd.transaction.masked_changes import open_relation
from cdcd.transaction.relations import Relations

BODY_AT: Final = 26  # not written as a sum, which mypyc would look up for every row
"""Where a pgoutput message goes on after its type byte, in an XLogData frame."""
STREAMED_BODY_AT: Final = 30
"""The same in a stream block, where the transaction's xid comes first."""

_OID_BYTES: Final = 4


@final
class ChangeRouter:
    """Knows the relations that are in force at this point of the stream, and hands each change to its relation."""

    def __init__(
        self, relations: Relations, consumer: ChangeConsumer, known: dict[int, RelationChanges], lsn_base: i64 = 0
    ) -> None:
        """`known`: the relations in force at the start, by OID. The router adds to the dictionary.

        `lsn_base` is added to the LSNs of changes, as the decoder adds it.
        """
        self._lsn_base: i64 = lsn_base
        self._relations = relations
        self._consumer = consumer
        self._known = known
        self._shown: dict[int, RelationChanges] | None = None
        """The last result of `known`, as long as it is true."""
        self._oids: dict[tuple[str, str], int] = {}
        """The OIDs of the relations in force, by schema and name."""
        self._announced: dict[int, messages.Relation] = {}
        """The same relations, by OID."""
        self._last_oid: i64 = 0
        self._last: RelationChanges | None = None

    def row(self, frame: bytes, kind: i64, at: i64) -> None:
        """Hand on an Insert, Update or Delete (`kind`) whose relation's OID is at `at` in the frame.

        Raises DecodeError (the server's fault) if the frame is too short, or nothing announced the relation.
        """
        if len(frame) <= at + _OID_BYTES:
            name = messages.NAMES.get(kind, "")
            size: i64 = len(frame)
            raise short(name, "relation_oid and tuple kind", at - XLOGDATA_HEADER_BYTES, _OID_BYTES + 1, size - at)
        oid: i64 = i64(read_i32_be(frame, at))
        changes = self._last
        if changes is None or oid != self._last_oid:
            changes = self._relation(oid)
        lsn = read_i64_be(frame, 1) + self._lsn_base
        at += _OID_BYTES
        if kind == messages.INSERT:
            changes.insert(frame, at, lsn)
        elif kind == messages.UPDATE:
            changes.update(frame, at, lsn)
        else:
            changes.delete(frame, at, lsn)

    def is_event(self, frame: bytes, kind: i64, at: i64) -> bool:
        """Whether an Insert, Update or Delete (`kind`) is published as an event; its relation's OID is at `at`.

        A row of the table of requests is not, whether the daemon takes it or passes it over.
        """
        return len(frame) < at + _OID_BYTES or self._is_event(i64(read_i32_be(frame, at)) & 0xFFFFFFFF, kind)

    def is_other_event(self, message: messages.Message) -> bool:
        """Whether a message that is no row is published as an event: a Truncate, or a logical message."""
        if isinstance(message, messages.Truncate):
            return any(self._is_event(oid, messages.TRUNCATE) for oid in message.relation_oids)
        return isinstance(message, messages.LogicalMessage)

    def _is_event(self, oid: i64, kind: i64) -> bool:
        changes = self._known.get(oid)
        return changes is None or changes.is_event(kind)

    def other(self, message: messages.Message, lsn: i64) -> None:
        """Hand on a Truncate, an Origin or a transactional Message. `lsn`: the position in its XLogData header."""
        if isinstance(message, messages.Truncate):
            for oid in message.relation_oids:
                self._relation(oid).truncate(lsn, message.cascade, message.restart_identity)
        elif isinstance(message, messages.Origin):
            self._consumer.origin(message.name, message.origin_lsn)
        elif isinstance(message, messages.LogicalMessage):
            self._consumer.message(message.prefix, message.content, True, message.lsn)

    def name_type(self, message: messages.Type) -> None:
        """Remember the name of a type."""
        self._relations.name_type(message)

    def forget_expected(self) -> None:
        """More frames come now."""
        self._relations.forget_expected()

    def expect(self, message: messages.Relation, frames: list[bytes], at: i64) -> None:
        """Expect the relation of a message, and those that the frames from `at` on announce.

        So the catalog is asked once for all of them: a transaction may have thousands. Relations of a stream block wait
        for its commit.
        """
        if self._relations.is_expected(message.relation_oid):
            return
        oids = [message.relation_oid]
        count: i64 = len(frames)
        for index in range(at, count):
            frame = frames[index]
            if len(frame) < BODY_AT + _OID_BYTES or frame[0] != XLOGDATA:
                continue
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            if kind == messages.RELATION:
                oids.append(i64(read_i32_be(frame, BODY_AT)) & 0xFFFFFFFF)
            elif kind == messages.STREAM_START:
                break
        self._relations.expect(oids)

    def open_relation(self, message: messages.Relation) -> None:
        """Put the relation in force that `message` announces. It replaces the earlier version."""
        self.put(message, open_changes(self._relations, self._consumer, message))

    def begin(self, commit_lsn: i64) -> None:
        """Begin a transaction: replace the relations with provisional keys if it commits where the keys are known."""
        settles_lsn: i64 = self._relations.settles_lsn
        if settles_lsn == 0 or commit_lsn < settles_lsn:
            return
        for relation, changes in self._relations.settle():
            if self._known.get(relation.oid) is changes:
                self._replace(relation.oid, open_relation(self._consumer, relation))

    def put(self, message: messages.Relation, changes: RelationChanges) -> None:
        """Put the relation in force that `message` announces, and that this router or another one has opened.

        Another table that had its name was dropped, or renamed. It stays known, in little memory, because the server
        does not announce every new name.
        """
        oid, name = message.relation_oid, _name(message)
        before = self._announced.get(oid)
        if before is not None:
            del self._oids[_name(before)]
        other = self._announced.pop(self._oids.get(name, oid), None)
        if other is not None and other.relation_oid != oid:
            self._known[other.relation_oid] = DormantRelation(self._relations, self._consumer, other)
        self._oids[name] = oid
        self._announced[oid] = message
        self._replace(oid, changes)

    def _replace(self, oid: int, changes: RelationChanges) -> None:
        self._known[oid] = changes
        self._last = None
        self._shown = None

    def in_force(self, relation_oid: int) -> RelationChanges | None:
        """What takes the changes of a relation now; None if nothing announced it."""
        return self._known.get(relation_oid)

    def announced_name(self, relation_oid: int) -> tuple[str, str] | None:
        """The schema and name under which the stream sends a relation; None if it has not announced it."""
        message = self._announced.get(relation_oid)
        return None if message is None else _name(message)

    def known(self) -> dict[int, RelationChanges]:
        """Return a copy of the relations in force, by OID. Callers share it, so they must not change it."""
        if self._shown is None:
            self._shown = dict(self._known)
        return self._shown

    def _relation(self, oid: i64) -> RelationChanges:
        # The OID is unsigned on the wire. `row` reads it as signed: that is enough to compare two of them.
        changes = self._known.get(oid & 0xFFFFFFFF)
        if changes is None:
            raise DecodeError(
                f"a change of relation OID {oid & 0xFFFFFFFF} came before any Relation message announced it", BUG_HINT
            )
        self._last_oid = oid
        self._last = changes
        return changes


def _name(message: messages.Relation) -> tuple[str, str]:
    return message.nspname, message.relname
