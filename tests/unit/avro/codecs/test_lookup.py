from __future__ import annotations

import pytest
from support.avro_values import transcode

from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for, codecs_for, has_known_binary
from cdcd.avro.codecs.registry import DEPTH_MAX, PARTS_MAX
from cdcd.errors import BinaryFormatUnsupported
from cdcd.source.pg_types import PgType

OPTIONS = TypeOptions()


def catalog(name: str, **more: object) -> PgType:
    return PgType(1, "pg_catalog", name, **more)  # type: ignore[arg-type]


def users(name: str, **more: object) -> PgType:
    return PgType(99999, "shop", name, **more)  # type: ignore[arg-type]


def logical(kind: str, name: str) -> dict[str, object]:
    return {"type": kind, "logicalType": name}


@pytest.mark.parametrize(
    ("pgtype", "schema"),
    [
        *((catalog(name), "int") for name in ("int2", "int4")),
        *((catalog(name), "long") for name in ("int8", "oid", "xid", "cid")),
        *((catalog("float4"), "float"), (catalog("float8"), "double"), (catalog("bool"), "boolean")),
        *((catalog("bytea"), "bytes"), (users("geometry"), {"type": "bytes", "pg_type": "geometry"})),
        *(
            (catalog(name), "string")
            for name in ("numeric", "money", "text", "varchar", "bpchar", "name", "xml", "char")
        ),
        *(
            (catalog(name), "string")
            for name in ("json", "jsonb", "timetz", "bit", "varbit", "inet", "cidr", "macaddr")
        ),
        *(
            (catalog(name), "string")
            for name in ("macaddr8", "pg_lsn", "xid8", "tsvector", "point", "some_future_type")
        ),
        *((users(name), "string") for name in ("citext", "ltree", "shape")),
        *((catalog("uuid"), logical("string", "uuid")), (catalog("date"), logical("int", "date"))),
        (catalog("time"), logical("long", "time-micros")),
        (catalog("timestamp"), logical("long", "local-timestamp-micros")),
        (catalog("timestamptz"), logical("long", "timestamp-micros")),
        (users("vector"), {"type": "array", "items": "float"}),
        (users("hstore"), {"type": "map", "values": ["null", "string"]}),
        (users("mood", kind="e"), "string"),
        (users("year", kind="d", base=catalog("int4")), "int"),
        (catalog("_int4", element=catalog("int4"), is_array=True), {"type": "array", "items": ["null", "int"]}),
    ],
)
def test_every_type_has_its_avro_type(pgtype: PgType, schema: object) -> None:
    assert codec_for(pgtype, -1, OPTIONS).schema == schema


def typmod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("precision", "scale", "avro"), [(12, 2, (12, 2)), (38, 10, (38, 10)), (5, -2, (7, 0)), (3, 5, (5, 5))]
)
def test_numeric_with_typmod_is_a_decimal(precision: int, scale: int, avro: tuple[int, int]) -> None:
    schema = codec_for(catalog("numeric"), typmod(precision, scale), OPTIONS).schema
    assert schema == {"type": "bytes", "logicalType": "decimal", "precision": avro[0], "scale": avro[1]}


@pytest.mark.parametrize(("precision", "scale"), [(39, 0), (1000, 10), (37, -2), (3, 39)])
def test_numeric_wider_than_spark_holds_is_a_string(precision: int, scale: int) -> None:
    assert codec_for(catalog("numeric"), typmod(precision, scale), OPTIONS).schema == "string"


def test_the_setting_makes_every_numeric_a_string() -> None:
    assert codec_for(catalog("numeric"), typmod(12, 2), TypeOptions(numeric="string")).schema == "string"


def test_a_domain_gives_its_base_its_own_typmod() -> None:
    price = users("price", kind="d", base=catalog("numeric"), base_typmod=typmod(10, 2))
    dearer = users("dearer", kind="d", base=price)
    assert codec_for(dearer, -1, OPTIONS).schema == codec_for(catalog("numeric"), typmod(10, 2), OPTIONS).schema


def test_an_array_gives_its_elements_its_typmod() -> None:
    prices = catalog("_numeric", element=catalog("numeric"), is_array=True)
    item = codec_for(catalog("numeric"), typmod(10, 2), OPTIONS).schema
    assert codec_for(prices, typmod(10, 2), OPTIONS).schema == {"type": "array", "items": ["null", item]}


def test_composites_and_ranges_have_stable_names_that_differ_by_schema() -> None:
    fields = (("street", catalog("text"), -1), ("no", catalog("int4"), -1))
    names = set()
    for schema, name in (("a", "b"), ("a_b", "c"), ("a", "b_c"), ("pg_catalog", "b_c")):
        composite = codec_for(PgType(1, schema, name, kind="c", fields=fields), -1, OPTIONS).schema
        ranged = codec_for(PgType(1, schema, name + "r", kind="r", element=catalog("int4")), -1, OPTIONS).schema
        assert isinstance(composite, dict)
        assert isinstance(ranged, dict)
        names |= {composite["name"], ranged["name"]}
    assert len(names) == 8


