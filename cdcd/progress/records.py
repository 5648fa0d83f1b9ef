"""The progress on the topic `{prefix}.progress`: slot records and table records, to JSON and back.

Before: `sink.publisher` knows what a Kafka transaction holds.
After: `sink.publisher` writes these as the last records of each Kafka transaction. At start the newest slot record says
where to go on. Readers (Spark) cut topics by these records.

The format, stable since version 2. Keys are text: `{slot}` for a slot record, `{slot}/{topic}` for a table record
(a slot's name holds no `/`). Values are JSON objects with sorted keys, UTF-8. LSNs are in PostgreSQL's text form
(`"16/B374D848"`): every JSON reader keeps them exactly, unlike numbers above 2**53, and a person can paste them into
SQL.

A slot record and everything before it in its partition is a *cut*: all tables as they were at exactly `lsn`. The
table records since the slot record before say up to which offset their topics belong to the cut.

The newest table record of every topic lies at the slot record's `tables_offset` or after it. So a start reads them all
without reading the whole topic. The daemon writes the records of topics that do not change again from time to time.

If several tables share a topic, each has a table record. The topic's name is followed by `#` and the table, in the key
and in the field `topic`. A table's record is written when the table has events: what follows its end in the topic
is of other tables, up to the cut.

Tombstones say nothing. The tombstone of `{slot}/`, which names no topic, stands before the table records of a
transaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import ClassVar, Final, TypeVar

from cdcd.errors import GapError
from cdcd.lsn import format_lsn, parse_lsn

VERSION: Final = 2
"""Goes up when a reader of the version before would misread the records; new fields alone do not change it."""

PLACE_MARK: Final = "#"
"""Stands before the table in the name of a topic that several tables share. No name of a topic can have it."""

T = TypeVar("T")


@dataclass(frozen=True)
class ParkedTable:
    """A refused table: Kafka does not take its events, so they go to the parked topic instead of the table's own."""

    schema: str
    table: str
    reason: str
    lsn: int
    """The table's own topic has every change that was committed before this LSN."""
    offset: int
    """The replay starts at this offset of the parked topic, or later."""
    is_replaying: bool = False
    """Its parked events are on their way to its own topic."""
    is_keyless: bool = False
    """Its parked events lack the key that its topic's events have, so they are never replayed: they can only be
    discarded."""
    shares_topic: bool = False
    """Its parked events name their table: they are for a topic that other tables share."""

    def document(self) -> dict[str, object]:
        """Return this table's part of the slot record's JSON."""
        keyless = {"keyless": True} if self.is_keyless else {}
        return {**_deferred_document(self), "reason": self.reason, **keyless}


@dataclass(frozen=True)
class DeferredTable:
    """A table whose snapshot runs: its events go to the parked topic until the snapshot is finished."""

    schema: str
    table: str
    lsn: int
    """The table's own topic has every change that was committed before this LSN."""
    offset: int
    """The replay starts at this offset of the parked topic, or later."""
    is_replaying: bool = False
    """Its parked events are on their way to its own topic, after the snapshot's rows."""
    shares_topic: bool = False
    """As in ParkedTable."""

    reason: ClassVar[str] = "its snapshot runs"

    def document(self) -> dict[str, object]:
        """Return this table's part of the slot record's JSON."""
        return _deferred_document(self)


@dataclass(frozen=True)
class TopicState:
    """A topic at one moment."""

    topic_id: str
    """Kafka's id of the topic: a topic that was made again has another one. Empty if the brokers have none (2.7)."""
    ends: tuple[int, ...]
    """The offset after the last record of each partition (end-exclusive)."""
    lacks_records: bool = False
    """The daemon wrote to the topic after it had lost records: its ends do not show the loss any more."""

    def document(self) -> dict[str, object]:
        """Return the topic's part of the slot record's JSON."""
        return {"topic_id": self.topic_id, "offsets": list(self.ends), **_loss(self.lacks_records)}


