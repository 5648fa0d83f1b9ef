"""cdcd's events of the recorded WAL are, byte for byte, those that Debezium's connector wrote of it.

Before: `recorded` has Debezium's records, `golden.recording` the WAL. After: whoever changes `cdcd.debezium`.

What the two cannot have in common, or do not on purpose, is set equal here, and nowhere else: each by a function of its
own. The manual has the same list.
"""

from __future__ import annotations

import gzip
import json
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest
from golden import recording
from golden.debezium.recorded import CATALOG, HERE, WAL, Connector, Record, load

from cdcd.avro.codecs.lookup import has_known_binary
from cdcd.avro.schema_store import SchemaStore, SchemaStores
from cdcd.debezium.added_fields import names_of
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.debezium_names import table_name
from cdcd.debezium.lost_values import LOST
from cdcd.debezium.modes import Modes, RowModes
from cdcd.pgoutput import messages
from cdcd.pgoutput.decoder import Decoder
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.assembler import Assembler
from cdcd.transaction.relations import Relations
from cdcd.transaction.spool import Spool
from cdcd.transaction.spool_file import SpoolDirectory

FILES = sorted(HERE.glob("*.jsonl.xz"))
WIRE_MODES = ("text", "binary")

_BODY = 25
"""Where a message of pgoutput begins in a frame."""
_CLOCK = re.compile(rb'"ts_ms":\d+,"ts_us":\d+,"ts_ns":\d+\}')
_MESSAGE_CLOCK = re.compile(rb'"op":"m","ts_ms":\d+')
_MESSAGE_TIME = re.compile(rb'"ts_(ms|us|ns)":\d+,')
_TRANSACTION = re.compile(rb'"transaction":\{"id":[^}]*\}')
_COUNTS = re.compile(rb'(?<="data_collections":)\[.*\](?=,"ts_ms")')
_MESSAGES = re.compile(rb"io\.debezium\.connector\.postgresql\.LogicalDecodingMessageMonitor[^\"]*")
_NAME = re.compile(rb'"n":("(\\.|[^"])*"|null)')
_OBJECTS = re.compile(rb'"t":\["\[Ljava[^\]]*\]')
_NOT_NUMBERS = re.compile(rb'"(n|n52)":\["N[aA]N"\]')
_BELOW = re.compile(rb'"below":("[^"]*"|[0-9.]+)')
_LABELS = ("sad", "ok", "so, so")
_LATER = {
    ("altered", "w"): Attribute(3, 23, None, is_required=True, default="5"),
    ("altered", "x"): Attribute(3, 1700, None, is_required=True, default="5"),
}
"""Columns that the workload makes."""


@dataclass
class Answers(recording.Answers):
    """The catalog, with what it says of columns, before the changes."""

    of_relations: dict[int, dict[str, Attribute]] = field(default_factory=dict)

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return self.of_relations.get(relation_oid, {})


@cache
def recorded() -> recording.Recording:
    return recording.load(WAL)


@cache
def connectors(path: Path) -> Mapping[str, Connector]:
    return {each.encoding: each for each in load(path)}


@cache
def relations() -> Mapping[int, messages.Relation]:
    """The relations of the WAL by OID, each in its first version."""
    found: dict[int, messages.Relation] = {}
    for frame in recorded().streams[0].frames:
        if frame[_BODY : _BODY + 1] == b"R":
            message = Decoder().decode(frame, _BODY, False)
            assert isinstance(message, messages.Relation)
            found.setdefault(message.relation_oid, message)
    return found


@cache
def answers() -> Answers:
    catalog = [json.loads(line) for line in gzip.decompress(CATALOG.read_bytes()).splitlines()]
    of_relations: dict[int, dict[str, Attribute]] = {}
    for oid, relation in relations().items():
        own = {
            row["column"]: Attribute(
                at, row["type_oid"], None, row["required"], "" if row["generated"] else row["default"] or ""
            )
            for at, row in enumerate(catalog)
            if (row["schema"], row["table"]) == (relation.nspname, relation.relname)
        }
        later = {column: facts for (table, column), facts in _LATER.items() if table == relation.relname}
        of_relations[oid] = own | later
    known = recorded().answers
    return Answers(
        {oid: _with_labels(each) for oid, each in known.known.items()},
        known.primary_keys,
        known.identity_indexes,
        of_relations,
    )


def _with_labels(pgtype: PgType) -> PgType:
    element = None if pgtype.element is None else _with_labels(pgtype.element)
    return replace(pgtype, element=element, labels=_LABELS if pgtype.name == "mood" else ())


