"""The formats of events other than cdcd's own in Avro: which worlds have them, and how a reader takes them apart.

Before: `world` gives a seed; `checker` has the records. After: the checker judges each event as one of cdcd's own.

Debezium's events and flat rows do not say the commit LSN of their transaction, nor their number in it: but no two
changes of one table have both LSN and op in common, so the ledger says what stands at that LSN. What stands nowhere in
the ledger was never committed; what comes twice has one position twice. Flat rows do not say the old row of an update,
and nothing of a truncate or of a snapshot that replaces rows: their worlds have neither.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from cdcd.config.settings import DebeziumSettings, RowSettings, Settings

if TYPE_CHECKING:
    from sim.fake_kafka import Placed
    from sim.sql import Database, Event

JSON, DEBEZIUM, ROW = "cdcd/json", "debezium/json", "row/json"
SHARES = {JSON: 0.05, DEBEZIUM: 0.13, ROW: 0.08}
"""The share of worlds with each format."""

_OF_SOURCE = ("txId", "ts_us", "origin", "sequence")
_FIELDS = ["op", "lsn", "source.schema", "source.table", *(f"source.{name}" for name in _OF_SOURCE)]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNCHANGED = "__debezium_unavailable_value"


def choice(seed: int) -> str:
    """The format of a world's events; empty: cdcd's own in Avro."""
    dice = Random(f"format {seed}").random()
    for name, share in SHARES.items():
        if dice < share:
            return name
        dice -= share
    return ""


def settings_with(settings: Settings, name: str, seed: int) -> Settings:
    """The settings of a world with this format."""
    form, _, encoding = name.partition("/")
    rng = Random(f"tombstones {seed}")
    deletes = rng.choice(["rewrite", "rewrite-with-tombstone"])
    has_tombstones = rng.random() < 0.5
    return settings.model_copy(
        update={
            "sink": settings.sink.model_copy(update={"format": form, "encoding": encoding}),
            "debezium": DebeziumSettings(
                truncates=form == "debezium",
                tombstones=has_tombstones,
                provide_transaction_metadata=form == "debezium",
            ),
            "row": RowSettings(add_fields=tuple(_FIELDS), delete_tombstone_handling_mode=deletes),
        }
    )


def reader_of(
    settings: Settings, database: Database, is_snapshot: Callable[[int], bool]
) -> OwnJson | Debezium | Rows | None:
    """What takes a world's events apart; None: they are cdcd's own in Avro.

    `is_snapshot`: whether a snapshot has this consistent point.
    """
    sink = settings.sink
    if sink.format == "cdcd":
        return None if sink.encoding == "avro" else OwnJson()
    if sink.format == "debezium":
        return Debezium(database, is_snapshot, has_tombstones=settings.debezium.tombstones)
    has_tombstones = settings.row.delete_tombstone_handling_mode == "rewrite-with-tombstone"
    return Rows(database, is_snapshot, has_tombstones=has_tombstones)


def table_in_key(table: tuple[str, str]) -> dict[str, str]:
    """What a key of cdcd's own format has of its table, if others share the topic."""
    return {"__schema": table[0], "__table": table[1]}


