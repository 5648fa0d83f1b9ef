"""Avro names: legal, injective, and apart even for a reader that ignores case."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdcd.avro.avro_names import avro_name, field_names, namespace

IDENTIFIER = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
TRICKY = st.text(st.sampled_from("_xX5fF4\x041 a\"'.-éÉ"), min_size=1, max_size=10)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("id", "id"),
        ("createdAt", "createdAt"),
        ("it's", "it_x27_s"),
        ("2nd", "_x32_nd"),
        ("Línea %", "L_xed_nea_x20__x25_"),
        ("a_x20_b", "a_x5f_x20_b"),
        ("_", "_"),
    ],
)
def test_names_are_readable_where_they_can_be(name: str, wanted: str) -> None:
    assert avro_name(name) == wanted


@given(st.sets(IDENTIFIER | TRICKY, min_size=2, max_size=8))
def test_no_two_identifiers_share_an_avro_name(names: set[str]) -> None:
    made = {avro_name(name) for name in names}
    assert len(made) == len(names)
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) for name in made)


@given(st.lists(IDENTIFIER | TRICKY, min_size=1, max_size=8, unique=True))
def test_no_two_columns_of_a_table_differ_in_case_only(columns: list[str]) -> None:
    fields = field_names(columns)
    assert len({field.lower() for field in fields}) == len(columns)


def test_only_columns_that_clash_lose_their_capitals() -> None:
    assert field_names(["Id", "id", "createdAt"]) == ["_x49_d", "id", "createdAt"]


def test_a_namespace_keeps_schema_and_table_apart() -> None:
    assert namespace("a.b", "c") != namespace("a", "b.c")


def test_what_seems_to_start_an_escape_before_a_character_that_gets_one_is_escaped() -> None:
    assert len(set(field_names(["_x20é", " xe9_"]))) == 2


def test_a_capital_that_gets_an_escape_ends_what_seems_to_start_one() -> None:
    assert len(set(field_names(["_x4B", "_x4b", "\x04x42_"]))) == 3