def frames(wire_mode: str) -> list[bytes]:
    """The frames of the WAL. In binary, the rows of a table with a type that cdcd reads in text only are text."""
    text, binary = recorded().streams
    assert (text.mode, binary.mode) == WIRE_MODES
    if wire_mode == "text":
        return text.frames
    in_text = set()
    for oid, relation in relations().items():
        types = answers().types([column.type_oid for column in relation.columns])
        if not all(has_known_binary(each) for each in types.values()):
            in_text.add(oid)
    assert len(text.frames) == len(binary.frames)
    return [
        one if _relation_of(one) in in_text else other for one, other in zip(text.frames, binary.frames, strict=True)
    ]


def _relation_of(frame: bytes) -> int:
    is_row = frame[_BODY : _BODY + 1] in (b"I", b"U", b"D")
    return int.from_bytes(frame[_BODY + 1 : _BODY + 5], "big") if is_row else 0


def modes_of(connector: Connector) -> Modes:
    """The modes that the connector's properties ask for."""
    of = connector.properties.get
    return Modes(
        decimal=of("decimal.handling.mode", "precise"),  # type: ignore[arg-type]
        time=of("time.precision.mode", "adaptive"),  # type: ignore[arg-type]
        interval=of("interval.handling.mode", "numeric"),  # type: ignore[arg-type]
        binary=of("binary.handling.mode", "bytes"),  # type: ignore[arg-type]
        hstore=of("hstore.handling.mode", "json"),  # type: ignore[arg-type]
        unknown_types=of("include.unknown.datatypes") == "true",
        truncates=of("skipped.operations") == "none",
        transactions=of("provide.transaction.metadata") == "true",
        null_as_default=True,
        schema_names=of("schema.name.adjustment.mode", "none"),  # type: ignore[arg-type]
        field_names=of("field.name.adjustment.mode", "none"),  # type: ignore[arg-type]
        with_schemas=connector.encoding == "json-schema",
    )


class Registry(SchemaStore):
    """Numbers the schemas as they come."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        return struct.pack(">bi", 0, self.texts.setdefault(text, len(self.texts)))


def replay(
    connector: Connector,
    wire_mode: str,
    rows: RowModes | None = None,
    registry: Registry | None = None,
    *,
    keeps_lost: bool = False,
) -> dict[str, list[Record]]:
    """Cdcd's records of the WAL, by Debezium's topics. `rows`: flat ones. `registry`: in Avro."""
    prefix = connector.properties["topic.prefix"]
    modes = modes_of(connector)
    modes = replace(modes, rows=rows, keeps_lost=keeps_lost, transactions=modes.transactions and rows is None)
    batches = BatchBuilder(connector.properties.get("tombstones.on.delete") != "false", truncate_key=None)
    stores = None if registry is None else SchemaStores(registry=registry)
    events = DebeziumFormat(modes, (prefix, "golden"), "UTF8", lambda: 1, stores=stores)
    with tempfile.TemporaryDirectory() as folder:
        assembler = Assembler(
            Decoder(),
            Relations(answers()),
            events.stream_encoder(batches),
            Spool(SpoolDirectory(Path(folder) / "spool"), 1 << 14, 1 << 30),
        )
        assembler.feed(frames(wire_mode))
        assert not assembler.is_busy
    found: dict[str, list[Record]] = {}
    for table in batches.build().tables:
        topic = table_name(prefix, table.schema, table.name) if table.schema else f"{prefix}.{table.name}"
        topic = f"{prefix}.message" if topic == f"{prefix}.messages" else topic
        records = found.setdefault(topic, [])
        for message in table.messages:
            headers = tuple(message.get("headers", ()))
            records.append(Record(topic, message.get("key"), message["value"], headers))
    return found


def streamed(connector: Connector) -> dict[str, list[Record]]:
    """Debezium's records without those of its snapshot, by topic."""
    found: dict[str, list[Record]] = {}
    for record in connector.records:
        if b'"op":"r"' not in (record.value or b""):
            found.setdefault(record.topic, []).append(record)
    return found


# What cannot be equal, or is not on purpose


def without_clock(value: bytes) -> bytes:
    """The connector's clock, and the time that it shows for a message outside of a transaction."""
    value = _MESSAGE_CLOCK.sub(b'"op":"m"', _CLOCK.sub(b"}", value))
    if b'"txId":null' in value:
        value = _MESSAGE_TIME.sub(b"", value)
    return value


def without_transaction(value: bytes) -> bytes:
    """Flat rows have no metadata of transactions."""
    return _TRANSACTION.sub(b'"transaction":null', value)


