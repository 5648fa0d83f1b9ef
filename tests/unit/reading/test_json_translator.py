"""Events in JSON become the Avro bytes that they were, and anything else an error.

That each value of each type comes back is said by `support.json_form` and `golden/test_json_events.py`.
"""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from cdcd.avro.avro_format import AvroFormat
from cdcd.avro.codecs.lookup import TypeOptions, codecs_for
from cdcd.avro.schema import envelope_schema, key_schema
from cdcd.avro.single_object import MARKER
from cdcd.debezium.json_text import write_float
from cdcd.errors import DecodeError
from cdcd.json_events.json_format import JsonFormat
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.pgoutput.tuples import UNCHANGED
from cdcd.reading.decoder import EventDecoder
from cdcd.reading.json_form_lookup import form_of
from cdcd.reading.json_forms import Misfit
from cdcd.reading.json_translator import SHAPES_MAX, JsonTranslator
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
INT8 = PgType(20, "pg_catalog", "int8")
DATE = PgType(1082, "pg_catalog", "date")
TEXT = PgType(25, "pg_catalog", "text")
NUMERIC = PgType(1700, "pg_catalog", "numeric")
PAIR = PgType(16401, "s", "pair", "c", fields=(("no", INT4, -1), ("name", TEXT, -1)))


def column(name: str, pgtype: PgType = TEXT, typmod: int = -1, *, in_key: bool = False) -> ResolvedColumn:
    return ResolvedColumn(name, pgtype, typmod, in_key)


class Table:
    """A table with its schemas; its records in both encodings."""

    def __init__(self, *columns: ResolvedColumn, shares_topic: bool = False) -> None:
        self.relation = ResolvedRelation(1, "s", "t", "d", list(columns))
        self.relation.shared_topic = "p.all" if shares_topic else ""
        self.texts: dict[str, str] = {}
        codecs = codecs_for(self.relation.types, TypeOptions())
        self.key = json.loads(key_schema(self.relation, codecs)) if self.relation.has_key else None
        self.value = json.loads(envelope_schema(self.relation, codecs))

    def records(self, *rows: list[Any], encoding: str = "json", op: str = "insert") -> list[tuple[bytes, bytes]]:
        """Key and value of the events of these rows."""
        batches = BatchBuilder(tombstones=False)
        avro = AvroFormat("decimal", "UTF8")
        made = avro if encoding == "avro" else JsonFormat(avro, with_schemas=encoding == "json-schema")
        encoder = made.stream_encoder(batches)
        changes = encoder.open_relation(self.relation)
        encoder.begin(200, 1_000_001, 7)
        for row in rows:
            getattr(changes, op)((b"K" if op == "delete" else b"N") + encode_tuple(row), 0, 150)
        encoder.commit(208)
        [table] = batches.build().tables
        return [(each.get("key") or b"", each["value"] or b"") for each in table.messages]

    def translator(self, *, with_schemas: bool = False) -> JsonTranslator:
        return JsonTranslator(self.key, self.value, self.texts.__setitem__, with_schemas=with_schemas)

    def decoded(self, data: bytes) -> Any:
        return EventDecoder(lambda each: self.texts[str(each)]).decode(data)

    def read(self, data: bytes) -> Any:
        return self.decoded(self.translator().event(data))


NOW = Table(column("id", INT4, in_key=True), column("a b"), column("n", NUMERIC, (5 << 16 | 2) + 4))


@pytest.mark.parametrize("encoding", ["json", "json-schema"])
@pytest.mark.parametrize("op", ["insert", "update", "delete"])
def test_records_become_the_bytes_that_they_were(encoding: str, op: str) -> None:
    rows: list[list[Any]] = [[b"7", b"x", b"-0.05"], [b"8", None if op == "delete" else UNCHANGED, None]]
    translator = NOW.translator(with_schemas=encoding == "json-schema")
    translated = [
        (translator.key(key), translator.event(value)) for key, value in NOW.records(*rows, encoding=encoding, op=op)
    ]
    assert translated == NOW.records(*rows, encoding="avro", op=op)


def test_what_a_table_had_before_is_read_by_its_present_schema() -> None:
    before = Table(column("id", INT4, in_key=True), column("gone"), column("n", INT4), column("a b", PAIR))
    [(key, value)] = before.records([b"7", UNCHANGED, b"5", b"(1,x)"])
    assert NOW.translator().key(key) == NOW.records([b"7", None, None], encoding="avro")[0][0]
    found = NOW.read(value)
    assert found["after"] == {"id": 7, "a_x20_b": None, "n": None}
    assert found["unchanged"] == []
    assert found["unrepresentable"] == [
        {"image": "after", "column": "a_x20_b", "text": '{"no":1,"name":"x"}'},
        {"image": "after", "column": "n", "text": "5"},
    ]
    [(_, value)] = Table(column("n", NUMERIC, (5 << 16 | 2) + 4)).records([b"1.5"])
    assert {name: str(each) for name, each in NOW.read(value)["after"].items()} == {"n": "1.50"}