@dataclass(frozen=True)
class SlotRecord:
    """Everything up to `lsn` is in Kafka, and nothing beyond it of this slot is."""

    slot: str
    lsn: int
    """End LSN of the last transaction inside, or a later position up to which nothing was left to publish."""
    commit_lsn: int
    """Commit LSN of the last transaction published; 0 before the first."""
    commit_ts: int
    """Commit time of the last transaction published: microseconds since 1970 UTC; 0 before the first."""
    system_id: str
    """The PostgreSQL cluster's, as IDENTIFY_SYSTEM writes it."""
    timeline: int
    transactions: int
    """PostgreSQL transactions in this Kafka transaction; 0 in a record that only closes a cut on an idle slot."""
    rows: int
    """Events in this Kafka transaction."""
    parked: tuple[ParkedTable, ...] = ()
    """Refused tables: their events since are on the parked topic."""
    gap_lsn: int = 0
    """Not 0: changes committed from there up to `lsn` are missing, and every table needs a new snapshot."""
    deferred: tuple[DeferredTable, ...] = ()
    """Tables whose snapshot runs: their events since are on the parked topic."""
    cluster_id: str = ""
    """The Kafka cluster's; empty if it has none."""
    own_topics: Mapping[str, TopicState] = field(default_factory=dict)
    """Topics of cdcd's own that must not lose a record: the schemas, and how far the snapshots are."""
    tables_offset: int = 0
    """The newest table record of every topic lies at this offset of the progress topic or after it."""
    database_oid: int = 0
    """The OID of the slot's database; 0: not known."""
    lsn_base: int = 0
    """Every LSN in Kafka from here on is the server's own and this one: see `cdcd.lsn`."""
    snapshots_paused: bool = False
    """A person has paused the snapshots, and nobody has resumed them."""
    event_format: str = ""
    """The format and the encoding of the events, such as "debezium/json"; empty: cdcd's own in Avro."""

    @property
    def server_lsn(self) -> int:
        """`lsn` as the server knows it."""
        return self.lsn - self.lsn_base

    @property
    def incomplete(self) -> tuple[ParkedTable | DeferredTable, ...]:
        """The tables whose own topics do not reach to `lsn`: the rest of their events is on the parked topic."""
        return (*self.parked, *self.deferred)

    def key(self) -> bytes:
        """Return the record's key on the progress topic."""
        return slot_key(self.slot)

    def value(self) -> bytes:
        """Return the record's value: the JSON that the module describes."""
        document: dict[str, object] = {
            "version": VERSION,
            "slot": self.slot,
            "lsn": format_lsn(self.lsn),
            "commit_lsn": format_lsn(self.commit_lsn),
            "commit_ts": self.commit_ts,
            "system_id": self.system_id,
            "timeline": self.timeline,
            "transactions": self.transactions,
            "rows": self.rows,
            "cluster_id": self.cluster_id,
            "own_topics": {topic: state.document() for topic, state in self.own_topics.items()},
            "tables_offset": self.tables_offset,
        }
        if self.database_oid:
            document["database_oid"] = self.database_oid
        if self.lsn_base:
            document["lsn_base"] = format_lsn(self.lsn_base)
        if self.snapshots_paused:
            document["snapshots_paused"] = True
        if self.event_format:
            document["event_format"] = self.event_format
        if self.gap_lsn:
            document["gap_lsn"] = format_lsn(self.gap_lsn)
        if self.parked:
            document["parked"] = [table.document() for table in self.parked]
        if self.deferred:
            document["deferred"] = [table.document() for table in self.deferred]
        return _dump(document)


@dataclass(frozen=True)
class SnapshotState:
    """How far a table's snapshot is. A table that never gets one has none."""

    lsn: int
    """The consistent point: the snapshot has the changes committed before it, the stream has the later ones."""
    done: bool
    rows: int
    stopped: bool = False
    """A person has stopped it: the topic lacks rows until somebody asks for a new snapshot."""
    where: str = ""
    """The SQL condition of the rows that it has; the topic lacks others. Empty: it has all rows."""

    def document(self) -> dict[str, object]:
        """Return the snapshot's part of the table record's JSON."""
        document: dict[str, object] = {"lsn": format_lsn(self.lsn), "done": self.done, "rows": self.rows}
        if self.stopped:
            document["stopped"] = True
        if self.where:
            document["where"] = self.where
        return document


@dataclass(frozen=True)
class TableRecord:
    """Where a table's topic ends at the cut that the next slot record closes."""

    slot: str
    topic: str
    """If several tables share it, `#` and the table follow: each table has its own record. See `kafka_topic`."""
    schema: str
    table: str
    commit_lsn: int
    """Commit LSN of the last PostgreSQL transaction up to which the topic is complete."""
    offsets: tuple[int, ...]
    """The offset after the last record of each partition (end-exclusive)."""
    snapshot: SnapshotState | None = None
    topic_id: str = ""
    """As in TopicState."""
    lacks_records: bool = False
    """As in TopicState."""
    key_columns: tuple[str, ...] | None = None
    """The key of the table's last events; empty: they have none; None: not known, or the snapshot record has it."""
    oid: int | None = None
    """The OID of the table of the last events; 0: that table has another name now; None: as `key_columns`."""

    @property
    def state(self) -> TopicState:
        """The topic, as this record knows it."""
        return TopicState(self.topic_id, self.offsets, self.lacks_records)

    def key(self) -> bytes:
        """Return the record's key on the progress topic."""
        return table_key(self.slot, self.topic)

    def value(self) -> bytes:
        """Return the record's value: the JSON that the module describes."""
        snapshot = self.snapshot
        key = {} if self.key_columns is None else {"key_columns": list(self.key_columns)}
        oid = {} if self.oid is None else {"oid": self.oid}
        return _dump(
            {
                "version": VERSION,
                "slot": self.slot,
                "topic": self.topic,
                "schema": self.schema,
                "table": self.table,
                "commit_lsn": format_lsn(self.commit_lsn),
                "offsets": list(self.offsets),
                "topic_id": self.topic_id,
                "snapshot": None if snapshot is None else snapshot.document(),
                **_loss(self.lacks_records),
                **key,
                **oid,
            }
        )


