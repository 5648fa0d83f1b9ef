"""What a Relation message means: types by the catalog or by their names, and the key of a table's events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from cdcd.avro.codecs.lookup import REGISTRY, TypeOptions, codec_for
from cdcd.errors import Unpublishable
from cdcd.pgoutput import messages as m
from cdcd.source.pg_types import Attribute, PgType
from cdcd.transaction.relations import ADDED_SIZE_MAX, Relations

INT4 = PgType(23, "pg_catalog", "int4")
MOOD = PgType(70_000, "public", "mood", kind="e")


class Catalog:
    """What a server would say; counts how often it was told to forget."""

    def __init__(self, primary: tuple[str, ...] = (), index: tuple[str, ...] = ()) -> None:
        self.known = {23: INT4, 70_000: MOOD}
        self.primary = primary
        self.index = index
        self.forgotten = 0
        self.expected: list[list[int]] = []
        self.published: dict[str, bool] = {}
        self.lsn = 100
        self.attributes_now: dict[str, Attribute] = {}

    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {oid: self.known[oid] for oid in oids if oid in self.known}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return self.primary

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return self.index

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        return self.published

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return self.attributes_now

    def position(self) -> int:
        return self.lsn

    def expect(self, relation_oids: Iterable[int]) -> None:
        self.expected.append(list(relation_oids))

    def takes_requests(self, relation_oid: int) -> bool:
        return True

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


@pytest.mark.parametrize("identity", "difn")
def test_a_key_that_is_not_wholly_published_is_no_key(identity: str) -> None:
    message = announce(identity, ("a", identity != "n"), ("c", identity == "f"))
    catalog = Catalog(primary=("a", "hidden"), index=("a", "hidden"))
    catalog.published = {"a": True, "c": True, "hidden": False}
    assert key(catalog, message) == []


@pytest.mark.parametrize("identity", "di")
@pytest.mark.parametrize(
    ("now", "columns"),
    [
        (("ident", "b"), "ident b c"),  # a column was renamed
        (("id", "b", "new"), "id b c new"),  # the key has a column more, which is newer than the message
        (("tenant", "nr"), "id b c tenant nr"),  # another key, over new columns
        (("c",), "id b c"),  # another key, over columns that were there
        (("id",), "id b c"),  # a smaller key
        ((), "id b c"),  # the constraint was dropped
        ((), ""),  # the table was dropped
    ],
)
def test_the_stream_says_which_key_a_change_had_whatever_the_table_has_become(
    identity: str, now: tuple[str, ...], columns: str
) -> None:
    catalog = Catalog(primary=now, index=now)
    catalog.published = dict.fromkeys(columns.split(), True)
    assert key(catalog, announce(identity, ("id", True), ("b", True), ("c", False))) == ["id", "b"]


FULL = (("id", True), ("uid", True), ("v", True))


class Full:
    """A table with REPLICA IDENTITY FULL whose last events had the key (id)."""

    def __init__(self, *now: str, last: tuple[str, ...] = ("id",), parked: bool = False) -> None:
        self.catalog = Catalog(primary=now)
        self.catalog.published = {"id": True, "uid": True, "v": True}
        self.relations = Relations(
            self.catalog, lambda _schema, _name, oid: last if oid == 7 else (), [("s", "t")] if parked else []
        )

    def key(self, *columns: tuple[str, bool], oid: int = 7) -> tuple[str, ...]:
        message = announce("f", *(columns or FULL), oid=oid)
        relation = self.relations.resolve(message)
        self.relations.opened(message, relation, "changes")
        return relation.key

    def settled(self) -> list[tuple[str, ...]]:
        """The keys that have changed, now that the stream has come to where the catalog was asked."""
        return [relation.key for relation, _ in self.relations.settle()]


def test_the_key_of_the_table_that_had_the_name_counts_for_nothing() -> None:
    assert Full("uid").key(oid=8) == ("uid",), "its last events in Kafka are of another table"
    it = Full("uid")
    assert it.key() == ("id", "uid")
    assert it.key(oid=8) == ("uid",), "the events before it are of another table"


def test_without_a_key_now_the_last_key_holds_until_the_stream_has_come_to_now() -> None:
    table = Full()
    assert table.key() == ("id",)
    assert table.relations.settles_lsn == 100
    assert table.settled() == [()]
    assert table.relations.settles_lsn == 0


def test_a_dropped_table_keeps_its_last_key() -> None:
    table = Full()
    table.catalog.published = {}
    assert table.key() == ("id",)


def test_a_key_that_has_grown_holds_at_once() -> None:
    table = Full("id", "uid")
    assert table.key() == ("id", "uid")
    assert table.settled() == []


def test_two_keys_hold_together_until_the_stream_has_come_to_now() -> None:
    table = Full("uid")
    assert table.key() == ("id", "uid")
    assert table.settled() == [("uid",)]
    assert table.key() == ("uid",), "the last events have it"


def test_a_key_that_the_catalog_shows_too_late_holds_from_the_next_transaction_on() -> None:
    table = Full("id")
    assert table.key() == ("id",)
    table.catalog.primary = ("id", "uid")
    assert table.settled() == [("id", "uid")]


def test_a_key_that_the_message_no_longer_has_gives_way_to_that_of_now() -> None:
    table = Full("uid", last=("gone",))
    assert table.key() == ("uid",)
    assert table.settled() == []


def test_a_table_that_has_lost_its_key_column_has_no_key() -> None:
    table = Full(last=("gone",))
    assert table.key() == ()


def test_an_unknown_key_is_said_and_not_left_out() -> None:
    table = Full("ident", last=("id",))
    table.catalog.published = {"ident": True, "v": True}
    with pytest.raises(Unpublishable, match=r"had the key \(id\)") as refused:
        table.key(("mid", True), ("v", True))
    assert refused.value.table == ("s", "t")
    assert refused.value.keyless
    parked = Full("ident", last=("id",), parked=True)
    parked.catalog.published = table.catalog.published
    assert parked.key(("mid", True), ("v", True)) == ()


def test_a_relation_announced_again_is_no_longer_provisional() -> None:
    table = Full()
    table.key()
    table.catalog.primary = ("id",)
    assert table.key() == ("id",)
    assert table.settled() == []


def test_a_type_that_is_gone_is_taken_as_the_stream_named_it() -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 80_000, "public", "was_here"))
    gone = relations.resolve(announce("d", ("a", True), type_oid=80_000)).columns[0].pgtype
    assert (gone.oid, gone.qualified) == (80_000, "public.was_here")
    unnamed = relations.resolve(announce("d", ("a", True), type_oid=80_001)).columns[0].pgtype
    assert (unnamed.oid, unnamed.name) == (80_001, "type 80001")


def test_a_type_has_the_name_of_then_and_the_structure_of_now() -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 70_000, "public", "old_name"))
    found = relations.resolve(announce("d", ("a", True), type_oid=70_000)).columns[0].pgtype
    assert found == replace(MOOD, name="old_name")


def test_the_name_under_a_domain_is_not_its_name() -> None:
    catalog, price = Catalog(), PgType(70_001, "public", "price", kind="d", base=INT4)
    catalog.known[70_001] = price
    relations = Relations(catalog)
    relations.name_type(m.Type(0, 70_001, "", "int4"))
    assert relations.resolve(announce("d", ("a", True), type_oid=70_001)).columns[0].pgtype is price


@pytest.mark.parametrize("name", REGISTRY.extension_names)
def test_a_dropped_type_that_is_named_as_that_of_an_extension_is_text(name: str) -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 80_000, "public", name))
    dropped = relations.resolve(announce("d", ("a", True), type_oid=80_000)).columns[0].pgtype
    codec = codec_for(dropped, -1, TypeOptions())
    assert (codec.schema, codec.has_binary) == ("string", False)


def test_a_dropped_domain_is_the_built_in_type_under_it() -> None:
    relations = Relations(Catalog())
    relations.name_type(m.Type(0, 80_000, "", "int8"))
    dropped = relations.resolve(announce("d", ("a", True), type_oid=80_000)).columns[0].pgtype
    assert codec_for(dropped, -1, TypeOptions()).schema == "long"


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


def missing(relations: Relations, type_oid: int = 23) -> str | None:
    return relations.resolve(announce("d", ("c", False), type_oid=type_oid)).columns[0].missing_value


def test_an_added_column_has_the_default_that_older_rows_hold() -> None:
    catalog = Catalog()
    catalog.attributes_now = {"c": Attribute(3, 23, "7")}
    assert missing(Relations(catalog)) == "7"


def test_the_default_of_a_column_is_kept_though_the_catalog_has_lost_it() -> None:
    catalog = Catalog()
    relations = Relations(catalog)
    catalog.attributes_now = {"c": Attribute(3, 23, "7")}
    assert missing(relations) == "7"
    catalog.attributes_now = {"c": Attribute(3, 23, None)}
    assert missing(relations) == "7", "VACUUM FULL has written the rows anew"
    catalog.attributes_now = {}
    assert missing(relations) == "7", "the table was dropped"
    assert missing(Relations(catalog)) is None


def test_defaults_that_an_earlier_stream_has_told_are_in_kafka() -> None:
    catalog = Catalog()
    catalog.attributes_now = {"c": Attribute(3, 23, None)}
    asked = []

    def last_added(*table: object) -> dict[str, Attribute]:
        asked.append(table)
        return {"c": Attribute(3, 23, "7"), "gone": Attribute(4, 23, "8")}

    relations = Relations(catalog, last_added=last_added)
    assert missing(relations) == "7"
    assert asked == [("s", "t", 7)]
    resolved = relations.resolve(announce("d", ("c", False)))
    assert resolved.added == {"c": Attribute(3, 23, "7")}, "only the columns that are there go on"
    catalog.attributes_now = {"c": Attribute(5, 23, None)}
    assert missing(relations) is None


def test_the_defaults_of_a_table_are_bounded() -> None:
    catalog, names = Catalog(), [f"c{number}" for number in range(80)]
    catalog.attributes_now = {name: Attribute(number, 23, "x" * 1000) for number, name in enumerate(names)}
    relation = Relations(catalog).resolve(announce("d", *((name, False) for name in names)))
    known = [column.name for column in relation.columns if column.missing_value is not None]
    assert known == names[: len(known)] == list(relation.added)
    assert ADDED_SIZE_MAX - 1_010 < sum(len(name) + 1000 for name in known) <= ADDED_SIZE_MAX


def test_another_column_of_the_name_has_another_default() -> None:
    catalog = Catalog()
    relations = Relations(catalog)
    catalog.attributes_now = {"c": Attribute(3, 23, "7")}
    assert missing(relations) == "7"
    catalog.attributes_now = {"c": Attribute(4, 23, None)}
    assert missing(relations) is None
    catalog.attributes_now = {"c": Attribute(5, 23, "9")}
    assert missing(relations) == "9"
    assert missing(relations, 70_000) is None, "the stream is at a column of another type"


def test_what_was_asked_after_a_message_had_come_is_not_asked_for_again_and_what_was_asked_before_is() -> None:
    catalog = Catalog(primary=("id",))
    relations = Relations(catalog)
    for oid in (7, 8):
        relations.resolve(announce("d", ("id", True), oid=oid))
    assert catalog.forgotten == 0
    relations.expect([9, 10])
    assert catalog.forgotten == 0, "no answer about these is old"
    relations.expect([7, 9])
    assert catalog.forgotten == 1, "7 was altered: its answer, and those of its types, are old"
    relations.resolve(announce("d", ("id", True), oid=7))
    relations.resolve(announce("d", ("id", True), oid=9))
    assert catalog.forgotten == 1, "both have come before the question"
    relations.resolve(announce("d", ("id", True), oid=7))
    assert catalog.forgotten == 2, "this message has come after it"
    assert catalog.expected == [[9, 10], [7, 9]]


def test_an_answer_that_no_message_has_needed_is_not_kept_for_a_later_message() -> None:
    catalog = Catalog(primary=("id",))
    relations = Relations(catalog)
    relations.expect([7])  # for a transaction that has rolled back all its rows of the table
    relations.forget_expected()
    assert not relations.is_expected(7)
    relations.resolve(announce("d", ("id", True), oid=7))
    assert catalog.forgotten == 1
