"""PostgreSQL's text becomes the bytes that the daemon writes for it, though a schema tells the type's name only."""

from __future__ import annotations

from typing import Any

import pytest
from librt.strings import BytesWriter

from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for
from cdcd.avro.type_forms import kind_of
from cdcd.reading.avro_values import avro_value
from cdcd.source.pg_types import PgType

BUILT_IN = {name: PgType(oid, "pg_catalog", name) for oid, name in REGISTRY.built_in_names.items()}
TEXTS = {
    "bool": "t", "bytea": "\\x00ff", "uuid": "6d34a5a1-6d34-4a5a-8a1b-0123456789ab", "float4": "1.1",
    "float8": "-Infinity", "date": "2026-11-26", "time": "23:59:59.999999", "timestamp": "2026-11-26 01:02:03.4",
    "numeric": "-1.50", "timestamptz": "2026-11-26 01:02:03.4+00", "interval": "1 mon -2 days +03:00:00",
    "hstore": '"a"=>"b", "c"=>NULL',
    "vector": "[1,-2.5]", "geometry": "0101", "geography": "0101",
}  # fmt: skip
BOX = PgType(603, "pg_catalog", "box")
INT4 = BUILT_IN["int4"]
RANGE = PgType(3904, "pg_catalog", "int4range", "r", element=INT4)
MADE = [
    *((pgtype, TEXTS.get(pgtype.name, "7")) for pgtype in BUILT_IN.values()),
    *((PgType(70_000, "shop", name), TEXTS.get(name, "7")) for name in REGISTRY.extension_names),
    (PgType(1007, "pg_catalog", "_int4", element=INT4, is_array=True), "{1,NULL,-3}"),
    (
        PgType(1020, "pg_catalog", "_box", element=PgType(603, "pg_catalog", "box"), is_array=True, delimiter=";"),
        "{(1,1),(0,0);NULL}",
    ),
    (RANGE, "[1,3)"),
    (PgType(3905, "pg_catalog", "_int4range", element=RANGE, is_array=True), '{"[1,3)",empty}'),
    (PgType(4451, "pg_catalog", "int4multirange", "m", element=RANGE), "{[1,3),[7,)}"),
    (PgType(70_001, "shop", "mood", "e"), 'so "so"'),
    (PgType(70_002, "shop", "pair", "c", fields=(("a", INT4, -1), ("b", BUILT_IN["text"], -1))), '(-1,"a,b")'),
    (PgType(70_003, "shop", "small", "d", base=INT4), "5"),
]


def plain(avro: Any) -> Any:
    """A type without names and without the unions of null, as readers of schemas have it."""
    if isinstance(avro, list):
        return plain(next(branch for branch in avro if branch != "null"))
    if not isinstance(avro, dict):
        return avro
    if avro["type"] == "record":
        return {"type": "record", "fields": [{"name": e["name"], "type": plain(e["type"])} for e in avro["fields"]]}
    return {name: plain(value) if name in ("items", "values") else value for name, value in avro.items()}


@pytest.mark.parametrize(("pgtype", "text"), MADE, ids=lambda each: getattr(each, "name", ""))
def test_a_text_becomes_the_bytes_that_the_daemon_writes(pgtype: PgType, text: str) -> None:
    typmod = (12 << 16 | 2) + 4 if pgtype.name == "numeric" else -1
    codec, out = codec_for(pgtype, typmod, TypeOptions()), BytesWriter()
    assert codec.text(text.encode(), 0, len(text.encode()), out), "the test has a text that Avro can hold"
    made = avro_value(text, pgtype.qualified, plain(codec.schema))
    assert made is not None
    assert (made[0], plain(made[1])) == (out.getvalue(), plain(codec.schema))


@pytest.mark.parametrize(
    ("text", "pg_type", "avro"),
    [
        ("infinity", "date", {"type": "int", "logicalType": "date"}),
        ("[0:1]={4,5}", "_int4", {"type": "array", "items": "int"}),
        ("seven", "int4", "int"),
        ("7", "int4", {"type": "fixed", "size": 4}),
    ],
)
def test_what_avro_cannot_hold_or_no_daemon_has_written_is_no_value(text: str, pg_type: str, avro: Any) -> None:
    assert avro_value(text, pg_type, avro) is None
    assert kind_of(avro)