class TableRecordForm:
    """The value of the records of one table, which differ in little: a transaction may touch thousands of tables."""

    def __init__(self, record: TableRecord) -> None:
        """`record`: one of them, with whatever LSN and offsets."""
        blank = replace(record, commit_lsn=0, offsets=()).value()
        # Quotes inside a name are escaped: so no name has these words. The fields are sorted.
        self._before, _, rest = blank.partition(b'"commit_lsn":"0/0"')
        self._between, _, self._after = rest.partition(b'"offsets":[]')

    def value(self, commit_lsn: str, offsets: Iterable[int]) -> bytes:
        """Return what `TableRecord.value` gives with this LSN, as text, and with these offsets."""
        changed = f'"commit_lsn":"{commit_lsn}"'.encode(), f'"offsets":[{",".join(map(str, offsets))}]'.encode()
        return b"".join((self._before, changed[0], self._between, changed[1], self._after))


def kafka_topic(topic: str) -> str:
    """Return the topic on the broker, from the name by which a table's topic is known: see `sink.topics`."""
    return topic.partition(PLACE_MARK)[0]


def by_kafka_topic(tables: Iterable[TableRecord]) -> dict[str, TableRecord]:
    """Return a record for each topic on the broker: that of one of its tables, with the highest ends that any has."""
    found: dict[str, TableRecord] = {}
    for record in tables:
        name = kafka_topic(record.topic)
        known = found.get(name)
        if known is not None:
            ends = zip_longest(known.offsets, record.offsets, fillvalue=0)
            record = replace(known, offsets=tuple(max(each) for each in ends))  # noqa: PLW2901
        found[name] = record
    return found


def slot_key(slot: str) -> bytes:
    """Return the key of a slot's records."""
    return slot.encode()


def table_key(slot: str, topic: str) -> bytes:
    """Return the key of the table records of a topic that a slot feeds."""
    return f"{slot}/{topic}".encode()


def parse_record(key: bytes, value: bytes) -> SlotRecord | TableRecord:
    """Read one record of the progress topic.

    Raises GapError if it cannot be understood: another program, or a newer cdcd, wrote to the topic. To guess where to
    go on could skip rows.
    """
    if b"/" in key:
        return parse_table_record(key, value)
    return parse_slot_record(key, value)


def parse_table_record(key: bytes, value: bytes) -> TableRecord:
    """Read a table record; raises GapError as `parse_record` does."""
    return _parsed(key, value, _table_record)


def parse_slot_record(key: bytes, value: bytes) -> SlotRecord:
    """Read a slot record; raises GapError as `parse_record` does."""
    return _parsed(key, value, _slot_record)


class _Fields:
    """A JSON object, read strictly: a field that is missing or of another type is a ValueError with its name."""

    def __init__(self, document: object) -> None:
        if not isinstance(document, dict):
            raise ValueError(f"a JSON object was expected, not {type(document).__name__}")  # noqa: TRY004  one kind for all
        self._document: dict[str, object] = document

    def _get(self, name: str, wanted: type[T]) -> T:
        found = self._document.get(name)
        if type(found) is not wanted:  # not isinstance: true is not a number
            raise ValueError(f"field {name!r}: {wanted.__name__} was expected, not {type(found).__name__}")
        return found

    def number(self, name: str) -> int:
        found = self._get(name, int)
        if found < 0:
            raise ValueError(f"field {name!r}: {found} is negative")
        return found

    def text(self, name: str) -> str:
        return self._get(name, str)

    def flag(self, name: str) -> bool:
        return self._get(name, bool)

    def lsn(self, name: str) -> int:
        return parse_lsn(self._get(name, str))

    def numbers(self, name: str) -> tuple[int, ...]:
        found = self._get(name, list)
        for each in found:
            if type(each) is not int or each < 0:
                raise ValueError(f"field {name!r}: offsets were expected, not {each!r}")
        return tuple(found)

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._get(name, list)
        for each in found:
            if type(each) is not str:
                raise ValueError(f"field {name!r}: texts were expected, not {each!r}")
        return tuple(found)

    def has(self, name: str) -> bool:
        return name in self._document

    def each(self, name: str) -> list[_Fields]:
        return [_Fields(each) for each in self._get(name, list)] if self.has(name) else []

    def optional(self, name: str) -> _Fields | None:
        found = self._document.get(name)
        return None if found is None else _Fields(found)

    def by_name(self, name: str) -> dict[str, _Fields]:
        return {each: _Fields(found) for each, found in self._get(name, dict).items()}


