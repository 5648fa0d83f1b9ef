import pytest

from cdcd.cli.commands.tail import TailedEvent, has_key, nearest_topic
from cdcd.cli.event_text import without_schema


@pytest.mark.parametrize(("xid", "shown"), [(0, "(0/10 #3)"), (741, "(0/10 #3 xid 741)")])
def test_a_row_of_a_snapshot_has_no_transaction(xid: int, shown: str) -> None:
    value = {"op": "r", "source": {"commit_lsn": 16, "seq": 3, "xid": xid}, "after": {"id": 1}}
    assert shown in TailedEvent("t", 0, 0, 0, {"id": 1}, value).as_text()[0]


@pytest.mark.parametrize(("xid", "shown"), [(None, "(0/10)"), (741, "(0/10 xid 741)")])
def test_an_event_of_debezium_has_the_position_of_its_change(xid: int | None, shown: str) -> None:
    source = {"lsn": 16, "txId": xid, "schema": "public", "table": "t"}
    value = {"before": None, "after": {"id": 1}, "source": source, "transaction": None, "op": "r", "ts_ms": 5}
    assert TailedEvent("t", 0, 0, 0, {"id": 1}, value).as_text() == [
        f"1970-01-01 00:00:00.000 t snapshot id=1 {shown}",
        "    after    id=1",
    ]


def test_a_truncate_of_a_shared_topic_names_its_table() -> None:
    source = {"commit_lsn": 16, "seq": 0, "xid": 7, "schema": "tenant_2", "table": "orders"}
    event = TailedEvent("t", 0, 0, 0, None, {"op": "t", "source": source, "truncate": None})
    assert event.as_text() == ["1970-01-01 00:00:00.000 t truncate tenant_2.orders (0/10 #0 xid 7)"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ({"schema": {"type": "struct"}, "payload": {"id": 1}}, {"id": 1}),
        ({"schema": "public", "payload": "p"}, {"schema": "public", "payload": "p"}),
        ({"schema": {}, "payload": 1, "more": 2}, {"schema": {}, "payload": 1, "more": 2}),
        (None, None),
        ("text", "text"),
    ],
)
def test_what_has_connects_schema_is_shown_without_it(value: object, shown: object) -> None:
    assert without_schema(value) == shown


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ("public.*", "Did you mean cdcd.public.*?"),
        ("public.orders", "Did you mean cdcd.public.orders?"),
        ("public.ordres", "Did you mean cdcd.public.orders?"),
        ("cdcd.public.ordres", "Did you mean cdcd.public.orders?"),
        ("elsewher", "Did you mean elsewhere?"),
        ("shipping.*", "cdcd creates the topic of a table with its first event"),
        ("cdcd.toml", "A file of settings goes behind --config: --config cdcd.toml"),
    ],
)
def test_a_topic_that_is_not_there_has_a_neighbour_rather_of_our_own(wanted: str, hint: str) -> None:
    there = ["public.order", "cdcd.public.orders", "cdcd.progress", "elsewhere"]
    assert nearest_topic(wanted, "cdcd", there) == hint


@pytest.mark.parametrize(
    ("key", "wanted", "is_there"),
    [
        ({"id": 7}, ["7"], True),
        ({"id": 7}, ["id=7"], True),
        ({"id": 7}, ["77"], False),
        ({"id": 7}, ["no=7"], False),
        ({"order_id": 7, "line": 2}, ["order_id=7", "line=2"], True),
        ({"order_id": 7, "line": 2}, ["7", "line=3"], False),
        ({"name": "a=b"}, ["a=b"], True),
        ({"at": True}, ["true"], True),
        ("key-1", ["key-1"], True),
        (None, ["7"], False),
        (None, ["null"], False),
    ],
)
def test_a_key_is_named_by_its_value_or_by_column_and_value(key: object, wanted: list[str], is_there: bool) -> None:
    assert has_key(key, wanted) is is_there