def without_name_of_messages(value: bytes) -> bytes:
    """Debezium counts each logical message under the address of a Java object, cdcd all of a transaction together."""
    found = _COUNTS.search(value)
    if found is None or (b"LogicalDecodingMessageMonitor" not in value and b'"messages"' not in value):
        return value
    counts = sorted(json.loads(_MESSAGES.sub(b"messages", found[0])), key=lambda each: str(each["data_collection"]))
    return value[: found.start()] + json.dumps(counts).encode() + value[found.end() :]


def without_name(value: bytes) -> bytes:
    """Debezium loses the values of the type name in the stream; cdcd does not."""
    return _NAME.sub(b'"n":0', value)


def without_lost_arrays(value: bytes) -> bytes:
    """Debezium loses a whole array of ltree for a null in it, and of numeric for NaN, even where the type has room.

    Of an array of text with two dimensions it shows the addresses of Java's objects; cdcd null.
    """
    value = _OBJECTS.sub(b'"t":[null,null]', value)
    return _NOT_NUMBERS.sub(rb'"\1":null', value.replace(b'"l":["a.b",null]', b'"l":null'))


def without_negative_scale(value: bytes) -> bytes:
    """Pgjdbc takes the scale -2 of numeric(3,-2) for 2046."""
    return _BELOW.sub(b'"below":0', value).replace(b'{"scale":"2046"', b'{"scale":"-2"')


def without_new_label(value: bytes) -> bytes:
    """A label that an enum gets is in Debezium's next schema, and in cdcd's once the table changes."""
    return value.replace(b'"allowed":"sad,glad,ok,so, so"', b'"allowed":"sad,ok,so, so"')


_OF_TABLES: Mapping[str, Callable[[bytes], bytes]] = {
    "basic": without_name,
    "required": without_name,
    "arrays": without_lost_arrays,
    "scales": without_negative_scale,
    "extras": without_new_label,
    "transaction": without_name_of_messages,
}
"""What is set equal in the events of one table only."""


def is_different(topic: str, connector: Connector) -> bool:
    """Whether all events of the topic differ on purpose."""
    table = topic.rpartition(".")[2]
    of = connector.properties.get
    if table == "by_index":
        return True  # see the test below
    # Debezium fails to make the event
    return table == "required_timestamp" and of("time.precision.mode") == "nanoseconds"


def comparable(records: list[Record]) -> Iterator[Record]:
    for record in records:
        table = record.topic.rpartition(".")[2]
        if record.value is None and record.key is None:
            continue  # a tombstone without a key deletes nothing: cdcd writes none
        if b'"prefix":"recorder"' in (record.key or b""):
            continue  # the recorder's own, after the connectors had ended
        value = record.value
        if value is not None:
            value = _OF_TABLES.get(table, bytes)(without_clock(value))
        headers = tuple(each for each in record.headers if not each[0].startswith("__debezium.context."))
        yield replace(record, value=value, headers=headers)