def _slot_record(fields: _Fields) -> SlotRecord:
    return SlotRecord(
        slot=fields.text("slot"),
        lsn=fields.lsn("lsn"),
        commit_lsn=fields.lsn("commit_lsn"),
        commit_ts=fields.number("commit_ts"),
        system_id=fields.text("system_id"),
        timeline=fields.number("timeline"),
        transactions=fields.number("transactions"),
        rows=fields.number("rows"),
        parked=tuple(
            ParkedTable(
                schema=each.text("schema"),
                table=each.text("table"),
                reason=each.text("reason"),
                lsn=each.lsn("lsn"),
                offset=each.number("offset"),
                is_replaying=each.flag("replaying"),
                is_keyless=each.has("keyless") and each.flag("keyless"),
                shares_topic=_shares_topic(each),
            )
            for each in fields.each("parked")
        ),
        gap_lsn=fields.lsn("gap_lsn") if fields.has("gap_lsn") else 0,
        deferred=tuple(
            DeferredTable(
                schema=each.text("schema"),
                table=each.text("table"),
                lsn=each.lsn("lsn"),
                offset=each.number("offset"),
                is_replaying=each.flag("replaying"),
                shares_topic=_shares_topic(each),
            )
            for each in fields.each("deferred")
        ),
        cluster_id=fields.text("cluster_id"),
        own_topics={
            topic: TopicState(each.text("topic_id"), each.numbers("offsets"), _lacks_records(each))
            for topic, each in fields.by_name("own_topics").items()
        },
        tables_offset=fields.number("tables_offset"),
        database_oid=fields.number("database_oid") if fields.has("database_oid") else 0,
        lsn_base=fields.lsn("lsn_base") if fields.has("lsn_base") else 0,
        snapshots_paused=fields.has("snapshots_paused") and fields.flag("snapshots_paused"),
        event_format=fields.text("event_format") if fields.has("event_format") else "",
    )


def _table_record(fields: _Fields) -> TableRecord:
    snapshot = fields.optional("snapshot")
    return TableRecord(
        slot=fields.text("slot"),
        topic=fields.text("topic"),
        schema=fields.text("schema"),
        table=fields.text("table"),
        commit_lsn=fields.lsn("commit_lsn"),
        offsets=fields.numbers("offsets"),
        snapshot=None if snapshot is None else _snapshot_state(snapshot),
        topic_id=fields.text("topic_id"),
        lacks_records=_lacks_records(fields),
        key_columns=fields.texts("key_columns") if fields.has("key_columns") else None,
        oid=fields.number("oid") if fields.has("oid") else None,
    )


def _snapshot_state(fields: _Fields) -> SnapshotState:
    return SnapshotState(
        lsn=fields.lsn("lsn"),
        done=fields.flag("done"),
        rows=fields.number("rows"),
        stopped=fields.has("stopped") and fields.flag("stopped"),
        where=fields.text("where") if fields.has("where") else "",
    )


def _shares_topic(fields: _Fields) -> bool:
    return fields.has("shares_topic") and fields.flag("shares_topic")


def _lacks_records(fields: _Fields) -> bool:
    return fields.has("lacks_records") and fields.flag("lacks_records")


def _loss(lacks_records: bool) -> dict[str, object]:
    return {"lacks_records": True} if lacks_records else {}


def _parsed(key: bytes, value: bytes, build: Callable[[_Fields], T]) -> T:
    try:
        fields = _Fields(json.loads(value))
        version = fields.number("version")
        if version != VERSION:
            raise ValueError(f"version {version}; this cdcd reads version {VERSION}")
        record = build(fields)
    # The errors of json.loads, of decode and of parse_lsn are ValueErrors, too.
    except (ValueError, RecursionError) as error:
        raise GapError(
            f"the progress record with the key {key.decode(errors='replace')!r} cannot be read: {error}",
            "Run the cdcd version that wrote it, and keep other producers off the progress topic.",
            code="record-unreadable",
        ) from None
    return record


def _deferred_document(table: ParkedTable | DeferredTable) -> dict[str, object]:
    return {
        "schema": table.schema,
        "table": table.table,
        "lsn": format_lsn(table.lsn),
        "offset": table.offset,
        "replaying": table.is_replaying,
        **({"shares_topic": True} if table.shares_topic else {}),
    }


def _dump(document: dict[str, object]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
