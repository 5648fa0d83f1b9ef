"""Tables that share a topic, in Debezium's events and flat rows: as Debezium's ByLogicalTableRouter makes them."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest

from cdcd.avro.schema_store import SchemaStore, SchemaStores
from cdcd.debezium.debezium_format import DebeziumFormat
from cdcd.debezium.debezium_names import table_identifier
from cdcd.debezium.modes import Modes, RowModes
from cdcd.pgoutput.encoder import encode_tuple
from cdcd.sink.batches import BatchBuilder
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import ResolvedColumn, ResolvedRelation

INT4 = PgType(23, "pg_catalog", "int4")
FIELD = "__dbz__physicalTableIdentifier"


class Schemas(SchemaStore):
    """Keeps the schemas of each table and part."""

    def __init__(self) -> None:
        self.texts: dict[tuple[str, str], str] = {}

    def header_for(self, schema: str, name: str, subject: str, text: str) -> bytes:
        self.texts[schema, subject] = text
        return b""


class Shared:
    """The tables a.t and b.t, which share the topic p.all; an insert and a changed key in each."""

    def __init__(self, *, is_avro: bool = False, column: str = "id", **modes: Any) -> None:
        self.schemas = Schemas()
        stores = SchemaStores(registry=self.schemas) if is_avro else None
        batches = BatchBuilder(tombstones=True, truncate_key=None, shared_topic=lambda _, __: "p.all")
        events = DebeziumFormat(Modes(**modes), ("p", "db"), "UTF8", lambda: 1_000_000_000, 100, stores=stores)
        encoder = events.stream_encoder(batches)
        encoder.begin(200, 5_000_001, 7)
        for schema in "ab":
            relation = ResolvedRelation(1, schema, "t", "f", [ResolvedColumn(column, INT4, -1, True)])
            relation.shared_topic = "p.all"
            changes = encoder.open_relation(relation)
            changes.insert(b"N" + encode_tuple([b"1"]), 0, 150)
            changes.update(b"O" + encode_tuple([b"1"]) + b"N" + encode_tuple([b"2"]), 0, 151)
        encoder.commit(208)
        [table] = batches.build().tables
        self.counts = table.counts
        self.messages: list[Any] = table.messages
        """By table: the insert, the delete, its tombstone, and the insert under the new key."""

    def keys(self) -> list[Any]:
        return [json.loads(each["key"]) for each in self.messages]


@pytest.mark.parametrize("rows", [None, RowModes((("__op", "op"),), "rewrite")])
def test_each_key_and_tombstone_ends_with_the_table(rows: RowModes | None) -> None:
    shared = Shared(rows=rows)
    assert shared.messages[0]["key"] == b'{"id":1,"__dbz__physicalTableIdentifier":"p.a.t"}'
    assert shared.keys() == [{"id": n, FIELD: f"p.{schema}.t"} for schema in "ab" for n in (1, 1, 1, 2)]
    assert [each["value"] is None for each in shared.messages] == [False, False, True, False] * 2
    assert set(shared.counts) == {("a", "t"), ("b", "t")}


def test_the_headers_of_a_changed_key_do_not_name_the_table() -> None:
    deleted, tombstone, created = Shared().messages[1:4]
    assert deleted["headers"] == tombstone["headers"] == [("__debezium.newkey", b'{"id":2}')]
    assert created["headers"] == [("__debezium.oldkey", b'{"id":1}')]
    [(_, header)] = Shared(is_avro=True).messages[1]["headers"]
    assert header == b'{"id":2}'


def test_schemas_have_the_name_of_the_topic_but_in_headers() -> None:
    messages = Shared(with_schemas=True).messages
    key, value = (json.loads(messages[1][part]) for part in ("key", "value"))
    [(_, header)] = messages[1]["headers"]
    assert (key["schema"]["name"], value["schema"]["name"]) == ("p.all.Key", "p.all.Envelope")
    assert key["schema"]["fields"][-1] == {"type": "string", "optional": False, "field": FIELD}
    assert {field["name"] for field in value["schema"]["fields"][:2]} == {"p.all.Value"}
    assert json.loads(header) == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int32", "optional": True, "field": "id"}],
            "optional": False,
            "name": "p.a.t.Key",
        },
        "payload": {"id": 2},
    }


def test_in_avro_tables_of_equal_columns_have_equal_schemas() -> None:
    shared = Shared(is_avro=True)
    for part in ("key", "value"):
        assert shared.schemas.texts["a", part] == shared.schemas.texts["b", part]
    schema: Any = fastavro.parse_schema(json.loads(shared.schemas.texts["a", "key"]))
    assert schema["connect.name"] == "p.all.Key"
    read = [fastavro.schemaless_reader(BytesIO(each["key"]), schema, None) for each in shared.messages]
    assert read == Shared().keys()


def test_nothing_is_added_where_keys_are_unique_anyway() -> None:
    shared = Shared(table_in_key="", with_schemas=True)
    assert [each["payload"] for each in shared.keys()[:4]] == [{"id": n} for n in (1, 1, 1, 2)]
    assert shared.keys()[0]["schema"]["name"] == "p.all.Key"


def test_the_field_has_another_name_than_the_columns_of_the_key() -> None:
    assert Shared(column="t", table_in_key="t").keys()[0] == {"t": 1, "_t": "p.a.t"}


def test_no_two_tables_are_named_alike() -> None:
    plain = [("a", "b"), ("a", "B"), ("a", "b-c"), ("a_b", "c")]
    assert [table_identifier("p", *each) for each in plain] == ["p.a.b", "p.a.B", "p.a.b-c", "p.a_b.c"]
    odd = [("a.b", "c"), ("a", "b.c"), ("a b", "c"), ('"a', "b"), ('a"."b', "c"), ("a", 'b"."c'), ("é", "b")]
    found = [table_identifier("p", *each) for each in plain + odd]
    assert len(set(found)) == len(found)
    assert table_identifier("p", "a.b", "c") == 'p."a.b"."c"'
