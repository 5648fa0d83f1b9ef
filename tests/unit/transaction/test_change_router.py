"""Every change goes to its relation, in the version that is in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from support.one_table import RELATION, insert

import cdcd.transaction.change_router
from cdcd.errors import DecodeError
from cdcd.pgoutput import messages as m
from cdcd.pgoutput.encoder import encode, tuple_of
from cdcd.source.pg_types import Attribute, PgType
from cdcd.source.stream_messages import XLogData
from cdcd.transaction.change_consumer import ChangeConsumer, RelationChanges
from cdcd.transaction.change_router import BODY_AT, STREAMED_BODY_AT, ChangeRouter
from cdcd.transaction.relations import Relations, ResolvedRelation

pytestmark = pytest.mark.skipif(
    not cdcd.transaction.change_router.__file__.endswith(".py"),
    reason="a test's own classes cannot take the place of compiled ones",
)

ROW = tuple_of([b"1"])
LARGE_OID = 4_000_000_000


class Catalog:
    def types(self, oids: Iterable[int]) -> Mapping[int, PgType]:
        return {23: PgType(23, "pg_catalog", "int4")}

    def primary_key(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def identity_index(self, relation_oid: int) -> tuple[str, ...]:
        return ("id",)

    def columns(self, relation_oid: int) -> Mapping[str, bool]:
        return {}

    def attributes(self, relation_oid: int) -> Mapping[str, Attribute]:
        return {}

    def position(self) -> int:
        return 1

    def expect(self, relation_oids: Iterable[int]) -> None:
        return

    def takes_requests(self, relation_oid: int) -> bool:
        return True

    def forget(self) -> None:
        pass


class Changes(RelationChanges):
    """Writes down what it is told, under a name."""

    def __init__(self, name: str, told: list[tuple[object, ...]]) -> None:
        self.name = name
        self.told = told

    def insert(self, frame: bytes, at: int, lsn: int) -> None:
        self.told.append((self.name, "insert", frame[at:], lsn))

    def update(self, frame: bytes, at: int, lsn: int) -> None:
        self.told.append((self.name, "update", frame[at:], lsn))

    def delete(self, frame: bytes, at: int, lsn: int) -> None:
        self.told.append((self.name, "delete", frame[at:], lsn))

    def truncate(self, lsn: int, cascade: bool, restart_identity: bool) -> None:
        self.told.append((self.name, "truncate", lsn, cascade, restart_identity))


class Consumer(ChangeConsumer):
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []
        self.opened = 0

    def open_relation(self, relation: ResolvedRelation) -> RelationChanges:
        self.opened += 1
        return Changes(f"{relation.name} {self.opened}", self.told)

    def origin(self, name: str, lsn: int = 0) -> None:
        self.told.append(("origin", name))

    def message(self, prefix: str, content: bytes, transactional: bool, lsn: int) -> None:
        self.told.append(("message", prefix, content, transactional, lsn))


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


@pytest.fixture
def router(consumer: Consumer) -> ChangeRouter:
    """A router that knows table 7."""
    made = ChangeRouter(Relations(Catalog()), consumer, {})
    made.open_relation(RELATION)
    return made


def frame(message: m.Message, lsn: int = 5) -> bytes:
    return XLogData(lsn, lsn, 0, encode(message)).encode()


def test_each_kind_of_row_is_told_with_what_follows_the_oid_and_its_lsn(
    router: ChangeRouter, consumer: Consumer
) -> None:
    row = ROW.frame
    router.row(frame(m.Insert(0, 7, ROW), 5), m.INSERT, BODY_AT)
    router.row(frame(m.Update(0, 7, m.NO_OLD, None, ROW), 6), m.UPDATE, BODY_AT)
    router.row(frame(m.Delete(9, 7, m.KEY, ROW), 7), m.DELETE, STREAMED_BODY_AT)
    assert consumer.told == [
        ("t 1", "insert", b"N" + row, 5), ("t 1", "update", b"N" + row, 6), ("t 1", "delete", b"K" + row, 7),
    ]  # fmt: skip


def test_relations_may_alternate_whatever_their_oids(router: ChangeRouter, consumer: Consumer) -> None:
    router.open_relation(m.Relation(0, LARGE_OID, "public", "u", "d", RELATION.columns))
    for oid in (7, LARGE_OID, LARGE_OID, 7):
        router.row(frame(insert(1, oid)), m.INSERT, BODY_AT)
    assert [told[0] for told in consumer.told] == ["t 1", "u 2", "u 2", "t 1"]


def test_a_new_version_of_a_relation_counts_at_once(router: ChangeRouter, consumer: Consumer) -> None:
    router.row(frame(insert(1)), m.INSERT, BODY_AT)
    router.open_relation(RELATION)
    router.row(frame(insert(1)), m.INSERT, BODY_AT)
    router.put(RELATION, Changes("of another router", consumer.told))
    router.row(frame(insert(1)), m.INSERT, BODY_AT)
    assert [told[0] for told in consumer.told] == ["t 1", "t 2", "of another router"]


def test_the_relations_that_are_given_out_are_a_copy(router: ChangeRouter) -> None:
    known = router.known()
    assert list(known) == [7]
    assert router.known() is known, "prepared transactions share it"
    router.open_relation(m.Relation(0, 8, "public", "u", "d", RELATION.columns))
    assert (list(known), list(router.known())) == ([7], [7, 8])


def test_tables_that_come_and_go_under_one_name_leave_little(router: ChangeRouter, consumer: Consumer) -> None:
    for oid in range(8, 1_000):
        router.open_relation(m.Relation(0, oid, "public", "t", "d", RELATION.columns))
    open_ones = [oid for oid, changes in router.known().items() if isinstance(changes, Changes)]
    assert open_ones == [999]
    router.row(frame(insert(1, 999)), m.INSERT, BODY_AT)
    assert consumer.told[-1][0] == "t 993"


def test_a_table_lives_on_when_another_has_got_its_name_and_nothing_told_the_new_one(
    router: ChangeRouter, consumer: Consumer
) -> None:
    router.open_relation(m.Relation(0, 8, "public", "t", "d", RELATION.columns))
    for oid in (7, 8, 7):
        router.row(frame(insert(1, oid)), m.INSERT, BODY_AT)
    router.other(m.Truncate(0, (7, 8), False, False), 5)
    assert [told[0] for told in consumer.told] == ["t 3", "t 2", "t 3", "t 3", "t 2"]
    router.open_relation(m.Relation(0, 7, "public", "old", "d", RELATION.columns))
    router.row(frame(insert(1, 7)), m.INSERT, BODY_AT)
    assert consumer.told[-1][0] == "old 4"


def test_relations_that_are_given_out_hold_what_has_lost_its_name(router: ChangeRouter, consumer: Consumer) -> None:
    router.open_relation(m.Relation(0, 8, "public", "t", "d", RELATION.columns))
    replay = ChangeRouter(Relations(Catalog()), consumer, dict(router.known()))
    router.open_relation(m.Relation(0, 7, "public", "old", "d", RELATION.columns))
    replay.row(frame(insert(1, 7)), m.INSERT, BODY_AT)
    assert consumer.told[-1][0] == "t 4"


def test_a_table_that_was_renamed_stays_when_another_gets_its_name(router: ChangeRouter, consumer: Consumer) -> None:
    router.open_relation(m.Relation(0, 7, "public", "old", "d", RELATION.columns))
    router.open_relation(m.Relation(0, 8, "public", "t", "d", RELATION.columns))
    for oid in (7, 8):
        router.row(frame(insert(1, oid)), m.INSERT, BODY_AT)
    assert [told[0] for told in consumer.told] == ["old 2", "t 3"]
    router.open_relation(m.Relation(0, 8, "public", "old", "d", RELATION.columns))
    router.open_relation(m.Relation(0, 7, "public", "t", "d", RELATION.columns))
    for oid in (7, 8):
        router.row(frame(insert(1, oid)), m.INSERT, BODY_AT)
    assert [told[0] for told in consumer.told[2:]] == ["t 5", "old 4"]


def test_truncates_origins_and_messages_are_told(router: ChangeRouter, consumer: Consumer) -> None:
    router.open_relation(m.Relation(0, 8, "public", "u", "d", RELATION.columns))
    router.other(m.Truncate(0, (8, 7), True, False), 5)
    router.other(m.Origin(4, "far"), 5)
    router.other(m.LogicalMessage(0, True, 6, "p", b"x"), 5)
    assert consumer.told == [
        ("u 2", "truncate", 5, True, False), ("t 1", "truncate", 5, True, False), ("origin", "far"),
        ("message", "p", b"x", True, 6),
    ]  # fmt: skip


def test_a_change_of_a_relation_that_nothing_announced_is_an_error(router: ChangeRouter) -> None:
    wanted = f"relation OID {LARGE_OID} came before any Relation message"
    with pytest.raises(DecodeError, match=wanted):
        router.row(frame(insert(1, LARGE_OID)), m.INSERT, BODY_AT)
    with pytest.raises(DecodeError, match=wanted):
        router.other(m.Truncate(0, (7, LARGE_OID), False, False), 5)


@pytest.mark.parametrize("length", range(BODY_AT, BODY_AT + 5))
def test_a_frame_that_ends_before_the_tuple_is_an_error_that_names_the_message(
    router: ChangeRouter, length: int
) -> None:
    with pytest.raises(
        DecodeError,
        match=f"Insert: field relation_oid and tuple kind at offset 1 wants 5 bytes, got {length - BODY_AT}",
    ):
        router.row(frame(insert(1))[:length], m.INSERT, BODY_AT)