class OwnJson:
    """cdcd's own events in JSON."""

    def without_tombstones(self, records: list[Placed]) -> list[Placed]:
        """The records that are events. Raises AssertionError if a tombstone is missing, or there without a delete."""
        return records

    def decode(self, data: bytes) -> Any:
        """Return a key, or an event as one of cdcd's own."""
        document = json.loads(data)
        if "source" in document:
            document["source"]["commit_ts"] = datetime.fromisoformat(document["source"]["commit_ts"])
            if document["op"] == "m":
                document["after"]["content"] = b64decode(document["after"]["content"])
        return document

    def shown(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """What readers see of an event."""
        return wanted

    def headers(self, value: dict[str, Any], headers: dict[str, bytes]) -> dict[str, bytes]:
        """The headers that every format has."""
        return headers

    def key(self, event: Event) -> Any:
        """The key that readers see."""
        return event.key

    def table_in_key(self, table: tuple[str, str], prefix: str) -> dict[str, str]:
        """What a key has of its table, if others share the topic."""
        return table_in_key(table)


class Debezium:
    """Debezium's events in JSON."""

    def __init__(self, database: Database, is_snapshot: Callable[[int], bool], *, has_tombstones: bool) -> None:
        self._database = database
        self._is_snapshot = is_snapshot
        self._has_tombstones = has_tombstones
        self._at = 0
        """How many transactions of the ledger `_positions` holds."""
        self._end = 0
        """Where the last of them ends."""
        self._positions: dict[tuple[int, str, str, int], tuple[int, int]] = {}
        """By LSN, op, table and xid: a message outside of transactions has the LSN of what comes behind it."""
        self._moves: dict[tuple[int, int], dict[str, Any]] = {}
        """By position: the header of an event of a changed key, and the other key."""
        self._ends_before: dict[int, int] = {}
        """By commit LSN, the end of the transaction of the ledger before."""
        self._truncates: dict[tuple[int, str], int] = {}
        """A number for each truncate that a snapshot begins with, by its LSN and table."""
        self._rows: Counter[int] = Counter()
        """How many rows were read that a snapshot shows."""

    def without_tombstones(self, records: list[Placed]) -> list[Placed]:
        """The records that are events. Raises AssertionError if a tombstone is missing, or there without a delete."""
        owed: dict[tuple[str, int], bytes] = {}
        for placed in records:
            where = placed.topic, placed.partition
            key = owed.pop(where, None)
            if (placed.value is None) != (key is not None) or (key is not None and key != placed.key):
                raise AssertionError(f"{where} {placed.offset}: wanted a tombstone of {key!r}, got {placed}")
            if placed.value is not None and placed.key is not None and self._has_tombstones and self._is_delete(placed):
                owed[where] = placed.key
        assert not owed, f"no tombstones of {owed}"
        return [placed for placed in records if placed.value is not None]

    def _is_delete(self, placed: Placed) -> bool:
        assert placed.value is not None
        document = json.loads(placed.value)
        return document.get("op", document.get("__op")) == "d"

    def decode(self, data: bytes) -> Any:
        """Return a key, or an event as one of cdcd's own, with what it does not say left out."""
        document = json.loads(data)
        if "source" not in document:
            return document
        source, op = document["source"], document["op"]
        table = f"{source['schema']}.{source['table']}" if op != "m" else "messages"
        event = {"op": op, "source": self._source(source["lsn"], op, table, source)}
        if op != "m":
            event["source"] |= {name: source[name] for name in ("schema", "table")}
        event["source"]["transaction"] = document["transaction"]
        if op == "m":
            message = document["message"]
            content = b64decode(message["content"])
            is_transactional = source["txId"] is not None
            after = {"transactional": is_transactional, "prefix": message["prefix"], "content": content}
            return event | {"before": None, "after": after, "unchanged": []}
        return event | self._images(document["before"], document["after"])

    def shown(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """What readers see of an event."""
        return {name: wanted[name] for name in ("op", "before", "after", "unchanged")}

    def headers(self, value: dict[str, Any], headers: dict[str, bytes]) -> dict[str, bytes]:
        """The headers that every format has. Raises AssertionError if those of a changed key are others."""
        source = value["source"]
        found = {name: json.loads(headers[name]) for name in headers if name.startswith("__debezium")}
        wanted = self._moves.get((source["commit_lsn"], source["seq"]), {})
        assert found == wanted, f"{value['op']} of a changed key: wanted the headers {wanted}, got {found}"
        return {name: data for name, data in headers.items() if name not in found}

    def key(self, event: Event) -> Any:
        """The key that readers see."""
        return {"prefix": (event.after or {})["prefix"]} if event.op == "m" else event.key

    def table_in_key(self, table: tuple[str, str], prefix: str) -> dict[str, str]:
        """What a key has of its table, if others share the topic."""
        return {"__dbz__physicalTableIdentifier": f"{prefix}.{table[0]}.{table[1]}"}

    def _images(self, before: Any, after: Any) -> dict[str, Any]:
        unchanged = [name for name, value in (after or {}).items() if value == _UNCHANGED]
        return {"before": before, "after": after and after | dict.fromkeys(unchanged), "unchanged": unchanged}

    def _source(self, lsn: int, op: str, table: str, source: dict[str, Any]) -> dict[str, Any]:
        commit_lsn, seq = self._position(lsn, op, table, source["txId"] or 0)
        before_this, of_change = json.loads(source["sequence"])
        assert int(of_change) == lsn, f"the sequence {source['sequence']} of a change at {lsn}"
        if before_this is not None:  # by it readers know the order of transactions
            least, most = self._ends_before.get(commit_lsn, 0), commit_lsn + (op == "m")
            assert least <= int(before_this) <= most, f"{before_this} is not between {least} and {most}"
        commit_ts = _EPOCH + timedelta(microseconds=source["ts_us"])
        found = {"commit_lsn": commit_lsn, "seq": seq, "lsn": lsn, "xid": source["txId"] or 0, "commit_ts": commit_ts}
        return found | {"origin": source["origin"]}

    def _position(self, lsn: int, op: str, table: str, xid: int) -> tuple[int, int]:
        for committed in self._database.ledger[self._at :]:
            self._ends_before[committed.commit_lsn] = self._end
            self._end = committed.end_lsn
            before = None
            for seq, event in committed.numbered():
                position = committed.commit_lsn, seq
                place = event.lsn, event.op, ".".join(filter(None, event.table)), committed.xid
                self._positions[place] = position
                if event.op == "c" and before is not None and before.lsn == event.lsn:
                    self._moves[position] = {"__debezium.oldkey": before.key}
                    self._moves[committed.commit_lsn, seq - 1] = {"__debezium.newkey": event.key}
                before = event
        self._at = len(self._database.ledger)
        found = self._positions.get((lsn, op, table, xid))
        if found is not None:
            return found
        if op not in ("r", "t") or not self._is_snapshot(lsn + 1):
            raise AssertionError(f"{op} of {table} at {lsn:X} was never committed")
        if op == "t":  # in every partition, before the rows
            return lsn, -self._truncates.setdefault((lsn, table), len(self._truncates) + 1)
        self._rows[lsn] += 1
        return lsn, self._rows[lsn]


class Rows(Debezium):
    """Flat rows in JSON; logical messages are Debezium's events."""

    def decode(self, data: bytes) -> Any:
        """Return a key, or an event as one of cdcd's own, with what it does not say left out."""
        document = json.loads(data)
        if "__op" not in document:
            return super().decode(data)
        op, lsn, schema, table = (document.pop(f"__{name}") for name in ("op", "lsn", "source_schema", "source_table"))
        source = {name: document.pop(f"__source_{name}") for name in _OF_SOURCE}
        deleted = document.pop("__deleted")
        assert deleted == str(op == "d").lower(), f"an event {op} says that deleted is {deleted}"
        before, after = (document, None) if op == "d" else (None, document)
        named = self._source(lsn, op, f"{schema}.{table}", source) | {"schema": schema, "table": table}
        return {"op": op, "source": named} | self._images(before, after)

    def shown(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """What readers see of an event."""
        seen = super().shown(wanted)
        return seen if wanted["op"] in ("d", "m") else seen | {"before": None}
