"""The headers of records: what the settings choose of an event, next to key and value, in any format.

Before: `headed_events` says which transaction, relation and change an event is of.
After: `headed_events` gives each record its headers.
Source: CloudEvents 1.0.2, "Kafka Protocol Binding", binary content mode.

Hot path if there are headers, compiled. What is equal for the events of a relation with one op is made once a
transaction. No header holds a value of a column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, final
from urllib.parse import quote

from mypy_extensions import i64

from cdcd.transaction.record_consumer import Headers
from cdcd.transaction.relations import ResolvedRelation

OP: Final = "op"
TABLE: Final = "table"
LSN: Final = "lsn"
TXID: Final = "txid"
COMMIT_TIME: Final = "commit_time"
SCHEMA_VERSION: Final = "schema_version"
CLOUDEVENTS: Final = "cloudevents"
FIELDS: Final = (OP, TABLE, LSN, TXID, COMMIT_TIME, SCHEMA_VERSION)
"""One header each; CLOUDEVENTS stands for several."""

_TYPES: Final = {"c": "create", "u": "update", "d": "delete", "r": "read", "t": "truncate", "m": "message"}
"""The last part of `ce_type`, by op."""


_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 in UTC; isoformat would show a zone
_FIRST_US: Final = -62_135_596_800_000_000
_LAST_US: Final = 253_402_300_799_999_999


@dataclass(frozen=True)
class HeaderChoice:
    """Which headers there are."""

    names: tuple[str, ...]
    """Some of the constants above."""
    prefix: str
    """That of the topics."""
    slot: str
    content_type: str
    """The media type of the values; empty: not known."""


@final
class RelationHeaders:
    """The headers that events of one relation have in common."""

    def __init__(self, table: bytes, version: bytes) -> None:
        """`table`: schema.name, empty for logical messages; `version`: as `schema_version` gives it."""
        self.table = table
        self.version = version
        self.op: i64 = 0
        self.transaction: i64 = 0
        """The op and the number of the transaction that `common` is of; 0: of none."""
        self.common: Headers = []
        self.common_bytes: i64 = 0


@final
class HeaderWriter:
    """Makes the headers of one stream, or of the snapshots next to it."""

    def __init__(self, choice: HeaderChoice) -> None:
        self._names = choice.names
        self._has_lsn = LSN in choice.names
        self._is_cloudevent = CLOUDEVENTS in choice.names
        self._has_own = self._has_lsn or self._is_cloudevent
        self._source = f"/cdcd/{quote(choice.prefix, safe='')}/{choice.slot}".encode()
        self._content_type = choice.content_type.encode()
        self.messages = RelationHeaders(b"", b"")
        self.relation = self.messages
        """What the next event is of."""
        self.lsn: i64 = 0
        """The position of the change that the next event is of."""
        self.bytes: i64 = 0
        """The size of what `next` has returned."""
        self._transaction: i64 = 0
        self._commit_ts: i64 = 0
        self._xid: i64 = 0
        self._id = ""
        self._seq: i64 = 0

    def begin(self, commit_lsn: i64, commit_ts: i64, xid: i64) -> None:
        """A transaction begins; `commit_ts` in microseconds since 1970-01-01 UTC."""
        self._transaction += 1
        self._commit_ts = commit_ts
        self._xid = xid
        self._id = f"{commit_lsn}-"
        self._seq = 0

    def begin_snapshot(self, commit_lsn: i64, taken_us: i64) -> None:
        """Rows of a snapshot begin. Two snapshots may stand at one LSN: `taken_us` tells their events apart.

        Copies and repairs share a snapshot, so the numbers of their events go on.
        """
        seq: i64 = self._seq
        self.begin(commit_lsn, taken_us, 0)
        self._seq = seq
        self._id = f"{commit_lsn}-{taken_us}-"

    def of_relation(self, relation: ResolvedRelation) -> RelationHeaders:
        """The common headers of a relation."""
        version = schema_version(relation) if SCHEMA_VERSION in self._names else b""
        return RelationHeaders(f"{relation.schema}.{relation.name}".encode(), version)

    def next(self, op: i64) -> Headers:
        """Return the headers of the next event. The list may be shared."""
        relation = self.relation
        if relation.op != op or relation.transaction != self._transaction:
            self._begin_op(relation, op)
        seq: i64 = self._seq
        self._seq += 1
        self.bytes = relation.common_bytes
        if not self._has_own:
            return relation.common
        headers = relation.common.copy()
        if self._has_lsn:
            lsn = str(self.lsn).encode()
            headers.append(("__lsn", lsn))
            self.bytes += 5 + len(lsn)
        if self._is_cloudevent:
            name = (self._id + str(seq)).encode()
            headers.append(("ce_id", name))
            self.bytes += 5 + len(name)
        return headers

    def _begin_op(self, relation: RelationHeaders, op: i64) -> None:
        """Make what the relation's events with this op have in common in this transaction."""
        letter, found = chr(op), dict[str, bytes]()
        commit_time = rfc3339(self._commit_ts)
        for name in self._names:
            if name == OP:
                found["__op"] = letter.encode()
            elif name == TABLE and relation.table:
                found["__table"] = relation.table
            elif name == TXID and self._xid:
                found["__txid"] = str(self._xid).encode()
            elif name == COMMIT_TIME:
                found["__commit_time"] = commit_time
            elif name == SCHEMA_VERSION and relation.version:
                found["__schema_version"] = relation.version
            elif name == CLOUDEVENTS:
                found["ce_specversion"] = b"1.0"
                found["ce_source"] = self._source
                found["ce_type"] = f"cdcd.{_TYPES[letter]}".encode()
                found["ce_time"] = commit_time
                if relation.table:
                    found["ce_subject"] = relation.table
                if self._content_type:
                    found["content-type"] = self._content_type
        relation.op = op
        relation.transaction = self._transaction
        relation.common = list(found.items())
        relation.common_bytes = sum([len(name) + len(value) for name, value in relation.common])


def schema_version(relation: ResolvedRelation) -> bytes:
    """Return 16 hex digits: equal as long as the published columns, their types and the key are the same."""
    columns: Sequence[tuple[str, str, int, bool]] = [
        (column.name, column.pgtype.qualified, column.typmod, column.in_key) for column in relation.columns
    ]
    return hashlib.blake2b(repr(columns).encode(), digest_size=8).hexdigest().encode()


def rfc3339(time_us: i64) -> bytes:
    """Return a time, given in microseconds since 1970-01-01 UTC, as RFC 3339 has it: of the years 1 to 9999.

    A time beyond them, by a server whose clock is wrong, becomes the nearest of them.
    """
    within = min(max(int(time_us), _FIRST_US), _LAST_US)
    return f"{(_EPOCH + timedelta(microseconds=within)).isoformat(timespec='microseconds')}Z".encode()