def test_a_key_of_other_columns_or_types_names_its_columns() -> None:
    translator = NOW.translator()
    for key, wanted in (
        (b'{"id":"7"}', {"id": "7"}),
        (b'{"id":7,"a b":null}', {"id": "7", "a_x20_b": None}),
        (b'{"d":null,"unrepresentable":[{"column":"d","text":"infinity"}]}', {"d": None}),
    ):
        found = translator.key(key)
        assert NOW.decoded(found).items() >= wanted.items()
        fields = json.loads(NOW.texts[found[2:10].hex()])["fields"]
        assert [each["name"] for each in fields if "pg_type" in each] == list(wanted)


def test_a_value_in_a_key_that_avro_cannot_hold_comes_back_with_the_name_of_its_column() -> None:
    table = Table(column("a b", DATE, in_key=True))
    [(key, value)] = table.records([b"infinity"])
    translator = table.translator()
    assert [(translator.key(key), translator.event(value))] == table.records([b"infinity"], encoding="avro")


def test_a_composite_type_may_have_the_names_of_the_envelope() -> None:
    for name, field in (("Unrepresentable", "column"), ("Envelope", "unchanged")):
        table = Table(column("v", PgType(16401, "pg_catalog", name, "c", fields=((field, TEXT, -1),))))
        [(_, value)] = table.records([b"(x)"])
        assert [(b"", table.translator().event(value))] == table.records([b"(x)"], encoding="avro")


def test_events_of_other_tables_on_a_shared_topic_have_the_schema_of_others() -> None:
    table = Table(column("id", INT4, in_key=True), shares_topic=True)
    [(key, value)] = table.records([b"7"])
    translator = table.translator()
    assert [(translator.key(key), translator.event(value))] == table.records([b"7"], encoding="avro")
    others = translator.event(value.replace(b'"table":"t"', b'"table":"u"'))
    assert json.loads(table.texts[others[2:].hex()])["namespace"] == "others"


def test_a_truncate_has_the_schema_of_rows() -> None:
    batches = BatchBuilder(tombstones=False)
    encoder = JsonFormat(AvroFormat("decimal", "UTF8"), with_schemas=False).stream_encoder(batches)
    encoder.begin(200, 1, 7)
    encoder.open_relation(NOW.relation).truncate(153, True, False)
    encoder.commit(208)
    [message] = batches.build().tables[0].messages
    found = NOW.read(message["value"] or b"")
    assert (found["op"], found["before"], found["after"]) == ("t", None, None)


def test_the_sets_of_columns_that_are_kept_have_a_bound() -> None:
    table = Table(column("id", INT4))
    [(_, value)] = table.records([b"7"])
    translator = table.translator()
    for number in [*range(SHAPES_MAX + 1), 0]:
        found = translator.event(value.replace(b'{"id":7}', b'{"c%d":1}' % number))
        assert found[:2] == MARKER
    assert len(translator._shapes) == SHAPES_MAX


