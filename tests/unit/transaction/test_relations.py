"""What a Relation message means: types by the catalog or by their names, and the key of a table's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from cdcd.pgoutput import messages as m
from cdcd.source.pg_types import PgType
from cdcd.transaction.relations import Relations

INT4 = PgType(23, "pg_catalog", "int4")
MOOD = PgType(70_000, "public", "mood", kind="e")


class Catalog:
    """What a server would say; counts how often it was told to forget."""

    def __init__(self, primary: tuple[str, ...] = (), index: tuple[str, ...] = ()) -> None:
        self.known = {23: INT4, 70_000: MOOD}
        self.primary = primary
        self.index = index
        self.forgotten = 0

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {oid: self.known[oid] for oid in oids if oid in self.known}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return self.primary

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return self.index

    def forget(self) -> None:
        self.forgotten += 1


def announce(identity: str, *columns: tuple[str, bool], oid: int = 7, type_oid: int = 23) -> m.Relation:
    return m.Relation(0, oid, "s", "t", identity, tuple(m.Column(key, name, type_oid, -1) for name, key in columns))


def key(catalog: Catalog, message: m.Relation) -> list[str]:
    return [column.name for column in Relations(catalog).resolve(message).columns if column.in_key]


def test_a_relation_has_names_types_and_typmods() -> None:
    message = m.Relation(0, 7, "s", "t", "d", (m.Column(True, "id", 23, -1), m.Column(False, "m", 70_000, 9)))
    relation = Relations(Catalog(primary=("id",))).resolve(message)
    assert (relation.oid, relation.schema, relation.name, relation.identity) == (7, "s", "t", "d")
    assert [(c.name, c.pgtype, c.typmod, c.in_key) for c in relation.columns] == [
        ("id", INT4, -1, True), ("m", MOOD, 9, False),
    ]  # fmt: skip
    assert relation.has_key


@pytest.mark.parametrize(
    ("identity", "primary", "index", "flagged", "wanted"),
    [
        ("d", ("a", "b"), (), ("a", "b"), ["a", "b"]),
        ("d", (), (), (), []),
        ("d", (), (), ("a",), ["a"]),  # the primary key is gone by now, and the stream still says what it was
        ("i", ("a",), ("b",), ("b",), ["b"]),
        ("f", ("a",), (), ("a", "b", "c"), ["a"]),
        ("f", (), (), ("a", "b", "c"), []),
        ("n", ("a", "b"), (), (), ["a", "b"]),
        ("n", (), (), (), []),
    ],
)
def test_the_key_is_that_of_the_identity_or_of_the_table(
    identity: str, primary: tuple[str, ...], index: tuple[str, ...], flagged: tuple[str, ...], wanted: list[str]
) -> None:
    message = announce(identity, *((name, name in flagged) for name in "abc"))
    assert key(Catalog(primary, index), message) == wanted


@pytest.mark.parametrize("identity", "dfn")
def test_a_key_that_is_not_wholly_published_is_no_key(identity: str) -> None:
    message = announce(identity, ("a", identity != "n"), ("c", False))
    assert key(Catalog(primary=("a", "hidden")), message) == []


def test_an_identity_index_that_is_not_wholly_published_is_no_key() -> None:
    assert key(Catalog(primary=("a",), index=("a", "hidden")), announce("i", ("a", True))) == []


@pytest.mark.parametrize("identity", "di")
def test_a_key_whose_columns_were_renamed_since_is_the_key_that_the_stream_names(identity: str) -> None:
    renamed = Catalog(primary=("ident", "b"), index=("ident", "b"))
    assert key(renamed, announce(identity, ("id", True), ("b", True), ("c", False))) == ["id", "b"]


def test_a_type_that_is_gone_is_taken_as_the_stream_named_it() -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 80_000, "public", "was_here"))
    gone = relations.resolve(announce("d", ("a", True), type_oid=80_000)).columns[0].pgtype
    assert (gone.oid, gone.qualified) == (80_000, "public.was_here")
    unnamed = relations.resolve(announce("d", ("a", True), type_oid=80_001)).columns[0].pgtype
    assert (unnamed.oid, unnamed.name) == (80_001, "type 80001")


def test_what_the_catalogue_says_of_a_type_counts_more_than_its_name() -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 70_000, "public", "old_name"))
    assert relations.resolve(announce("d", ("a", True), type_oid=70_000)).columns[0].pgtype is MOOD


def test_an_empty_namespace_is_pg_catalog() -> None:
    assert Relations(Catalog()).resolve(m.Relation(0, 7, "", "t", "d", ())).schema == "pg_catalog"


def test_the_catalogue_is_asked_anew_about_a_table_that_changed() -> None:
    catalog = Catalog()
    relations = Relations(catalog)
    relations.resolve(announce("d", ("a", True)))
    relations.resolve(announce("d", ("a", True), oid=8))
    assert catalog.forgotten == 0
    relations.resolve(announce("d", ("a", True), ("b", False)))
    assert catalog.forgotten == 1


def test_a_table_without_columns_is_a_relation() -> None:
    relation = Relations(Catalog()).resolve(announce("n"))
    assert (relation.columns, relation.has_key) == ([], False)
