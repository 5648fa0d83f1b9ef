from __future__ import annotations

import pytest

from cdcd.debezium.debezium_names import adjusted_field, adjusted_name, table_name


@pytest.mark.parametrize(
    ("name", "avro", "avro_unicode"),
    [
        ("plain", "plain", "plain"),
        ("a_b", "a_b", "a_u005fb"),
        ("a-b", "a_b", "a_u002db"),
        ("a.b", "a_b", "a_u002eb"),
        ("1d", "_1d", "_u0031d"),
        ("ü", "_", "_u00fc"),
        ("😀", "__", "_ud83d_ude00"),
    ],
)
def test_a_field_gets_a_name_that_avro_allows(name: str, avro: str, avro_unicode: str) -> None:
    assert [adjusted_field(name, "none"), adjusted_field(name, "avro")] == [name, avro]
    assert adjusted_field(name, "avro_unicode") == avro_unicode


def test_a_schema_keeps_its_dots_and_the_digits_behind_them() -> None:
    name = table_name("p", "Odd-schema", "1st Täble")
    assert name == "p.Odd-schema.1st_T_ble"
    assert adjusted_name(name, "avro") == "p.Odd_schema.1st_T_ble"
    assert adjusted_name(name, "none") == name