EVENT = NOW.records([b"7", b"x", b"1"])[0][1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"op":"c"', b'"op":"cc"'),
        (b'"op":"c"', b'"op":[]'),
        (b'"op":"c"', b'"op":"t"'),
        (b'"op":"c"', b'"op":"c","op":"d"'),
        (b'"op":"c",', b""),
        (b'"id":7', b'"id":7,"id":8'),
        (b'"before":null', b'"before":{"id":1}'),
        (b'"before":null', b'"before":[]'),
        (b'"after":{', b'"after":[{'),
        (b'"commit_lsn":200', b'"commit_lsn":9223372036854775808'),
        (b'"commit_lsn":200', b'"commit_lsn":true'),
        (b'"commit_lsn":200', b'"commit_lsn":2e2'),
        (b'"commit_lsn":200', b'"commit_lsn":' + b"9" * 5000),
        (b'"commit_ts":"', b'"commit_ts":"0'),
        (b'"origin":null', b'"origin":7'),
        (b'"identity":"none"', b'"identity":"nobody"'),
        (b'"unchanged":[]', b'"unchanged":{}'),
        (b'"unchanged":[]', b'"unchanged":[7]'),
        (b'"unrepresentable":[]', b'"unrepresentable":["id"]'),
        (b'"unrepresentable":[]', b'"unrepresentable":[{"image":"now","column":"id","text":""}]'),
        (b'"unrepresentable":[]', b'"unrepresentable":[{"image":"after","column":"id","text":"\\ud800"}]'),
        (b'"after":{"id":7', b'"after":{"id":NaN'),
        (b'"after":{"id":7', b'"after":{"id":' + b"[" * 100_000),
        (b'"a b":"x"', b'"a b":"\xff"'),
        (b'"a b":"x"', b'"a b":["\\ud800"]'),
        (EVENT, b""),
        (EVENT, b"null"),
        (EVENT, b"[]"),
        (EVENT[-1:], b""),
    ],
)
def test_what_is_no_event_is_refused(old: bytes, new: bytes) -> None:
    assert NOW.read(EVENT)["op"] == "c"
    changed = EVENT[: -len(old)] + new if EVENT.endswith(old) else EVENT.replace(old, new, 1)
    assert changed != EVENT
    with pytest.raises(DecodeError, match="is not an event of cdcd"):
        NOW.read(changed)


@pytest.mark.parametrize("key", [b"", b"7", b"[]", b'{"id":7', b'{"id":7,"id":7}', b'{"a":"\\udfff"}', b"\xc3\x01"])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    with pytest.raises(DecodeError, match="is not an event of cdcd"):
        NOW.translator().key(key)


@pytest.mark.parametrize(
    "data", [b"", EVENT, b'{"schema":{}}', b'{"schema":{},"payload":', b'{"schema":{},"payload":{}', b'{"schema":[']
)
def test_what_has_no_schema_is_refused_where_there_are_schemas(data: bytes) -> None:
    translator = NOW.translator(with_schemas=True)
    for _ in range(2):  # the second time the schema may be known
        with pytest.raises(DecodeError, match="is not an event of cdcd"):
            translator.event(data)


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_give_avro_or_a_decode_error(data: bytes) -> None:
    translator = NOW.translator()
    for method in (translator.key, translator.event):
        try:
            NOW.decoded(method(data))
        except DecodeError:
            continue


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["no", "name", "x"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(JSON)
def test_any_value_of_a_column_is_read_or_its_text_is_shown(value: Any) -> None:
    table = Table(column("id", INT4, in_key=True), column("v", PAIR))
    event = json.loads(EVENT)
    event["after"] = {"id": 7, "v": value}
    try:
        found = table.read(json.dumps(event).encode())
    except DecodeError:  # Python writes NaN, which is no JSON, and halves of surrogate pairs
        assert not json.dumps(value).isascii() or any(word in json.dumps(value) for word in ("NaN", "Infinity", "\\ud"))
        return
    shown = [each["text"] for each in found["unrepresentable"]]
    assert shown == [] if found["after"]["v"] == value else shown != []


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", 2**31),
        ("int", 1.0),
        ("long", -(2**63) - 1),
        ("float", 3.5e38),
        ("double", 1),
        ("double", "nan"),
        ("boolean", 1),
        ("bytes", "AP8"),
        ("bytes", "AP9="),
        ("bytes", "é"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "1.5"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "1000.00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "-0.00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "01.00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, ".00"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}, "1."),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 0}, "²"),
        ({"type": "int", "logicalType": "date"}, "2026-02-29"),
        ({"type": "int", "logicalType": "date"}, "2026-02-2"),
        ({"type": "long", "logicalType": "time-micros"}, "24:00:00.000001"),
        ({"type": "long", "logicalType": "time-micros"}, "10:00:00"),
        ({"type": "long", "logicalType": "timestamp-micros"}, "2026-02-28T10:00:00.000000"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "2026-02-28T24:00:00.000000"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, []),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}, {"b": 1}),
    ],
)
def test_what_cdcd_does_not_write_does_not_fit(schema: Any, value: Any) -> None:
    with pytest.raises(Misfit):
        form_of(schema).write(value, BytesWriter())


@given(
    st.integers(0, 2**32 - 1) | st.integers(-126, 127).map(lambda e: struct.unpack("<I", struct.pack("<f", 2.0**e))[0])
)
def test_each_float4_comes_back(bits: int) -> None:
    data = struct.pack("<I", bits)
    [value] = struct.unpack("<f", data)
    shown, out = BytesWriter(), BytesWriter()
    write_float(shown, value)
    form_of("float").write(json.loads(shown.getvalue()), out)
    assert out.getvalue() == data or math.isnan(value)
