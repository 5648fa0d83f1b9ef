"""The way there and the way back agree: codecs and `type_forms`."""

from __future__ import annotations

import pytest

from cdcd.avro.codecs.base import Codec
from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for
from cdcd.avro.type_forms import FALLIBLE_KINDS, TYPE_FORMS, form_of, kind_of
from cdcd.source.pg_types import PgType

NUMERIC_12_2 = (12 << 16 | 2) + 4

REGISTERED = [
    *(PgType(oid, "pg_catalog", name) for oid, name in REGISTRY.built_in_names.items()),
    *(PgType(70_000, "public", name) for name in REGISTRY.extension_names),
]
INT4 = PgType(23, "pg_catalog", "int4")
MADE = [
    PgType(1007, "pg_catalog", "_int4", element=INT4, is_array=True),
    PgType(70_001, "public", "pair", "c", fields=(("a", INT4, -1),)),
    PgType(3904, "pg_catalog", "int4range", "r", element=INT4),
    PgType(
        4451, "pg_catalog", "int4multirange", "m", element=PgType(3904, "pg_catalog", "int4range", "r", element=INT4)
    ),
]


def codec_of(pgtype: PgType) -> Codec:
    return codec_for(pgtype, NUMERIC_12_2 if pgtype.name == "numeric" else -1, TypeOptions())


def kind(codec: Codec) -> str:
    assert not isinstance(codec.schema, list)
    return kind_of(codec.schema)


@pytest.mark.parametrize("pgtype", REGISTERED, ids=lambda pgtype: pgtype.name)
def test_readers_know_every_registered_type_as_its_codec_writes_it(pgtype: PgType) -> None:
    codec, form = codec_of(pgtype), TYPE_FORMS[pgtype.name]
    assert (kind(codec), codec.is_fallible) == (form.kind, form.is_fallible)


@pytest.mark.parametrize("pgtype", [*REGISTERED, *MADE], ids=lambda pgtype: pgtype.name)
def test_a_schema_alone_tells_a_reader_whether_values_may_be_lost(pgtype: PgType) -> None:
    codec = codec_of(pgtype)
    assert codec.is_fallible == (kind(codec) in FALLIBLE_KINDS - {"string"})


def test_a_users_type_with_a_known_name_is_read_by_its_kind() -> None:
    assert form_of("string", "shop.bool").text == "plain"
    assert form_of("string", "numeric").text == "plain"
    assert form_of("bytes", "shop.geometry").text == "ewkb"
    assert form_of("bytes", "").text == "hex"