@pytest.mark.parametrize("wire_mode", WIRE_MODES)
@pytest.mark.parametrize("encoding", ["json", "json-schema"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_the_events_are_those_of_debezium(path: Path, encoding: str, wire_mode: str) -> None:
    connector = connectors(path)[encoding]
    ours, theirs = replay(connector, wire_mode), streamed(connector)
    differing = []
    assert ours.keys() == theirs.keys()
    for topic in sorted(ours):
        if is_different(topic, connector):
            continue
        mine, wanted = list(comparable(ours.get(topic, []))), list(comparable(theirs.get(topic, [])))
        if mine != wanted:
            differing.append((topic, mine, wanted))
    assert differing == []


ROWS = RowModes(tuple(names_of(["op", "lsn", "source.ts_ms", "table"], "__")), "rewrite-with-tombstone")
_ADDED = (
    (b"string", b"__deleted"),
    (b"string", b"__op"),
    (b"int64", b"__lsn"),
    (b"int64", b"__source_ts_ms"),
    (b"string", b"__table"),
)
"""The types and names of the fields."""


def flattened(record: Record) -> Record | None:
    """What Debezium's ExtractNewRecordState, with the properties of ROWS, makes of a record of Debezium's.

    The rows are cut out of the event as they are. What is no event of a row stays as it is; None: nothing.
    """
    value = record.value
    if value is None:
        return record
    if record.topic.endswith(".message"):
        return replace(record, value=without_transaction(value))
    schema, payload = None, value
    if value.startswith(b'{"schema":'):
        schema, rest = split(value[len(b'{"schema":') :])
        payload = rest[len(b',"payload":') : -1]
    before, rest = split(payload[len(b'{"before":') :])
    after, rest = split(rest[len(b',"after":') :])
    event = json.loads(b"{" + rest[1:])
    row = before if after == b"null" else after
    if row == b"null":
        return None  # a truncate
    source, table = event["source"], json.dumps(event["source"]["table"], ensure_ascii=False).encode()
    flag = b"true" if after == b"null" else b"false"
    added = b',"__deleted":"%b","__op":"%b","__lsn":%d,"__source_ts_ms":%d,"__table":%b}' % (
        flag, event["op"].encode(), source["lsn"], source["ts_ms"], table
    )  # fmt: skip
    row = row[:-1] + (added[1:] if row == b"{}" else added)
    if schema is None:
        return replace(record, value=row)
    of_row, _ = split(schema[len(b'{"type":"struct","fields":[') :])
    columns, _, name = of_row.rpartition(b'],"optional":true,"name":')
    fields = [b'{"type":"%b","optional":true,"field":"%b"}' % each for each in _ADDED]
    joined = columns + (b"" if columns.endswith(b"[") else b",") + b",".join(fields)
    of_row = joined + b'],"optional":false,"name":' + name.removesuffix(b',"field":"before"}') + b"}"
    return replace(record, value=b'{"schema":' + of_row + b',"payload":' + row + b"}")


def split(data: bytes) -> tuple[bytes, bytes]:
    """The JSON value with which `data` begins, and what follows it."""
    text = data.decode()
    _, end = json.JSONDecoder().raw_decode(text)
    return text[:end].encode(), text[end:].encode()


@pytest.mark.parametrize("encoding", ["json", "json-schema"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_flat_rows_are_the_rows_of_debezium_with_the_fields_that_were_asked_for(path: Path, encoding: str) -> None:
    connector = connectors(path)[encoding]
    ours = replay(connector, "binary", ROWS)
    compared = 0
    for topic, records in streamed(connector).items():
        if is_different(topic, connector) or topic.endswith(".transaction"):
            continue
        theirs = [each for record in records if (each := flattened(record)) is not None]
        mine = list(comparable(ours.get(topic, [])))
        assert mine == list(comparable(theirs)), topic
        compared += len(mine)
    assert compared > 140


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_the_header_of_lost_values_is_the_same_in_both_wire_modes_and_changes_nothing_else(
    path: Path, encoding: str
) -> None:
    connector = connectors(path)[encoding]
    registries = [Registry() if encoding == "avro" else None for _ in range(3)]
    plain, binary, text = (
        replay(connector, wire_mode, registry=registry, keeps_lost=keeps_lost)
        for (wire_mode, keeps_lost), registry in zip(
            (("binary", False), ("binary", True), ("text", True)), registries, strict=True
        )
    )
    prefix = connector.properties["topic.prefix"]
    for found in (plain, binary, text):
        del found[f"{prefix}.message"]  # it has the time at which the server sent it
    assert binary == text
    headers = {topic: [record.headers for record in records] for topic, records in binary.items()}
    for records in binary.values():
        records[:] = [replace(each, headers=tuple(h for h in each.headers if h[0] != LOST)) for each in records]
    assert binary == plain
    [shown] = [value for name, value in headers[f"{prefix}.public.arrays_unknown"][0] if name == LOST]
    assert b'{"image":"after","column":"m","text":"{' in shown
    texts = {
        (each["column"], each["text"])
        for table in ("times", "arrays")
        for found in headers[f"{prefix}.public.{table}"]
        for name, value in found
        if name == LOST
        for each in json.loads(value)
    }
    assert {("d", "infinity"), ("d", "-infinity"), ("d", "{infinity,-infinity}")} <= texts
    assert ("z6", "23:59:59.999999-15:59") in texts
    assert ("z6", "24:00:00+00") not in texts


def test_a_table_with_an_index_as_its_identity_has_that_key() -> None:
    """Debezium's key is the primary key, which an old tuple does not have: it makes up {"id":0} for each such row."""
    connector = connectors(HERE / "defaults.jsonl.xz")["json"]
    ours, theirs = replay(connector, "text"), streamed(connector)
    topic = "defaults_json.public.by_index"
    assert [record.key for record in ours[topic]] == [b'{"code":"c"}'] * 5 + [b'{"code":"d"}'] * 3
    assert b'{"id":0}' in {record.key for record in theirs[topic]}


def test_a_required_timestamp_that_did_not_come_is_zero_in_nanoseconds_too() -> None:
    ours = replay(connectors(HERE / "nanoseconds.jsonl.xz")["json"], "binary")
    [_, deleted] = ours["nanoseconds_json.public.required_timestamp"]
    assert (deleted.value or b"").startswith(b'{"before":{"id":1,"ts3":0,"ts6":0},"after":null,')