def test_a_users_type_with_a_known_name_is_not_the_catalogs() -> None:
    assert not has_known_binary(users("int4"))
    assert not has_known_binary(catalog("citext"))


POINT = catalog("point")


@pytest.mark.parametrize(
    "pgtype",
    [
        *(POINT, catalog("money"), users("shape"), catalog("int2vector", element=catalog("int2"), is_array=True)),
        catalog("_point", element=POINT, is_array=True),
        users("place", kind="d", base=POINT),
        users("places", kind="d", base=catalog("_point", element=POINT, is_array=True)),
        users("pin", kind="c", fields=(("id", catalog("int4"), -1), ("at", POINT, -1))),
        users("pointrange", kind="r", element=POINT),
        users("pointmultirange", kind="m", element=users("pointrange", kind="r", element=POINT)),
    ],
)
def test_one_part_of_unknown_binary_form_makes_the_whole_type_unknown(pgtype: PgType) -> None:
    assert not has_known_binary(pgtype)


@pytest.mark.parametrize(
    "pgtype",
    [
        catalog("int4"),
        users("mood", kind="e"),
        catalog("_int4", element=catalog("int4"), is_array=True),
        users("home", kind="c", fields=(("id", catalog("int4"), -1), ("at", users("mood", kind="e"), -1))),
        catalog("int4multirange", kind="m", element=catalog("int4range", kind="r", element=catalog("int4"))),
    ],
)
def test_a_type_of_known_parts_is_known(pgtype: PgType) -> None:
    assert has_known_binary(pgtype)


def test_an_unknown_types_codec_names_it() -> None:
    with pytest.raises(BinaryFormatUnsupported, match=r"shop\.shape"):
        transcode(codec_for(users("shape"), -1, OPTIONS), "binary", b"x")


def test_a_type_has_text_if_one_of_its_parts_has() -> None:
    text, int4 = catalog("text"), catalog("int4")
    options = TypeOptions(any_encoding=True)
    with_text = users("home", kind="c", fields=(("id", int4, -1), ("street", text, -1)))
    without = users("pair", kind="c", fields=(("id", int4, -1), ("at", catalog("timetz"), -1)))
    assert [codec_for(each, -1, options).has_text for each in (text, int4, with_text, without)] == [1, 0, 1, 0]


def test_every_built_in_type_is_found_by_its_oid() -> None:
    for oid, name in REGISTRY.built_in_names.items():
        found = REGISTRY.built_in_codec(oid, OPTIONS)
        assert found is not None
        assert found.schema == codec_for(catalog(name), -1, OPTIONS).schema
    assert REGISTRY.built_in_codec(70_000, OPTIONS) is None


def doubling(levels: int) -> PgType:
    """Each type has the one before twice: a few types, whose values have 2**levels parts."""
    pgtype = catalog("int4")
    for level in range(levels):
        pgtype = users(f"t{level}", kind="c", fields=(("a", pgtype, -1), ("b", pgtype, -1)))
    return pgtype


def nested(levels: int, *, kind: str) -> PgType:
    pgtype = catalog("int4")
    for level in range(levels):
        part = {"base": pgtype} if kind == "d" else {"fields": (("a", pgtype, -1),)}
        pgtype = users(f"t{level}", kind=kind, **(part if kind in "cd" else {"element": pgtype}))
    return pgtype


@pytest.mark.parametrize(
    "pgtype", [doubling(60), nested(20_000, kind="c"), nested(40, kind="r"), nested(DEPTH_MAX, kind="m")]
)
def test_a_type_of_too_many_types_is_text(pgtype: PgType) -> None:
    assert codec_for(pgtype, -1, OPTIONS).schema == "string"
    assert not has_known_binary(pgtype)
    assert codec_for(users("_t", element=pgtype, is_array=True), -1, OPTIONS).schema == "string"


def test_types_within_the_bounds_keep_their_structure() -> None:
    for pgtype in (doubling(10), nested(DEPTH_MAX - 1, kind="c")):
        assert isinstance(codec_for(pgtype, -1, OPTIONS).schema, dict)
    assert codec_for(nested(20_000, kind="d"), -1, OPTIONS).schema == "int"


def test_a_table_of_too_many_types_has_text_in_columns_that_do_not_fit() -> None:
    large, small, int4 = doubling(10), doubling(2), catalog("int4")
    columns = [(doubling(60), -1), *[(large, -1)] * 1_600, (small, -1), *[(int4, -1)] * 9_000]
    schemas = [codec.schema for codec in codecs_for(columns, OPTIONS)]
    fitting = PARTS_MAX // large.parts
    assert [isinstance(schema, dict) for schema in schemas[: fitting + 2]] == [False, *[True] * fitting, False]
    assert schemas[1:1_601].count("string") == 1_600 - fitting
    assert schemas[1_602:] == ["int"] * 9_000
