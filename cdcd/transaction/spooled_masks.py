"""Masks the rows of transactions in progress, before the spool has them.

Before: `spooled_transactions` gets the frame of a row in an open block.
After: it spools the frame that this module returns.
Source: `maybe_send_schema` in pgoutput.c.

A row is masked by the Relation message that holds for it at this point of its transaction. The server sends one before
the first row of each streamed transaction, and again after a rollback. In a prepare block, those of the session hold.
"""

from __future__ import annotations

from typing import Final, final

from librt.strings import read_i32_be
from mypy_extensions import i64

from cdcd.errors import BUG_HINT, DecodeError
from cdcd.pgoutput import messages
from cdcd.pgoutput.cursor import short
from cdcd.source.stream_messages import XLOGDATA_HEADER_BYTES
from cdcd.transaction.change_router import BODY_AT, STREAMED_BODY_AT, ChangeRouter
from cdcd.transaction.column_masks import RelationMasking
from cdcd.transaction.column_rules import ColumnRules
from cdcd.transaction.dormant_relation import masking_of
from cdcd.transaction.spool import SpooledTransaction

_OID_BYTES: Final = 4
_NO_OID: Final = -1


@final
class SpooledMasks:
    """Knows the masks of the relation whose row came last, until `forget`."""

    def __init__(self, rules: ColumnRules, session: ChangeRouter) -> None:
        """`session`: the relations that are in force outside of streamed transactions."""
        self._rules = rules
        self._has_rules = bool(rules.rules)
        self._session = session
        self._last_oid: i64 = _NO_OID
        self._last: RelationMasking | None = None

    def forget(self) -> None:
        """A block begins, or a Relation message has come."""
        self._last_oid = _NO_OID

    def frame(self, block: SpooledTransaction, frame: bytes) -> bytes:
        """The frame of an Insert, Update or Delete of an open block, as it may lie in the spool.

        Raises DecodeError (the server's fault) if it is malformed, or nothing announced its relation.
        """
        if not self._has_rules:
            return frame
        at: i64 = STREAMED_BODY_AT if block.streamed else BODY_AT
        size: i64 = len(frame)
        if size < at + _OID_BYTES:
            kind: i64 = frame[XLOGDATA_HEADER_BYTES]
            raise short(messages.NAMES.get(kind, ""), "relation_oid", at - XLOGDATA_HEADER_BYTES, _OID_BYTES, size - at)
        oid: i64 = i64(read_i32_be(frame, at)) & 0xFFFFFFFF
        if oid != self._last_oid:
            self._last = self._of(block, oid)
            self._last_oid = oid
        masking = self._last
        return frame if masking is None else masking.frame(frame, at + _OID_BYTES)

    def _of(self, block: SpooledTransaction, oid: int) -> RelationMasking | None:
        """The masks of a relation, as it is at this point of the block."""
        if block.streamed:
            message = block.relation(oid)
            if message is not None:
                return self._rules.masking(message)
        else:
            changes = self._session.in_force(oid)  # a Relation message in a prepare block is for the session, too
            if changes is not None:
                return masking_of(changes)
        raise DecodeError(f"a change of relation OID {oid} came before any Relation message announced it", BUG_HINT)
